//! How single values are written: sizes, times, addresses, words, topics. Each type says what it allows,
//! reads it from text, and (where it has a form of its own) writes it back.
//!
//! Invariant: what `read` accepts needs no further check, but against other keys.

mod addresses;
mod amounts;

use std::path::PathBuf;

pub(in crate::config) use addresses::{HostName, NodeIds, NodeName};
pub(in crate::config) use amounts::{Count, Interval, OrNone, Ratio, Share, Size, time_text};
pub(crate) use amounts::{any_size, duration, size, size_text};

use super::{Compression, Decode, LogFormat, LogLevel, Mode, SaslMechanism};
use crate::policy::{Action, Codec, ErrorCode, LIMITS};

/// A value written as one piece of text.
pub(super) trait Scalar: Sized {
    /// What is allowed, to stand after “is not”.
    fn allowed() -> String;

    /// The value, or why it is none (empty where [`Scalar::allowed`] says it all).
    fn read(text: &str) -> Result<Self, String>;
}

impl Scalar for bool {
    fn allowed() -> String {
        one_of(["true", "false"])
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| String::new())
    }
}

/// One of a few words.
macro_rules! by_label {
    ($($type:ty),+ $(,)?) => {
        $(impl Scalar for $type {
            fn allowed() -> String {
                one_of(Self::ALL.iter().map(|word| word.label()))
            }

            fn read(text: &str) -> Result<Self, String> {
                Self::from_label(text).ok_or_else(String::new)
            }
        })+
    };
}

by_label!(
    Codec,
    Compression,
    Decode,
    ErrorCode,
    LogFormat,
    LogLevel,
    Mode,
    SaslMechanism
);

/// What a rule does: [`Action::Offload`] is a word of the product, not of this version.
impl Scalar for Action {
    fn allowed() -> String {
        one_of(["reject", "observe"])
    }

    fn read(text: &str) -> Result<Self, String> {
        match Self::from_label(text) {
            Some(Self::Offload) => Err("the claim check is not in this version".to_owned()),
            Some(action) => Ok(action),
            None => Err(String::new()),
        }
    }
}

/// How a family's misfit is met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alignment {
    pub(super) enforce: bool,
}

impl Scalar for Alignment {
    fn allowed() -> String {
        one_of(["enforce", "warn"])
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "enforce" => Ok(Self { enforce: true }),
            "warn" => Ok(Self { enforce: false }),
            _ => Err(String::new()),
        }
    }
}

/// `a`, `b` or `c`, in backquotes.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() {
        last
    } else {
        format!("{} or {last}", words.join(", "))
    }
}

/// Text of one line that is not empty, at most `MOST` bytes.
#[derive(Debug, Clone)]
pub(super) struct Line<const MOST: usize>(pub(super) String);

impl<const MOST: usize> Scalar for Line<MOST> {
    fn allowed() -> String {
        format!("one line of text of 1 to {MOST} bytes")
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() || text.len() > MOST || text.chars().any(char::is_control) {
            return Err(String::new());
        }
        Ok(Self(text.to_owned()))
    }
}

/// The name of a rule: it stands in metrics' labels and in the `rule=` of a refusal, so it is one word.
#[derive(Debug, Clone)]
pub(super) struct RuleName(pub(super) String);

impl Scalar for RuleName {
    fn allowed() -> String {
        "a name of 1 to 100 letters, digits, `.`, `_` and `-`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let word = text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if text == LIMITS {
            // What stands for the section in refusals and metrics.
            Err("`limits` is what holds where no rule does".to_owned())
        } else if word && (1..=100).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

impl Scalar for PathBuf {
    fn allowed() -> String {
        "the path of a file".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err(String::new())
        } else {
            Ok(Self::from(text))
        }
    }
}

/// A password. Any text but none; it has no `Debug` and no way back to text.
pub(super) struct Secret(pub(super) String);

impl Scalar for Secret {
    fn allowed() -> String {
        "a password".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}
