//! YAML text to a tree of values that know their line.
//!
//! Invariant: every scalar stays the text that was written (`007`, `no`, `1.0`); the key it belongs to
//! decides what it means, not YAML's guess. Keys written twice are mistakes. Depth is bounded.

use ::config::{Map, Value, ValueKind};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::mistakes::{Report, below, shown};

/// Deeper than any key; a bound for the recursion below.
const DEEPEST: usize = 32;

/// Reads one document. Syntax errors and doubled keys are noted in `report`; `None` when no tree came of it.
pub(super) fn read(file: &str, text: &str, report: &mut Report) -> Option<Value> {
    let mut reader = YamlReader {
        parser: Parser::new_from_str(text),
        file,
        report,
    };
    match reader.document() {
        Ok(root) => Some(root),
        Err(Stop { line, text: why }) => {
            let quote = unquoted(text, line);
            let quote = quote.map_or_else(String::new, |it| format!("; quote it: [\"{it}\"]"));
            let text = format!("{why}{quote}");
            reader.report.note_at(format!("{file}:{line}"), "", text);
            None
        }
    }
}

/// `${NAME}` as the first entry of a list in brackets: to YAML its `{` begins a section.
fn unquoted(text: &str, line: usize) -> Option<&str> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let (_, variable) = line.split_once('[')?;
    let variable = variable.trim_start();
    variable
        .starts_with("${")
        .then(|| variable.split_inclusive('}').next())?
}

/// Why reading cannot go on.
struct Stop {
    line: usize,
    text: String,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        Self {
            line: error.marker().line(),
            text: format!("is not YAML: {}", error.info()),
        }
    }
}

struct YamlReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    file: &'a str,
    report: &'a mut Report,
}

impl<'a> YamlReader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), Stop> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => Ok((event, start.line())),
            Some(Err(error)) => Err(error.into()),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<Value, Stop> {
        let mut root = None;
        loop {
            let (event, line) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                _ if root.is_some() => {
                    return Err(Stop {
                        line,
                        text: "a second document begins here: one file is one document".into(),
                    });
                }
                event => root = Some(self.node(event, line, "", 0)?.kind),
            }
        }
        let root = root.unwrap_or(ValueKind::Nil);
        if !matches!(root, ValueKind::Nil | ValueKind::Table(_)) {
            return Err(Stop {
                line: 1,
                text: "must hold keys, such as `cluster:`".into(),
            });
        }
        // The root's place is the file itself: what is missing from it is missing from no line.
        Ok(Value::new(Some(&self.file.to_owned()), root))
    }

    fn node(
        &mut self,
        event: Event<'a>,
        line: usize,
        path: &str,
        depth: usize,
    ) -> Result<Value, Stop> {
        if depth > DEEPEST {
            return Err(Stop {
                line,
                text: format!("is nested deeper than {DEEPEST} levels"),
            });
        }
        let kind = match event {
            Event::Alias(_) => return Err(shared(line)),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                return Err(shared(line));
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(Stop {
                    line,
                    text: "holds a YAML tag (`!…`), which means nothing here".into(),
                });
            }
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => self.list(path, depth)?,
            Event::MappingStart(..) => self.section(path, depth)?,
            _ => ValueKind::Nil,
        };
        Ok(Value::new(Some(&format!("{}:{line}", self.file)), kind))
    }

    fn list(&mut self, path: &str, depth: usize) -> Result<ValueKind, Stop> {
        let mut list = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::SequenceEnd | Event::StreamEnd) {
                return Ok(ValueKind::Array(list));
            }
            let path = format!("{path}[{}]", list.len());
            list.push(self.node(event, line, &path, depth.saturating_add(1))?);
        }
    }

    fn section(&mut self, path: &str, depth: usize) -> Result<ValueKind, Stop> {
        let mut section = Map::<String, Value>::new();
        loop {
            let (event, line) = self.next()?;
            let key = match event {
                Event::MappingEnd | Event::StreamEnd => return Ok(ValueKind::Table(section)),
                Event::Scalar(key, _, 0, None) => key.into_owned(),
                _ => {
                    return Err(Stop {
                        line,
                        text: "a key must be a plain word".into(),
                    });
                }
            };
            let path = below(path, &key);
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, &path, depth.saturating_add(1))?;
            // A key's place is its own line, also where its value begins on the next.
            let place = format!("{}:{line}", self.file);
            if let Some(earlier) = section.get(&key) {
                let earlier = earlier
                    .origin()
                    .and_then(|place| place.rsplit(':').next())
                    .unwrap_or_default();
                self.report.note_at(
                    place,
                    &path,
                    format!("is written twice; the first is on line {earlier}"),
                );
            } else {
                section.insert(key, Value::new(Some(&place), value.kind));
            }
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> ValueKind {
    match (style, text) {
        (ScalarStyle::Plain, "" | "~" | "null" | "Null" | "NULL") => ValueKind::Nil,
        _ => ValueKind::String(text.to_owned()),
    }
}

fn shared(line: usize) -> Stop {
    Stop {
        line,
        text: format!(
            "holds an anchor or alias ({} or {}): write the value out",
            shown("&x"),
            shown("*x")
        ),
    }
}
