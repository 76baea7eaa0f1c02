//! How topics are named in rules and families: exactly, by glob, or by `/regex/`.
//!
//! Invariant: every [`TopicPattern`] in a [`Config`](super::Config) compiles.

use regex::Regex;

use super::TopicPattern;
use super::scalars::Scalar;

/// Kafka's own bound (`Topic.MAX_NAME_LENGTH`).
const LONGEST_NAME: usize = 249;

/// Stands for the main topic's name in the names of its family.
pub const MAIN: &str = "{main}";

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
            Self::Glob(glob) => {
                let escaped = filled(&regex::escape(glob));
                format!("^{}$", escaped.replace(r"\*", ".*").replace(r"\?", "."))
            }
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

    fn parse(text: &str, main: Option<&str>) -> Result<Self, String> {
        if let Some(source) = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
        {
            let pattern = Self::Regex(source.to_owned());
            return match Regex::new(&pattern.to_regex(main)) {
                Ok(_) if source.is_empty() => Err("the expression is empty".to_owned()),
                Ok(_) => Ok(pattern),
                // The first lines of the error draw the pattern; the last says what is wrong.
                Err(error) => Err(last_line(&error.to_string())),
            };
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
        if text.is_empty() || text.len() > LONGEST_NAME || text == "." || text == ".." {
            return Err(String::new());
        }
        Ok(if text.contains(['*', '?']) {
            Self::Glob(text.to_owned())
        } else {
            Self::Exact(text.to_owned())
        })
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

impl Scalar for TopicPattern {
    fn allowed() -> String {
        "a topic (`orders`), a glob (`orders.*`) or a regular expression (`/orders-[0-9]+/`)"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text, None)
    }
}

/// A family member's pattern: it may hold [`MAIN`].
#[derive(Debug, Clone)]
pub(super) struct MemberPattern(pub(super) TopicPattern);

impl Scalar for MemberPattern {
    fn allowed() -> String {
        "a topic (`orders-dlt`, `{main}-dlt`), a glob (`{main}-retry-*`) or a regular expression (`/{main}-retry-[0-9]+/`)"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        TopicPattern::parse(text, Some("main")).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_only() {
        for (pattern, topic, expected) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders.", true),
            ("orders.*", "orders", false),
            ("orders.*", "ordersXeu", false),
            ("o?ders", "orders", true),
            ("o?ders", "oders", false),
            ("*", "anything", true),
            ("/orders|payments/", "payments", true),
            ("/orders|payments/", "payments2", false),
            ("/a.c/", "abc", true),
        ] {
            let parsed = TopicPattern::read(pattern).expect(pattern);
            let regex = Regex::new(&parsed.to_regex(None)).expect(pattern);
            assert_eq!(regex.is_match(topic), expected, "{pattern} {topic}");
            assert_eq!(parsed.text(), pattern);
        }
    }

    #[test]
    fn a_members_pattern_takes_the_main_topics_name_literally() {
        for (pattern, member, expected) in [
            ("{main}-dlt", "orders.v1-dlt", true),
            ("{main}-dlt", "ordersXv1-dlt", false),
            ("{main}-retry-*", "orders.v1-retry-2", true),
            ("/{main}-retry-[0-9]+/", "orders.v1-retry-2", true),
            ("/{main}-retry-[0-9]+/", "orders.v1-retry-x", false),
        ] {
            let parsed = MemberPattern::read(pattern).expect(pattern).0;
            let regex = Regex::new(&parsed.to_regex(Some("orders.v1"))).expect(pattern);
            assert_eq!(regex.is_match(member), expected, "{pattern} {member}");
        }
    }

    #[test]
    fn what_is_no_topic_says_why() {
        for (pattern, why) in [
            ("orders eu", "a topic's name has no ` `"),
            ("orders{1}", "a topic's name has no `{`"),
            ("{main}-dlt", "a topic's name has no `{`"),
            ("/(/", "unclosed group"),
            ("//", "the expression is empty"),
            ("", ""),
            ("..", ""),
        ] {
            assert_eq!(
                TopicPattern::read(pattern).expect_err(pattern),
                why,
                "{pattern}"
            );
        }
    }
}
