//! A real chain of topics: an application of Spring Kafka whose listener always fails, with four retry topics and a
//! dead-letter topic, against a real broker through the proxy. Each failure adds a stack trace to the headers.

use std::process::Command;
use std::time::Duration;

use crate::support::programs::Running;
use crate::support::{KAFKA_VERSIONS, Kafka, KafkaOptions, Program, Sizegate, eventually, unique};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);
/// The keys of the large record and of the small one behind it.
const LARGE: &str = "k-0123456789";
const SMALL: &str = "k-small";

/// The topics of one application.
struct Chain<'a> {
    kafka: &'a Kafka,
    main: String,
}

impl Chain<'static> {
    fn new() -> Self {
        Chain::on(Kafka::shared(KAFKA_VERSIONS[1]))
    }
}

impl<'a> Chain<'a> {
    fn on(kafka: &'a Kafka) -> Self {
        let chain = Self {
            kafka,
            main: unique("notes"),
        };
        kafka.create_topic(&chain.main, 1, 1, &[]);
        for member in chain.members() {
            kafka.create_topic(&member, 1, 1, &[]);
        }
        chain
    }

    fn retry(&self, n: usize) -> String {
        format!("{}-retry-{n}", self.main)
    }

    fn dead_letters(&self) -> String {
        format!("{}-dlt", self.main)
    }

    fn members(&self) -> Vec<String> {
        let retries = (0..4).map(|n| self.retry(n));
        retries.chain([self.dead_letters()]).collect()
    }

    fn family(&self) -> String {
        format!(
            "families: {{members: [{{main: {}, retry: ['{{main}}-retry-*'], dead_letter: ['{{main}}-dlt'], \
             writer_max_request_size: 10000000}}]}}\n",
            self.main
        )
    }

    /// Gives every member this limit.
    fn raise(&self, max_message_bytes: &str) {
        for member in self.members() {
            let change = [("max.message.bytes", Some(max_message_bytes))];
            self.kafka.alter_topic_config(&member, &change);
        }
    }

