//! What the claim check costs: sizegate offloading and redeeming, beside a process that puts and gets the same bytes with
//! the same library; and what other sessions feel of it.
//!
//! Invariants: no value is sent twice, so that every one is written; none is read from sizegate's cache, whose hits are
//! counted and must not grow; what is compared is measured in turn, in every round.

mod broker;
pub mod plain;
mod stores;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use kafka_protocol::messages::{FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Decodable as _;
use object_store::ObjectStoreExt as _;
use serde::Serialize;

use self::broker::Broker;
use self::plain::{How, Told, Way};
use self::stores::Store;
use crate::frames::{self, CLAIMS_TOPIC, Content, FETCH_VERSION, Large, Ring, Version};
use crate::load::{Client, Clients, Outcome, check_produce};
use crate::peers::{Kind, More, Peer, Programs};
use crate::process::{self, Others};
use crate::report::Spread;

/// Connections that produce or consume, and requests at a time of what is compared with.
const CONNECTIONS: usize = 4;

const SIZES: [(&str, usize); 2] = [("1 MiB", 1 << 20), ("5 MiB", 5 << 20)];

/// Whose first byte is waited for.
const FIRST_BYTES: usize = 300_000;
const FIRST_COUNT: usize = 150;

/// Connections that offload while others are watched, and their values.
const LOADERS: usize = 50;
const LOADERS_BYTES: usize = 5 << 20;

/// A consumer's proxy: so small that values which were read long ago are not kept. A quarter of it is.
const CONSUMING: &str = "memory: {budget: 128MiB}";

/// A consumer's default `max.partition.fetch.bytes`: one value in each response.
const USUAL_BYTES: i32 = 1 << 20;

/// Until the cluster's id is known, nothing can be offloaded.
const READY: Duration = Duration::from_secs(30);

#[derive(Args)]
pub struct ClaimsArgs {
    /// sizegate's program.
    #[arg(long)]
    sizegate: PathBuf,
    /// The S3 server's program; only `file://` is measured if not given.
    #[arg(long)]
    s3s_fs: Option<PathBuf>,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of values in each turn: so many that none of them is still kept when it is read again.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Milliseconds for which other sessions are watched.
    #[arg(long, default_value_t = 2000)]
    watch_ms: u64,
    /// Only some of it: produce, consume, first, neighbours.
    #[arg(long)]
    only: Vec<String>,
    /// Where configs, logs and objects go.
    #[arg(long)]
    directory: PathBuf,
}

/// One turn.
#[derive(Debug, Clone, Copy, Serialize)]
struct Turn {
    cpu_seconds_per_gb: f64,
    /// Share of it outside the kernel.
    user_share: f64,
    gb_per_second: f64,
    foreign_share: f64,
}

impl Turn {
    fn of(told: &Told, others: &Others) -> io::Result<Self> {
        let gb = told.bytes as f64 / 1e9;
        let cpu = told.cpu_user_seconds + told.cpu_system_seconds;
        let foreign = others.spent(Duration::from_secs_f64(cpu))?;
        let time = Duration::from_secs_f64(told.seconds);
        Ok(Self {
            cpu_seconds_per_gb: cpu / gb,
            user_share: told.cpu_user_seconds / cpu,
            gb_per_second: gb / told.seconds,
            foreign_share: process::share_of_machine(foreign, time)?,
        })
    }
}

/// A ratio of the CPU or the time of two turns, in each round.
fn ratios(own: &[Turn], other: &[Turn], value: impl Fn(&Turn) -> f64) -> Spread {
    let rounds = own.iter().zip(other);
    Spread::of(rounds.map(|(own, other)| value(own) / value(other)))
}

/// Everything that one run needs.
struct Rig {
    args: ClaimsArgs,
    programs: Programs,
    broker: Broker,
    /// Which value comes next.
    number: AtomicU64,
    /// Distinguishes this run's values from all others'.
    run: u64,
}

/// Measures, and prints a table for each question.
pub fn run(args: ClaimsArgs) -> io::Result<()> {
    fs::create_dir_all(&args.directory)?;
    let programs = Programs {
        haproxy: PathBuf::new(),
        sizegate: Some(args.sizegate.clone()),
        before: None,
        threads: thread::available_parallelism()?.get(),
        tls: None,
        directory: args.directory.clone(),
    };
    let rig = Rig {
        programs,
        broker: Broker::start()?,
        number: AtomicU64::new(0),
        run: std::process::id().into(),
        args,
    };
    let mut stores = vec![Store::folder(&rig.args.directory)?];
    if let Some(program) = &rig.args.s3s_fs {
        stores.push(Store::s3(program, &rig.args.directory)?);
    }
    let wants = |what: &str| {
        rig.args.only.is_empty() || rig.args.only.iter().any(|only| only.as_str() == what)
    };
    if wants("produce") {
        println!(
            "| producing | values | sizegate, CPU s/GB | bare PUT | with socket and SHA-256 | **/ bare** | / with both | user share | GB/s | bare GB/s | used by others |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|");
        rig.each(&stores, Rig::producing)?;
    }
    if wants("consume") {
        println!(
            "\n| consuming | values | sizegate, CPU s/GB | bare GET | with SHA-256 and socket | **/ bare** | / with both | user share | GB/s | bare GB/s | used by others |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|");
        rig.each(&stores, Rig::consuming)?;
    }
    if wants("first") {
        println!(
            "\n| one ticket of {FIRST_BYTES} bytes | first byte through sizegate, µs p50 | direct Fetch and GET | **ratio** | p99 | p99 | ratio |"
        );
        println!("|---|---|---|---|---|---|---|");
        for store in &stores {
            rig.first_byte(store)?;
        }
    }
    if wants("neighbours") {
        println!(
            "\n| 1 KiB Produces while {LOADERS} connections offload 5 MiB values | p50 µs | p99 µs | **p99 / calm** |"
        );
        println!("|---|---|---|---|");
        rig.neighbours(&stores[0])?;
    }
    Ok(())
}

impl Rig {
    fn start(&self, store: &Store, sections: &str) -> io::Result<Peer> {
        let rules = format!(
            "  - name: large\n    topics: [{CLAIMS_TOPIC}]\n    limits: {{record_bytes: 64KiB, batch_bytes: 1MiB}}\n    action: offload\n"
        );
        let sections = format!(
            "claim_check:\n{}  keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]\n{sections}",
            store.yaml()
        );
        let more = More {
            rules: &rules,
            sections: &sections,
            ..More::default()
        };
        let peer = Peer::start_with(Kind::Sizegate, &self.programs, self.broker.address(), more)?;
        let mut large = Large::new(100_000, 0);
        let start = Instant::now();
        loop {
            match self.offload(peer.address, &mut large, 1) {
                Ok(()) => return Ok(peer),
                Err(error) if start.elapsed() > READY => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn next_number(&self) -> u128 {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        u128::from(self.run) << 64 | u128::from(number)
    }

    /// So many values, one at a time over a connection of their own.
    fn offload(&self, address: SocketAddr, large: &mut Large, count: usize) -> io::Result<()> {
        let mut client = Client::connect(address)?;
        client.hello()?;
        for n in 0..count {
            let response = client.ask_in_pieces(large.frame(n as i32, self.next_number()))?;
            check_produce(&response, n as i32, Version::V13)?;
        }
        Ok(())
    }

    /// All connections at once, each its share.
    fn offload_all(&self, peer: &Peer, value_bytes: usize, count: usize) -> io::Result<()> {
        let lanes =
            (0..CONNECTIONS).map(|at| (Large::new(value_bytes, at as i32), share(at, count)));
        let mut lanes: Vec<_> = lanes.collect();
        thread::scope(|scope| {
            let threads: Vec<_> = lanes
                .iter_mut()
                .map(|(large, share)| scope.spawn(|| self.offload(peer.address, large, *share)))
                .collect();
            threads.into_iter().try_for_each(joined)
        })
    }

    /// Every store with every size; a line for each.
    fn each(
        &self,
        stores: &[Store],
        measure: impl Fn(&Self, &Store, usize, usize) -> io::Result<[Vec<Turn>; 3]>,
    ) -> io::Result<()> {
        for store in stores {
            for (size, value_bytes) in SIZES {
                let count = (self.args.mib << 20) / value_bytes;
                let [own, bare, whole] = measure(self, store, value_bytes, count)?;
                let cpu = |turn: &Turn| turn.cpu_seconds_per_gb;
                let spread = |turns: &[Turn], value: &dyn Fn(&Turn) -> f64| {
                    Spread::of(turns.iter().map(value))
                };
                let all = own.iter().chain(&bare).chain(&whole);
                println!(
                    "| {} | {size} | {} | {} | {} | {} | {} | {} | {} | {} | {:.0} % |",
                    store.label,
                    spread(&own, &cpu).text(2),
                    spread(&bare, &cpu).text(2),
                    spread(&whole, &cpu).text(2),
                    ratios(&own, &bare, cpu).text(2),
                    ratios(&own, &whole, cpu).text(2),
                    spread(&own, &|turn| turn.user_share).text(2),
                    spread(&own, &|turn| turn.gb_per_second).text(2),
                    spread(&bare, &|turn| turn.gb_per_second).text(2),
                    Spread::of(all.map(|turn| turn.foreign_share)).median * 100.0,
                );
            }
        }
        Ok(())
    }

    /// Sizegate, bare, whole: in each round in another order.
    fn rounds(
        &self,
        mut turn: impl FnMut(usize, usize) -> io::Result<Turn>,
    ) -> io::Result<[Vec<Turn>; 3]> {
        let mut turns = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..self.args.rounds {
            for which in 0..turns.len() {
                let which = (which + round) % turns.len();
                let measured = turn(which, round)?;
                turns[which].push(measured);
            }
        }
        Ok(turns)
    }

    fn producing(
        &self,
        store: &Store,
        value_bytes: usize,
        count: usize,
    ) -> io::Result<[Vec<Turn>; 3]> {
        let peer = self.start(store, "")?;
        // To get warm.
        self.offload_all(&peer, value_bytes, 2 * CONNECTIONS)?;
        self.rounds(|which, round| {
            let turn = match which {
                0 => measured(&peer, value_bytes * count, || {
                    self.offload_all(&peer, value_bytes, count)
                }),
                1 => self.plain(store, (Way::Put, How::Bare), value_bytes, count, round),
                _ => self.plain(store, (Way::Put, How::Whole), value_bytes, count, round),
            };
            self.broker.clear();
            store.clear()?;
            turn
        })
    }

    fn consuming(
        &self,
        store: &Store,
        value_bytes: usize,
        count: usize,
    ) -> io::Result<[Vec<Turn>; 3]> {
        let peer = self.start(store, CONSUMING)?;
        self.broker.clear();
        self.offload_all(&peer, value_bytes, count)?;
        let turns = self.rounds(|which, round| match which {
            0 => {
                let hits = || peer.metric("sizegate_claim_cache_hits_total");
                let gets = || peer.metric("sizegate_claim_store_requests_total");
                let before = (hits()?, gets()?);
                let turn = measured(&peer, value_bytes * count, || {
                    self.redeem_all(&peer, value_bytes, count)
                })?;
                let (hits, gets) = (hits()? - before.0, gets()? - before.1);
                if hits > 0.0 || gets < count as f64 {
                    let told = format!("{hits} hits and {gets} GETs for {count} values");
                    return Err(io::Error::other(told));
                }
                Ok(turn)
            }
            1 => self.plain(store, (Way::Get, How::Bare), value_bytes, count, round),
            _ => self.plain(store, (Way::Get, How::Whole), value_bytes, count, round),
        });
        self.broker.clear();
        store.clear()?;
        turns
    }

    /// Each consumer reads a partition from its start to its end.
    fn redeem_all(&self, peer: &Peer, value_bytes: usize, count: usize) -> io::Result<()> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS)
                .map(|at| {
                    scope.spawn(move || redeem(peer, at as i32, value_bytes, share(at, count)))
                })
                .collect();
            threads.into_iter().try_for_each(joined)
        })
    }

