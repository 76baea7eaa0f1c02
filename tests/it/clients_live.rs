//! Who is to blame, as users of real clients see it: five records in one batch, the middle one too large, through
//! sizegate to a real broker. What each client makes of the same response stands in README.md's client table; here
//! it is held to that.

use std::sync::OnceLock;

use crate::support::programs::Output;
use crate::support::{Kafka, Program, Sizegate, Topic};
use serde_json::Value;

/// `guilty*`: one record may have 2,000 bytes. `large*`: 20,000, more than a Java producer's usual `batch.size`.
/// `whole*`: a batch may have 2,000 bytes.
const RULES: &str = r#"
rules:
  - {name: guilty, topics: ["guilty*"], limits: {batch_bytes: none, record_bytes: 2000}}
  - {name: large, topics: ["large*"], limits: {batch_bytes: none, record_bytes: 20000}}
  - {name: whole, topics: ["whole*"], limits: {batch_bytes: 2000}}
"#;

/// Values of the five records: the middle one is too large for `guilty*`.
const ONE_GUILTY: &str = "100,100,3000,100,100";
/// No record is too large for `whole*`; together they are.
const NONE_GUILTY: &str = "500,500,500,500,500";
/// Both, with the beginning of the topic's name.
const BOTH: [(&str, &str); 2] = [("guilty", ONE_GUILTY), ("whole", NONE_GUILTY)];

fn pair() -> (&'static Kafka, &'static Sizegate) {
    static PROXY: OnceLock<Sizegate> = OnceLock::new();
    let kafka = Kafka::shared("4.3.0");
    (kafka, PROXY.get_or_init(|| Sizegate::start(kafka, RULES)))
}

fn topic(stem: &str) -> Topic {
    pair().0.topic(stem, 2, &[])
}

fn run(program: Program, topic: &Topic, values: &str) -> Output {
    program
        .arg("bootstrap", pair().1.bootstrap())
        .arg("topic", &topic.name)
        .arg("values", values)
        .arg("together", true)
        .run()
}

/// All five in one batch: the producer lingers until it is flushed.
fn java(version: &str, topic: &Topic, values: &str) -> Output {
    let program = Program::java("SendSizes", version)
        .arg("p.linger.ms", 10_000)
        .arg("then", 100);
    run(program, topic, values)
}

/// One record before and two after with the same producer, the first for the sake of its state.
fn python(client: &str, idempotent: bool, topic: &Topic, values: &str) -> Output {
    let program = Program::python("produce.py")
        .arg("client", client)
        .arg("idempotent", idempotent)
        .arg("linger", 2_000)
        .arg("first", 100)
        .arg("then", "100,100");
    run(program, topic, values)
}

/// The same for each, at once: what takes time is that a Python client lingers before each record.
fn at_once<T: Sync>(cases: &[T], hold: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let hold = &hold;
            scope.spawn(move || hold(case));
        }
    });
}

/// The lines about records, in the order of the records.
fn records(output: &Output) -> Vec<&Value> {
    let mut lines: Vec<&Value> = output
        .lines
        .iter()
        .filter(|line| line.get("record").is_some())
        .collect();
    lines.sort_by_key(|line| line["record"].as_i64());
    lines
}

/// What became of each record: `+` delivered, `-` not. Checks that the broker stores as many as were delivered.
fn fates(output: &Output, topic: &Topic) -> String {
    let fates: String = records(output)
        .iter()
        .map(|line| if line["ok"] == true { '+' } else { '-' })
        .collect();
    let delivered = fates.matches('+').count() as i64;
    assert_eq!(
        pair().0.latest_offset(&topic.name, 0),
        delivered,
        "stored, of {fates}"
    );
    fates
}

/// Class and text of each failure.
fn failures(output: &Output) -> Vec<(&str, &str)> {
    records(output)
        .iter()
        .filter(|line| line["ok"] == false)
        .map(|line| {
            (
                line["exception"].as_str().unwrap(),
                line["text"].as_str().unwrap(),
            )
        })
        .collect()
}

fn refused(topic: &Topic) -> f64 {
    let labels = [("topic", topic.name.as_str()), ("verdict", "refused")];
    pair().1.metrics().sum("produce_batches_total", &labels)
}

