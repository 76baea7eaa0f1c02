//! The gates inside a batch, as a client meets them: each with its numbers, bombs included, and what cannot be read.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::inspect::make::{COMPRESSED, Record, batch_of, compress, records, seal, text, value};
use crate::support::scripted::Broker;
use crate::support::{Answer, Connection, Inside, Part};
use bytes::Bytes;
use sizegate::policy::Codec;

const TOPICS: [(&str, i32, u64); 3] = [
    ("deep", 4, 200_000_000),
    ("free", 4, 200_000_000),
    ("bombed", 4, 200_000_000),
];

fn part(broker: &Broker, topic: &str, batch: Vec<u8>) -> Part {
    Part::new(&broker.topic(topic), Bytes::from(batch))
}

fn send(connection: &mut Connection, broker: &Broker, topic: &str, batch: Vec<u8>) -> Answer {
    connection
        .produce(9, -1, &[part(broker, topic, batch)])
        .remove(0)
}

/// Sets a flag when it goes.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Refused by size, with these words in its text.
fn assert_refused(answer: &Answer, words: &str) {
    let text = answer.text.as_deref().unwrap_or_default();
    assert_eq!(answer.code, 10, "{answer:?}");
    assert!(text.contains(words), "{words}: {text}");
}

#[test]
fn every_gate_inside_a_batch_passes_its_limit_and_refuses_one_byte_more_with_its_numbers() {
    let broker = Broker::sound(&TOPICS);
    let header = |value: usize| vec![(b"name".to_vec(), Some(text(9, value)))];
    let record = |key: usize, value: usize, headers: usize| Record {
        key: Some(text(1, key)),
        value: Some(text(2, value)),
        headers: header(headers),
    };
    let at = |grown: [usize; 3]| record(100 + grown[0], 1_000 + grown[1], 50 + grown[2]);
    let limited = [value("first"), at([0, 0, 0]), value("last")];
    let bytes = crate::inspect::make::encode(&limited[1], 1).len();
    let whole = records(&limited).len() + 61;
    // Java's: 61 and 21 and the content with its lengths.
    let estimate = 61 + 21 + (2 + 100) + (2 + 1_000) + 1 + (1 + 4 + 1 + 50);
    for (gate, limit, grown) in [
        ("record", bytes, [0, 1, 0]),
        ("estimate", estimate, [0, 1, 0]),
        ("key", 100, [1, 0, 0]),
        ("value", 1_000, [0, 1, 0]),
        ("headers", 54, [0, 0, 1]),
        ("uncompressed", whole, [0, 1, 0]),
    ] {
        let yaml = format!(
            "rules: [{{name: r, topics: [deep], error_code: MESSAGE_TOO_LARGE, limits: {{{gate}_bytes: {limit}}}}}]"
        );
        let proxy = Inside::start(&broker, &[], &yaml);
        let mut connection = proxy.connect();
        let over = [value("first"), at(grown), value("last")];
        for &codec in Codec::ALL {
            let answer = send(
                &mut connection,
                &broker,
                "deep",
                crate::inspect::make::batch(codec, &limited),
            );
            assert_eq!(answer.code, 0, "{gate} {codec}: {answer:?}");
            let answer = send(
                &mut connection,
                &broker,
                "deep",
                crate::inspect::make::batch(codec, &over),
            );
            // A decode stops at the limit and one byte more.
            let is_exact = gate != "uncompressed" || codec == Codec::None;
            let size = if is_exact {
                "size_bytes"
            } else {
                "at_least_bytes"
            };
            let numbers = format!(
                "[gate={gate} {size}={} limit_bytes={limit} source=rule",
                limit + 1
            );
            assert_refused(&answer, &numbers);
            if gate != "uncompressed" {
                assert_refused(&answer, " 2 of 3 ");
                assert_refused(&answer, " record=2 ");
            }
            let answer = send(
                &mut connection,
                &broker,
                "free",
                crate::inspect::make::batch(codec, &over),
            );
            assert_eq!(answer.code, 0, "{gate} {codec}: {answer:?}");
        }
    }
}