    /// A turn of the plain process.
    fn plain(
        &self,
        store: &Store,
        (way, how): (Way, How),
        value_bytes: usize,
        count: usize,
        round: usize,
    ) -> io::Result<Turn> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("plain")
            .arg(store.plain())
            .args(["--way", &argument(way)])
            .args(["--how", &argument(how)])
            .args(["--count", &count.to_string()])
            .args(["--value-bytes", &value_bytes.to_string()])
            .args(["--connections", &CONNECTIONS.to_string()])
            .args(["--seed", &round.to_string()]);
        let mut child = Killed(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let stdout = child.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(stdout).lines();
        let mut line = move || {
            lines
                .next()
                .unwrap_or_else(|| Err(io::Error::other("the plain process ended")))
        };
        let port: u16 = line()?.parse().map_err(io::Error::other)?;
        let mut clients = Vec::new();
        if how == How::Whole {
            for at in 0..CONNECTIONS {
                let stream = TcpStream::connect(("127.0.0.1", port))?;
                stream.set_nodelay(true)?;
                clients.push((stream, Large::new(value_bytes, at as i32), share(at, count)));
            }
        }
        let others = Others::watch()?;
        let mut stdin = child.0.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(b"go\n")?;
        stdin.flush()?;
        let told = thread::scope(|scope| {
            for (stream, large, share) in &mut clients {
                scope.spawn(move || match way {
                    Way::Put => give(stream, large, *share, self),
                    Way::Get => io::copy(stream, &mut io::sink()).map(|_| ()),
                });
            }
            line()
        })?;
        let told: Told = serde_json::from_str(&told)?;
        Turn::of(&told, &others)
    }

