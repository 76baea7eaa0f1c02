//! Logs: lines on standard error (standard output is for what commands print), text or JSON, and the one line per
//! refusal.
//!
//! Invariant: one event is one line of bounded length, whatever peers call themselves; no record content, no key.

mod line;
mod repeats;

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt, reload};

use self::line::Line;
pub use self::repeats::RefusalLog;
use crate::config::LogFormat;

/// The environment variable that sets the level.
pub const LEVEL_VARIABLE: &str = "SIZEGATE_LOG";

/// Logs cannot be set up as asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is none.
    #[error(
        "\"{0}\" is no log level: error, warn, info, debug, trace or off, or `target=level,…` for parts"
    )]
    Level(String),
    /// Another subscriber is in place.
    #[error("logs are set up already")]
    Twice,
    /// The subscriber is gone.
    #[error("logs are no longer there")]
    Gone,
}

/// Changes the level while the process runs.
#[derive(Debug, Clone)]
pub struct LevelHandle(reload::Handle<Targets, Registry>);

impl LevelHandle {
    /// `info`, or `info,sizegate::wire=debug`.
    ///
    /// # Errors
    /// The level is none; the one before stays in force.
    pub fn set(&self, level: &str) -> Result<(), LogError> {
        let targets = targets(level)?;
        self.0.reload(targets).map_err(|_| LogError::Gone)
    }
}

/// Sets up logs for the process: lines on standard error, the level from `SIZEGATE_LOG`, else `info`.
///
/// # Errors
/// The variable holds no level, or logs were set up before.
pub fn init(format: LogFormat) -> Result<LevelHandle, LogError> {
    let level = std::env::var(LEVEL_VARIABLE).unwrap_or_default();
    let (subscriber, handle) = subscriber(format, &level, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(handle)
}

/// The subscriber of [`init`], writing elsewhere.
///
/// # Errors
/// `level` is none; empty means `info`.
pub fn subscriber<W>(
    format: LogFormat,
    level: &str,
    writer: W,
) -> Result<(impl tracing::Subscriber + Send + Sync, LevelHandle), LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(targets(level)?);
    let lines = fmt::layer()
        .event_format(Line(format))
        .fmt_fields(Line(format))
        .with_writer(writer);
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    Ok((subscriber, LevelHandle(handle)))
}

/// A bare level is ours; libraries then speak only to warn.
fn targets(level: &str) -> Result<Targets, LogError> {
    let level = match level.trim() {
        "" => "info",
        level => level,
    };
    let unknown = || LogError::Level(level.chars().take(100).collect());
    if level.contains(['=', ',']) {
        // `Targets` takes a bare word for a part's name at level trace; here it is a mistyped level.
        let is_level = |part: &str| LevelFilter::from_str(part).is_ok();
        let known = level
            .split(',')
            .all(|part| part.contains('=') || is_level(part));
        let targets = Targets::from_str(level).map_err(|_| unknown())?;
        return if known { Ok(targets) } else { Err(unknown()) };
    }
    let level = LevelFilter::from_str(level).map_err(|_| unknown())?;
    Ok(Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("sizegate", level))
}

#[cfg(test)]
pub(super) mod capture {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is logged.
    #[derive(Debug, Clone, Default)]
    pub struct Capture(Arc<Mutex<Vec<u8>>>);

    impl Capture {
        pub fn text(&self) -> String {
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
    pub fn logged(format: LogFormat, level: &str, act: impl FnOnce(&LevelHandle)) -> String {
        let capture = Capture::default();
        let (subscriber, handle) = subscriber(format, level, capture.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || act(&handle));
        capture.text()
    }
}

#[cfg(test)]
mod tests {
    use super::capture::logged;
    use super::*;
    use tracing::{debug, info, warn};

    #[test]
    fn the_level_can_be_changed_while_running() {
        let lines = logged(LogFormat::Text, "warn", |level| {
            info!("one");
            level.set("debug").unwrap();
            debug!("two");
            assert!(level.set("loud").is_err());
            debug!("three");
            level.set("off").unwrap();
            warn!("four");
        });
        assert!(!lines.contains("one") && !lines.contains("four"), "{lines}");
        assert!(
            lines.contains("message=two") && lines.contains("message=three"),
            "{lines}"
        );
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
        for level in ["", " info ", "INFO", "off", "sizegate::wire=trace"] {
            assert!(targets(level).is_ok(), "{level}");
        }
    }
}
