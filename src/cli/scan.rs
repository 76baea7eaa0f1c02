//! `sizegate scan`: reads what is stored in topics and judges it by the configuration as if it were produced now.
//!
//! Invariant: the verdicts are those of a session ([`crate::proxy::Trial`]); nothing of a record's content is kept or
//! printed, and memory does not grow with the topic.

mod pool;
mod sketch;
mod table;
mod tally;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::pool::Pool;
use self::tally::Tally;
use super::check::Output;
use super::{ConfigArgs, FAILED, FINDINGS, FINE, fail, fail_on_mistakes, print, suggest};
use crate::cluster::{At, ReadError, StoredBatch, TopicReader};
use crate::config;
use crate::proxy::Shared;
use crate::run::with_learned;
use crate::text::counted;

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate scan orders --config sizegate.yaml
  sizegate scan orders payments --config sizegate.yaml --last 24h --max-rate 20MiB
  sizegate scan clicks --config sizegate.yaml --sample 50
  sizegate scan orders --config sizegate.yaml --output json | jq '.topics[].found'

Each batch is judged as it is stored: where the topic has a compression.type of its own, its producer sent other
bytes. The principal of cluster.admin needs Read, Describe and DescribeConfigs on the topics.

Exit codes: 0 nothing would be refused, 1 something would, 2 a topic could not be read, 64 bad config or usage.")]
pub struct ScanArgs {
    /// The topics
    #[arg(value_name = "TOPIC", required = true)]
    pub topic: Vec<String>,
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only what is no older than this
    #[arg(long, value_name = "TIME", value_parser = config::duration, conflicts_with = "from")]
    pub last: Option<Duration>,
    /// In each partition from this offset on; from the first one that is kept if not given
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub from: Option<i64>,
    /// Bytes read a second at most; as fast as it goes if not given
    #[arg(long, value_name = "SIZE", value_parser = config::size)]
    pub max_rate: Option<u64>,
    /// Measures what is inside one batch in N only, which is faster; all are judged
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub sample: u64,
    /// Places that are named of each finding
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub examples: usize,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Scans.
pub fn run(args: ScanArgs) -> ExitCode {
    let is_json = args.output == Output::Json;
    let config = match args.config.load() {
        Ok(config) => config,
        Err(errors) => return fail_on_mistakes(is_json, &errors),
    };
    let scanned = with_learned(&config, async |shared: &Arc<Shared>| {
        let mut pace = Pace::new(args.max_rate);
        let mut tallies = Vec::new();
        for topic in &args.topic {
            let tally = scan(shared, topic, &args, &mut pace).await?;
            tallies.push((topic.clone(), tally));
        }
        Ok(tallies)
    });
    let tallies = match scanned {
        Ok(tallies) => tallies,
        Err(error) => return fail(is_json, FAILED, &error),
    };
    let measured: BTreeMap<_, _> = tallies
        .iter()
        .map(|(topic, tally)| (topic.clone(), tally.measured()))
        .collect();
    let suggested = suggest::of_measured(measured, &args.topic.join(", "));
    match args.output {
        Output::Table => {
            let mut text: String = tallies
                .iter()
                .map(|(topic, tally)| table::text(topic, tally))
                .collect();
            text.push_str(&suggested.yaml);
            print(&text);
        }
        Output::Json => print(&format!("{:#}\n", to_json(&tallies, &suggested.json))),
    }
    ExitCode::from(if tallies.iter().any(|(_, tally)| tally.refuses()) {
        FINDINGS
    } else {
        FINE
    })
}

fn to_json(tallies: &[(String, Tally)], suggested: &Value) -> Value {
    let topics = tallies.iter().map(|(topic, tally)| {
        let mut json = tally.to_json();
        if let Value::Object(fields) = &mut json {
            fields.shift_insert(0, "topic".to_owned(), json!(topic));
        }
        json
    });
    json!({"topics": topics.collect::<Vec<_>>(), "suggested": suggested["topics"]})
}

/// Reads a topic, which one task does, while workers judge what was read.
async fn scan(
    shared: &Arc<Shared>,
    topic: &str,
    args: &ScanArgs,
    pace: &mut Pace,
) -> Result<Tally, String> {
    let mut pool = Pool::new(shared, topic, || Tally::new(args.examples, args.sample));
    let deleted = read(shared, topic, args, pace, &mut pool).await;
    let deleted = deleted.map_err(|error| error.to_string())?;
    let mut tally = pool.finish().await?;
    pace.end();
    tally.deleted_offsets = deleted;
    Ok(tally)
}

/// Gives all batches to the pool. Says how many offsets were deleted before they were read.
async fn read(
    shared: &Arc<Shared>,
    topic: &str,
    args: &ScanArgs,
    pace: &mut Pace,
    pool: &mut Pool,
) -> Result<u64, ReadError> {
    let mut reader = shared.cluster.reader(topic).await?;
    let mut deleted = 0u64;
    let ranges = ranges(&mut reader, args).await?;
    let all = ranges
        .iter()
        .map(|(_, from, end)| end.saturating_sub(*from).max(0));
    pace.begin(topic, all.fold(0i64, i64::saturating_add));
    for (partition, from, end) in ranges {
        let mut batches = reader.batches(partition, from, end);
        while let Some(batch) = batches.next().await? {
            pace.passed(&batch).await;
            pool.look_at(partition, batch).await;
        }
        pool.end_partition(partition).await;
        deleted = deleted.saturating_add(batches.deleted());
    }
    Ok(deleted)
}

/// What is read of each partition: where it begins and ends now.
async fn ranges(
    reader: &mut TopicReader,
    args: &ScanArgs,
) -> Result<Vec<(i32, i64, i64)>, ReadError> {
    let mut ranges = Vec::new();
    for partition in reader.partitions() {
        let end = reader.offset(partition, At::End).await?;
        let start = match args.last {
            Some(last) => At::Time(before(last)),
            None => At::Start,
        };
        let start = reader.offset(partition, start).await?;
        let from = args.from.map_or(start, |from| from.max(start));
        ranges.push((partition, from, end));
    }
    Ok(ranges)
}

fn before(time: Duration) -> i64 {
    let then = SystemTime::now().checked_sub(time).unwrap_or(UNIX_EPOCH);
    let since = then.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Keeps to the rate, and tells a person at a terminal how far it is.
struct Pace {
    most_bytes_a_second: Option<u64>,
    began: Instant,
    bytes: u64,
    /// Of the topic in hand.
    batches: u64,
    is_told: bool,
    told_at: Instant,
    topic: String,
    offsets: i64,
    passed: i64,
}

impl Pace {
    fn new(most_bytes_a_second: Option<u64>) -> Self {
        let now = Instant::now();
        Self {
            most_bytes_a_second,
            began: now,
            bytes: 0,
            batches: 0,
            is_told: std::io::stderr().is_terminal(),
            told_at: now,
            topic: String::new(),
            offsets: 0,
            passed: 0,
        }
    }

    fn begin(&mut self, topic: &str, offsets: i64) {
        topic.clone_into(&mut self.topic);
        (self.offsets, self.passed, self.batches) = (offsets, 0, 0);
    }

    async fn passed(&mut self, batch: &StoredBatch) {
        self.batches = self.batches.saturating_add(1);
        self.bytes = self.bytes.saturating_add(batch.bytes.len() as u64);
        let offsets = batch.last_offset.saturating_sub(batch.base_offset);
        self.passed = self.passed.saturating_add(offsets).saturating_add(1);
        if self.is_told && self.told_at.elapsed() >= PROGRESS {
            self.tell();
        }
        if let Some(rate) = self.most_bytes_a_second {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
            tokio::time::sleep(due.saturating_sub(self.began.elapsed())).await;
        }
    }

    fn tell(&mut self) {
        self.told_at = Instant::now();
        let percent = 100.0 * self.passed as f64 / self.offsets.max(1) as f64;
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        eprint!(
            "\r\u{1b}[K{}: {:.0} %, {}, {:.1} MB/s",
            self.topic,
            percent.min(100.0),
            counted(self.batches, "batch"),
            self.bytes as f64 / seconds / 1e6
        );
    }

    fn end(&self) {
        if self.is_told {
            eprint!("\r\u{1b}[K");
        }
    }
}
