//! An hour of everything at once (`make soak`, by hand): three brokers, two proxies, producers and consumers of five client
//! libraries; brokers and proxies are killed and stopped, limits change, topics and clients come and go. What must hold, the
//! oracle says ([`oracle`]). `SIZEGATE_SOAK_SECONDS` says how long (3600), `SIZEGATE_SOAK_SEED` repeats what was drawn.
//!
//! A producer (`role=produce`) writes a line for each record to `out`: its number, the bytes of its value, partition, when it
//! was sent and when its fate was known (ms since 1970), offset, and `ok`, `size` (refused for its size) or another error.
//! A value begins with `NAME NUMBER `. One of `every` records has a size of `specials` and travels alone; with `single` all do.
//! It ends when the file `stop` is there. A consumer (`role=consume`) writes topic, partition, offset, name, number and bytes,
//! until it has come to the offsets in the file `ends`; the reader (`role=read`) writes the same, without a group and without
//! a proxy.
//!
//! The second proxy is never killed: its memory and descriptors are those of the whole time.

mod clients;
mod oracle;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clients::{Client, READERS, WRITERS, Writer};
use oracle::{Evidence, Window, verdicts};

use crate::support::admin;
use crate::support::programs::Running;
use crate::support::{
    Connection, Kafka, KafkaOptions, Part, Random, Record, Sizegate, Topic, batch, eventually,
    lock, number_from, unique,
};

/// A guard against hanging: a cluster that has just got a broker back on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const BROKERS: i32 = 3;
const PARTITIONS: i32 = 6;
/// The limits that take turns: bytes of a value.
const LIMITS: [usize; 2] = [6_000, 12_000];
/// Topics that live at the same time beside the two that are written to.
const ALIVE: usize = 5;

/// The batch of one record with a value of so many bytes and nothing else, uncompressed: what a broker compares with
/// `max.message.bytes`.
fn batch_bytes(value: usize) -> usize {
    let varint = |value: usize| match value * 2 {
        ..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => unreachable!("values are small"),
    };
    // Attributes, timestamp and offset deltas, null key, value, no headers.
    let record = 1 + 1 + 1 + 1 + varint(value) + value + 1;
    61 + varint(record) + record
}

#[derive(Debug, Default)]
struct Counts {
    brokers_killed: AtomicU64,
    brokers_stopped: AtomicU64,
    proxies_killed: AtomicU64,
    proxies_ended: AtomicU64,
    proxies_stopped: AtomicU64,
    limits_reloaded: AtomicU64,
    limits_altered: AtomicU64,
    topics_created: AtomicU64,
    topics_deleted: AtomicU64,
    clients_come_and_gone: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Milliseconds since 1970, as the clients' clocks say.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

/// What one proxy took, at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    rss_bytes: u64,
    descriptors: u64,
}

struct World {
    kafka: Kafka,
    proxies: [Mutex<Sizegate>; 2],
    dir: tempfile::TempDir,
    stem: String,
    ruled: Topic,
    learned: Topic,
    begun: Instant,
    /// When which limit was in force everywhere: of the rule, and of the topic.
    windows: [Mutex<Vec<Window>>; 2],
    samples: [Mutex<Vec<Sample>>; 2],
    is_over: AtomicBool,
    counts: Counts,
}