/// A batch of one record of zeros with so many bytes uncompressed.
fn zeros(codec: Codec, uncompressed: usize) -> Vec<u8> {
    // Of a value that is a little smaller: its length varints may be, too.
    let near = uncompressed - 80;
    let around = 61 + records(&[value(vec![0; near])]).len() - near;
    let content = [value(vec![0; uncompressed - around])];
    assert_eq!(61 + records(&content).len(), uncompressed);
    crate::inspect::make::batch(codec, &content)
}

#[test]
fn a_ratio_is_passed_at_its_limit_and_refused_one_byte_above_it_and_small_batches_have_none() {
    let broker = Broker::sound(&TOPICS);
    for codec in COMPRESSED {
        // Two sizes that take the same bytes on the wire.
        let same = |bytes: &usize| zeros(codec, *bytes).len() == zeros(codec, bytes + 1).len();
        let bytes = (2_000_000..2_000_100).find(same).expect("the same");
        let wire = zeros(codec, bytes).len();
        // A limit that allows these bytes and not one more, whatever the last digit is rounded to.
        let limit = format!("{:.6}", (bytes as f64 + 0.5) / wire as f64);
        let yaml = format!("rules: [{{name: r, topics: [deep], limits: {{ratio: {limit}}}}}]");
        let proxy = Inside::start(&broker, &[], &yaml);
        let mut connection = proxy.connect();
        let mut sent = |bytes| send(&mut connection, &broker, "deep", zeros(codec, bytes));
        let answer = sent(bytes);
        assert_eq!(answer.code, 0, "{codec} {bytes} {limit}: {answer:?}");
        let answer = sent(bytes + 1);
        assert_refused(&answer, "[gate=ratio ");
        assert_refused(&answer, &format!(" codec={codec} records=1 "));
        // Up to 1 MiB the limit does not count, however well a batch compresses.
        let yaml = "rules: [{name: r, topics: [deep], limits: {ratio: 2}}]";
        let proxy = Inside::start(&broker, &[], yaml);
        let mut connection = proxy.connect();
        let mut sent = |bytes| send(&mut connection, &broker, "deep", zeros(codec, bytes));
        assert_eq!(sent(1 << 20).code, 0, "{codec}");
        assert_refused(&sent((1 << 20) + 1), "[gate=ratio ");
    }
}

#[test]
fn a_batch_too_long_to_decode_on_its_sessions_turn_is_judged_all_the_same() {
    let broker = Broker::sound(&TOPICS);
    let yaml = "rules: [{name: r, topics: [deep], error_code: MESSAGE_TOO_LARGE, limits: {record_bytes: 100000}}]";
    let proxy = Inside::start(&broker, &[], yaml);
    let mut connection = proxy.connect();
    let content: Vec<Record> = (0..40).map(|n| value(text(n, 99_000))).collect();
    let mut over = content.clone();
    over[37] = value(text(7, 100_001));
    for codec in COMPRESSED {
        for _ in 0..2 {
            let answer = send(
                &mut connection,
                &broker,
                "deep",
                crate::inspect::make::batch(codec, &content),
            );
            assert_eq!(answer.code, 0, "{codec}: {answer:?}");
            let answer = send(
                &mut connection,
                &broker,
                "deep",
                crate::inspect::make::batch(codec, &over),
            );
            assert_refused(&answer, "record 38 of 40 is 100,0");
        }
    }
    // In the order in which they were asked, although some took longer.
    let sent: Vec<i32> = (0..20)
        .map(|n| {
            let batch = match n % 3 {
                0 => crate::inspect::make::batch(Codec::Gzip, &content),
                1 => crate::inspect::make::batch(Codec::Zstd, &over),
                _ => crate::inspect::make::batch(Codec::None, &[value("small")]),
            };
            connection.send_produce(9, -1, &[part(&broker, "deep", batch)])
        })
        .collect();
    for (n, correlation) in sent.into_iter().enumerate() {
        let (answered, answers) = connection.receive_produce(9).unwrap();
        assert_eq!(answered, correlation);
        assert_eq!(answers[0].code, if n % 3 == 1 { 10 } else { 0 }, "{n}");
    }
}