fn loops(topic: &Topic) -> f64 {
    let labels = [("topic", topic.name.as_str())];
    pair().1.metrics().sum("refusal_loops_total", &labels)
}

fn our_text(topic: &Topic) -> String {
    format!("sizegate refused {}-0: ", topic.name)
}

/// Whatever the client shows, the log and `/api/v1/refusals` have the text.
fn is_in_log_and_api(topic: &Topic) {
    let sizegate = pair().1;
    sizegate.log_line(&[&our_text(topic), "error_code=10"]);
    let (status, body) = sizegate.get(&format!("/api/v1/refusals?topic={}", topic.name));
    assert!(status == 200 && body.contains(&our_text(topic)), "{body}");
}

/// Every failed record bears `exception`, and none of our text.
fn all_say_only(output: &Output, exception: &str, words: &str) {
    for (class, text) in failures(output) {
        assert_eq!(class, exception);
        assert!(text.contains(words) && !text.contains("sizegate"), "{text}");
    }
}

#[test]
fn java_3_9_is_freed_at_the_second_refusal_from_splitting_a_batch_into_itself() {
    for ((stem, values), gate) in BOTH.into_iter().zip(["gate=record", "gate=batch"]) {
        let topic = topic(&format!("{stem}-java39"));
        let output = java("3.9.1", &topic, values);
        // It cannot be helped: it never makes the batch smaller.
        assert_eq!(fates(&output, &topic), "-----+");
        for (class, text) in failures(&output) {
            assert_eq!(class, "InvalidRecordException");
            assert!(text.starts_with(&our_text(&topic)), "{text}");
            assert!(text.contains(gate), "{text}");
        }
        assert_eq!((refused(&topic), loops(&topic)), (2.0, 1.0));
        is_in_log_and_api(&topic);
        let ended = pair().1.log_line(&[&our_text(&topic), "is_loop=true"]);
        assert!(ended.contains("error_code=87"), "{ended}");
        assert!(ended.contains("The client keeps sending it"), "{ended}");
    }
}

#[test]
fn java_3_9_with_a_limit_above_its_batch_size_loses_only_the_guilty_record() {
    let topic = topic("large-java39");
    let program = Program::java("SendSizes", "3.9.1")
        .arg("p.linger.ms", 10_000)
        .arg("p.batch.size", 16_384)
        .arg("then", 100);
    let output = run(program, &topic, "100,100,30000,100,100");
    assert_eq!(fates(&output, &topic), "++-+++");
    let (class, text) = failures(&output)[0];
    assert_eq!(class, "RecordTooLargeException");
    assert!(text.starts_with(&our_text(&topic)), "{text}");
    assert_eq!((refused(&topic), loops(&topic)), (1.0, 0.0));
    is_in_log_and_api(&topic);
}

#[test]
fn java_4_3_delivers_all_four_innocents_and_shows_our_text_for_the_guilty_one() {
    let guilty = topic("guilty-java43");
    let output = java("4.3.0", &guilty, ONE_GUILTY);
    assert_eq!(fates(&output, &guilty), "++-+++");
    let (class, text) = failures(&output)[0];
    assert_eq!(class, "RecordTooLargeException");
    assert!(
        text.starts_with(&format!(
            "{}record 1 of 1 is 3,009 bytes",
            our_text(&guilty)
        )),
        "{text}"
    );
    assert_eq!(loops(&guilty), 0.0);
    is_in_log_and_api(&guilty);

    let whole = topic("whole-java43");
    let output = java("4.3.0", &whole, NONE_GUILTY);
    assert_eq!(fates(&output, &whole), "++++++");
    assert!(refused(&whole) >= 1.0);
    assert_eq!(loops(&whole), 0.0);
}

#[test]
fn librdkafka_loses_the_batch_without_our_text_and_works_afterwards() {
    for idempotent in [false, true] {
        for (stem, values) in BOTH {
            let topic = topic(&format!("{stem}-librdkafka"));
            let output = python("confluent", idempotent, &topic, values);
            assert_eq!(fates(&output, &topic), "+-----++");
            all_say_only(&output, "KafkaException", "MSG_SIZE_TOO_LARGE,val=10");
            assert_eq!((refused(&topic), loops(&topic)), (1.0, 0.0));
            is_in_log_and_api(&topic);
        }
    }
}

