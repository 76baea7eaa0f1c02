//! Finds a topic's main topic by its name.
//!
//! The names are those that Spring Kafka, Spring Cloud Stream, SmallRye, Kafka's share groups and common advice give
//! retry and dead-letter topics. A name proposes; only a topic that exists is a main topic.

use super::MemberKind;

/// Words that end a relative's name, after a separator.
const WORDS: [(&str, MemberKind); 14] = [
    ("dlt", MemberKind::DeadLetter),
    ("dlq", MemberKind::DeadLetter),
    ("deadletter", MemberKind::DeadLetter),
    ("deadletters", MemberKind::DeadLetter),
    ("dead-letter", MemberKind::DeadLetter),
    ("dead-letters", MemberKind::DeadLetter),
    ("deadletterqueue", MemberKind::DeadLetter),
    ("dead-letter-queue", MemberKind::DeadLetter),
    ("dead-letter-topic", MemberKind::DeadLetter),
    ("error", MemberKind::DeadLetter),
    ("errors", MemberKind::DeadLetter),
    ("parkinglot", MemberKind::DeadLetter),
    ("parking-lot", MemberKind::DeadLetter),
    ("retry", MemberKind::Retry),
];

/// Words that begin one, before a separator.
const FIRST_WORDS: [(&str, MemberKind); 3] = [
    ("dlq", MemberKind::DeadLetter),
    ("dlt", MemberKind::DeadLetter),
    ("retry", MemberKind::Retry),
];

/// Between a name's parts.
const SEPARATORS: [char; 3] = ['.', '-', '_'];

/// Names tried for one topic: a retry's dead letter needs two, and a name can be made to need any number.
const MOST_TRIED: usize = 64;

/// What a name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// The main topic.
    pub main: String,
    /// What the topic is for.
    pub kind: MemberKind,
}

/// The main topic of a retry or dead-letter topic, by its name, and what it is for. The main topic is the last of a
/// chain (`orders` of `orders-retry-0-dlt`), exists, and is not the topic itself.
pub fn relative(topic: &str, exists: &dyn Fn(&str) -> bool) -> Option<Relative> {
    let (_, kind) = under(topic)?;
    let mut untried = MOST_TRIED;
    let main = main_of(topic, exists, &mut untried)?;
    Some(Relative { main, kind })
}

fn main_of(name: &str, exists: &dyn Fn(&str) -> bool, untried: &mut usize) -> Option<String> {
    *untried = untried.checked_sub(1)?;
    let (candidates, _) = under(name)?;
    candidates.into_iter().find_map(|candidate| {
        let beneath = main_of(candidate, exists, untried);
        beneath.or_else(|| exists(candidate).then(|| candidate.to_owned()))
    })
}

/// The names that may be under one layer of a relative's name, likeliest first; `None` for a name that has none.
fn under(name: &str) -> Option<(Vec<&str>, MemberKind)> {
    let lower = name.to_ascii_lowercase();
    if let Some(channel) = after(name, &lower, "dead-letter-topic-") {
        return Some((vec![channel], MemberKind::DeadLetter));
    }
    if let Some(rest) = after(name, &lower, "error.") {
        // `error.<destination>.<group>`, and either may hold dots.
        let dots = rest.match_indices('.').map(|(at, _)| at);
        let mut candidates: Vec<&str> = dots.filter_map(|at| rest.get(..at)).collect();
        candidates.reverse();
        candidates.push(rest);
        candidates.retain(|candidate| !candidate.is_empty());
        return Some((candidates, MemberKind::DeadLetter));
    }
    for (word, kind) in FIRST_WORDS {
        for separator in SEPARATORS {
            if let Some(rest) = after(name, &lower, &format!("{word}{separator}")) {
                return Some((vec![rest], kind));
            }
        }
    }
    let (stem, kind) = stem(&lower)?;
    let stem = name.get(..stem)?;
    // `<topic>__<group>__retry`
    let groups = stem.rmatch_indices("__").map(|(at, _)| at);
    let topics = groups.filter_map(|at| stem.get(..at));
    let candidates = std::iter::once(stem).chain(topics.filter(|topic| !topic.is_empty()));
    Some((candidates.collect(), kind))
}

