//! The worked example, `config/libraryd.yaml` as it is shipped: its acceptance steps with a real Java producer,
//! and beside each what the same event meets without sizegate.

use std::time::Duration;

use crate::support::programs::Output;
use crate::support::{Kafka, KafkaOptions, Program, Sizegate, eventually};

const VERSION: &str = "4.3.0";
const PATIENCE: Duration = Duration::from_secs(60);
const EVENTS: &str = "library.events";
/// The agreement: an event is at most 64 KiB serialised.
const AGREED: usize = 64 << 10;

/// Sends events of these sizes, one by one, with the producer's defaults and what `more` sets.
fn send(bootstrap: &str, values: &str, content: &str, more: &[(&str, &str)]) -> Output {
    let mut program = Program::java("SendSizes", VERSION)
        .arg("bootstrap", bootstrap)
        .arg("topic", EVENTS)
        .arg("values", values)
        .arg("content", content);
    for (key, value) in more {
        program = program.arg(&format!("p.{key}"), value);
    }
    program.run()
}

/// The text of the only failure.
fn refusal(output: &Output) -> &str {
    let failed = output.only("ok", false);
    assert_eq!(failed["exception"], "RecordTooLargeException", "{failed}");
    failed["text"].as_str().unwrap()
}

/// It is our refusal, with the rule's remedy and `facts` in its tail.
fn assert_ours(text: &str, facts: &str) {
    assert!(
        text.starts_with("sizegate refused library.events-0: "),
        "{text}"
    );
    for words in [
        "put the document in the object store and its address in the event.",
        facts,
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

#[test]
fn the_worked_example_holds_producers_to_what_was_agreed() {
    let kafka = Kafka::start(VERSION, KafkaOptions::default());
    for topic in [EVENTS, "library.events-retry-1", "library.events-dlt"] {
        kafka.create_topic(topic, 1, 1, &[]);
    }
    let sizegate = Sizegate::before(&kafka.bootstrap())
        .file("config/libraryd.yaml")
        .start();
    eventually(PATIENCE, "the family is known", || {
        let families = sizegate.json("/api/v1/families");
        let member = &families["families"][0]["members"][0];
        (member["aligned"] == false).then_some(())
    });
    let (direct, guarded) = (kafka.bootstrap(), sizegate.bootstrap());
    let stored = || kafka.latest_offset(EVENTS, 0);
    let large_requests = ("max.request.size", "16777216");

    // Just under, exactly, and just over.
    let sizes = format!("{},{AGREED},{}", AGREED - 1, AGREED + 1);
    let output = send(&guarded, &sizes, "random", &[]);
    let fates: Vec<bool> = output.lines[..3]
        .iter()
        .map(|line| line["ok"] == true)
        .collect();
    assert_eq!(fates, [true, true, false], "{output:?}");
    let text = refusal(&output);
    assert_ours(
        text,
        "[gate=value size_bytes=65537 limit_bytes=65536 source=rule rule=library-events ",
    );
    assert_eq!(stored(), 2);
    send(&direct, &sizes, "random", &[]);
    assert_eq!(stored(), 5, "without sizegate nobody minds");

    // Over the broker's: the producer itself, and one that would let it go.
    let over = 1_100_000;
    let output = send(&guarded, &over.to_string(), "random", &[]);
    let text = refusal(&output);
    assert!(
        text.contains("the max.request.size configuration"),
        "{text}"
    );
    assert_eq!(output.lines[0]["local"], true);
    let output = send(&guarded, &over.to_string(), "random", &[large_requests]);
    // The cheapest gate that refuses is named: the batch alone is too large for the broker, and its dead letter was
    // before.
    assert_ours(
        refusal(&output),
        "[gate=batch size_bytes=1100074 limit_bytes=983052 source=family member=library.events-dlt headroom_bytes=65536 ",
    );
    let output = send(&direct, &over.to_string(), "random", &[large_requests]);
    assert!(!refusal(&output).contains("sizegate"), "the broker's own");
    assert_eq!(stored(), 5);

    // Passes only compressed, and is over before.
    let squeezed = [large_requests, ("compression.type", "zstd")];
    let output = send(&direct, &over.to_string(), "a", &[large_requests]);
    assert!(!refusal(&output).contains("sizegate"), "the broker's own");
    send(&direct, &over.to_string(), "a", &squeezed).only("ok", true);
    assert_eq!(stored(), 6, "without sizegate it passes");
    let output = send(&guarded, &over.to_string(), "a", &squeezed);
    let text = refusal(&output);
    // Its size stands before it, and is told to the byte.
    assert_ours(
        text,
        "[gate=value size_bytes=1100000 limit_bytes=65536 source=rule rule=library-events ",
    );
    assert!(text.contains("codec=zstd"), "{text}");
    assert_eq!(stored(), 6);

    let violations = |gate| {
        let labels = [("topic", EVENTS), ("gate", gate), ("action", "reject")];
        sizegate.metrics().sum("violations_total", &labels)
    };
    assert_eq!((violations("value"), violations("batch")), (2.0, 1.0));
}