    /// One ticket at a time: through sizegate, and by hand as a consumer would that has a claim check of its own.
    fn first_byte(&self, store: &Store) -> io::Result<()> {
        let peer = self.start(store, CONSUMING)?;
        self.broker.clear();
        self.offload(peer.address, &mut Large::new(FIRST_BYTES, 0), FIRST_COUNT)?;
        let objects = plain::open(&store.plain())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Of each round: redeemed, and by hand.
        let mut rounds: Vec<[Outcome; 2]> = Vec::new();
        let mut hits = peer.metric("sizegate_claim_cache_hits_total")?;
        for _ in 0..self.args.rounds {
            let mut through = Client::connect(peer.address)?;
            let mut direct = Client::connect(self.broker.address())?;
            through.hello()?;
            direct.hello()?;
            let [mut redeemed, mut by_hand] = [Outcome::default(), Outcome::default()];
            for n in 0..FIRST_COUNT {
                let frame = frames::fetch_large(n as i32, 0, n as i64, 1);
                let (first, response) = through.ask_for_first_byte(&frame)?;
                let (records, _) = fetched(response, n as i64)?;
                if records.len() < FIRST_BYTES {
                    return Err(io::Error::other("no original in time"));
                }
                redeemed.latencies_ns.push(first.as_nanos() as u64);
                let began = Instant::now();
                let response = direct.ask(&frame)?;
                let uri = uri(&response).ok_or_else(|| io::Error::other("no ticket"))?;
                let key = store.key(&uri).ok_or_else(|| io::Error::other("no key"))?;
                let path = object_store::path::Path::from(key);
                let value: Result<Bytes, object_store::Error> =
                    runtime.block_on(async { objects.get(&path).await?.bytes().await });
                if value?.len() != FIRST_BYTES {
                    return Err(io::Error::other("another object"));
                }
                by_hand
                    .latencies_ns
                    .push(began.elapsed().as_nanos() as u64);
            }
            redeemed.latencies_ns.sort_unstable();
            by_hand.latencies_ns.sort_unstable();
            rounds.push([redeemed, by_hand]);
            let now = peer.metric("sizegate_claim_cache_hits_total")?;
            if now > hits {
                return Err(io::Error::other("a value came from the cache"));
            }
            hits = now;
        }
        let spreads = [0.5, 0.99].map(|q| {
            let us = |which: usize| Spread::of(rounds.iter().map(|of| of[which].latency_us(q)));
            let ratios = rounds.iter().map(|of| of[0].latency_us(q) / of[1].latency_us(q));
            let (redeemed, by_hand, ratio) = (us(0), us(1), Spread::of(ratios));
            format!("{} | {} | {}", redeemed.text(0), by_hand.text(0), ratio.text(2))
        });
        println!("| {} | {} |", store.label, spreads.join(" | "));
        self.broker.clear();
        store.clear()
    }

