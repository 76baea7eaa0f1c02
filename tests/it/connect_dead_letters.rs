//! Kafka Connect as it comes, with a dead-letter topic: what its producer of dead letters would refuse by itself never
//! enters the topic that it reads.

use std::time::Duration;

use crate::support::programs::{properties, worker_properties};
use crate::support::{Kafka, Program, Sizegate, Topic, command, eventually};

const PATIENCE: Duration = Duration::from_secs(300);
const VERSION: &str = "4.3.0";

/// A topic that a connector reads, and its dead-letter topic.
struct Pair {
    main: Topic,
    dead: Topic,
}

impl Pair {
    fn new(kafka: &Kafka, stem: &str) -> Self {
        let main = kafka.topic(stem, 1, &[]);
        let dead = kafka.create_topic(&format!("{}-dlq", main.name), 1, 1, &[]);
        Self { main, dead }
    }

    fn family(&self, more: &str) -> String {
        format!(
            "    - {{main: {}, dead_letter: [{}]{more}}}\n",
            self.main.name, self.dead.name
        )
    }
}

/// Sends noise, which no JSON converter reads: of these sizes, one after the other. What became of each.
fn send(bootstrap: &str, topic: &Topic, values: &str) -> Vec<serde_json::Value> {
    let output = Program::java("SendSizes", VERSION)
        .arg("bootstrap", bootstrap)
        .arg("topic", &topic.name)
        .arg("values", values)
        .arg("p.max.request.size", 10_000_000)
        .run();
    let count = values.split(',').count();
    output.lines.into_iter().take(count).collect()
}

/// Issue 10, F1, with topics that `align` has aligned. Three connectors in one worker: one whose topic nobody keeps down,
/// one whose family is enforced as it is by default, one whose producer was given what `check` says it needs.
#[test]
fn connect_drops_no_dead_letter_that_its_own_producer_would_refuse() {
    let kafka = Kafka::shared(VERSION);
    let [watched, kept, raised] = ["watched", "kept", "raised"].map(|stem| Pair::new(kafka, stem));
    let families = format!(
        "families:\n  detect: false\n  members:\n{}{}{}",
        watched.family(", alignment: warn"),
        kept.family(""),
        raised.family(", writer_max_request_size: 1114139"),
    );
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n{families}",
        kafka.bootstrap()
    );
    let aligned = command::sizegate(&["align", "--apply"], &yaml);
    assert_eq!(aligned.code, 0, "{aligned:?}");
    let sizegate = Sizegate::start(kafka, &families);
    eventually(PATIENCE, "the families are known", || {
        let found = sizegate.json("/api/v1/families");
        let fits = found["families"].as_array()?.iter().map(|family| {
            let member = &family["members"][0];
            (!member["aligned"].is_null() && member["gates"][0]["gap_bytes"] == 0).then_some(())
        });
        (found["families"].as_array()?.len() == 3 && fits.clone().all(|fit| fit.is_some()))
            .then_some(())
    });

    let worker = Program::java_main(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        VERSION,
        "connect",
    );
    let dir = worker.dir().to_path_buf();
    let json = "org.apache.kafka.connect.json.JsonConverter";
    let config = worker_properties(&dir, VERSION, &sizegate.bootstrap(), json);
    let sink = |pair: &Pair, more: &[&str]| {
        let mut lines = vec![
            format!("name={}", pair.main.name),
            "connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector".into(),
            "tasks.max=1".into(),
            format!("file={}", dir.join(&pair.main.name).display()),
            format!("topics={}", pair.main.name),
            "errors.tolerance=all".into(),
            format!("errors.deadletterqueue.topic.name={}", pair.dead.name),
            "errors.deadletterqueue.topic.replication.factor=1".into(),
            "errors.deadletterqueue.context.headers.enable=true".into(),
            "consumer.override.auto.offset.reset=earliest".into(),
        ];
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        properties(&dir, &pair.main.name, &lines)
    };
    let running = worker
        .raw_arg(config)
        .raw_arg(sink(&watched, &[]))
        .raw_arg(sink(&kept, &[]))
        .raw_arg(sink(
            &raised,
            &["producer.override.max.request.size=1114139"],
        ))
        .spawn();
    let arrived = |pair: &Pair| {
        assert!(running.is_running(), "{}", running.last_words());
        kafka.latest_offset(&pair.dead.name, 0)
    };

    // 1,048,300 fits every topic; with Connect's headers it is more than its producer takes.
    let through = sizegate.bootstrap();
    let large = send(&through, &watched.main, "1048300,100");
    assert!(large.iter().all(|line| line["ok"] == true), "{large:?}");
    // Largest, by the writer's default less headroom, with 87 bytes of estimate beside the value.
    let most = 1_048_576 - 65_536 - 87;
    let sent = send(
        &through,
        &kept.main,
        &format!("1048300,{},{most},100", most + 1),
    );
    for refused in &sent[..2] {
        let text = refused["text"].as_str().unwrap_or_default();
        assert!(
            refused["ok"] == false
                && text.contains("whose writer takes 1,048,576 (max.request.size) less 65,536"),
            "told at once: {refused}"
        );
    }
    assert!(sent[2..].iter().all(|line| line["ok"] == true), "{sent:?}");
    // Followed: what `check` asks for is enough for the largest that the topic takes.
    let large = send(&through, &raised.main, "1048516,100");
    assert!(large.iter().all(|line| line["ok"] == true), "{large:?}");

    eventually(
        PATIENCE,
        "all that was taken is among the dead letters",
        || (arrived(&kept) == 2 && arrived(&raised) == 2).then_some(()),
    );
    // Where nobody keeps it, the small one arrives and the large one is gone: this is what the others are spared.
    eventually(PATIENCE, "the small one behind it", || {
        (arrived(&watched) >= 1).then_some(())
    });
    eventually(
        PATIENCE,
        "Connect says so in its log, and nowhere else",
        || {
            let said = running.last_words();
            let log = std::fs::read_to_string(dir.join("stderr")).unwrap_or_default();
            (said.contains("RecordTooLargeException") || log.contains("RecordTooLargeException"))
                .then_some(())
        },
    );
    assert_eq!(arrived(&watched), 1);
}
