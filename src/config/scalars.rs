//! Reads single values: sizes, times, addresses, words, topics. Each type says what it allows,
//! reads it from text, and (where it has a form of its own) writes it back.
//!
//! Invariant: what `read` accepts needs no further check, but against other keys.

mod addresses;
mod amounts;

use std::path::PathBuf;

pub(in crate::config) use addresses::{HostName, NodeIds, NodeName};
pub(in crate::config) use amounts::{Count, Interval, OrNone, Ratio, Share, Size};
pub(crate) use amounts::{any_size, duration, size, size_text, time_text};

use super::claim::{StoreFailure, Unredeemed};
use super::{Compression, Decode, Histograms, LogFormat, LogLevel, Mode, RecordKey, SaslMechanism};
use crate::claim::{Layout, StoreUri};
use crate::vocabulary::{Action, Codec, ErrorCode, FindingRule, LIMITS};

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
    Action,
    Codec,
    Compression,
    Decode,
    ErrorCode,
    FindingRule,
    Layout,
    LogFormat,
    RecordKey,
    Histograms,
    LogLevel,
    Mode,
    SaslMechanism,
    StoreFailure,
    Unredeemed,
);

impl Scalar for StoreUri {
    fn allowed() -> String {
        Self::ALLOWED.to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|error: crate::claim::StoreError| error.0)
    }
}

/// The id of a key that signs tickets: it stands in every one of them.
#[derive(Debug, Clone)]
pub(super) struct KeyId(pub(super) String);

impl Scalar for KeyId {
    fn allowed() -> String {
        "1 to 32 letters, digits, `-` and `_`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=32).contains(&text.len()) && text.bytes().all(word) {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

/// The name of a topic, in which `{topic}` may stand for another's.
#[derive(Debug, Clone)]
pub(super) struct FallbackTopic(pub(super) String);

impl Scalar for FallbackTopic {
    fn allowed() -> String {
        "the name of a topic, in which `{topic}` stands for the record's own".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let name = text.replace("{topic}", "t");
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=249).contains(&name.len()) && name.bytes().all(letter);
        if is_name && text != "{topic}" && name != "." && name != ".." {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

/// The topic that gets refusals.
#[derive(Debug, Clone)]
pub(super) struct TopicName(pub(super) String);

impl Scalar for TopicName {
    fn allowed() -> String {
        "the name of a topic".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        // No placeholder: all refusals go to one.
        match FallbackTopic::read(text) {
            Ok(FallbackTopic(name)) if !name.contains('{') => Ok(Self(name)),
            _ => Err(String::new()),
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
