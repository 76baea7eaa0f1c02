//! Reads how rules name clients.
//!
//! Invariant: every [`NamePattern`] in a [`Config`](super::Config) compiles.

use super::scalars::Scalar;
use crate::patterns::NamePattern;

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

impl Scalar for NamePattern {
    fn allowed() -> String {
        "a name (`checkout`), a glob (`checkout-*`) or a regular expression (`/checkout-[0-9]+/`)"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

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
