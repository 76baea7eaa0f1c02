//! Finds the rules for a client. Asked when something new is known of a client, never per request.

use regex::RegexSet;

use crate::config::{Clients, NamePattern, Redeem, Rule};

/// What is known of a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Client<'a> {
    /// Its `client.id`.
    pub client_id: Option<&'a str>,
    /// The user name it authenticated with.
    pub principal: Option<&'a str>,
    /// What it says it is: `name/version`.
    pub software: Option<&'a str>,
}

/// The rules that are for one client, as far as `clients` says: their topics are another matter.
///
/// The default is a client of which nothing is known: only rules without `clients` are for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientRules {
    /// By number of the rule; one that is missing is not for it.
    speaks: Vec<bool>,
    /// By number of the rule: it gives the client originals, where it gives them to some only.
    redeems: Vec<bool>,
}

/// The `clients` of all rules, compiled.
#[derive(Debug, Clone)]
pub(super) struct ClientMatchers {
    /// By number of the rule; `None`: for everybody.
    rules: Vec<Option<Matcher>>,
    /// By number of the rule, whom it gives originals; `None`: everybody, or nobody.
    redeem: Vec<Option<Matcher>>,
    /// Some rule is not for everybody: asked for every request.
    is_any: bool,
}

#[derive(Debug, Clone)]
struct Matcher {
    client_ids: Option<RegexSet>,
    principals: Option<RegexSet>,
    software: Option<RegexSet>,
}

impl ClientMatchers {
    pub(super) fn compile(rules: &[Rule]) -> Result<Self, String> {
        let compiled = rules
            .iter()
            .map(|rule| rule.clients.as_ref().map(Matcher::compile).transpose());
        let of_redeem = |rule: &Rule| match rule.offload.as_ref().map(|offload| &offload.redeem) {
            Some(Redeem::Clients(clients)) => Matcher::compile(clients).map(Some),
            _ => Ok(None),
        };
        let redeem = rules
            .iter()
            .map(of_redeem)
            .collect::<Result<Vec<_>, String>>()?;
        let rules = compiled.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            is_any: rules.iter().chain(&redeem).any(Option::is_some),
            rules,
            redeem,
        })
    }

    /// Some rule is not for everybody.
    pub(super) const fn is_any(&self) -> bool {
        self.is_any
    }

    pub(super) fn rules_for(&self, client: Client<'_>) -> ClientRules {
        let is_for = |matcher: &Option<Matcher>| {
            matcher
                .as_ref()
                .is_some_and(|matcher| matcher.matches(client))
        };
        ClientRules {
            speaks: self.rules.iter().map(is_for).collect(),
            redeems: self.redeem.iter().map(is_for).collect(),
        }
    }

    /// A rule that gives originals to some clients gives them to this one.
    pub(super) fn redeems(&self, rule: usize, client: &ClientRules) -> bool {
        let is_for_some = self.redeem.get(rule).is_some_and(Option::is_some);
        is_for_some && client.redeems.get(rule).copied().unwrap_or(false)
    }

    /// Whether a rule may speak for a client at all.
    pub(super) fn allows(&self, rule: usize, client: &ClientRules) -> bool {
        let is_for_everybody = self.rules.get(rule).is_some_and(Option::is_none);
        is_for_everybody || client.speaks.get(rule).copied().unwrap_or(false)
    }
}

impl Matcher {
    fn compile(clients: &Clients) -> Result<Self, String> {
        let set = |patterns: &[NamePattern]| match patterns {
            [] => Ok(None),
            patterns => RegexSet::new(patterns.iter().map(NamePattern::to_regex))
                .map(Some)
                .map_err(|error| error.to_string()),
        };
        Ok(Self {
            client_ids: set(&clients.client_ids)?,
            principals: set(&clients.principals)?,
            software: set(&clients.software)?,
        })
    }

    /// Every kind of name that is asked for must match. A name that is not known matches nothing.
    fn matches(&self, client: Client<'_>) -> bool {
        let fits = |set: &Option<RegexSet>, name: Option<&str>| match set {
            None => true,
            Some(set) => name.is_some_and(|name| set.is_match(name)),
        };
        fits(&self.client_ids, client.client_id)
            && fits(&self.principals, client.principal)
            && fits(&self.software, client.software)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};
    use crate::policy::Policy;

    fn policy(rules: &str) -> Policy {
        let dir = tempfile::TempDir::new().expect("a folder");
        let file = dir.path().join("sizegate.yaml");
        let text = format!("cluster: {{bootstrap_servers: [b:9092]}}\nrules:\n{rules}");
        std::fs::write(&file, text).expect("a file");
        let config = config::load(Some(&file), &Overrides::default(), &config::Env::default());
        Policy::compile(&config.expect("a valid config")).expect("a policy")
    }

    #[test]
    fn the_rules_for_some_clients_of_a_topic_are_named_once_and_in_their_order() {
        let policy = policy(
            "- {name: regex, topics: ['/t[0-9]/'], clients: {client_ids: [a]}}\n\
             - {name: twice, topics: [t1, 't*', '*1'], clients: {principals: ['*']}}\n\
             - {name: exact, topics: [t1], clients: {software: [/.*/]}}\n\
             - {name: other, topics: ['x*'], clients: {client_ids: [a]}}\n\
             - {name: for-all, topics: ['t*']}\n",
        );
        for (topic, expected) in [
            ("t1", &["regex", "twice", "exact"][..]),
            ("tx", &["twice"]),
            ("x", &["other"]),
            ("y", &[]),
        ] {
            let rules = policy.rules_for_some_clients(topic);
            let names: Vec<&str> = rules.map(|rule| rule.name.as_str()).collect();
            assert_eq!(names, expected, "{topic}");
        }
    }

    #[test]
    fn the_first_rule_that_is_for_the_topic_and_the_client_wins() {
        let policy = policy(
            "- {name: both, topics: [t], clients: {client_ids: ['a*'], principals: [p, q]}}\n\
             - {name: java, topics: ['t*'], clients: {software: ['apache-kafka-java/*']}}\n\
             - {name: exact, topics: [t]}\n\
             - {name: rest, topics: [/.*/]}\n",
        );
        assert!(policy.asks_for_clients());
        let java = Some("apache-kafka-java/4.3.0");
        for (topic, client_id, principal, software, rule) in [
            ("t", Some("abc"), Some("q"), java, "both"),
            ("t", Some("abc"), Some("x"), java, "java"),
            ("t", Some("abc"), None, None, "exact"),
            ("t", None, Some("p"), None, "exact"),
            ("t", None, None, None, "exact"),
            ("t2", Some("abc"), Some("q"), java, "java"),
            ("t2", Some("abc"), Some("q"), None, "rest"),
            ("u", Some("abc"), Some("q"), java, "rest"),
        ] {
            let client = policy.client_rules(Client {
                client_id,
                principal,
                software,
            });
            let found = policy
                .rule_for_client(topic, &client)
                .map(|rule| rule.name.as_str());
            assert_eq!(
                found,
                Some(rule),
                "{topic} {client_id:?} {principal:?} {software:?}"
            );
        }
        assert_eq!(
            policy.rule_for("t").map(|rule| rule.name.as_str()),
            Some("exact")
        );
    }

    #[test]
    fn where_no_rule_names_clients_nobody_needs_to_know_them() {
        let policy = policy("- {name: all, topics: ['*']}\n");
        assert!(!policy.asks_for_clients());
        let rules = policy.client_rules(Client::default());
        assert_eq!(
            policy
                .rule_for_client("t", &rules)
                .map(|rule| rule.name.as_str()),
            Some("all")
        );
    }
}