#[test]
#[ignore = "make soak: an hour"]
fn nothing_is_lost_doubled_or_judged_wrongly_and_nothing_grows_over_an_hour() {
    let seconds = number_from("SIZEGATE_SOAK_SECONDS", 3_600);
    let seed = number_from("SIZEGATE_SOAK_SEED", now_ms());
    println!("{seconds} s, SIZEGATE_SOAK_SEED={seed}");
    let world = World::new();
    let mut random = Random(seed);
    let writers: Vec<Running> = WRITERS
        .iter()
        .enumerate()
        .map(|(n, writer)| world.start_writer(n, writer, random.below(1 << 31), seconds))
        .collect();
    let readers: Vec<Running> = READERS
        .iter()
        .enumerate()
        .map(|(n, (name, client))| world.start_reader(n, name, *client, seconds))
        .collect();
    std::thread::scope(|scope| {
        let trouble = scope.spawn(|| world.make_trouble(&mut random));
        let watch = scope.spawn(|| world.watch());
        let mut told = 0;
        while world.begun.elapsed() < Duration::from_secs(seconds) && !trouble.is_finished() {
            std::thread::sleep(Duration::from_millis(200));
            for running in writers.iter().chain(&readers) {
                if !running.is_running() {
                    world.is_over.store(true, Ordering::Relaxed);
                    panic!("a client ended\n{}", running.last_words());
                }
            }
            let minute = world.begun.elapsed().as_secs() / 60;
            if minute > told {
                told = minute;
                println!("{}", world.moment());
            }
        }
        world.is_over.store(true, Ordering::Relaxed);
        trouble.join().expect("what is done to the cluster works");
        watch.join().expect("the proxies run");
    });
    // Nothing is down any more. Clients end by themselves.
    std::fs::write(world.path("stop"), "").unwrap();
    for writer in writers {
        let output = writer.finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
    }
    std::fs::write(world.path("ends"), world.ends()).unwrap();
    world.read_stored();
    for (reader, (name, _)) in readers.into_iter().zip(READERS) {
        let output = reader.finish();
        assert_eq!(output.code, 0, "{name}: {}", output.stderr);
    }
    println!("{:?}", world.counts);
    println!("{}", world.over_time());
    let wrong = verdicts(&world.evidence());
    assert!(
        wrong.is_empty(),
        "SIZEGATE_SOAK_SEED={seed}: {} wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    world.assert_flat(seconds);
}

impl World {
    fn new() -> Self {
        // A broker that is stopped longer than this is taken for dead: sometimes, then.
        let options = KafkaOptions::nodes(BROKERS).property("broker.session.timeout.ms", "6000");
        let kafka = Kafka::start("4.4.0", options);
        let stem = unique("soak");
        let safe = ("min.insync.replicas", "2");
        let ruled = kafka.create_topic(&format!("{stem}-ruled"), PARTITIONS, 3, &[safe]);
        let limit = batch_bytes(LIMITS[1]).to_string();
        let learned = kafka.create_topic(
            &format!("{stem}-learned"),
            PARTITIONS,
            3,
            &[safe, ("max.message.bytes", &limit)],
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sizegate.yaml");
        std::fs::write(&file, rules(&stem, LIMITS[1])).unwrap();
        let start = || {
            let file = file.to_str().unwrap();
            Mutex::new(Sizegate::before(&kafka.bootstrap()).file(file).start())
        };
        let proxies = [start(), start()];
        let first = || Mutex::new(vec![Window::from(now_ms(), LIMITS[1])]);
        Self {
            proxies,
            dir,
            ruled,
            learned,
            begun: Instant::now(),
            windows: [first(), first()],
            samples: [Mutex::default(), Mutex::default()],
            is_over: AtomicBool::new(false),
            counts: Counts::default(),
            kafka,
            stem,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn topic(&self, is_ruled: bool) -> &Topic {
        if is_ruled { &self.ruled } else { &self.learned }
    }

    /// Both proxies; half of the clients begin with the first.
    fn bootstrap(&self, n: usize) -> String {
        let of = |at: usize| lock(&self.proxies[at % 2]).bootstrap();
        format!("{},{}", of(n), of(n + 1))
    }

    /// What this client's consumer reads.
    fn topics_of(&self, client: Client) -> Vec<&str> {
        if client.reads_every_codec() {
            vec![&self.ruled.name, &self.learned.name]
        } else {
            vec![&self.learned.name]
        }
    }

    fn evidence(&self) -> Evidence {
        let windows = |of: usize| lock(&self.windows[of]).clone();
        Evidence {
            dir: self.dir.path().to_path_buf(),
            topics: [self.ruled.name.clone(), self.learned.name.clone()],
            windows: [windows(0), windows(1)],
        }
    }

    fn start_writer(&self, n: usize, writer: &Writer, seed: u64, seconds: u64) -> Running {
        let specials: Vec<String> = writer.specials.iter().map(usize::to_string).collect();
        let has = |key: &str| writer.args.iter().any(|(given, _)| *given == key);
        let mut program = writer
            .client
            .program()
            .arg("role", "produce")
            .arg("bootstrap", self.bootstrap(n))
            .arg("name", writer.name)
            .arg("topic", &self.topic(writer.is_ruled).name)
            .arg("partitions", PARTITIONS)
            .arg("out", self.path(writer.name).display())
            .arg("stop", self.path("stop").display())
            .arg("seed", seed)
            .arg("specials", specials.join(","))
            .arg("every", 20)
            .arg("period_ms", 50)
            .limit(Duration::from_secs(seconds) + PATIENCE);
        if !has("single") {
            program = program.arg("single", "false");
        }
        for (key, value) in writer.args {
            program = program.arg(key, value);
        }
        program.spawn()
    }

    fn start_reader(&self, n: usize, name: &str, client: Client, seconds: u64) -> Running {
        let program = client
            .program()
            .arg("role", "consume")
            .arg("bootstrap", self.bootstrap(n))
            .arg("name", name)
            .arg("topics", self.topics_of(client).join(","))
            .arg("out", self.path(name).display())
            .arg("ends", self.path("ends").display())
            .limit(Duration::from_secs(seconds) + PATIENCE);
        let program = match client {
            Client::Java => program.arg("p.group.protocol", "consumer"),
            _ => program,
        };
        program.spawn()
    }

    /// Waits, but not beyond the end.
    fn pause(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One thing after the other, each undone before the next: then all but one of the parts is up, and what the limits are is
    /// known.
    fn make_trouble(&self, random: &mut Random) {
        let mut topics: Vec<Topic> = Vec::new();
        while !self.is_over() {
            let node = 1 + random.below(BROKERS as u64) as i32;
            let short = random.below(5_000);
            let long = 500 + random.below(11_500);
            match random.below(10) {
                0 | 1 => {
                    self.kafka.kill(node);
                    add(&self.counts.brokers_killed);
                    self.pause(short);
                    self.kafka.restart(node);
                }
                2 | 3 => {
                    self.kafka.pause(node);
                    add(&self.counts.brokers_stopped);
                    self.pause(long);
                    self.kafka.resume(node);
                }
                4 => self.restart_a_proxy("KILL", short, &self.counts.proxies_killed),
                5 => self.restart_a_proxy("TERM", short, &self.counts.proxies_ended),
                6 | 7 => {
                    let proxy = &self.proxies[random.below(2) as usize];
                    lock(proxy).process().signal("STOP");
                    add(&self.counts.proxies_stopped);
                    self.pause(long);
                    lock(proxy).process().signal("CONT");
                }
                8 => self.reload_limits(),
                _ => self.alter_limits(),
            }
            self.wait_until_in_sync();
            self.let_topics_and_clients_come_and_go(&mut topics);
            self.pause(500 + random.below(4_000));
        }
    }

    /// The first: the second lives as long as the test.
    fn restart_a_proxy(&self, signal: &str, pause_ms: u64, counter: &AtomicU64) {
        lock(&self.proxies[0]).end(signal);
        add(counter);
        self.pause(pause_ms);
        lock(&self.proxies[0]).start_again();
    }

    /// Changes the rule in the file that both proxies read.
    fn reload_limits(&self) {
        let limit = self.change_window(0, |limit| {
            std::fs::write(self.path("sizegate.yaml"), rules(&self.stem, limit)).unwrap();
            for proxy in &self.proxies {
                lock(proxy).process().signal("HUP");
            }
            let probe = self.create_topic("reload");
            for proxy in &self.proxies {
                let leader = admin::leader(&lock(proxy).bootstrap(), &probe.name, 0);
                let mut connection = Connection::open(leader);
                let mut code = |bytes| self.send(&mut connection, &probe, bytes);
                eventually(PATIENCE, "the new limit", || {
                    ((code(limit), code(limit + 1)) == (0, 10)).then_some(())
                });
            }
            self.delete_topic(&probe);
        });
        add(&self.counts.limits_reloaded);
        assert!(LIMITS.contains(&limit));
    }

    /// Changes the topic's own, which the proxies learn.
    fn alter_limits(&self) {
        self.change_window(1, |limit| {
            let limit = batch_bytes(limit).to_string();
            let change = [("max.message.bytes", Some(&*limit))];
            self.kafka.alter_topic_config(&self.learned.name, &change);
        });
        add(&self.counts.limits_altered);
    }

    /// To the limit that is not in force. While it changes, either may be.
    fn change_window(&self, of: usize, change: impl FnOnce(usize)) -> usize {
        let windows = &self.windows[of];
        let limit = {
            let mut windows = lock(windows);
            let last = windows.last_mut().unwrap();
            last.until = now_ms();
            LIMITS[usize::from(last.limit == LIMITS[0])]
        };
        change(limit);
        // Brokers and sessions hear of it within moments; a busy machine takes longer.
        std::thread::sleep(Duration::from_secs(3));
        lock(windows).push(Window::from(now_ms(), limit));
        limit
    }

    /// The code of a batch with one record whose value has so many bytes. No two are alike.
    fn send(&self, connection: &mut Connection, topic: &Topic, bytes: usize) -> i16 {
        static TIME: AtomicU64 = AtomicU64::new(1_700_000_000_000);
        let time = TIME.fetch_add(1, Ordering::Relaxed) as i64;
        let records = batch([Record::of_a(bytes)]).base_timestamp(time).build();
        connection.produce(9, -1, &[Part::new(topic, records)])[0].code
    }

    fn create_topic(&self, stem: &str) -> Topic {
        let name = unique(&format!("{}-{stem}", self.stem));
        add(&self.counts.topics_created);
        self.kafka.create_topic(&name, 1, 3, &[])
    }

    fn delete_topic(&self, topic: &Topic) {
        self.kafka.delete_topic(&topic.name);
        add(&self.counts.topics_deleted);
    }

    /// Names that nobody used before: of a topic, and of a client of each proxy, which is taken at its word and refused.
    fn let_topics_and_clients_come_and_go(&self, topics: &mut Vec<Topic>) {
        let topic = self.create_topic("come-and-gone");
        for proxy in &self.proxies {
            // Whoever leads it: the topic's only partition is on some broker.
            let leader = admin::leader(&lock(proxy).bootstrap(), &topic.name, 0);
            let mut connection = Connection::open(leader);
            connection.client_id = Some(unique("client"));
            eventually(PATIENCE, "both verdicts", || {
                let within = self.send(&mut connection, &topic, LIMITS[0]);
                let above = self.send(&mut connection, &topic, LIMITS[1] + 1);
                assert!(matches!(within, 0 | 3 | 6), "{within}");
                assert!(matches!(above, 3 | 10), "{above}");
                (within == 0 && above == 10).then_some(())
            });
            add(&self.counts.clients_come_and_gone);
        }
        topics.push(topic);
        if topics.len() > ALIVE {
            self.delete_topic(&topics.remove(0));
        }
    }

    /// Every replica of what is written to: then the next broker may be killed and another still takes writes.
    fn wait_until_in_sync(&self) {
        eventually(PATIENCE, "all replicas in sync", || {
            let mut connection = Connection::try_open(self.kafka.node(1)).ok()?;
            let names = [&*self.ruled.name, &*self.learned.name];
            let metadata = admin::metadata(&mut connection, &names);
            let mut parts = metadata.topics.iter().flat_map(|topic| &topic.partitions);
            parts
                .all(|part| part.isr_nodes.len() == BROKERS as usize && part.leader_id.0 > 0)
                .then_some(())
        });
    }

    fn watch(&self) {
        while !self.is_over() {
            for (proxy, samples) in self.proxies.iter().zip(&self.samples) {
                let Some((rss_bytes, descriptors)) = lock(proxy).process().takes() else {
                    continue;
                };
                lock(samples).push(Sample {
                    at: self.begun.elapsed(),
                    rss_bytes,
                    descriptors,
                });
            }
            self.pause(2_000);
        }
    }

    /// What a look at it tells.
    fn moment(&self) -> String {
        let mut text = format!("{:>5} s", self.begun.elapsed().as_secs());
        for (n, samples) in self.samples.iter().enumerate() {
            if let Some(last) = lock(samples).last() {
                let _ = write!(
                    text,
                    "  proxy {}: {:.1} MiB, {} descriptors",
                    n + 1,
                    last.rss_bytes as f64 / 1_048_576.0,
                    last.descriptors
                );
            }
        }
        text
    }

    /// The offsets at which the two topics end.
    fn ends(&self) -> String {
        let mut text = String::new();
        for topic in [&self.ruled, &self.learned] {
            for partition in 0..PARTITIONS {
                let end = self.kafka.latest_offset(&topic.name, partition);
                let _ = writeln!(text, "{} {partition} {end}", topic.name);
            }
        }
        text
    }

    /// What the brokers have, without a proxy.
    fn read_stored(&self) {
        Client::Java
            .program()
            .arg("role", "read")
            .arg("bootstrap", self.kafka.bootstrap())
            .arg("out", self.path("stored").display())
            .arg("ends", self.path("ends").display())
            .run();
    }

    /// Medians of every eighth of the time.
    fn over_time(&self) -> String {
        let mut text =
            String::from("eighth  proxy 1: RSS, descriptors  proxy 2: RSS, descriptors\n");
        for eighth in 0..8 {
            let _ = write!(text, "{:>6}", eighth + 1);
            for of in 0..2 {
                let (rss, descriptors) = self.medians(of, eighth, 8);
                let _ = write!(text, "  {:.1} MiB, {descriptors}", rss as f64 / 1_048_576.0);
            }
            text.push('\n');
        }
        text
    }

    /// Of one proxy in one of so many parts of the time: 0 where it was never there.
    fn medians(&self, of: usize, part: u32, parts: u32) -> (u64, u64) {
        let samples = lock(&self.samples[of]);
        let Some(end) = samples.last().map(|last| last.at) else {
            return (0, 0);
        };
        let within = |sample: &&Sample| {
            let at = sample.at.as_secs_f64() / end.as_secs_f64() * f64::from(parts);
            at >= f64::from(part) && at <= f64::from(part + 1)
        };
        let of_part: Vec<&Sample> = samples.iter().filter(within).collect();
        let median = |value: fn(&Sample) -> u64| {
            let mut values: Vec<u64> = of_part.iter().map(|sample| value(sample)).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        (
            median(|sample| sample.rss_bytes),
            median(|sample| sample.descriptors),
        )
    }

    /// The last quarter takes no more than the second and a tenth: 4 MiB and 20 descriptors are what one moment of clients
    /// that connect again makes. Less than ten minutes tell nothing.
    fn assert_flat(&self, seconds: u64) {
        for of in 0..2 {
            let (rss_before, descriptors_before) = self.medians(of, 1, 4);
            let (rss, descriptors) = self.medians(of, 3, 4);
            println!(
                "proxy {}: second quarter {rss_before} B, {descriptors_before} descriptors; last {rss} B, {descriptors}",
                of + 1
            );
            if seconds >= 600 {
                assert!(
                    rss <= rss_before + rss_before / 10 + (4 << 20),
                    "memory grows"
                );
                assert!(
                    descriptors <= descriptors_before + descriptors_before / 10 + 20,
                    "descriptors grow"
                );
            }
        }
    }
}

/// The configuration, with this limit for values. The addresses come from the environment.
fn rules(stem: &str, limit: usize) -> String {
    format!(
        "cluster: {{bootstrap_servers: [overridden:9092]}}\n\
         rules:\n- name: soak\n  topics: ['{stem}-ruled', '{stem}-reload-*', '{stem}-come-and-gone-*']\n  \
         limits: {{value_bytes: {limit}}}\n"
    )
}
