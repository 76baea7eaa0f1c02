//! `/metrics` as it leaves: what the process is to the system beside what it counted, in the form that is asked for,
//! compressed for who takes that.

mod open_metrics;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Kernel ticks in a second of `/proc/self/stat`: 100 on every Linux that this is built for (`USER_HZ`).
const TICKS: f64 = 100.0;
const KIBIBYTE: f64 = 1024.0;

/// Appends the `process_*` families under the names that Prometheus' own client libraries use. What the system does not
/// say is left out.
pub(super) fn write_process(text: &mut String, started_at: SystemTime) {
    let started_at = started_at
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let mut put = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        }
    };
    put(
        "process_start_time_seconds",
        "gauge",
        "When the process started, in seconds since 1970.",
        Some(started_at),
    );
    put(
        "process_cpu_seconds_total",
        "counter",
        "Time on all cores since the start.",
        cpu_seconds(),
    );
    put(
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the process that is in RAM.",
        resident_bytes(),
    );
    put(
        "process_open_fds",
        "gauge",
        "Open file descriptors: two for every client, and some.",
        std::fs::read_dir("/proc/self/fd")
            .ok()
            .map(|open| open.count() as f64),
    );
    put(
        "process_max_fds",
        "gauge",
        "File descriptors that may be open at once.",
        most_descriptors(),
    );
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may have spaces; user and system time are the 12th and 13th word behind it.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut words = behind.split_whitespace().skip(11);
    let user: f64 = words.next()?.parse().ok()?;
    let system: f64 = words.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * KIBIBYTE)
}

fn most_descriptors() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The forms of the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Form {
    /// What a client likes better (`Accept`). Prometheus' own format for those who do not say.
    pub(super) fn wanted(accepted: &str) -> Self {
        let (mut open, mut text) = (0.0_f32, 0.0_f32);
        for range in accepted.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let weight = parts
                .clone()
                .find_map(|part| part.strip_prefix("q=")?.parse().ok())
                .unwrap_or(1.0);
            let is_known = |part: &str| {
                let version = part
                    .strip_prefix("version=")
                    .map(|version| version.trim_matches('"'));
                version.is_none_or(|version| matches!(version, "1.0.0" | "0.0.1"))
            };
            if name.eq_ignore_ascii_case("application/openmetrics-text") {
                if parts.all(is_known) {
                    open = open.max(weight);
                }
            } else if name.eq_ignore_ascii_case("text/plain") {
                text = text.max(weight);
            }
        }
        if open > 0.0 && open >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// `Content-Type`.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The text in this form.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Self::Text => text,
            Self::OpenMetrics => open_metrics::of(&text),
        }
    }
}

/// Whether a client takes gzip (`Accept-Encoding`).
pub(super) fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let is_refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !is_refused
    })
}

/// A twentieth of the text, for a tenth of a second where it has ten megabytes.
#[expect(clippy::disallowed_types, reason = "for HTTP clients, not for Kafka's")]
pub(super) fn gzipped(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        for (accepted, takes) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("xgzip", false),
        ] {
            assert_eq!(takes_gzip(accepted), takes, "{accepted}");
        }
    }

    #[test]
    fn open_metrics_is_for_those_who_like_it_at_least_as_well() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;\
                          q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accepted, form) in [
            ("", Form::Text),
            ("*/*", Form::Text),
            ("text/html,*/*;q=0.8", Form::Text),
            ("application/openmetrics-text", Form::OpenMetrics),
            (
                "application/openmetrics-text; version=\"1.0.0\"",
                Form::OpenMetrics,
            ),
            ("application/openmetrics-text; version=2.0.0", Form::Text),
            ("application/openmetrics-text;q=0", Form::Text),
            ("text/plain, application/openmetrics-text;q=0.9", Form::Text),
            (prometheus, Form::OpenMetrics),
        ] {
            assert_eq!(Form::wanted(accepted), form, "{accepted}");
        }
    }

    #[test]
    fn the_process_is_described_by_what_the_system_says() {
        let mut text = String::new();
        write_process(&mut text, UNIX_EPOCH + std::time::Duration::from_secs(7));
        assert!(text.contains("\nprocess_start_time_seconds 7\n"), "{text}");
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name}: {text}"))
                .trim()
                .parse()
                .unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e6);
        assert!(value("process_open_fds ") >= 3.0);
        assert!(value("process_max_fds ") >= value("process_open_fds "));
        assert!(value("process_cpu_seconds_total ") >= 0.0);
    }
}
