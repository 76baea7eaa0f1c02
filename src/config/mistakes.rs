//! Lists a configuration's mistakes, one line each: where, which key, what is allowed.
//!
//! Invariant: no text here ever holds the value of a secret, and a value that cannot be read is shown as it was
//! written, not as what its `${VAR}` stood for.

use std::collections::BTreeMap;
use std::{fmt, iter, mem};

use ::config::{Value, ValueKind};

/// More than this many mistakes are not listed; a file that bad is read again after the first repairs.
const MOST: usize = 50;

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// `file:line`, an environment variable or a command-line flag; empty where nothing was written.
    pub place: String,
    /// The dotted path of the key, such as `rules[0].limits.batch_bytes`; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what is allowed.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.key] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.text)
    }
}

/// Every mistake found in one go, in the order of the file; shown one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    mistakes: Vec<Mistake>,
    more: bool,
}

impl ConfigErrors {
    /// The mistakes, in the order of the file, then those of the environment.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.mistakes.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        if self.more {
            write!(f, "\nand more: only the first {MOST} are listed")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects mistakes and knows where each key was written.
#[derive(Debug, Default)]
pub(super) struct Report {
    places: BTreeMap<String, String>,
    mistakes: Vec<Mistake>,
    /// Keys that someone meant to write, and misspelt.
    misspelt: Vec<String>,
    more: bool,
}

impl Report {
    /// Learns from a tree of values where each key was written; over what was learned before.
    pub(super) fn learn_places(&mut self, root: &Value) {
        learn(&mut self.places, String::new(), root);
    }

    /// Notes a mistake about `key`, at the place where it, or the section it is missing from, was written.
    pub(super) fn note(&mut self, key: &str, text: impl Into<String>) {
        let place = self.place_of(key);
        self.note_at(place, key, text);
    }

    /// Notes a mistake about `key` at a place the caller knows.
    pub(super) fn note_at(&mut self, place: impl Into<String>, key: &str, text: impl Into<String>) {
        if self.mistakes.len() >= MOST {
            self.more = true;
            return;
        }
        self.mistakes.push(Mistake {
            place: place.into(),
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// Remembers that an unknown key was most likely meant to be `key`: then it is not missing.
    pub(super) fn misspelt(&mut self, key: String) {
        self.misspelt.push(key);
    }

    /// Notes that `key` is missing, unless it is only misspelt.
    pub(super) fn missing(&mut self, key: &str, what: &str) {
        if !self.misspelt.iter().any(|meant| meant == key) {
            self.note(key, format!("is missing: {what}"));
        }
    }

    /// Notes about the first of the keys `involved` that they contradict each other, at the place of the first
    /// that someone wrote. A key that is known to be wrong contradicts nothing: its default stands in for it,
    /// which nobody wrote.
    pub(super) fn contradiction(&mut self, involved: &[&str], text: impl Into<String>) {
        let Some(first) = involved.first() else {
            return;
        };
        if involved.iter().any(|key| self.is_wrong(key)) {
            return;
        }
        let written = involved.iter().find(|key| self.places.contains_key(**key));
        self.note_at(self.place_of(written.unwrap_or(first)), first, text);
    }

    /// The place of `key` or of the nearest section around it.
    pub(super) fn place_of(&self, key: &str) -> String {
        let mut key = key;
        // A section that only the environment names is written nowhere but in what is in it.
        if !self.places.contains_key(key)
            && let Some((_, place)) = self.places.iter().find(|(at, _)| within(at, key))
            && !key.is_empty()
        {
            return place.clone();
        }
        loop {
            match self.places.get(key) {
                Some(place) => return place.clone(),
                _ if key.is_empty() => return String::new(),
                _ => {
                    key = key
                        .rfind(['.', '['])
                        .and_then(|end| key.get(..end))
                        .unwrap_or_default()
                }
            }
        }
    }

    /// Whether nothing was noted.
    pub(super) fn is_empty(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// Everything noted, in the order of the file.
    pub(super) fn into_errors(mut self) -> ConfigErrors {
        // Stable: what one line holds stays in the order it was found.
        self.mistakes
            .sort_by_key(|mistake| match mistake.place.rsplit_once(':') {
                Some((_, line)) => line.parse().unwrap_or(usize::MAX),
                None => usize::MAX,
            });
        ConfigErrors {
            mistakes: self.mistakes,
            more: self.more,
        }
    }

    fn is_wrong(&self, key: &str) -> bool {
        let wrong = self
            .mistakes
            .iter()
            .map(|mistake| &mistake.key)
            .chain(&self.misspelt);
        wrong
            .into_iter()
            .any(|wrong| within(wrong, key) || within(key, wrong))
    }
}

/// Whether `key` is `section` or lies below it.
fn within(key: &str, section: &str) -> bool {
    key.strip_prefix(section)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn learn(places: &mut BTreeMap<String, String>, path: String, value: &Value) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (key, value) in table {
                learn(places, below(&path, key), value);
            }
        }
        ValueKind::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                learn(places, format!("{path}[{i}]"), value);
            }
        }
        _ => {}
    }
    // Sections that the layers were merged into have no origin of their own: what is known stays.
    if let Some(origin) = value.origin().filter(|origin| !origin.is_empty()) {
        places.insert(path, origin.to_owned());
    }
}

/// The dotted path of `key` in the section `path`.
pub(super) fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A value as a mistake shows it: on one line, in backquotes, shortened.
pub(super) fn shown(value: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = value
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!(
        "`{}`",
        short
            .replace("\\\"", "\"")
            .replace("\\'", "'")
            .replace("\\\\", "\\")
    )
}

/// The one of `known` most like `word`, if any is like it: at most a third of its letters differ.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (edits(&word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= candidate.len().min(word.len()).div_ceil(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with their neighbour to make one word of the other
/// (optimal string alignment).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // How far the letters of `a` so far are from each beginning of `b`; the same with one letter less, and two.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut letter_before = None;
    for (x, removed) in a.chars().zip(1..) {
        let mut row = vec![removed];
        let mut left = removed;
        let mut swapped =
            iter::once(None).chain(b.iter().copied().map(Some).zip(before_last).map(Some));
        for (&y, around) in b.iter().zip(last.windows(2)) {
            let &[diagonal, above] = around else { continue };
            let mut least = diagonal
                .saturating_add(usize::from(x != y))
                .min(above.min(left).saturating_add(1));
            if let Some((before_y, edits)) = swapped.next().flatten()
                && before_y == Some(x)
                && letter_before == Some(y)
            {
                least = least.min(edits.saturating_add(1));
            }
            row.push(least);
            left = least;
        }
        before_last = mem::replace(&mut last, row);
        letter_before = Some(x);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_its_nearest_and_a_strange_one_finds_none() {
        let known = ["bind", "advertised_host", "frame_bytes", "tls", "sni"];
        for (word, expected) in [
            ("bnd", Some("bind")),
            ("bidn", Some("bind")),
            ("frame-bytes", Some("frame_bytes")),
            ("FRAME_BYTE", Some("frame_bytes")),
            ("advertisedHost", Some("advertised_host")),
            ("tsl", Some("tls")),
            ("password", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn a_key_known_to_be_wrong_silences_contradictions_that_involve_it() {
        let mut report = Report::default();
        report.note("listener.tls.key_file", "is missing");
        report.contradiction(&["listener.sni", "listener.tls"], "needs TLS");
        assert_eq!(report.mistakes.len(), 1);
        report.contradiction(&["listener.sni", "listener.tlsx"], "is another key");
        assert_eq!(report.mistakes.len(), 2);
    }
}
