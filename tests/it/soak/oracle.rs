//! What must hold of an hour, from what clients wrote down and what the brokers have.
//!
//! * What was acknowledged is stored where the client was told.
//! * A record of a producer that promises it is stored once; what was refused for its size is not stored.
//! * Nothing above the larger limit is stored, nothing within the smaller is refused for its size; and while one limit was in
//!   force everywhere, from before a record was sent until its fate was known, its verdict is that limit's.
//! * Every consumer got every stored record, at its place.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};

use std::path::PathBuf;

use super::{Client, LIMITS, READERS, WRITERS};

/// What is known of a run.
pub struct Evidence {
    /// What the clients wrote, by their names, and `stored`.
    pub dir: PathBuf,
    /// The topic whose limit is a rule's, and the one whose limit is learned.
    pub topics: [String; 2],
    /// When which limit was in force everywhere, of each.
    pub windows: [Vec<Window>; 2],
}

impl Evidence {
    fn lines(&self, name: &str) -> impl Iterator<Item = String> {
        let file = std::fs::File::open(self.dir.join(name)).unwrap();
        BufReader::new(file).lines().map(Result::unwrap)
    }

    /// Whether this client's consumer reads the topic.
    fn is_read(&self, client: Client, topic: &str) -> bool {
        topic == self.topics[1] || client.reads_every_codec()
    }
}

/// One limit was in force everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: u64,
    pub until: u64,
    pub limit: usize,
}

impl Window {
    /// Until further notice.
    pub fn from(from: u64, limit: usize) -> Self {
        Self {
            from,
            until: u64::MAX,
            limit,
        }
    }
}

/// Whose record, which one, and the bytes of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    writer: u8,
    number: u32,
    bytes: u32,
}

/// By topic and partition, then by offset.
type Log = HashMap<(String, i32), Vec<Option<Stored>>>;

/// A line of a producer.
struct Fate<'a> {
    number: u32,
    bytes: usize,
    partition: i32,
    sent: u64,
    done: u64,
    offset: i64,
    result: &'a str,
}

impl<'a> Fate<'a> {
    fn parse(line: &'a str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [number, bytes, partition, sent, done, offset, result] = words[..] else {
            panic!("not a fate: {line}");
        };
        Self {
            number: number.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
            partition: partition.parse().unwrap(),
            sent: sent.parse().unwrap(),
            done: done.parse().unwrap(),
            offset: offset.parse().unwrap(),
            result,
        }
    }
}

/// A line of a consumer: where, at which offset, what.
fn parse_read(line: &str) -> ((String, i32), usize, Stored) {
    let words: Vec<&str> = line.split(' ').collect();
    let [topic, partition, offset, name, number, bytes] = words[..] else {
        panic!("not a record: {line}");
    };
    let writer = WRITERS.iter().position(|writer| writer.name == name);
    let stored = Stored {
        writer: writer.unwrap_or_else(|| panic!("whose? {line}")) as u8,
        number: number.parse().unwrap(),
        bytes: bytes.parse().unwrap(),
    };
    let at = (topic.to_owned(), partition.parse().unwrap());
    (at, offset.parse().unwrap(), stored)
}

fn log(evidence: &Evidence) -> Log {
    let mut log = Log::new();
    for line in evidence.lines("stored") {
        let (at, offset, stored) = parse_read(&line);
        let records = log.entry(at).or_default();
        records.resize(records.len().max(offset + 1), None);
        records[offset] = Some(stored);
    }
    log
}

