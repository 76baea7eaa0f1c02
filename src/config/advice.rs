//! Advises on what is allowed and most likely not meant, or known to hurt. `check` prints it; `run` logs it.

use super::{Advertise, BatchLimit, Config, Limits, SaslMechanism, size_text};
use crate::batch::{BATCH_HEADER_BYTES, ESTIMATE_OVERHEAD_BYTES, estimate};
use crate::vocabulary::{BATCHING_BYTES, Gate};

/// Values below this are cheaper where they are.
const WORTH_OFFLOADING_BYTES: u64 = 16 * 1024;

impl Config {
    /// Advice on this configuration, one sentence or two each; usually none.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        self.advise_on_address(&mut advice);
        self.advise_on_password(&mut advice);
        self.advise_on_small_batches(&mut advice);
        self.advise_on_idle_limits(&mut advice);
        self.advise_on_small_values(&mut advice);
        advice
    }

    fn advise_on_address(&self, advice: &mut Vec<String>) {
        if let Advertise::NodePorts { host, .. } = &self.listener.advertise {
            let local = host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
            if local && !self.listener.bind.ip().is_loopback() {
                advice.push(format!(
                    "listener.advertised_host is `{host}`, but listener.bind is `{}`: clients on other machines would \
                     be sent to themselves",
                    self.listener.bind
                ));
            }
        }
    }

    fn advise_on_password(&self, advice: &mut Vec<String>) {
        let plain = self
            .cluster
            .admin_sasl
            .as_ref()
            .is_some_and(|sasl| sasl.mechanism == SaslMechanism::Plain);
        if plain && self.cluster.tls.is_none() {
            advice.push(
                "cluster.admin.sasl.mechanism is `PLAIN` without cluster.tls: the password travels as it is".to_owned(),
            );
        }
    }

    /// Limits that another one of the same topic makes idle: what is over them is over that one, too.
    fn advise_on_idle_limits(&self, advice: &mut Vec<String>) {
        let base = idle_limits(&self.limits);
        for idle in &base {
            advice.push(format!("`limits` has {idle}"));
        }
        for rule in &self.rules {
            for idle in idle_limits(&rule.limits.over(&self.limits)) {
                if !base.contains(&idle) {
                    advice.push(format!("rule `{}` has {idle}", rule.name));
                }
            }
        }
    }

    /// A request to the store, a ticket of 300 bytes and a header cost more than a small value does.
    fn advise_on_small_values(&self, advice: &mut Vec<String>) {
        for rule in &self.rules {
            let above = rule.offload.as_ref().map(|offload| offload.above_bytes);
            if let Some(above) = above.filter(|above| *above < WORTH_OFFLOADING_BYTES) {
                advice.push(format!(
                    "rule `{}` offloads values above {}: below {} a request to the store costs more than the value does \
                     in Kafka",
                    rule.name,
                    size_text(above),
                    size_text(WORTH_OFFLOADING_BYTES)
                ));
            }
        }
    }

    fn advise_on_small_batches(&self, advice: &mut Vec<String>) {
        let limits = self
            .rules
            .iter()
            .map(|rule| (format!("rule `{}`", rule.name), &rule.limits));
        for (of, limits) in std::iter::once(("`limits`".to_owned(), &self.limits)).chain(limits) {
            let small = match limits.batch_bytes {
                Some(BatchLimit::Bytes(bytes)) if bytes < BATCHING_BYTES => bytes,
                _ => continue,
            };
            advice.push(format!(
                "{of} has batch_bytes {}: librdkafka, franz-go, kafka-go and sarama gather up to about 1 MiB in a batch \
                 and lose all of it when it is refused; record_bytes refuses large records without that",
                size_text(small)
            ));
        }
    }
}