/// What follows `prefix`, in the name as it is spelt; nothing where nothing follows.
fn after<'a>(name: &'a str, lower: &str, prefix: &str) -> Option<&'a str> {
    lower.strip_prefix(prefix)?;
    name.get(prefix.len()..).filter(|rest| !rest.is_empty())
}

/// How long the name is without the word that ends it, its separators and its count; and what the word says.
fn stem(lower: &str) -> Option<(usize, MemberKind)> {
    // `dead_letter_queue`, `dead.letter.queue`: of the same length as with dashes.
    let dashed = lower.replace(SEPARATORS, "-");
    for ending in [Some(lower), without_count(lower), without_two_counts(lower)] {
        let Some(ending) = ending.and_then(|ending| dashed.get(..ending.len())) else {
            continue;
        };
        for (word, kind) in WORDS {
            let Some(rest) = ending.strip_suffix(word) else {
                continue;
            };
            let stem = rest.trim_end_matches(SEPARATORS);
            if !stem.is_empty() && stem.len() < rest.len() {
                return Some((stem.len(), kind));
            }
        }
    }
    None
}

/// `retry` of `retry-3`, `retry_5000`, `retry_5m` and `retry-500ms`, `dlq` of `dlq-v2`.
fn without_count(name: &str) -> Option<&str> {
    const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];
    let timed = UNITS.iter().find_map(|unit| name.strip_suffix(unit));
    let is_digit = |c: char| c.is_ascii_digit();
    let counted = timed
        .filter(|rest| rest.ends_with(is_digit))
        .unwrap_or(name);
    let rest = counted.trim_end_matches(is_digit);
    if rest.len() == counted.len() {
        return None;
    }
    let rest = rest
        .strip_suffix('v')
        .filter(|rest| rest.ends_with(SEPARATORS))
        .unwrap_or(rest);
    rest.strip_suffix(SEPARATORS)
}

