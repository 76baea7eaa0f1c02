//! What is concluded from a batch's largest sizes is what inspecting the batch finds.

use std::ops::ControlFlow;

use proptest::prelude::*;
use sizegate::batch::{BatchHeader, walk_records};
use sizegate::inspect::{DeepLimits, Effort, Judgement, Measures};
use sizegate::vocabulary::Codec;

use super::make::{Record, batch, look, records, text, value};

fn measured(content: &[Record]) -> Measures {
    let bytes = records(content);
    let mut measures = Measures::default();
    let walked = walk_records(&bytes, content.len() as u32, |sizes| {
        measures.record(sizes);
        ControlFlow::Continue(())
    });
    assert_eq!(walked, Ok(ControlFlow::Continue(())));
    measures.uncompressed_bytes = 61 + bytes.len() as u64;
    measures
}

fn assert_agree(codec: Codec, content: &[Record], limits: &DeepLimits, share: f64) {
    let batch = batch(codec, content);
    let header = BatchHeader::read(&batch).unwrap();
    let effort = Effort::VERDICT.noticing_near(share);
    let found = look(&batch, limits, effort);
    let concluded = measured(content).within(&header, limits, effort);
    match (concluded, found.finding) {
        (Some(concluded), Judgement::Within) => {
            assert_eq!(concluded.finding, Judgement::Within);
            assert_eq!(concluded.near, found.near, "{limits:?}");
        }
        (None, Judgement::Over(_)) => {}
        other => panic!("{other:?} by {limits:?}"),
    }
}

fn some_record() -> impl Strategy<Value = Record> {
    let key = proptest::option::of(0usize..60);
    let headers = proptest::collection::vec(0usize..40, 0..3);
    (key, 0usize..3_000, headers).prop_map(|(key, value_bytes, headers)| Record {
        key: key.map(|bytes| text(1, bytes)),
        headers: headers
            .into_iter()
            .map(|bytes| (b"name".to_vec(), Some(text(2, bytes))))
            .collect(),
        ..value(text(3, value_bytes))
    })
}

/// None, or about as much as there is.
fn some_limit(about: std::ops::Range<u64>) -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(about)
}

proptest! {
    #[test]
    fn measures_say_what_inspecting_finds(
        content in proptest::collection::vec(some_record(), 1..6),
        codec in proptest::sample::select(Codec::ALL),
        (record, estimate, value) in (some_limit(1..6_000), some_limit(60..6_100), some_limit(1..6_000)),
        (key, headers, uncompressed) in (some_limit(1..90), some_limit(1..120), some_limit(61..20_000)),
    ) {
        let limits = DeepLimits {
            record_bytes: record,
            estimate_bytes: estimate,
            value_bytes: value,
            key_bytes: key,
            headers_bytes: headers,
            uncompressed_bytes: uncompressed,
            ..DeepLimits::NONE
        };
        assert_agree(codec, &content, &limits, 0.75);
    }
}

#[test]
fn a_ratio_is_compared_by_the_bytes_on_the_wire() {
    let content = [value(text(1, 3_000_000))];
    for codec in [Codec::Lz4, Codec::Zstd] {
        let wire_bytes = batch(codec, &content).len() as f64;
        let ratio = measured(&content).uncompressed_bytes as f64 / wire_bytes;
        for factor in [0.9, 0.999, 1.001, 1.3, 1.5] {
            let limits = DeepLimits {
                ratio: Some(ratio * factor),
                ..DeepLimits::NONE
            };
            assert_agree(codec, &content, &limits, 0.75);
        }
    }
}

#[test]
fn of_a_batch_that_the_broker_writes_again_nothing_is_concluded() {
    let content = [value(text(1, 100))];
    let batch = batch(Codec::Lz4, &content);
    let header = BatchHeader::read(&batch).unwrap();
    let limits = DeepLimits {
        record_bytes: Some(1_000_000),
        is_rewritten: true,
        ..DeepLimits::NONE
    };
    let concluded = measured(&content).within(&header, &limits, Effort::VERDICT);
    assert_eq!(concluded, None);
}