/// Bytes of a magic-2 record around key, value and headers, at least and at most: its length, attributes, timestamp
/// delta, offset delta (`DefaultRecord`).
const LEAST_AROUND_BYTES: u64 = 1 + 1 + 1 + 1;
const MOST_AROUND_BYTES: u64 = 5 + 1 + 10 + 5;
/// The gate `ratio` looks at batches above this uncompressed size only.
const RATIO_FROM_BYTES: u64 = 1024 * 1024;

/// Each limit of which it can be calculated that whatever is over it is over another one as well: what it is set to, and
/// why it never is what refuses.
fn idle_limits(limits: &Limits) -> Vec<String> {
    let of = |gate: Gate| {
        let mut inside = limits.inside();
        inside
            .find(|(set, _)| *set == gate)
            .and_then(|(_, limit)| limit.number())
    };
    let ratio = limits.ratio.and_then(|ratio| ratio.number());
    let batch = match limits.batch_bytes {
        Some(BatchLimit::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let mut idle = Vec::new();
    let mut compare = |gate: Gate, smallest_above: &dyn Fn(u64) -> u64, other: Gate| {
        if let (Some(limit), Some(bound)) = (of(gate), of(other))
            && smallest_above(limit) > bound
        {
            idle.push(format!(
                "{} {}, which can never be what refuses: whatever is larger is above {} {} as well",
                gate.limit_key(),
                size_text(limit),
                other.limit_key(),
                size_text(bound)
            ));
        }
    };
    let above = |limit: u64| limit.saturating_add(1);
    let with_part = |limit: u64| smallest_record_with_part(above(limit));
    let with_headers = |limit: u64| smallest_record_with_headers(above(limit));
    // The largest record that is not above the limit, in the smallest batch.
    compare(
        Gate::Record,
        &|limit| above(limit).saturating_add(BATCH_HEADER_BYTES as u64),
        Gate::Uncompressed,
    );
    compare(
        Gate::Record,
        &|limit| {
            let inside = above(limit).saturating_sub(MOST_AROUND_BYTES);
            inside.saturating_add(ESTIMATE_OVERHEAD_BYTES)
        },
        Gate::Estimate,
    );
    compare(
        Gate::Estimate,
        &|limit| {
            let inside = above(limit).saturating_sub(ESTIMATE_OVERHEAD_BYTES);
            inside.saturating_add(LEAST_AROUND_BYTES)
        },
        Gate::Record,
    );
    for part in [Gate::Key, Gate::Value] {
        compare(part, &with_part, Gate::Record);
        compare(
            part,
            &|limit| with_part(limit).saturating_add(BATCH_HEADER_BYTES as u64),
            Gate::Uncompressed,
        );
        compare(
            part,
            &|limit| estimate_of_part(above(limit)),
            Gate::Estimate,
        );
    }
    compare(Gate::Headers, &with_headers, Gate::Record);
    compare(
        Gate::Headers,
        &|limit| with_headers(limit).saturating_add(BATCH_HEADER_BYTES as u64),
        Gate::Uncompressed,
    );
    if let (Some(uncompressed), Some(batch), Some(ratio)) = (of(Gate::Uncompressed), batch, ratio) {
        // No batch that passes the others is larger.
        let most = ((batch as f64 * ratio) as u64).max(RATIO_FROM_BYTES);
        if uncompressed >= most {
            idle.push(format!(
                "uncompressed_bytes {}, which can never be what refuses: a batch within batch_bytes {} and ratio {ratio} has \
                 at most {}",
                size_text(uncompressed),
                size_text(batch),
                size_text(most)
            ));
        }
    }
    idle
}

/// Of the records whose key, or whose value, has so many bytes, the smallest: nothing else is in it.
fn smallest_record_with_part(part_bytes: u64) -> u64 {
    // Attributes, deltas, the part with its length, the other one is null, no headers.
    const AROUND: u64 = 1 + 1 + 1 + 1 + 1;
    with_length(with_length(part_bytes).saturating_add(AROUND))
}

/// As [`smallest_record_with_part`], of headers: all in the value of one that has no name.
fn smallest_record_with_headers(headers_bytes: u64) -> u64 {
    // Attributes, deltas, no key, no value, one header, its empty name.
    const BEFORE: u64 = 1 + 1 + 1 + 1 + 1 + 1 + 1;
    with_length(with_length(headers_bytes).saturating_add(BEFORE))
}

/// Java's estimate of the smallest record with such a key or value.
fn estimate_of_part(part_bytes: u64) -> u64 {
    // The other part is null, no headers.
    estimate(with_length(part_bytes).saturating_add(1 + 1))
}

/// So many bytes with their length before them.
fn with_length(bytes: u64) -> u64 {
    bytes.saturating_add(varint_bytes(bytes))
}

/// A length as records have it: zigzag, seven bits a byte.
const fn varint_bytes(length: u64) -> u64 {
    let bits = 64u32.saturating_sub(length.saturating_mul(2).leading_zeros()) as u64;
    if bits == 0 { 1 } else { bits.div_ceil(7) }
}

#[cfg(test)]
mod tests {
    fn idle(limits: &str) -> Vec<String> {
        let yaml = format!("cluster: {{bootstrap_servers: [kafka:9092]}}\nlimits: {limits}\n");
        let file = tempfile(&yaml);
        let config = crate::config::load(
            Some(&file),
            &crate::config::Overrides::default(),
            &crate::config::Env::new(),
        );
        let _ = std::fs::remove_file(&file);
        let advice = config.unwrap().advice().into_iter();
        advice
            .filter(|advice| advice.contains("can never be what refuses"))
            .collect()
    }

    fn tempfile(text: &str) -> std::path::PathBuf {
        let name = format!("sizegate-advice-{}.yaml", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// One byte decides: at the first of the two limits a size that is over it alone exists, at the second none does.
    #[test]
    fn a_limit_that_never_refuses_is_advised_on_and_one_that_does_is_not() {
        for (gate, needed, idle_from, other) in [
            // A record of 939 bytes makes a batch of 1,000.
            ("record_bytes", 938, 939, "uncompressed_bytes: 1000"),
            // Length 2, attributes, deltas, length 2, 991 bytes, no key, no headers: 1,000.
            ("value_bytes", 990, 991, "record_bytes: 1000"),
            ("key_bytes", 990, 991, "record_bytes: 1000"),
            // Length 2, attributes, deltas, no key, no value, one header, no name, length 2: 989 left of 1,000.
            ("headers_bytes", 988, 989, "record_bytes: 1000"),
            ("value_bytes", 929, 930, "uncompressed_bytes: 1000"),
            // 61 and 21, length 2, no key, no headers: 914 left of 1,000.
            ("value_bytes", 913, 914, "estimate_bytes: 1000"),
        ] {
            let at = |limit: u64| idle(&format!("{{{gate}: {limit}, {other}}}"));
            assert_eq!(at(needed), Vec::<String>::new(), "{gate} {other}");
            let told = at(idle_from);
            assert_eq!(told.len(), 1, "{gate} {other}: {told:?}");
            assert!(told[0].contains(gate), "{told:?}");
        }
    }

    #[test]
    fn what_ratio_and_batch_allow_bounds_the_uncompressed_limit() {
        let of = |bytes: u64| {
            idle(&format!(
                "{{batch_bytes: 200000, ratio: 10, uncompressed_bytes: {bytes}}}"
            ))
        };
        assert_eq!(of(1_999_999), Vec::<String>::new());
        assert_eq!(of(2_000_000).len(), 1);
    }

    /// A record above 65,536 is estimated at 65,598 at least; one estimated above 65,613 has more than 65,536.
    #[test]
    fn limits_that_go_together_are_not_advised_on() {
        assert_eq!(
            idle(
                "{record_bytes: 64KiB, value_bytes: 60KiB, key_bytes: 1KiB, headers_bytes: 8KiB, uncompressed_bytes: 4MiB, estimate_bytes: 65600}"
            ),
            Vec::<String>::new()
        );
    }
}