    /// Runs `sizegate align --apply`: whatever the main topic takes, its members then take with headroom.
    fn align(&self) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sizegate.yaml");
        let bootstrap = self.kafka.bootstrap();
        let config = format!(
            "cluster: {{bootstrap_servers: ['{bootstrap}']}}\n{}",
            self.family()
        );
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .args(["align", "--apply", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn application(&self, sizegate: &Sizegate, args: &[(&str, &str)]) -> Running {
        let program = Program::java_with("SpringChain", "4.3.0", "spring")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &self.main)
            .limit(PATIENCE);
        let with_args = args
            .iter()
            .fold(program, |program, (key, value)| program.arg(key, value));
        with_args.spawn()
    }
}

fn is(line: &Value, event: &str, key: &str) -> bool {
    line["event"] == event && line["key"] == key
}

/// Waits until something was said of a record at a topic.
fn said(application: &Running, event: &str, key: &str, topic: &str) -> Value {
    application.line(&format!("{event} {key} at {topic}"), |line| {
        is(line, event, key) && line["topic"] == topic
    })
}

fn text(line: &Value) -> &str {
    line["text"].as_str().unwrap_or_default()
}

/// Both records arrive among the dead letters.
fn both_arrive(application: &Running, chain: &Chain<'_>) -> Value {
    let large = said(application, "dead_letter", LARGE, &chain.dead_letters());
    said(application, "dead_letter", SMALL, &chain.dead_letters());
    assert_eq!(chain.kafka.latest_offset(&chain.dead_letters(), 0), 2);
    large
}

/// The large record is delivered again and again, nothing behind it is, and no dead letter is stored.
fn is_stuck_at(application: &Running, chain: &Chain<'_>, topic: &str) {
    let failures = |key: &str| {
        let lines = application.lines();
        let failed = lines
            .iter()
            .filter(|line| is(line, "failed", key) && line["topic"] == topic);
        failed.count()
    };
    let before = failures(LARGE);
    eventually(PATIENCE, "it is delivered again and again", || {
        (failures(LARGE) >= before + 5).then_some(())
    });
    assert_eq!(failures(SMALL), 0, "the record behind it waits");
    assert_eq!(chain.kafka.latest_offset(&chain.dead_letters(), 0), 0);
}

#[test]
fn a_record_that_fits_its_main_topic_fails_five_times_and_its_dead_letter_blocks_the_partition() {
    // A broker of its own: among the families that all tests leave on a shared one, the log names only the first.
    let kafka = Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::default());
    let chain = Chain::on(&kafka);
    let sizegate = Sizegate::start(chain.kafka, "");
    // The family is detected, and said not to fit, before anything happens.
    known(&sizegate, &chain);
    for member in chain.members() {
        let pair = [("main", &*chain.main), ("member", &*member)];
        let metrics = sizegate.metrics();
        // What their writer takes is not known: 27 bytes more than the topics lack.
        assert_eq!(metrics.sum("family_gap_bytes", &pair), 65_563.0, "{member}");
        assert_eq!(metrics.sum("family_aligned", &pair), 0.0);
    }
    let line = sizegate.log_line(&["may not fit", &chain.dead_letters(), "detected"]);
    assert!(line.contains("it lacks 65,536 bytes; raise"), "{line}");
    let application = chain.application(&sizegate, &[("bytes", "1000000")]);
    application.line("it passes", |line| is(line, "sent", LARGE));
    let mut headers = 0;
    for topic in [chain.main.clone()]
        .into_iter()
        .chain((0..4).map(|n| chain.retry(n)))
    {
        let failed = said(&application, "failed", LARGE, &topic);
        let more = failed["headers_bytes"].as_u64().unwrap();
        assert!(topic == chain.main || more > headers + 9_000, "{failed}");
        headers = more;
    }
    let refused = said(&application, "refused", LARGE, &chain.dead_letters());
    let told = text(&refused);
    assert!(
        told.starts_with(&format!("sizegate refused {}-0: ", chain.dead_letters())),
        "{told}"
    );
    assert!(
        told.contains(
            "limit of 1,048,588 that the topic inherits from the broker's message.max.bytes"
        ) && told.contains(" Its headers are 5"),
        "{told}"
    );
    is_stuck_at(&application, &chain, &chain.retry(3));
    chain.align();
    let arrived = both_arrive(&application, &chain);
    assert_eq!(arrived["value_bytes"], 1_000_000);
    // What is left is its writer: this one takes 10,000,000 bytes, which nobody has said.
    eventually(PATIENCE, "the topics fit", || {
        let families = sizegate.json("/api/v1/families");
        let families = families["families"].as_array()?;
        let family = families
            .iter()
            .find(|family| family["main"] == *chain.main)?;
        let members = family["members"].as_array()?;
        let fits = |member: &Value| {
            let gates = member["gates"].as_array().unwrap();
            let lacking = gates.iter().filter(|gap| gap["gap_bytes"] != 0);
            lacking
                .map(|gap| gap["holder"].as_str().unwrap())
                .eq(["writer"])
        };
        members.iter().all(fits).then_some(())
    });
}

/// Issue 10, F1: topics are aligned, and the recoverer's producer is as Spring makes it.
#[test]
fn a_recoverer_at_its_default_never_gets_what_it_would_refuse() {
    let default = ("writer-max-request-size", "default");
    let at_default = |family: &str| family.replace(", writer_max_request_size: 10000000", "");
    let watched = |family: &str| at_default(family).replace("}]}", ", alignment: warn}]}");
    // Nobody keeps the main topic down: its fifth failure is one that the recoverer itself refuses, for ever.
    let chain = Chain::new();
    chain.align();
    let sizegate = Sizegate::start(chain.kafka, &watched(&chain.family()));
    known(&sizegate, &chain);
    sizegate.log_line(&["may not fit", &chain.dead_letters(), "its writer takes"]);
    let application = chain.application(&sizegate, &[("bytes", "1000000"), default]);
    application.line("it passes", |line| is(line, "sent", LARGE));
    let refused = said(&application, "refused", LARGE, &chain.dead_letters());
    assert!(
        text(&refused).contains("which is the value of the max.request.size configuration"),
        "{refused}"
    );
    is_stuck_at(&application, &chain, &chain.retry(3));
    drop(application);
    // What is said to mend it, mends it.
    let application = chain.application(&sizegate, &[("bytes", "1000000")]);
    said(&application, "dead_letter", LARGE, &chain.dead_letters());
    drop(application);

    // The writer's default counts: the producer is told at the first send, nothing is stuck.
    let chain = Chain::new();
    chain.align();
    let sizegate = Sizegate::start(chain.kafka, &at_default(&chain.family()));
    known(&sizegate, &chain);
    let application = chain.application(&sizegate, &[("bytes", "1000000"), default]);
    let told = application.line("it is told", |line| is(line, "told", LARGE));
    assert!(
        text(&told).contains("more than the estimate limit of 983,040 kept for the family member")
            && text(&told).contains("whose writer takes 1,048,576 (max.request.size) less 65,536"),
        "{told}"
    );
    for topic in chain.members().iter().chain([&chain.main]) {
        assert_eq!(chain.kafka.latest_offset(topic, 0), 0, "{topic}");
    }
    drop(application);
    // The largest that passes: 99 bytes of estimate beside its value; and all of its failures fit.
    let application = chain.application(&sizegate, &[("bytes", "982941"), default]);
    let arrived = both_arrive(&application, &chain);
    assert_eq!(arrived["value_bytes"], 982_941);
}

