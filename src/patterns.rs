//! Patterns for names of topics and clients: exact, glob, or `/regex/`.
//!
//! Client ids and user names may hold any characters, so only topics' are checked letter by letter.

use regex::Regex;

/// Kafka's own bound (`Topic.MAX_NAME_LENGTH`).
const LONGEST_TOPIC_NAME: usize = 249;

/// Stands for the main topic's name in the names of its family.
pub const MAIN: &str = "{main}";

/// How a rule names topics.
#[derive(Debug, Clone, PartialEq)]
pub enum TopicPattern {
    /// The name itself.
    Exact(String),
    /// `*` and `?`, as written in the config.
    Glob(String),
    /// `/regex/`, without its slashes; anchored at both ends.
    Regex(String),
}

/// How a rule names clients.
#[derive(Debug, Clone, PartialEq)]
pub enum NamePattern {
    /// The name itself.
    Exact(String),
    /// `*` and `?`, as written in the config.
    Glob(String),
    /// `/regex/`, without its slashes; anchored at both ends.
    Regex(String),
}

/// Client ids are strings of at most 32,767 bytes; what is longer than this is a mistake.
const LONGEST_CLIENT_NAME: usize = 256;

impl TopicPattern {
    /// The pattern as a regular expression, anchored at both ends. Only a family's may hold [`MAIN`]:
    /// give the main topic's name there.
    pub fn to_regex(&self, main: Option<&str>) -> String {
        let filled = |text: &str| match main {
            Some(main) => text.replace(&regex::escape(MAIN), &regex::escape(main)),
            None => text.to_owned(),
        };
        match self {
            Self::Exact(name) => format!("^{}$", filled(&regex::escape(name))),
            Self::Glob(glob) => glob_regex(&filled(&regex::escape(glob))),
            Self::Regex(source) => {
                let source = match main {
                    Some(main) => source.replace(MAIN, &regex::escape(main)),
                    None => source.clone(),
                };
                format!("^(?:{source})$")
            }
        }
    }

    /// The pattern as it is written in the config.
    pub fn text(&self) -> String {
        match self {
            Self::Exact(text) | Self::Glob(text) => text.clone(),
            Self::Regex(source) => format!("/{source}/"),
        }
    }

    /// Whether it matches `topic`. Compiles the pattern: for what a person runs, never for what a peer can ask for.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match self {
            Self::Exact(name) => name == topic,
            pattern => Regex::new(&pattern.to_regex(None)).is_ok_and(|regex| regex.is_match(topic)),
        }
    }

    pub(crate) fn parse(text: &str, main: Option<&str>) -> Result<Self, String> {
        if let Some(source) = between_slashes(text) {
            let pattern = Self::Regex(source.to_owned());
            return compiled(source, &pattern.to_regex(main)).map(|()| pattern);
        }
        let name = if main.is_some() {
            text.replace(MAIN, "")
        } else {
            text.to_owned()
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '?');
        if let Some(other) = name.chars().find(|c| !legal(*c)) {
            return Err(format!("a topic's name has no `{}`", other.escape_debug()));
        }
        if text.is_empty() || text.len() > LONGEST_TOPIC_NAME || text == "." || text == ".." {
            return Err(String::new());
        }
        Ok(if is_glob(text) {
            Self::Glob(text.to_owned())
        } else {
            Self::Exact(text.to_owned())
        })
    }
}

impl NamePattern {
    /// The pattern as a regular expression, anchored at both ends.
    pub fn to_regex(&self) -> String {
        match self {
            Self::Exact(name) => format!("^{}$", regex::escape(name)),
            Self::Glob(glob) => glob_regex(&regex::escape(glob)),
            Self::Regex(source) => format!("^(?:{source})$"),
        }
    }

    /// The pattern as it is written in the config.
    pub fn text(&self) -> String {
        match self {
            Self::Exact(text) | Self::Glob(text) => text.clone(),
            Self::Regex(source) => format!("/{source}/"),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(source) = between_slashes(text) {
            let pattern = Self::Regex(source.to_owned());
            return compiled(source, &pattern.to_regex()).map(|()| pattern);
        }
        if text.is_empty() || text.len() > LONGEST_CLIENT_NAME {
            return Err(String::new());
        }
        Ok(if is_glob(text) {
            Self::Glob(text.to_owned())
        } else {
            Self::Exact(text.to_owned())
        })
    }
}

/// The source of a regular expression, where a pattern is one.
fn between_slashes(text: &str) -> Option<&str> {
    text.strip_prefix('/')?.strip_suffix('/')
}

fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// An escaped glob as a regular expression, anchored at both ends.
fn glob_regex(escaped: &str) -> String {
    format!("^{}$", escaped.replace(r"\*", ".*").replace(r"\?", "."))
}

/// Whether a regular expression compiles, and what is wrong with it.
fn compiled(source: &str, regex: &str) -> Result<(), String> {
    match Regex::new(regex) {
        Ok(_) if source.is_empty() => Err("the expression is empty".to_owned()),
        Ok(_) => Ok(()),
        // The first lines of the error draw the pattern; the last says what is wrong.
        Err(error) => Err(last_line(&error.to_string())),
    }
}

fn last_line(error: &str) -> String {
    error
        .lines()
        .last()
        .unwrap_or_default()
        .trim()
        .trim_start_matches("error: ")
        .to_owned()
}

/// `*` is any run, `?` is any one character; topics' names are ASCII.
pub(crate) fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut glob, mut name) = (glob, name);
    // Where the last `*` stood, and the rest of the name it has not swallowed yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (glob.split_first(), name.split_first()) {
            (Some((b'*', after)), _) => {
                star = Some((after, name));
                glob = after;
                continue;
            }
            (Some((wanted, after)), Some((got, rest))) if *wanted == b'?' || wanted == got => {
                (glob, name) = (after, rest);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some((after, unswallowed)) = star else {
            return false;
        };
        let Some((_, rest)) = unswallowed.split_first() else {
            return false;
        };
        star = Some((after, rest));
        (glob, name) = (after, rest);
    }
}