/// All that is wrong, in words. Prints how much there was.
pub fn verdicts(evidence: &Evidence) -> Vec<String> {
    let log = log(evidence);
    let mut wrong = Vec::new();
    // How often each record of each writer is stored.
    let mut times: Vec<HashMap<u32, u32>> = vec![HashMap::new(); WRITERS.len()];
    for ((topic, partition), records) in &log {
        for (offset, stored) in records.iter().enumerate() {
            let Some(stored) = stored else {
                wrong.push(format!("{topic}-{partition}@{offset}: a gap"));
                continue;
            };
            *times[stored.writer as usize]
                .entry(stored.number)
                .or_default() += 1;
            if stored.bytes as usize > LIMITS[1] {
                wrong.push(format!(
                    "{topic}-{partition}@{offset}: {stored:?} is stored"
                ));
            }
        }
    }
    for (n, writer) in WRITERS.iter().enumerate() {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        let topic = &evidence.topics[usize::from(!writer.is_ruled)];
        let windows = &evidence.windows[usize::from(!writer.is_ruled)];
        let mut others: HashMap<String, u64> = HashMap::new();
        for line in evidence.lines(writer.name) {
            let fate = Fate::parse(&line);
            let kind = match fate.result {
                "ok" | "size" => fate.result,
                other => {
                    *others.entry(other.to_owned()).or_default() += 1;
                    "other"
                }
            };
            *counts
                .entry(match kind {
                    "ok" => "acknowledged",
                    "size" => "refused",
                    _ => "in doubt",
                })
                .or_default() += 1;
            let stored = times[n].get(&fate.number).copied().unwrap_or_default();
            let mut complain = |what: &str| {
                wrong.push(format!(
                    "{}: {what}, stored {stored} times: {line}",
                    writer.name
                ));
            };
            if stored > 1 {
                *counts.entry("doubled").or_default() += 1;
                if writer.is_once {
                    complain("doubled");
                }
            }
            if kind == "ok" {
                let at = log.get(&(topic.clone(), fate.partition));
                let there = usize::try_from(fate.offset)
                    .ok()
                    .and_then(|offset| at?.get(offset).copied()?);
                let expected = Stored {
                    writer: n as u8,
                    number: fate.number,
                    bytes: fate.bytes as u32,
                };
                // A producer that is told of an older batch hears no offset of it.
                if stored == 0 || (fate.offset >= 0 && there != Some(expected)) {
                    complain("acknowledged and not there");
                }
            }
            let window = windows
                .iter()
                .find(|window| window.from <= fate.sent && fate.done <= window.until);
            // Of the smallest and the largest nothing needs to be known.
            let limit = match window {
                Some(window) => Some(window.limit),
                None if fate.bytes <= LIMITS[0] => Some(LIMITS[0]),
                None if fate.bytes > LIMITS[1] => Some(LIMITS[1]),
                None => None,
            };
            match limit {
                None => *counts.entry("not judged: the limit changed").or_default() += 1,
                Some(limit) if fate.bytes <= limit && kind == "size" => {
                    complain(&format!("refused within {limit}"));
                }
                Some(limit) if fate.bytes > limit && (kind == "ok" || stored > 0) => {
                    complain(&format!("let through above {limit}"));
                }
                Some(_) => {}
            }
            if kind == "size" && stored > 0 && limit.is_some() {
                complain("refused and stored");
            }
        }
        println!("{}: {counts:?} {others:?}", writer.name);
        if counts.get("acknowledged").copied().unwrap_or_default() == 0 {
            wrong.push(format!("{}: nothing was acknowledged", writer.name));
        }
        let is_refused = counts.contains_key("refused");
        if is_refused == writer.name.ends_with("-within") {
            wrong.push(format!("{}: refused: {is_refused}", writer.name));
        }
    }
    for (name, client) in READERS {
        wrong.extend(unread(evidence, &log, name, client));
    }
    wrong
}

/// What a consumer did not get, or got otherwise.
fn unread(evidence: &Evidence, log: &Log, name: &str, client: Client) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut left = log.clone();
    left.retain(|(topic, _), _| evidence.is_read(client, topic));
    let mut again = 0_u64;
    for line in evidence.lines(name) {
        let (at, offset, read) = parse_read(&line);
        let stored = log.get(&at).and_then(|records| *records.get(offset)?);
        if stored != Some(read) {
            wrong.push(format!("{name}: got {line}, stored is {stored:?}"));
        }
        if let Some(records) = left.get_mut(&at) {
            again += u64::from(records[offset].take().is_none());
        }
    }
    let missed: usize = left.values().flatten().flatten().count();
    println!("{name}: {again} records again, {missed} missed");
    if missed > 0 {
        wrong.push(format!("{name}: {missed} records were never read"));
    }
    wrong
}

