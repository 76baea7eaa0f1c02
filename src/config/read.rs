//! The merged layers as a serde data format in which a mistake does not end the reading: it is noted
//! with its key and place, and reading goes on with the next key.
//!
//! Invariant: whoever gets an error from here finds its text in the report already.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use ::config::{Value, ValueKind};
use serde::de::{DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Visitor};

use super::interpolate::interpolate;
use super::layers::Env;
use super::mistakes::{Report, below, nearest, shown};
use super::raw;

/// What reading needs beside the values.
pub(super) struct Reading<'a> {
    pub(super) env: &'a Env,
    pub(super) report: RefCell<Report>,
    /// Every key there is, dotted: for keys written in the wrong section.
    pub(super) known: Vec<String>,
}

/// A value at a dotted path.
pub(super) struct At<'a> {
    pub(super) value: Cow<'a, Value>,
    pub(super) path: String,
    /// The text this is a piece of, where a list was written as one text: `${VAR}` is replaced in it already.
    pub(super) piece_of: Option<&'a str>,
    pub(super) reading: &'a Reading<'a>,
}

/// A mistake already in the report; or, from a visitor, the text of one that will be.
#[derive(Debug)]
pub(super) struct Noted(String);

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Noted {}

impl serde::de::Error for Noted {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

impl At<'_> {
    fn note(&self, text: impl Into<String>) -> Noted {
        let text = text.into();
        let place = self.value.origin().unwrap_or_default();
        let mut report = self.reading.report.borrow_mut();
        let place = if place.is_empty() {
            report.place_of(&self.path)
        } else {
            place.to_owned()
        };
        report.note_at(place, &self.path, text.clone());
        Noted(text)
    }

    /// Notes that the value is of another kind than the key takes.
    fn wrong_kind(&self, expected: &dyn Expected) -> Noted {
        match &self.value.kind {
            ValueKind::Nil => self.note(format!("is empty: write {expected}, or remove the key")),
            ValueKind::Table(_) => self.note(format!("is a section, not {expected}")),
            ValueKind::Array(_) => self.note(format!("is a list, not {expected}")),
            // The value itself is not shown: it may be a secret in the wrong place.
            _ => self.note(format!("is a single value, not {expected}")),
        }
    }

    /// One piece of text, `${VAR}` replaced where a file wrote it.
    fn text(&self, expected: &dyn Expected) -> Result<String, Noted> {
        let ValueKind::String(raw) = &self.value.kind else {
            return Err(self.wrong_kind(expected));
        };
        let in_file = self.value.origin().is_some_and(|place| place.contains(':'));
        if !in_file || self.piece_of.is_some() {
            return Ok(raw.clone());
        }
        interpolate(raw, self.reading.env).map_err(|text| self.note(text))
    }

    /// As written, never what `${VAR}` stood for.
    fn shown(&self) -> String {
        match (&self.value.kind, self.piece_of) {
            (_, Some(whole)) if whole.contains("${") => format!("an entry of {}", shown(whole)),
            (ValueKind::String(raw), _) => shown(raw),
            _ => String::new(),
        }
    }
}

impl<'a, 'de> Deserializer<'de> for At<'a> {
    type Error = Noted;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        let text = self.text(&visitor)?;
        visitor
            .visit_string(text)
            .map_err(|Noted(text)| self.note(format!("{} {text}", self.shown())))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        let list = match &self.value.kind {
            ValueKind::Array(list) => list.iter().map(Cow::Borrowed).collect(),
            ValueKind::String(_) => self.split(&visitor)?,
            _ => return Err(self.wrong_kind(&"a list")),
        };
        let piece_of = match &self.value.kind {
            ValueKind::String(whole) => Some(whole.as_str()),
            _ => None,
        };
        let (path, reading) = (&self.path, self.reading);
        visitor.visit_seq(List {
            list: list.into_iter().enumerate(),
            path,
            piece_of,
            reading,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Noted> {
        let section = match &self.value.kind {
            ValueKind::Table(section) => section,
            _ => {
                let keys = fields.join(", ");
                return Err(
                    self.wrong_kind(&format!("a section with keys of its own ({keys})").as_str())
                );
            }
        };
        let mut keys: Vec<(&String, &Value)> = section.iter().collect();
        keys.sort_by_key(|(key, _)| *key);
        let mut entries = Vec::new();
        for (key, value) in keys {
            let path = below(&self.path, key);
            match fields.iter().find(|field| *field == key) {
                Some(field) => {
                    let value = Cow::Borrowed(value);
                    entries.push((
                        Cow::Borrowed(*field),
                        At {
                            value,
                            path,
                            piece_of: None,
                            reading: self.reading,
                        },
                    ));
                }
                None => {
                    let text = unknown(key, &self.path, fields, &self.reading.known);
                    if let Some(near) = nearest(key, fields.iter().copied()) {
                        self.reading
                            .report
                            .borrow_mut()
                            .misspelt(below(&self.path, near));
                    }
                    At {
                        value: Cow::Borrowed(value),
                        path,
                        piece_of: None,
                        reading: self.reading,
                    }
                    .note(text);
                }
            }
        }
        visitor.visit_map(Section {
            entries: entries.into_iter(),
            value: None,
        })
    }

    /// A section whose keys are not ours to know.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        let ValueKind::Table(section) = &self.value.kind else {
            return Err(self.wrong_kind(&visitor));
        };
        let mut keys: Vec<(&String, &Value)> = section.iter().collect();
        keys.sort_by_key(|(key, _)| *key);
        let mut entries = Vec::new();
        for (key, value) in keys {
            let at = At {
                value: Cow::Borrowed(value),
                path: below(&self.path, key),
                piece_of: None,
                reading: self.reading,
            };
            entries.push((Cow::Owned(key.clone()), at));
        }
        visitor.visit_map(Section {
            entries: entries.into_iter(),
            value: None,
        })
    }