#[test]
fn with_alignment_enforced_the_producer_is_told_at_the_first_send() {
    let chain = Chain::new();
    let sizegate = Sizegate::start(chain.kafka, &chain.family());
    known(&sizegate, &chain);
    let application = chain.application(&sizegate, &[("bytes", "1000000")]);
    let told = application.line("it is told", |line| is(line, "told", LARGE));
    assert_eq!(told["exception"], "RecordTooLargeException", "{told}");
    let numbers = "more than the batch limit of 983,052 kept for the family member";
    assert!(
        text(&told).contains(numbers)
            && text(&told).contains("which takes 1,048,588 less 65,536 of headroom (by "),
        "{told}"
    );
    for topic in chain.members().iter().chain([&chain.main]) {
        assert_eq!(chain.kafka.latest_offset(topic, 0), 0, "{topic}");
    }
    chain.align();
    both_arrive(&application, &chain);
}

#[test]
fn a_dead_letter_written_without_compression_is_the_same_trap_and_has_the_same_ways_out() {
    let sent = [
        ("bytes", "1880000"),
        ("content", "json"),
        ("compression", "gzip"),
    ];
    // Nothing is done: it passes as gzip, and its first retry does not.
    let chain = Chain::new();
    let sizegate = Sizegate::start(
        chain.kafka,
        &chain.family().replace("}]}", ", alignment: warn}]}"),
    );
    known(&sizegate, &chain);
    let application = chain.application(&sizegate, &sent);
    application.line("it passes", |line| is(line, "sent", LARGE));
    let refused = said(&application, "refused", LARGE, &chain.retry(0));
    assert!(
        text(&refused).contains("It is not compressed (codec=none).")
            && text(&refused).contains(&format!(
                "Batches on its main topic \"{}\" come with gzip: write here with that compression.type too",
                chain.main
            )),
        "{refused}"
    );
    is_stuck_at(&application, &chain, &chain.main);
    chain.raise("2000000");
    let arrived = both_arrive(&application, &chain);
    assert_eq!(arrived["value_bytes"], 1_880_000);
    drop(application);

    // It is known that dead letters are written uncompressed: then that size counts, and the producer is told.
    let chain = Chain::new();
    let rules = format!(
        "rules: [{{name: dead-letters, topics: ['{}-*'], limits: {{uncompressed_bytes: 1048588}}}}]\n",
        chain.main
    );
    let sizegate = Sizegate::start(chain.kafka, &format!("{rules}{}", chain.family()));
    known(&sizegate, &chain);
    let application = chain.application(&sizegate, &sent);
    let told = application.line("it is told", |line| is(line, "told", LARGE));
    assert!(
        text(&told).contains("bytes uncompressed, more than the uncompressed limit of 983,052 kept for the family member"),
        "{told}"
    );
    assert_eq!(chain.kafka.latest_offset(&chain.main, 0), 0);
}

/// Waits until the proxy knows the family with its limits.
fn known(sizegate: &Sizegate, chain: &Chain<'_>) {
    eventually(PATIENCE, "the family is known", || {
        let families = sizegate.json("/api/v1/families");
        let families = families["families"].as_array()?;
        let family = families
            .iter()
            .find(|family| family["main"] == *chain.main)?;
        let members = family["members"].as_array()?;
        let is_read = |member: &Value| !member["aligned"].is_null();
        (members.len() == 5 && members.iter().all(is_read)).then_some(())
    });
}