#[test]
fn kafka_python_delivers_all_innocents_unless_it_is_idempotent_then_it_is_dead() {
    let fates_of = [(false, "+++-++++"), (true, "+++-----")];
    at_once(&fates_of, |&(idempotent, expected)| {
        let guilty = topic("guilty-kafkapython");
        let output = python("kafka-python", idempotent, &guilty, ONE_GUILTY);
        assert_eq!(fates(&output, &guilty), expected);
        for (class, text) in failures(&output) {
            assert_eq!(class, "MessageSizeTooLargeError");
            assert!(text.contains(&our_text(&guilty)), "{text}");
        }
        is_in_log_and_api(&guilty);

        let whole = topic("whole-kafkapython");
        let output = python("kafka-python", idempotent, &whole, NONE_GUILTY);
        assert_eq!(fates(&output, &whole), "++++++++");
        assert!(refused(&whole) >= 1.0);
    });
}

#[test]
fn aiokafka_loses_the_batch_and_if_idempotent_everything_after_it() {
    let fates_of = [(false, "+-----++"), (true, "+-------")];
    at_once(&fates_of, |&(idempotent, expected)| {
        at_once(&BOTH, |&(stem, values)| {
            let topic = topic(&format!("{stem}-aiokafka"));
            let output = python("aiokafka", idempotent, &topic, values);
            assert_eq!(fates(&output, &topic), expected);
            let failures = failures(&output);
            for (class, text) in &failures[..5] {
                assert_eq!(*class, "MessageSizeTooLargeError");
                assert!(!text.contains("sizegate"), "Produce v7 has no text: {text}");
            }
            for (class, _) in &failures[5..] {
                assert_eq!(*class, "OutOfOrderSequenceNumber");
            }
            is_in_log_and_api(&topic);
        });
    });
}

#[test]
fn kafkajs_loses_the_whole_send_and_if_idempotent_says_ok_of_a_record_that_is_not_stored() {
    let send = |topic: &Topic, idempotent: bool, sends: &str| {
        Program::node("kafkajs.js")
            .arg("bootstrap", pair().1.bootstrap())
            .arg("topic", &topic.name)
            .arg("sends", sends)
            .arg("idempotent", idempotent)
            .run()
    };
    for (stem, sends) in [
        ("guilty", "0:100,0:100,0:3000,0:100,0:100;0:100"),
        ("whole", "0:500,0:500,0:500,0:500,0:500;0:100"),
    ] {
        let topic = topic(&format!("{stem}-kafkajs"));
        let output = send(&topic, false, sends);
        let refused = output.only("send", 0);
        assert_eq!(refused["code"], 10);
        let text = refused["text"].as_str().unwrap();
        assert!(!text.contains("sizegate"), "Produce v7 has no text: {text}");
        assert_eq!(output.only("send", 1)["ok"], true);
        assert_eq!(pair().0.latest_offset(&topic.name, 0), 1);
        is_in_log_and_api(&topic);
    }

    // Of the second send, partition 0 was accepted. kafkajs takes all of it for failed and uses the sequence
    // numbers of partition 0 again: the broker takes the third send for a repetition.
    let two = topic("guilty-kafkajs");
    let output = send(&two, true, "0:100,1:100;0:100,1:3000;0:100");
    let fates = [0, 1, 2].map(|n| output.only("send", n)["ok"].clone());
    assert_eq!(fates, [true, false, true]);
    assert_eq!(
        pair().0.latest_offset(&two.name, 0),
        2,
        "the first and the second send's"
    );
    assert_eq!(pair().0.latest_offset(&two.name, 1), 1);
}

#[test]
fn franz_go_and_sarama_lose_the_batch_without_our_text_and_work_afterwards() {
    for (program, class, words) in [
        ("franz", "*fmt.wrapError", "MESSAGE_TOO_LARGE"),
        ("sarama", "sarama.KError", "Message was too large"),
    ] {
        for (stem, values) in BOTH {
            let topic = topic(&format!("{stem}-{program}"));
            let output = run(Program::go(program).arg("then", 100), &topic, values);
            assert_eq!(fates(&output, &topic), "-----+");
            all_say_only(&output, class, words);
            assert_eq!((refused(&topic), loops(&topic)), (1.0, 0.0));
            is_in_log_and_api(&topic);
        }
    }
}