    /// One piece of text, or a section with keys of its own: whichever is there.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Noted> {
        match self.value.kind {
            ValueKind::Table(_) => visitor.visit_newtype_struct(self),
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

impl At<'_> {
    /// A list written as one text: comma-separated.
    fn split(&self, expected: &dyn Expected) -> Result<Vec<Cow<'static, Value>>, Noted> {
        let origin = self.value.origin().map(str::to_owned);
        let text = self.text(expected)?;
        Ok(text
            .split(',')
            .map(|part| Cow::Owned(Value::new(origin.as_ref(), part.trim())))
            .collect())
    }
}

/// What to say of a key that does not exist.
pub(super) fn unknown(key: &str, section: &str, fields: &[&str], known: &[String]) -> String {
    let here = fields.join(", ");
    let here = if section.is_empty() {
        format!("at the top: {here}")
    } else {
        format!("in it: {here}")
    };
    if let Some(near) = nearest(key, fields.iter().copied()) {
        return format!("unknown key; did you mean `{near}`? Keys allowed {here}");
    }
    if let Some((section, key)) = key.rsplit_once('.')
        && known.iter().any(|path| {
            path.strip_prefix(section)
                .is_some_and(|rest| rest.strip_prefix('.') == Some(key))
        })
    {
        return format!(
            "unknown key; sections are nested: write `{key}:` on a line of its own under `{section}:`"
        );
    }
    match known
        .iter()
        .find(|path| path.rsplit('.').next() == Some(key))
    {
        Some(path) => format!("unknown key; did you mean `{path}`? Keys allowed {here}"),
        None => format!("unknown key; keys allowed {here}"),
    }
}

struct List<'a> {
    list: std::iter::Enumerate<std::vec::IntoIter<Cow<'a, Value>>>,
    path: &'a str,
    piece_of: Option<&'a str>,
    reading: &'a Reading<'a>,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Noted;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Noted> {
        let Some((i, value)) = self.list.next() else {
            return Ok(None);
        };
        let path = format!("{}[{i}]", self.path);
        seed.deserialize(At {
            value,
            path,
            piece_of: self.piece_of,
            reading: self.reading,
        })
        .map(Some)
    }
}

struct Section<'a> {
    entries: std::vec::IntoIter<(Cow<'static, str>, At<'a>)>,
    value: Option<At<'a>>,
}

impl<'de> MapAccess<'de> for Section<'_> {
    type Error = Noted;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Noted> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(serde::de::value::StrDeserializer::new(&key))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Noted> {
        let value = self
            .value
            .take()
            .ok_or_else(|| Noted("a value without its key".to_owned()))?;
        seed.deserialize(value)
    }
}

/// Reads the merged layers; every mistake in them is in the report afterwards.
pub(super) fn read(merged: &Value, env: &Env, report: Report) -> (raw::RawConfig, Report) {
    let reading = Reading {
        env,
        report: RefCell::new(report),
        known: raw::known_keys(),
    };
    let root = At {
        value: Cow::Borrowed(merged),
        path: String::new(),
        piece_of: None,
        reading: &reading,
    };
    let config: raw::Field<raw::RawConfig> =
        serde::Deserialize::deserialize(root).unwrap_or_default();
    (
        config.given().unwrap_or_default(),
        reading.report.into_inner(),
    )
}
