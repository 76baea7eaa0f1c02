//! The histograms of sizes in a text of Prometheus' format: `/metrics` of a running proxy, or a file of it.
//!
//! Invariant: what is not a bucket of a known histogram with a topic is passed over; series that differ only in
//! other labels (replicas: `instance`, `pod`) are added up.

use crate::text::first_chars;
use std::collections::BTreeMap;

/// What was measured of one topic.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Measured {
    /// `batch_wire_bytes`
    pub batch: Histogram,
    /// `record_bytes`
    pub record: Histogram,
    /// `batch_uncompressed_bytes`
    pub uncompressed: Histogram,
}

/// How many sizes were at most so many bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Histogram {
    /// By inclusive upper bound.
    pub at_most: BTreeMap<u64, f64>,
    /// All of them (`le="+Inf"`).
    pub count: f64,
}

/// Why a text holds nothing to go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}` is no sample of Prometheus' text format")]
pub(super) struct NoSample {
    line: usize,
    text: String,
}

/// By topic.
///
/// # Errors
/// A line that begins like one of our histograms and cannot be read.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Measured>, NoSample> {
    let mut topics = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let histogram: fn(&mut Measured) -> &mut Histogram = match line.split('{').next() {
            Some("sizegate_batch_wire_bytes_bucket") => |measured| &mut measured.batch,
            Some("sizegate_record_bytes_bucket") => |measured| &mut measured.record,
            Some("sizegate_batch_uncompressed_bytes_bucket") => {
                |measured| &mut measured.uncompressed
            }
            _ => continue,
        };
        let bucket = bucket(line).ok_or_else(|| NoSample {
            line: number,
            text: first_chars(line, 200).to_owned(),
        })?;
        let measured: &mut Measured = topics.entry(bucket.topic).or_default();
        let histogram = histogram(measured);
        match bucket.bound {
            Some(bytes) => *histogram.at_most.entry(bytes).or_default() += bucket.count,
            None => histogram.count += bucket.count,
        }
    }
    for measured in topics.values_mut() {
        for histogram in [
            &mut measured.batch,
            &mut measured.record,
            &mut measured.uncompressed,
        ] {
            // With no bound but `+Inf` (`histograms: few`) nothing is known of sizes.
            if histogram.at_most.is_empty() {
                histogram.count = 0.0;
            }
        }
    }
    Ok(topics)
}

struct Bucket {
    topic: String,
    /// `None` is `+Inf`.
    bound: Option<u64>,
    count: f64,
}

fn bucket(line: &str) -> Option<Bucket> {
    let (_, rest) = line.split_once('{')?;
    let (mut topic, mut bound) = (None, None);
    let mut rest = rest.trim_start();
    while !rest.starts_with('}') {
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        match name.trim() {
            "topic" => topic = Some(value),
            "le" => bound = Some(value),
            _ => {}
        }
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    // A timestamp may follow the value.
    let count: f64 = rest
        .strip_prefix('}')?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    let bound = match bound?.as_str() {
        "+Inf" => None,
        bytes => Some(bytes.parse::<f64>().ok().filter(|bytes| *bytes >= 0.0)? as u64),
    };
    (count.is_finite() && count >= 0.0).then_some(Bucket {
        topic: topic?,
        bound,
        count,
    })
}

/// A label's value up to its closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some((value, chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_read_by_topic_and_replicas_are_added_up() {
        let text = r#"# HELP sizegate_record_bytes Encoded bytes.
# TYPE sizegate_record_bytes histogram
sizegate_record_bytes_bucket{topic="orders",le="256"} 3
sizegate_record_bytes_bucket{topic="orders",le="+Inf"} 4
sizegate_record_bytes_bucket{instance="b:9644", topic="orders", le="256.0",} 5 1700000000000
sizegate_record_bytes_bucket{instance="b:9644",topic="orders",le="+Inf"} 5
sizegate_batch_wire_bytes_bucket{topic="a\"}\\ \n",le="1.048576e+06"} 1
sizegate_record_bytes_sum{topic="orders"} 99
go_goroutines 12
"#;
        let topics = read(text).unwrap();
        assert_eq!(topics.len(), 2);
        assert_eq!(
            topics["orders"].record,
            Histogram {
                at_most: [(256, 8.0)].into(),
                count: 9.0
            }
        );
        assert_eq!(topics["a\"}\\ \n"].batch.at_most, [(1_048_576, 1.0)].into());
    }

    #[test]
    fn what_is_no_sample_is_named_with_its_line() {
        for line in [
            r#"sizegate_record_bytes_bucket{topic="orders",le="256"}"#,
            r#"sizegate_record_bytes_bucket{topic="orders",le="256" 3"#,
            r#"sizegate_record_bytes_bucket{topic="orders"} 3"#,
            r#"sizegate_record_bytes_bucket{le="256"} 3"#,
            r#"sizegate_record_bytes_bucket{topic="orders",le="256"} NaN"#,
            r#"sizegate_record_bytes_bucket{topic="orders",le="x"} 3"#,
            r#"sizegate_record_bytes_bucket{topic="ord"#,
            "sizegate_record_bytes_bucket",
        ] {
            let error = read(&format!("x 1\n{line}\n")).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2: ") && error.contains(line),
                "{error}"
            );
        }
    }
}
