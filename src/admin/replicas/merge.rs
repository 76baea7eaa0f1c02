//! Makes one answer of several replicas'. Pure.
//!
//! Invariant: of what a peer says only what has the expected shape is taken, in bounded numbers and lengths: an entry
//! that has another is left out.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::text::first_chars;

/// Rows of a list.
const MOST_ROWS: usize = 20_000;
/// Entries of anything smaller.
const MOST_WORDS: usize = 1_000;
/// A refusal's text has 1,024 bytes, a configuration's mistakes may have more.
const TEXT_CHARS: usize = 8_192;

/// An object's fields. A field that is left out is null.
pub(super) type Fields = &'static [(&'static str, Kind)];

/// How the answers for a path become one.
pub(super) enum Together {
    /// One object of all.
    One(Fields),
    /// Each replica's stays its own: this process' answer, and these fields of each in the list of replicas.
    Each(Fields),
}

/// What a value is, and what becomes of two of them. Where nothing is said, the first stays.
pub(super) enum Kind {
    Text,
    Count,
    Number,
    /// Either.
    Flag,
    Sum,
    Least,
    Most,
    /// Of two moments.
    First,
    Last,
    /// Numbers in a row.
    SumEach,
    /// Numbers by word.
    SumByWord,
    /// Each text once.
    Texts,
    /// Of this process alone.
    Own,
    Maybe(&'static Kind),
    Object(Fields),
    Rows(&'static Rows),
}

/// A list of objects.
pub(super) struct Rows {
    /// Those alike in these become one; without any, all stay.
    pub key: &'static [&'static str],
    /// The greater in this says what is not added up.
    pub newest: Option<&'static str>,
    /// Rows say whose they are, those in which this field is not null.
    pub who: Option<&'static str>,
    pub order: Order,
    pub fields: Fields,
}

pub(super) enum Order {
    AsTheyCame,
    /// The least first.
    Up(&'static str),
    /// The greatest first.
    Down(&'static str),
}

/// `own` is this process', `others` its peers'; both with their names. `told` are all that were asked.
pub(super) fn merged(
    together: &Together,
    own: (String, Value),
    others: Vec<(String, Value)>,
    mut told: Vec<Value>,
) -> Value {
    let (name, mut body) = own;
    match together {
        Together::One(fields) => {
            let kind = Kind::Object(fields);
            mark(&kind, &mut body, &name);
            for (name, other) in others {
                match kind.fit(other) {
                    Some(mut other) => {
                        mark(&kind, &mut other, &name);
                        kind.merge(&mut body, other);
                    }
                    None => tell(&mut told, &name, not_understood()),
                }
            }
            arrange(&kind, &mut body);
        }
        Together::Each(fields) => {
            let kind = Kind::Object(fields);
            for (name, state) in others.into_iter().chain([(name, body.clone())]) {
                let state = match kind.fit(state) {
                    Some(Value::Object(state)) => state,
                    _ => not_understood(),
                };
                tell(&mut told, &name, state);
            }
        }
    }
    if let Value::Object(body) = &mut body {
        body.insert("replicas".to_owned(), Value::Array(told));
    }
    body
}

/// Of another version, most likely.
const NOT_UNDERSTOOD: &str = "its answer is not understood";

fn not_understood() -> Map<String, Value> {
    Map::from_iter([("error".to_owned(), NOT_UNDERSTOOD.into())])
}

/// Adds to what is told of a replica.
fn tell(told: &mut [Value], name: &str, more: Map<String, Value>) {
    let mut replicas = told.iter_mut().filter_map(Value::as_object_mut);
    let is_it = |replica: &&mut Map<String, Value>| {
        replica.get("instance").is_some_and(|told| *told == *name)
    };
    if let Some(replica) = replicas.find(is_it) {
        replica.extend(more);
    }
}

impl Kind {
    /// A peer's value, or none if it is something else.
    fn fit(&self, value: Value) -> Option<Value> {
        match (self, value) {
            (Self::Text | Self::First | Self::Last, Value::String(text)) => {
                Some(first_chars(&text, TEXT_CHARS).into())
            }
            (Self::Count | Self::Sum | Self::Least | Self::Most, value) => {
                value.as_i64().is_some().then_some(value)
            }
            (Self::Number, value) => value.as_f64().is_some().then_some(value),
            (Self::Flag, value @ Value::Bool(_)) => Some(value),
            (Self::SumEach, value) => list(&Self::Sum, value, MOST_WORDS),
            (Self::Texts, value) => list(&Self::Text, value, MOST_WORDS),
            (Self::SumByWord, Value::Object(counts)) => {
                let counts = counts.into_iter().take(MOST_WORDS);
                let fit = counts.filter_map(|(word, count)| {
                    Some((
                        first_chars(&word, TEXT_CHARS).to_owned(),
                        Self::Sum.fit(count)?,
                    ))
                });
                Some(Value::Object(fit.collect()))
            }
            (Self::Own, _) | (Self::Maybe(_), Value::Null) => Some(Value::Null),
            (Self::Maybe(kind), value) => kind.fit(value),
            (Self::Object(fields), Value::Object(mut object)) => {
                let fit = fields.iter().map(|(name, kind)| {
                    let value = object.remove(*name).unwrap_or_default();
                    Some(((*name).to_owned(), kind.fit(value)?))
                });
                fit.collect::<Option<Map<_, _>>>().map(Value::Object)
            }
            (Self::Rows(rows), value) => list(&Self::Object(rows.fields), value, MOST_ROWS),
            _ => None,
        }
    }

    /// Adds `other`, which fits, to `value`.
    fn merge(&self, value: &mut Value, other: Value) {
        match (self, value, other) {
            (Self::Maybe(_), value @ Value::Null, other) => *value = other,
            (Self::Maybe(_), _, Value::Null) => {}
            (Self::Maybe(kind), value, other) => kind.merge(value, other),
            (Self::Flag, Value::Bool(value), Value::Bool(other)) => *value |= other,
            (Self::Sum, value, other) => *value = count(value).saturating_add(count(&other)).into(),
            (Self::Least, value, other) => *value = count(value).min(count(&other)).into(),
            (Self::Most, value, other) => *value = count(value).max(count(&other)).into(),
            (Self::First, Value::String(value), Value::String(other)) if other < *value => {
                *value = other;
            }
            (Self::Last, Value::String(value), Value::String(other)) if other > *value => {
                *value = other;
            }
            (Self::SumEach, Value::Array(value), Value::Array(other)) => {
                for (value, other) in value.iter_mut().zip(other) {
                    Self::Sum.merge(value, other);
                }
            }
            (Self::SumByWord, Value::Object(value), Value::Object(other)) => {
                for (word, count) in other {
                    Self::Sum.merge(value.entry(word).or_insert_with(|| 0.into()), count);
                }
            }
            (Self::Texts, Value::Array(value), Value::Array(other)) => {
                for text in other {
                    if value.len() < MOST_WORDS && !value.contains(&text) {
                        value.push(text);
                    }
                }
            }
            (Self::Object(fields), Value::Object(value), Value::Object(mut other)) => {
                for (name, kind) in *fields {
                    if let (Some(value), Some(other)) = (value.get_mut(*name), other.remove(*name))
                    {
                        kind.merge(value, other);
                    }
                }
                if let (Some(value), Some(other)) =
                    (value.get_mut(REPLICAS), other.remove(REPLICAS))
                {
                    Self::Texts.merge(value, other);
                }
            }
            (Self::Rows(rows), Value::Array(value), Value::Array(other)) => {
                rows.merge(value, other)
            }
            _ => {}
        }
    }
}

/// Whose a row is, where those alike become one, and where all stay.
const REPLICAS: &str = "replicas";
const REPLICA: &str = "replica";

impl Rows {
    fn merge(&self, rows: &mut Vec<Value>, others: Vec<Value>) {
        if self.key.is_empty() {
            rows.extend(others);
            return;
        }
        let mut places: HashMap<String, usize> = HashMap::new();
        for (place, row) in rows.iter().enumerate() {
            places.insert(self.key_of(row), place);
        }
        let kind = Kind::Object(self.fields);
        for mut other in others {
            let place = *places.entry(self.key_of(&other)).or_insert(rows.len());
            let Some(row) = rows.get_mut(place) else {
                rows.push(other);
                continue;
            };
            if self
                .newest
                .is_some_and(|field| text(&other, field) > text(row, field))
            {
                std::mem::swap(row, &mut other);
            }
            kind.merge(row, other);
        }
    }

    fn key_of(&self, row: &Value) -> String {
        let parts = self
            .key
            .iter()
            .map(|field| row.get(*field).unwrap_or(&Value::Null));
        parts.map(|part| format!("{part}\n")).collect()
    }

    fn mark(&self, row: &mut Value, name: &str) {
        let is_whose = self
            .who
            .is_some_and(|who| row.get(who).is_some_and(|value| !value.is_null()));
        if let (true, Value::Object(row)) = (self.who.is_some(), row) {
            let (field, whose) = if self.key.is_empty() {
                (REPLICA, Value::from(name))
            } else if is_whose {
                (REPLICAS, vec![name].into())
            } else {
                (REPLICAS, Value::Array(Vec::new()))
            };
            row.insert(field.to_owned(), whose);
        }
    }

    fn arrange(&self, rows: &mut Vec<Value>) {
        match self.order {
            Order::AsTheyCame => {}
            Order::Up(field) => rows.sort_by(|a, b| rank(a, field).cmp(&rank(b, field))),
            Order::Down(field) => rows.sort_by(|a, b| rank(b, field).cmp(&rank(a, field))),
        }
        rows.truncate(MOST_ROWS);
    }
}

fn list(kind: &Kind, value: Value, most: usize) -> Option<Value> {
    let Value::Array(values) = value else {
        return None;
    };
    let fit = values
        .into_iter()
        .take(most)
        .filter_map(|value| kind.fit(value));
    Some(fit.collect())
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Numbers by size, texts by letters.
fn rank<'a>(row: &'a Value, field: &str) -> (i64, &'a str) {
    (row.get(field).map_or(0, count), text(row, field))
}

/// Says of every row whose it is.
fn mark(kind: &Kind, value: &mut Value, name: &str) {
    each_list(kind, value, &mut |rows, list| {
        for row in list {
            rows.mark(row, name);
        }
    });
}

fn arrange(kind: &Kind, value: &mut Value) {
    each_list(kind, value, &mut |rows, list| rows.arrange(list));
}

/// The lists that an answer consists of.
fn each_list(kind: &Kind, value: &mut Value, act: &mut impl FnMut(&Rows, &mut Vec<Value>)) {
    match (kind, value) {
        (Kind::Object(fields), Value::Object(object)) => {
            for (name, kind) in *fields {
                if let Some(value) = object.get_mut(*name) {
                    each_list(kind, value, act);
                }
            }
        }
        (Kind::Rows(rows), Value::Array(list)) => act(rows, list),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::shapes::together_of;
    use super::*;

    fn all(path: &str, own: Value, others: &[Value]) -> Value {
        let names = ["b", "c", "d"].map(str::to_owned);
        let others = names.into_iter().zip(others.iter().cloned()).collect();
        let told = ["a", "b", "c"].map(|name| json!({"instance": name}));
        merged(
            together_of(path).unwrap(),
            ("a".to_owned(), own),
            others,
            told.to_vec(),
        )
    }

    fn group(client: &str, minutes: [u32; 3], last_at: &str, last_id: &str) -> Value {
        json!({
            "topic": "orders", "gate": "record", "client_id": client, "software": "x", "refused_by": "sizegate",
            "is_observed": false, "last_ten_minutes": minutes[2], "last_hour": minutes.iter().sum::<u32>(),
            "by_minute": minutes, "first_at": last_at, "last_at": last_at, "last_id": last_id,
        })
    }

    #[test]
    fn groups_of_one_topic_gate_and_client_are_added_up_and_the_newest_gives_the_id() {
        let own = json!({"groups": [group("app", [1, 2, 3], "2026-01-01T00:02:00Z", "old")]});
        let other = json!({"groups": [
            group("app", [10, 0, 5], "2026-01-01T00:03:00Z", "new"),
            group("job", [0, 0, 9], "2026-01-01T00:01:00Z", "job"),
        ]});
        let body = all("/api/v1/refusals/recent", own, &[other]);
        let groups = body["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 2);
        let (job, app) = (&groups[0], &groups[1]);
        assert_eq!(
            (&job["client_id"], &job["replicas"]),
            (&json!("job"), &json!(["b"]))
        );
        assert_eq!(app["by_minute"], json!([11, 2, 8]));
        assert_eq!(
            (&app["last_ten_minutes"], &app["last_hour"]),
            (&json!(8), &json!(21))
        );
        assert_eq!(
            (&app["first_at"], &app["last_at"], &app["last_id"]),
            (
                &json!("2026-01-01T00:02:00Z"),
                &json!("2026-01-01T00:03:00Z"),
                &json!("new")
            )
        );
        let mut replicas = app["replicas"].as_array().unwrap().clone();
        replicas.sort_by_key(ToString::to_string);
        assert_eq!(replicas, [json!("a"), json!("b")]);
    }

    #[test]
    fn what_does_not_have_the_expected_shape_is_left_out() {
        let own = json!({"groups": []});
        let mut wrong = group("app", [1, 1, 1], "x", "y");
        wrong["topic"] = json!({"toLowerCase": 1});
        let mut more = group("job", [1, 1, 1], "x", "y");
        more["__proto__"] = json!({"x": 1});
        more["last_id"] = "z".repeat(100_000).into();
        for foreign in [
            json!(null),
            json!([]),
            json!({"groups": 3}),
            json!({"groups": [7, null, wrong]}),
        ] {
            let body = all("/api/v1/refusals/recent", own.clone(), &[foreign]);
            assert_eq!(body["groups"], json!([]), "{body}");
        }
        let body = all("/api/v1/refusals/recent", own, &[json!({"groups": [more]})]);
        let kept = &body["groups"][0];
        assert!(kept.get("__proto__").is_none());
        assert_eq!(kept["last_id"].as_str().unwrap().len(), TEXT_CHARS);
    }

    #[test]
    fn refusals_stay_each_their_own_the_newest_first() {
        let refusal = |id: &str, at: &str| {
            json!({"id": id, "at": at, "text": "", "topic": "t", "partition": 0, "gate": "batch", "size_bytes": 1,
                "limit_bytes": null, "error_code": 10, "client_id": "", "software": "", "address": "", "refused_by": "broker"})
        };
        let own = json!({"refusals": [refusal("1", "2026-01-01T00:00:03Z"), refusal("2", "2026-01-01T00:00:01Z")]});
        let other = json!({"refusals": [refusal("1", "2026-01-01T00:00:02Z")]});
        let body = all("/api/v1/refusals", own, &[other]);
        let rows = body["refusals"].as_array().unwrap();
        let told: Vec<String> = rows
            .iter()
            .map(|row| format!("{}{}", row["id"], row["replica"]))
            .collect();
        assert_eq!(told, [r#""1""a""#, r#""1""b""#, r#""2""a""#]);
        assert_eq!(body["replicas"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_state_stays_each_replicas_own() {
        let state = |name: &str, connections: u64| {
            json!({"instance": name, "version": "1", "mode": "enforce", "why_not_ready": [], "connections": connections,
                "held_bytes": 1, "memory_budget_bytes": 2, "memory_waits": 0, "reload": null,
                "control_plane": {"is_up": true, "limits_age_seconds": 3, "error": null}})
        };
        let body = all(
            "/api/v1/status",
            state("a", 5),
            &[state("b", 7), json!("no")],
        );
        assert_eq!(body["connections"], 5);
        assert_eq!(body["replicas"][1]["connections"], 7);
        assert_eq!(body["replicas"][0]["control_plane"]["is_up"], true);
        assert_eq!(
            body["replicas"][2],
            json!({"instance": "c", "error": NOT_UNDERSTOOD})
        );
    }
}
