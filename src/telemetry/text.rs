//! Prometheus' text format (0.0.4), written straight from the cells: a thousand topics have 150,000 lines of
//! histograms, for which no tree of messages is built first.
//!
//! Invariant: a family is one block under its `HELP` and `TYPE`, and a label value cannot end its quotes.

use std::fmt::Write;

use super::counters::Snapshot;
use crate::count::Count as _;

/// Every metric name begins with this and an underscore.
pub(super) const NAMESPACE: &str = "sizegate";

/// Name, help, labels in the order of their values.
pub(super) type Spec = (&'static str, &'static str, &'static [&'static str]);

/// One family while its samples are gathered.
pub(super) struct Family {
    spec: Spec,
    kind: &'static str,
    samples: String,
}

impl Family {
    pub(super) fn counters(spec: Spec) -> Self {
        Self::new(spec, "counter")
    }

    pub(super) fn gauges(spec: Spec) -> Self {
        Self::new(spec, "gauge")
    }

    pub(super) fn histograms(spec: Spec) -> Self {
        Self::new(spec, "histogram")
    }

    fn new(spec: Spec, kind: &'static str) -> Self {
        Self {
            spec,
            kind,
            samples: String::new(),
        }
    }

    pub(super) fn counter_if_used(&mut self, values: &[&str], count: u64) {
        if count > 0 {
            self.counter(values, count);
        }
    }

    pub(super) fn counter(&mut self, values: &[&str], count: u64) {
        self.series("", values);
        put(&mut self.samples, format_args!(" {count}\n"));
    }

    pub(super) fn gauge(&mut self, values: &[&str], value: f64) {
        self.series("", values);
        if value == f64::NEG_INFINITY {
            put(&mut self.samples, format_args!(" -Inf\n"));
        } else {
            put(&mut self.samples, format_args!(" {value}\n"));
        }
    }

    /// All buckets. Nothing, when nothing was counted.
    pub(super) fn histogram(&mut self, values: &[&str], snapshot: &Snapshot) {
        self.histogram_in(values, snapshot, |_| true);
    }

    /// The buckets whose bounds `is_shown`, and always that of all.
    pub(super) fn histogram_in(
        &mut self,
        values: &[&str],
        snapshot: &Snapshot,
        is_shown: impl Fn(f64) -> bool,
    ) {
        if snapshot.count == 0 {
            return;
        }
        let mut bucket = String::new();
        put(
            &mut bucket,
            format_args!("{NAMESPACE}_{}_bucket{{", self.spec.0),
        );
        labels(&mut bucket, self.spec.2, values);
        bucket.push_str(if values.is_empty() { "le=\"" } else { ",le=\"" });
        let labels = snapshot.labels.iter().map(|label| &**label);
        let buckets = labels.zip(&snapshot.cumulative);
        let shown = buckets.filter(|(_, (bound, _))| is_shown(*bound));
        let counted = shown.map(|(label, (_, count))| (label, *count));
        for (bound, count) in counted.chain([("+Inf", snapshot.count)]) {
            self.samples.push_str(&bucket);
            self.samples.push_str(bound);
            self.samples.push_str("\"} ");
            put_count(&mut self.samples, count);
            self.samples.push('\n');
        }
        self.series("_sum", values);
        put(&mut self.samples, format_args!(" {}\n", snapshot.sum));
        self.series("_count", values);
        put(&mut self.samples, format_args!(" {}\n", snapshot.count));
    }

    /// Appends the block; nothing where there is no sample.
    pub(super) fn write(&self, text: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let ((name, help, _), kind) = (self.spec, self.kind);
        put(
            text,
            format_args!("# HELP {NAMESPACE}_{name} {help}\n# TYPE {NAMESPACE}_{name} {kind}\n"),
        );
        text.push_str(&self.samples);
    }

    fn series(&mut self, suffix: &str, values: &[&str]) {
        put(
            &mut self.samples,
            format_args!("{NAMESPACE}_{}{suffix}", self.spec.0),
        );
        if !values.is_empty() {
            self.samples.push('{');
            labels(&mut self.samples, self.spec.2, values);
            self.samples.push('}');
        }
    }
}

fn labels(text: &mut String, names: &[&str], values: &[&str]) {
    for (at, (name, value)) in names.iter().zip(values).enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        escape(text, value);
        text.push('"');
    }
}

fn escape(text: &mut String, value: &str) {
    if !value.contains(['\\', '"', '\n']) {
        return text.push_str(value);
    }
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

/// What most of a scrape is made of: written without `format_args!`.
fn put_count(text: &mut String, count: u64) {
    let mut digits = [b'0'; 20];
    let mut leading = digits.len();
    let mut rest = count;
    for digit in digits.iter_mut().rev() {
        *digit |= (rest % 10) as u8;
        rest /= 10;
        leading.decrement();
        if rest == 0 {
            break;
        }
    }
    let written = digits.get(leading..).unwrap_or_default();
    text.push_str(std::str::from_utf8(written).unwrap_or_default());
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let written = text.write_fmt(what);
    debug_assert!(written.is_ok(), "a String takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_they_are() {
        for count in [0, 1, 9, 10, 99, 100, 1_048_588, u64::MAX - 1, u64::MAX] {
            let mut text = String::new();
            put_count(&mut text, count);
            assert_eq!(text, count.to_string());
        }
    }

    #[test]
    fn a_family_without_samples_is_not_there() {
        let mut text = String::new();
        Family::counters(("x_total", "help", &["topic"])).write(&mut text);
        assert_eq!(text, "");
        let mut family = Family::gauges(("x", "help", &[]));
        family.gauge(&[], 0.5);
        family.write(&mut text);
        assert_eq!(
            text,
            "# HELP sizegate_x help\n# TYPE sizegate_x gauge\nsizegate_x 0.5\n"
        );
    }
}