/// A run in which all is well, and what is changed in it.
struct Run {
    dir: tempfile::TempDir,
}

impl Run {
    /// Two records of each writer, of which the second is refused (but for the one that never is): 900 and 6,500 bytes under a
    /// limit of 6,000 from 100 to 200.
    fn new() -> Self {
        let run = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let (mut stored, mut learned) = (String::new(), String::new());
        let mut offsets = [0, 0];
        for writer in &WRITERS {
            let (topic, offset) = match writer.is_ruled {
                true => ("ruled", &mut offsets[0]),
                false => ("learned", &mut offsets[1]),
            };
            let read = format!("{topic} 0 {offset} {} 0 900\n", writer.name);
            stored += &read;
            if !writer.is_ruled {
                learned += &read;
            }
            let mut fates = format!("0 900 0 110 120 {offset} ok\n");
            if !writer.name.ends_with("-within") {
                fates += "1 6500 0 130 140 -1 size\n";
            }
            run.write(writer.name, &fates);
            *offset += 1;
        }
        for (name, client) in READERS {
            let read = if client.reads_every_codec() {
                &stored
            } else {
                &learned
            };
            run.write(name, read);
        }
        run.write("stored", &stored);
        run
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn change(&self, name: &str, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        self.write(name, &change(text));
    }

    /// Everybody reads what is stored.
    fn store_and_read(&self, line: &str) {
        for name in READERS.map(|(name, _)| name).iter().chain(&["stored"]) {
            self.change(name, |text| text + line);
        }
    }

    fn verdicts(&self) -> Vec<String> {
        let window = Window {
            from: 100,
            until: 200,
            limit: LIMITS[0],
        };
        verdicts(&Evidence {
            dir: self.dir.path().to_path_buf(),
            topics: ["ruled".into(), "learned".into()],
            windows: [vec![window], vec![window]],
        })
    }
}

#[test]
fn the_oracle_finds_nothing_where_all_is_well_and_each_wrong_where_it_is() {
    assert_eq!(Run::new().verdicts(), Vec::<String>::new());
    type Change = fn(&Run);
    let cases: [(&str, Change); 9] = [
        ("acknowledged and not there", |run| {
            run.change("java", |text| text + "2 100 0 150 160 99 ok\n");
        }),
        ("acknowledged and not there", |run| {
            // Somebody else's is there.
            run.change("java", |text| text.replace("120 0 ok", "120 1 ok"));
        }),
        ("doubled", |run| {
            run.store_and_read("ruled 0 5 java 0 900\n")
        }),
        ("let through above 6000", |run| {
            run.change("java", |text| text + "2 6001 0 150 160 5 ok\n");
            run.store_and_read("ruled 0 5 java 2 6001\n");
        }),
        ("is stored", |run| {
            run.store_and_read("ruled 0 5 java 7 12001\n")
        }),
        ("refused within 6000", |run| {
            run.change("java", |text| text + "2 6000 0 150 160 -1 size\n");
        }),
        ("refused and stored", |run| {
            run.store_and_read("ruled 0 5 java 1 6500\n")
        }),
        ("never read", |run| {
            run.change("group-java", |_| String::new())
        }),
        ("group-java: got", |run| {
            run.change("group-java", |text| {
                text.replace("java 0 900", "java 0 901")
            });
        }),
    ];
    for (words, change) in cases {
        let run = Run::new();
        change(&run);
        let wrong = run.verdicts();
        assert!(
            wrong.iter().any(|line| line.contains(words)),
            "{words}: {wrong:?}"
        );
    }
    // While the limit changes, either is right.
    let run = Run::new();
    run.change("java", |text| text + "2 6001 0 190 210 5 ok\n");
    run.store_and_read("ruled 0 5 java 2 6001\n");
    assert_eq!(run.verdicts(), Vec::<String>::new());
}
