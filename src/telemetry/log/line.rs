//! One event as one line: `time=… level=… message=… key=value …`, or the same as a JSON object. The fields of the
//! spans around it follow: bare in text, an object by the span's name in JSON.
//!
//! Invariant: no character that ends a line, moves a terminal's cursor or turns the direction of text is written as
//! itself, and no value is longer than [`VALUE_BYTES`].

use std::error::Error;
use std::fmt::{self, Debug, Write};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use crate::text::first_bytes;
use crate::text::rfc3339;
use crate::vocabulary::LogFormat;

/// The longest value; longer ones end in `…`.
const VALUE_BYTES: usize = 2_048;

/// Writes events and span fields.
pub(super) struct Line(pub LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::new(self.0);
        event.record(&mut fields);
        let mut line = Fields::new(self.0);
        line.text("time", &rfc3339(SystemTime::now()));
        line.text("level", level(event.metadata().level()));
        line.text("target", event.metadata().target());
        line.text("message", &fields.message);
        line.written.push_str(&fields.written);
        for span in ctx
            .event_scope()
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            let extensions = span.extensions();
            match extensions.get::<FormattedFields<N>>() {
                Some(of_span) if !of_span.is_empty() => line.span(span.name(), of_span),
                _ => {}
            }
        }
        let line = line.written.get(1..).unwrap_or_default();
        match self.0 {
            LogFormat::Text => writeln!(writer, "{line}"),
            LogFormat::Json => writeln!(writer, "{{{line}}}"),
        }
    }
}

impl<'w> FormatFields<'w> for Line {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut of_span = Fields::new(self.0);
        fields.record(&mut of_span);
        writer.write_str(&of_span.written)
    }
}

fn level(level: &tracing::Level) -> &'static str {
    match *level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
    }
}

/// Fields as they will stand in the line, each after its separator, and the message apart.
struct Fields {
    format: LogFormat,
    written: String,
    message: String,
}

impl Fields {
    fn new(format: LogFormat) -> Self {
        Self {
            format,
            written: String::new(),
            message: String::new(),
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        if self.format == LogFormat::Text && is_bare(value) {
            self.plain(key, format_args!("{value}"));
        } else {
            self.plain(key, format_args!("\"{}\"", Escaped(value)));
        }
    }

    /// A value that needs no quotes.
    fn plain(&mut self, key: &str, value: fmt::Arguments<'_>) {
        let written = match self.format {
            LogFormat::Text => write!(self.written, " {key}={value}"),
            LogFormat::Json => write!(self.written, ",\"{}\":{value}", Escaped(key)),
        };
        debug_assert!(written.is_ok(), "a String takes all that is written");
    }

    fn span(&mut self, name: &str, fields: &str) {
        match self.format {
            LogFormat::Text => self.written.push_str(fields),
            LogFormat::Json => {
                let fields = fields.trim_start_matches(',');
                self.plain(name, format_args!("{{{fields}}}"));
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_str(field, &value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.text(field.name(), value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field.name(), format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field.name(), format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field.name(), format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.plain(field.name(), format_args!("{value}"));
        } else {
            // JSON has no such number.
            self.text(field.name(), &value.to_string());
        }
    }
}

/// Needs no quotes in `key=value` text.
fn is_bare(value: &str) -> bool {
    let bare = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
    !value.is_empty() && value.len() <= VALUE_BYTES && value.bytes().all(bare)
}

/// A value between quotes: JSON's escapes, for text lines too.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = first_bytes(self.0, VALUE_BYTES);
        for c in kept.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                // All of them are in the basic plane: four digits are enough.
                c if misleads(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        if kept.len() < self.0.len() {
            f.write_char('…')
        } else {
            Ok(())
        }
    }
}

/// Controls, line and paragraph separators, and the marks that turn or hide text (Unicode's Bidi_Control, zero width).
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::super::capture::logged;
    use super::*;
    use tracing::{info, info_span, warn};

    const HOSTILE: &str = "a\nlevel=error \"x\"\r\t\\ \u{1b}[31m\u{9b}2J\u{202e}\u{2028}\u{0}é";

    fn without_time(lines: &str) -> String {
        let cut = |line: &str| line[line.find("level").unwrap()..].to_owned();
        lines.lines().map(cut).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn text_is_one_line_of_key_value() {
        let lines = logged(LogFormat::Text, "info", |_| {
            warn!(target: "sizegate::x", topic = "orders", n = 3, share = 0.5, ok = true, missing = None::<&str>, empty = "", "two words");
        });
        assert_eq!(
            without_time(&lines),
            "level=warn target=sizegate::x message=\"two words\" topic=orders n=3 share=0.5 ok=true empty=\"\""
        );
        assert!(
            lines.starts_with("time=2") && lines.ends_with('\n'),
            "{lines}"
        );
    }

    #[test]
    fn hostile_words_stay_within_their_value() {
        let text = logged(LogFormat::Text, "info", |_| {
            info!(client_id = HOSTILE, shown = %HOSTILE, debug = ?HOSTILE, "{HOSTILE}");
        });
        assert_eq!(text.lines().count(), 1);
        assert!(!text.trim_end().chars().any(misleads), "{text:?}");
        let quoted = r#""a\nlevel=error \"x\"\r\t\\ \u001b[31m\u009b2J\u202e\u2028\u0000é""#;
        for key in ["message", "client_id", "shown"] {
            assert!(
                text.contains(&format!(" {key}={quoted}")),
                "{key} in {text}"
            );
        }
    }

    #[test]
    fn hostile_words_survive_json_unchanged_but_on_one_line() {
        let line = logged(LogFormat::Json, "info", |_| {
            info!(client_id = HOSTILE, shown = %HOSTILE, n = -3, share = f64::NAN, "{HOSTILE}");
        });
        assert_eq!(line.lines().count(), 1);
        assert!(!line.trim_end().chars().any(misleads), "{line:?}");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        for key in ["message", "client_id", "shown"] {
            assert_eq!(json[key], HOSTILE, "{key}");
        }
        assert_eq!(
            (&json["n"], &json["share"], &json["level"]),
            (&(-3).into(), &"NaN".into(), &"info".into())
        );
    }

    #[test]
    fn a_value_is_cut_at_a_character() {
        let long = "é".repeat(40_000);
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = logged(format, "info", |_| info!(client_id = long, "m"));
            assert!(line.len() < VALUE_BYTES + 200, "{}", line.len());
            assert!(line.contains("é…\""), "{line}");
        }
    }

    #[test]
    fn the_fields_of_the_spans_around_follow() {
        let act = |_: &_| {
            let span = info_span!(
                "session",
                address = "10.0.0.7:1",
                client_id = tracing::field::Empty
            );
            span.record("client_id", "a b");
            span.in_scope(|| info_span!("bare").in_scope(|| info!(address = "here", "m")));
        };
        let text = logged(LogFormat::Text, "info", act);
        assert!(
            text.contains("message=m address=here address=10.0.0.7:1"),
            "{text}"
        );
        assert!(text.trim_end().ends_with("client_id=\"a b\""), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&logged(LogFormat::Json, "info", act)).unwrap();
        assert_eq!(json["address"], "here");
        assert_eq!(
            json["session"],
            serde_json::json!({"address": "10.0.0.7:1", "client_id": "a b"})
        );
        assert!(json.get("bare").is_none());
    }
}
