//! How clients are named in rules: exactly, by glob, or by `/regex/`. Client ids and user names may hold any
//! characters, so unlike topics' these are not checked letter by letter.
//!
//! Invariant: every [`NamePattern`] in a [`Config`](super::Config) compiles.

use regex::Regex;

use super::scalars::Scalar;

/// Which clients a rule is for. An empty list matches everybody; every other list must contain a match.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clients {
    /// Their `client.id`.
    pub client_ids: Vec<NamePattern>,
    /// The user names they authenticated with.
    pub principals: Vec<NamePattern>,
    /// What they say they are: `name/version`.
    pub software: Vec<NamePattern>,
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
const LONGEST: usize = 256;

impl NamePattern {
    /// The pattern as a regular expression, anchored at both ends.
    pub fn to_regex(&self) -> String {
        match self {
            Self::Exact(name) => format!("^{}$", regex::escape(name)),
            Self::Glob(glob) => {
                let escaped = regex::escape(glob);
                format!("^{}$", escaped.replace(r"\*", ".*").replace(r"\?", "."))
            }
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
}

impl Scalar for NamePattern {
    fn allowed() -> String {
        "a name (`checkout`), a glob (`checkout-*`) or a regular expression (`/checkout-[0-9]+/`)"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let source = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'));
        let pattern = match source {
            Some("") => return Err("the expression is empty".to_owned()),
            Some(source) => Self::Regex(source.to_owned()),
            None if text.is_empty() || text.len() > LONGEST => return Err(String::new()),
            None if text.contains(['*', '?']) => Self::Glob(text.to_owned()),
            None => Self::Exact(text.to_owned()),
        };
        match Regex::new(&pattern.to_regex()) {
            Ok(_) => Ok(pattern),
            // The first lines of the error draw the pattern; the last says what is wrong.
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                Err(last.trim_start_matches("error: ").to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_only() {
        for (pattern, name, expected) in [
            ("checkout", "checkout", true),
            ("checkout", "checkout-1", false),
            ("checkout-*", "checkout-1", true),
            ("apache-kafka-java/4.*", "apache-kafka-java/4.3.0", true),
            ("apache-kafka-java/4.*", "apache-kafka-java/3.9.1", false),
            ("a b (c)", "a b (c)", true),
            ("/billing|checkout/", "checkout", true),
            ("/billing|checkout/", "checkout-1", false),
        ] {
            let parsed = NamePattern::read(pattern).expect(pattern);
            let regex = Regex::new(&parsed.to_regex()).expect(pattern);
            assert_eq!(regex.is_match(name), expected, "{pattern} {name}");
            assert_eq!(parsed.text(), pattern);
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for (pattern, why) in [
            ("/(/", "unclosed group"),
            ("//", "the expression is empty"),
            ("", ""),
        ] {
            assert_eq!(
                NamePattern::read(pattern).expect_err(pattern),
                why,
                "{pattern}"
            );
        }
    }
}