#[test]
fn bombs_from_many_connections_are_answered_by_gate_and_numbers_and_a_neighbour_is_served() {
    const BUDGET: usize = 64 << 20;
    let broker = Broker::sound(&TOPICS);
    let yaml = "memory: {budget: 64MiB}\n\
        rules: [{name: r, topics: [bombed], limits: {uncompressed_bytes: 16MiB}}]";
    let proxy = Inside::start(&broker, &["frame_bytes: 60MiB"], yaml);
    let bombs = crate::inspect::bomb::small_bombs()
        .map(|(codec, payload)| (codec, batch_of(codec, &payload, 1)));
    let is_over = AtomicBool::new(false);
    let explode = |codec: Codec, batch: &[u8]| {
        let mut connection = proxy.connect();
        let answer = send(&mut connection, &broker, "bombed", batch.to_vec());
        assert_refused(&answer, "[gate=uncompressed at_least_bytes=");
        assert_refused(&answer, " limit_bytes=16777216 source=rule rule=r ");
        assert_refused(&answer, &format!(" codec={codec} records=1 "));
        // The connection that sent it is of use again.
        let small = crate::inspect::make::batch(Codec::None, &[value("small")]);
        assert_eq!(send(&mut connection, &broker, "bombed", small).code, 0);
    };
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut connection = proxy.connect();
            let (mut served, mut held) = (0, 0);
            // Also where all bombs were answered before this thread had its turn.
            while !is_over.load(Ordering::Relaxed) || served < 10 {
                let batch = crate::inspect::make::batch(Codec::Lz4, &[value(text(served, 5_000))]);
                // Or it was starved for as long as a connection waits; latency is the bench's.
                assert_eq!(send(&mut connection, &broker, "bombed", batch).code, 0);
                served += 1;
                held = held.max(proxy.shared.budget.held_bytes());
                thread::sleep(Duration::from_millis(2));
            }
            held
        });
        // Also where an assertion fails.
        let neighbour_ends = OnDrop(&is_over);
        let (explode, bombs) = (&explode, &bombs);
        thread::scope(|scope| {
            for n in 0..64 {
                // Mostly zstd: those are the smallest, the others are megabytes of their own.
                let (codec, batch) = &bombs[if n % 8 == 0 { n / 8 % 3 } else { 1 }];
                scope.spawn(move || explode(*codec, batch));
            }
        });
        drop(neighbour_ends);
        let held = neighbour.join().unwrap();
        assert!(held <= 2 * BUDGET, "{held} bytes held");
    });
    proxy.wait_until_nothing_is_held();
}

#[test]
fn what_cannot_be_read_is_refused_where_a_limit_needs_it_and_a_wrong_checksum_goes_on() {
    let broker = Broker::sound(&TOPICS);
    let yaml = "rules: [{name: r, topics: [deep], limits: {record_bytes: 1000}}]";
    let proxy = Inside::start(&broker, &[], yaml);
    let mut connection = proxy.connect();
    let content = records(&[value(text(1, 5_000))]);
    for codec in COMPRESSED {
        let mut payload = compress(codec, &content);
        let half = payload.len() / 2;
        payload.truncate(half);
        let cut = batch_of(codec, &payload, 1);
        let answer = send(&mut connection, &broker, "deep", cut.clone());
        let text = answer.text.clone().unwrap_or_default();
        // Enough of it may be readable to see that it is too large.
        if answer.code == 87 {
            assert!(
                text.contains("cannot be decoded (codec="),
                "{codec}: {text}"
            );
            assert_eq!(answer.record_errors, [(0, None)], "{codec}");
        } else {
            assert_refused(&answer, "[gate=record at_least_bytes=");
        }
        assert_eq!(
            send(&mut connection, &broker, "free", cut.clone()).code,
            0,
            "{codec}"
        );
        // The broker sees to it: this one takes everything.
        let mut wrong = cut;
        wrong[17] ^= 1;
        assert_eq!(
            send(&mut connection, &broker, "deep", wrong).code,
            0,
            "{codec}"
        );
    }
    let mut unknown = crate::inspect::make::batch(Codec::None, &[value("x")]);
    for id in 5..=7 {
        unknown[22] = id;
        seal(&mut unknown);
        let answer = send(&mut connection, &broker, "deep", unknown.clone());
        assert_eq!(answer.code, 87, "{answer:?}");
        assert_eq!(
            send(&mut connection, &broker, "free", unknown.clone()).code,
            0
        );
    }
    let rubbish = batch_of(Codec::Zstd, b"rubbish", 1);
    assert_eq!(send(&mut connection, &broker, "deep", rubbish).code, 87);
}