    /// A client of small records, calm and while others offload: through the process that offloads, through another that
    /// has nothing else to do, and without any.
    fn neighbours(&self, store: &Store) -> io::Result<()> {
        const WAYS: [&str; 4] = [
            "calm",
            "through the process that offloads",
            "through another process meanwhile",
            "direct meanwhile",
        ];
        let (peer, other) = (self.start(store, "")?, self.start(store, "")?);
        let watch = Duration::from_millis(self.args.watch_ms);
        let ring = Arc::new(Ring::produce(64, 1 << 10, Version::V13, Content::Json));
        let seen = |address| -> io::Result<[f64; 2]> {
            let mut clients = Clients::connect(address, 1)?;
            clients.run(&ring, 1, Duration::from_millis(200), u64::MAX)?;
            let outcome = clients.run(&ring, 1, watch, u64::MAX)?;
            Ok([0.5, 0.99].map(|q| outcome.latency_us(q)))
        };
        let mut all = WAYS.map(|_| Vec::new());
        let mut rates = Vec::new();
        for round in 0..self.args.rounds {
            all[0].push(seen(peer.address)?);
            let is_over = AtomicBool::new(false);
            let (done, began) = (AtomicU64::new(0), Instant::now());
            thread::scope(|scope| {
                let loaders: Vec<_> = (0..LOADERS)
                    .map(|at| {
                        let (is_over, done) = (&is_over, &done);
                        scope.spawn(move || self.load(peer.address, at, is_over, done))
                    })
                    .collect();
                thread::sleep(Duration::from_millis(500));
                let ways = [peer.address, other.address, self.broker.address()];
                let mut watched = Ok(());
                for way in 0..ways.len() {
                    let way = (way + round) % ways.len();
                    match seen(ways[way]) {
                        Ok(seen) => all[way + 1].push(seen),
                        Err(error) => watched = Err(error),
                    }
                }
                is_over.store(true, Ordering::Relaxed);
                loaders.into_iter().try_for_each(joined)?;
                watched
            })?;
            let bytes = done.load(Ordering::Relaxed) as f64 * LOADERS_BYTES as f64;
            rates.push(bytes / 1e9 / began.elapsed().as_secs_f64());
            self.broker.clear();
            store.clear()?;
        }
        for (way, seen) in WAYS.iter().zip(&all) {
            let of = |at: usize| Spread::of(seen.iter().map(|seen| seen[at])).text(0);
            let beside = seen
                .iter()
                .zip(&all[0])
                .map(|(seen, calm)| seen[1] / calm[1]);
            println!(
                "| {way} | {} | {} | {} |",
                of(0),
                of(1),
                Spread::of(beside).text(1)
            );
        }
        println!("\nOffloaded meanwhile: {} GB/s.", Spread::of(rates).text(2));
        Ok(())
    }

