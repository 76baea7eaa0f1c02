//! Which rules are for which clients. Asked when something new is known of a client, never per request.

use regex::RegexSet;

use crate::config::{Clients, NamePattern, Rule};

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
pub struct ClientRules(
    /// By number of the rule; one that is missing is not for it.
    Vec<bool>,
);

/// The `clients` of all rules, compiled.
#[derive(Debug)]
pub(super) struct ClientMatchers {
    /// By number of the rule; `None`: for everybody.
    rules: Vec<Option<Matcher>>,
}

#[derive(Debug)]
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
        Ok(Self {
            rules: compiled.collect::<Result<_, _>>()?,
        })
    }

    /// Some rule is not for everybody.
    pub(super) fn is_any(&self) -> bool {
        self.rules.iter().any(Option::is_some)
    }

    pub(super) fn rules_for(&self, client: Client<'_>) -> ClientRules {
        let is_for = |matcher: &Option<Matcher>| {
            matcher
                .as_ref()
                .is_some_and(|matcher| matcher.matches(client))
        };
        ClientRules(self.rules.iter().map(is_for).collect())
    }

    /// Whether a rule may speak for a client at all.
    pub(super) fn allows(&self, rule: usize, client: &ClientRules) -> bool {
        let is_for_everybody = self.rules.get(rule).is_some_and(Option::is_none);
        is_for_everybody || client.0.get(rule).copied().unwrap_or(false)
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
