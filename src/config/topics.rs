//! Reads how rules and families name topics.
//!
//! Invariant: every [`TopicPattern`] in a [`Config`](super::Config) compiles.

use super::scalars::Scalar;
use crate::patterns::TopicPattern;

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
    use regex::Regex;

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