    fn load(
        &self,
        address: SocketAddr,
        at: usize,
        is_over: &AtomicBool,
        done: &AtomicU64,
    ) -> io::Result<()> {
        let mut large = Large::new(LOADERS_BYTES, at as i32);
        let mut client = Client::connect(address)?;
        client.hello()?;
        while !is_over.load(Ordering::Relaxed) {
            let response = client.ask_in_pieces(large.frame(0, self.next_number()))?;
            check_produce(&response, 0, Version::V13)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A choice as the command line names it.
fn argument(choice: impl ValueEnum) -> String {
    let named = choice.to_possible_value();
    named.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Ends with whoever started it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Of so many values those of one connection.
fn share(at: usize, count: usize) -> usize {
    (at..count).step_by(CONNECTIONS).len()
}

fn joined(thread: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("panicked")))
}

/// What sizegate spends on this.
fn measured(peer: &Peer, bytes: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<Turn> {
    peer.check_port()?;
    let pid = peer.pid().ok_or_else(|| io::Error::other("no process"))?;
    let (before, others) = (process::cpu(pid)?, Others::watch()?);
    let began = Instant::now();
    work()?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = process::cpu(pid)?.since(before);
    let told = Told {
        bytes: bytes as u64,
        seconds,
        cpu_user_seconds: cpu.user.as_secs_f64(),
        cpu_system_seconds: cpu.system.as_secs_f64(),
    };
    Turn::of(&told, &others)
}

/// Sends values to the plain process, one at a time.
fn give(stream: &mut TcpStream, large: &mut Large, count: usize, rig: &Rig) -> io::Result<()> {
    for _ in 0..count {
        for piece in large.value(rig.next_number()) {
            stream.write_all(piece)?;
        }
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Reads a partition's values, one response after another.
fn redeem(peer: &Peer, partition: i32, value_bytes: usize, count: usize) -> io::Result<()> {
    let mut client = Client::connect(peer.address)?;
    client.hello()?;
    let mut next = 0;
    let mut correlation_id = 0;
    while next < count as i64 {
        let response = client.ask(&frames::fetch_large(
            correlation_id,
            partition,
            next,
            USUAL_BYTES,
        ))?;
        correlation_id += 1;
        let (records, behind) = fetched(response, next)?;
        if records.len() < value_bytes * (behind - next) as usize {
            return Err(io::Error::other("tickets, not originals"));
        }
        next = behind;
    }
    Ok(())
}

/// The records of a response, and the offset behind them.
fn fetched(response: Vec<u8>, from: i64) -> io::Result<(Bytes, i64)> {
    let bad = |error| io::Error::other(format!("{error}"));
    let mut rest = Bytes::from(response);
    ResponseHeader::decode(&mut rest, 1).map_err(bad)?;
    let response = FetchResponse::decode(&mut rest, FETCH_VERSION).map_err(bad)?;
    let partition = response
        .responses
        .first()
        .and_then(|topic| topic.partitions.first())
        .filter(|partition| partition.error_code == 0)
        .ok_or_else(|| io::Error::other("no partition without error"))?;
    let records = partition.records.clone().unwrap_or_default();
    let (mut left, mut next) = (records.clone(), from);
    while left.len() > 61 {
        let number = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|n| left[at + n]));
        let base = i64::from(number(0)) << 32 | i64::from(number(4) as u32);
        next = base + i64::from(number(23)) + 1;
        let length = 12 + number(8) as usize;
        left = left.slice(length.min(left.len())..);
    }
    Ok((records, next))
}

/// The URI of the first ticket in a response.
fn uri(response: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"{\"claimUri\":\"";
    let at = response
        .windows(BEFORE.len())
        .position(|window| window == BEFORE)?
        + BEFORE.len();
    let rest = &response[at..];
    let end = rest.iter().position(|byte| *byte == b'"')?;
    String::from_utf8(rest[..end].to_vec()).ok()
}