/// `retry` of `retry-5000-1`.
fn without_two_counts(name: &str) -> Option<&str> {
    let once = without_count(name)?;
    let is_dash = name.get(once.len()..)?.starts_with('-');
    without_count(once).filter(|_| is_dash)
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    /// What the names of Spring, SmallRye, Uber and others have in common.
    const PATTERN: &str = r"(?i)^((dlq|dlt|retry)[.\-_].*|error\..*|dead-letter-topic-.*|.*[.\-_]+(dlt|dlq|dead[-_.]?letters?|dead[-_.]?letter[-_.]?queue|dead[-_.]letter[-_.]topic|errors?|parking[-_.]?lot|retry)([-_.]v?\d+(ms|s|m|h|d)?(-\d+(ms|s|m|h|d)?)?)?)$";

    /// The usual names, the topics they need, and what they say.
    const NAMES: [(&str, &str, MemberKind); 30] = [
        ("orders-dlt", "orders", MemberKind::DeadLetter),
        ("orders.DLT", "orders", MemberKind::DeadLetter),
        ("orders-retry", "orders", MemberKind::Retry),
        ("orders-retry-0", "orders", MemberKind::Retry),
        ("orders-retry-1000", "orders", MemberKind::Retry),
        ("orders-retry-1000-1", "orders", MemberKind::Retry),
        ("error.orders.billing", "orders", MemberKind::DeadLetter),
        ("dead-letter-topic-orders", "orders", MemberKind::DeadLetter),
        ("orders_retry_5000", "orders", MemberKind::Retry),
        ("orders__billing__retry", "orders", MemberKind::Retry),
        ("orders__billing__2__retry", "orders", MemberKind::Retry),
        ("orders__dlq", "orders", MemberKind::DeadLetter),
        ("dlq.orders", "orders", MemberKind::DeadLetter),
        ("dlq-orders", "orders", MemberKind::DeadLetter),
        ("orders-dlq", "orders", MemberKind::DeadLetter),
        ("orders.dead-letter", "orders", MemberKind::DeadLetter),
        ("ORDERS_DEADLETTER_3", "ORDERS", MemberKind::DeadLetter),
        // By public reports.
        ("orders-dead-letter-queue", "orders", MemberKind::DeadLetter),
        ("orders_dead_letter_queue", "orders", MemberKind::DeadLetter),
        ("orders.dead.letter.queue", "orders", MemberKind::DeadLetter),
        ("orders-deadletterqueue", "orders", MemberKind::DeadLetter),
        ("orders_dead_letters", "orders", MemberKind::DeadLetter),
        ("orders_retry_5m", "orders", MemberKind::Retry),
        ("orders-retry-500ms", "orders", MemberKind::Retry),
        ("orders-errors", "orders", MemberKind::DeadLetter),
        ("orders-dlq-v2", "orders", MemberKind::DeadLetter),
        ("retry.orders", "orders", MemberKind::Retry),
        ("dlt_orders", "orders", MemberKind::DeadLetter),
        ("orders-parking-lot", "orders", MemberKind::DeadLetter),
        ("orders_parking_lot", "orders", MemberKind::DeadLetter),
    ];

    #[test]
    fn every_usual_name_leads_to_its_main_topic() {
        for (name, main, kind) in NAMES {
            let expected = Relative {
                main: main.to_owned(),
                kind,
            };
            assert_eq!(
                relative(name, &|topic| topic == main),
                Some(expected),
                "{name}"
            );
            assert_eq!(relative(name, &|_| false), None, "{name}: no topic exists");
        }
    }

    #[test]
    fn a_chain_leads_to_its_beginning() {
        let exists =
            |topic: &str| matches!(topic, "orders" | "orders-retry-0" | "a.retry" | "b-error");
        for (name, main) in [
            ("orders-retry-0-dlt", Some("orders")),
            // What is between need not exist.
            ("orders-retry-7-dlt", Some("orders")),
            ("orders-dlt.DLT", Some("orders")),
            // A topic that is called a retry but is nobody's is a main topic.
            ("a.retry.dlq", Some("a.retry")),
            ("b-error-retry-1", Some("b-error")),
            ("orders", None),
            ("orders-retries", None),
            ("ordersretry", None),
            ("payments-dlt", None),
        ] {
            let found = relative(name, &exists).map(|relative| relative.main);
            assert_eq!(found.as_deref(), main, "{name}");
        }
        for layer in ["-dlt", "__dlq"] {
            let deep = format!("none{}", layer.repeat(48));
            assert_eq!(relative(&deep, &exists), None, "and it ends soon");
        }
    }

    #[test]
    fn groups_and_dots_inside_are_tried_from_the_longest() {
        let exists = |topic: &str| matches!(topic, "eu.orders" | "eu" | "a__b" | "a");
        for (name, main) in [
            ("error.eu.orders.billing", "eu.orders"),
            ("error.eu.orders", "eu"),
            ("error.a", "a"),
            ("a__b__retry", "a__b"),
            ("a__b__group__dlq", "a__b"),
            ("a__c__dlq", "a"),
        ] {
            let found = relative(name, &exists).map(|relative| relative.main);
            assert_eq!(found.as_deref(), Some(main), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_called_a_relative_is_what_the_pattern_matches(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![
                    "orders", "DLT", "dlq", "dead", "letter", "dead-letter-topic-", "error", "retry", "0", "42", "x",
                    "-", "_", ".", "queue", "parking", "lot", "errors", "v2", "5m", "ms",
                ]),
                1..7,
            )
        ) {
            let name = parts.concat();
            let pattern = Regex::new(PATTERN)?;
            // The pattern also matches names that leave nothing for a main topic.
            if under(&name).is_some() {
                proptest::prop_assert!(pattern.is_match(&name), "{name}");
            } else if pattern.is_match(&name) {
                let bare = Regex::new(
                    r"(?i)^((dlq|dlt|retry)[.\-_]|error\.|dead-letter-topic-|[.\-_]*(dlt|dlq|dead[-_.]?letters?|dead[-_.]?letter[-_.]?queue|dead[-_.]letter[-_.]topic|errors?|parking[-_.]?lot|retry)([-_.]v?\d+(ms|s|m|h|d)?(-\d+(ms|s|m|h|d)?)?)?)$",
                )?;
                proptest::prop_assert!(bare.is_match(&name), "{name}");
            }
        }
    }
}
