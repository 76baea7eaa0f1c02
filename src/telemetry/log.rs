//! Logs: lines on standard error (standard output is for what commands print), text or JSON, and the one line per
//! refusal and per connection closed for a reason.
//!
//! Invariant: one event is one line of bounded length, whatever peers call themselves; no record content,
//! and of a key what `refusals.record_key` asks for.

mod closes;
mod line;
mod offloads;
mod redeems;
mod refusal_records;
mod refusals;
mod repeats;

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt, reload};

pub use self::closes::CloseLog;
use self::line::Line;
pub use self::offloads::OffloadLog;
pub use self::redeems::RedeemLog;
pub use self::refusal_records::{RefusalJson, RefusalRecords};
pub use self::refusals::RefusalLog;
use crate::text::first_chars;
use crate::vocabulary::{LogFormat, LogLevel};

/// The environment variable that sets the level.
pub const LEVEL_VARIABLE: &str = "SIZEGATE_LOG";

/// Logs cannot be set up as asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `SIZEGATE_LOG` holds no level.
    #[error(
        "{LEVEL_VARIABLE}: \"{0}\" is no log level: error, warn, info, debug, trace or off, or `target=level,…`"
    )]
    Level(String),
    /// Another subscriber is in place.
    #[error("logs are set up already")]
    Twice,
}

/// Changes the level while the process runs.
#[derive(Debug, Clone)]
pub struct LevelHandle {
    filter: reload::Handle<Targets, Registry>,
    /// `SIZEGATE_LOG` stands above the configuration.
    is_fixed: bool,
}

impl LevelHandle {
    /// The level of a configuration that was read again; without effect where `SIZEGATE_LOG` is set.
    pub fn set(&self, level: LogLevel) {
        if !self.is_fixed && self.filter.reload(of_level(filter(level))).is_err() {
            tracing::error!("the log level cannot be changed any longer");
        }
    }
}

/// Sets up logs for the process: lines on standard error, the level from `SIZEGATE_LOG`, else from the
/// configuration.
///
/// # Errors
/// The variable holds no level, or logs were set up before.
pub fn init(format: LogFormat, level: LogLevel) -> Result<LevelHandle, LogError> {
    let fixed = std::env::var(LEVEL_VARIABLE)
        .ok()
        .filter(|level| !level.trim().is_empty());
    let targets = match &fixed {
        Some(fixed) => targets(fixed)?,
        None => of_level(filter(level)),
    };
    let (subscriber, filter) = subscriber(format, targets, std::io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(LevelHandle {
        filter,
        is_fixed: fixed.is_some(),
    })
}

/// The subscriber of [`init`], wherever it writes.
fn subscriber<W>(
    format: LogFormat,
    targets: Targets,
    writer: W,
) -> (
    impl tracing::Subscriber + Send + Sync,
    reload::Handle<Targets, Registry>,
)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets);
    let lines = fmt::layer()
        .event_format(Line(format))
        .fmt_fields(Line(format))
        .with_writer(writer);
    (
        tracing_subscriber::registry().with(filter).with(lines),
        handle,
    )
}

/// What `SIZEGATE_LOG` may say: a level, or levels of parts.
fn targets(level: &str) -> Result<Targets, LogError> {
    let level = level.trim();
    let unknown = || LogError::Level(first_chars(level, 100).to_owned());
    if !level.contains(['=', ',']) {
        return LevelFilter::from_str(level)
            .map(of_level)
            .map_err(|_| unknown());
    }
    // `Targets` takes a bare word for a part's name at level trace; here it is a mistyped level.
    let is_level = |part: &str| LevelFilter::from_str(part).is_ok();
    let is_known = level
        .split(',')
        .all(|part| part.contains('=') || is_level(part));
    let targets = Targets::from_str(level).map_err(|_| unknown())?;
    if is_known {
        Ok(targets)
    } else {
        Err(unknown())
    }
}

/// A bare level is ours; libraries then speak only to warn.
fn of_level(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("sizegate", level)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
pub(super) mod capture {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is logged.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Capture(Arc<Mutex<Vec<u8>>>);

    impl Capture {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Capture {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Capture {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// What `act` logs.
    pub(crate) fn logged(format: LogFormat, level: &str, act: impl FnOnce(&LevelHandle)) -> String {
        let capture = Capture::default();
        let (subscriber, filter) = subscriber(format, targets(level).unwrap(), capture.clone());
        let handle = LevelHandle {
            filter,
            is_fixed: false,
        };
        tracing::subscriber::with_default(subscriber, || act(&handle));
        capture.text()
    }

    /// The lines that `act` logs, as JSON.
    pub(crate) fn json_lines(act: impl FnOnce()) -> Vec<serde_json::Value> {
        logged(LogFormat::Json, "info", |_| act())
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::capture::logged;
    use super::*;
    use tracing::{debug, info, warn};

    #[test]
    fn the_level_can_be_changed_while_running_unless_the_environment_sets_it() {
        let lines = logged(LogFormat::Text, "warn", |level| {
            info!("one");
            level.set(LogLevel::Debug);
            debug!("two");
            level.set(LogLevel::Error);
            warn!("three");
            let fixed = LevelHandle {
                is_fixed: true,
                ..level.clone()
            };
            fixed.set(LogLevel::Trace);
            debug!("four");
        });
        assert!(lines.contains("message=two"), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
    }

    #[test]
    fn a_bare_level_is_ours_and_libraries_only_warn() {
        let lines = logged(LogFormat::Text, "debug", |_| {
            debug!("ours");
            info!(target: "hyper::proto", "theirs");
            warn!(target: "hyper::proto", "trouble");
        });
        assert!(
            lines.contains("ours") && lines.contains("trouble") && !lines.contains("theirs"),
            "{lines}"
        );
    }

    #[test]
    fn parts_can_have_levels_of_their_own() {
        let lines = logged(LogFormat::Text, "warn,sizegate::wire=debug", |_| {
            info!("quiet");
            debug!(target: "sizegate::wire", "loud");
        });
        assert!(
            lines.contains("loud") && !lines.contains("quiet"),
            "{lines}"
        );
    }

    #[test]
    fn an_unknown_level_is_refused_with_what_is_allowed() {
        for level in ["loud", "info,x=loud", "loud,x=info", "7"] {
            let error = targets(level).unwrap_err().to_string();
            assert!(error.contains("error, warn, info, debug"), "{error}");
        }
        for level in [" info ", "INFO", "off", "sizegate::wire=trace"] {
            assert!(targets(level).is_ok(), "{level}");
        }
    }
}
