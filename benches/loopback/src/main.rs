//! loopback: sizegate beside HAProxy and a direct connection, on one machine, in one run.
//!
//! [`frames`] makes what clients send, [`load`] sends it, [`sink`] answers it; [`peers`] are what lies between.
//! [`cases`] lists the loads, [`rounds`] measures, [`idle`] evaluates silent connections, [`report`] writes; [`count`], [`bombs`], [`inside`] and
//! [`claims`] stand beside them. README.md in `benches` says how to read the figures.

mod bombs;
mod cases;
mod claims;
mod count;
mod frames;
mod idle;
mod inside;
mod load;
mod peers;
mod process;
mod report;
mod rounds;
mod sink;
mod tls;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use bombs::Bomb;
use cases::Group;
use frames::{Content, Ring, Version};
use load::Clients;
use peers::{Kind, Peer, Programs};
use report::{Environment, Report};
use rounds::Plan;
use sink::Sink;
use tls::Certificate;

#[derive(Parser)]
#[command(about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The whole comparison.
    Run(RunArgs),
    /// Instructions per request, under callgrind.
    Count(CountArgs),
    /// What others feel while 64 connections send bombs.
    Bombs(BombsArgs),
    /// What a limit inside batches costs, by codec.
    Inside(InsideArgs),
    /// What the claim check costs, beside plain PUTs and GETs of the same bytes.
    Claims(claims::ClaimsArgs),
    /// What it is compared with: the bench starts this itself.
    #[command(hide = true)]
    Plain(claims::plain::PlainArgs),
    /// Only the sink, until it is ended: for trying things by hand.
    Sink {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:0")]
        bind: SocketAddr,
    },
    /// Only the load, against what listens at an address: for profiling by hand.
    Load(LoadArgs),
}

/// What the load sends.
#[derive(Args)]
struct FrameArgs {
    /// Version of Produce: 9 names the topic, 13 bears its id.
    #[arg(long, value_enum, default_value = "13")]
    version: Version,
    /// What the records hold.
    #[arg(long, value_enum, default_value = "json")]
    content: Content,
}

#[derive(Args)]
struct RunArgs {
    /// HAProxy's program.
    #[arg(long, default_value = "haproxy")]
    haproxy: PathBuf,
    /// sizegate's program; left out of the comparison if not given.
    #[arg(long)]
    sizegate: Option<PathBuf>,
    /// Another build of sizegate that takes part, to compare with.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Which loads; all if not given.
    #[arg(long, value_enum)]
    group: Vec<Group>,
    /// Only the cases whose names have this in them.
    #[arg(long, default_value = "")]
    only: String,
    /// Threads of each proxy; as many as there are CPUs if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Rounds.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Milliseconds measured per cell.
    #[arg(long, default_value_t = 1000)]
    measure_ms: u64,
    /// 3 rounds of 400 ms.
    #[arg(long)]
    quick: bool,
    /// Connections whose memory is evaluated; 0 leaves that out.
    #[arg(long, default_value_t = 2000)]
    idle_connections: usize,
    /// The proxies decrypt TLS (to the sink it is plain TCP). Memory of connections is left out.
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    frames: FrameArgs,
    /// Where configs, logs, report.json and report.md go.
    #[arg(long)]
    directory: PathBuf,
}

#[derive(Args)]
struct CountArgs {
    /// sizegate's program.
    #[arg(long)]
    sizegate: PathBuf,
    /// Each count is made so often.
    #[arg(long, default_value_t = 2)]
    runs: usize,
    /// Only batches of this size, such as `1 KiB`.
    #[arg(long, default_value = "")]
    size: String,
    /// Where the config, the log and the last profile go.
    #[arg(long)]
    directory: PathBuf,
    /// Only what this file names is counted, and a count of more than 3 % above its figure fails.
    #[arg(long)]
    baseline: Option<PathBuf>,
    /// Writes the figures of what is counted here, for a later `--baseline`.
    #[arg(long)]
    record: Option<PathBuf>,
}

#[derive(Args)]
struct BombsArgs {
    #[arg(long, default_value = "haproxy")]
    haproxy: PathBuf,
    #[arg(long)]
    sizegate: Option<PathBuf>,
    /// Which bombs; all if not given.
    #[arg(long, value_enum)]
    bomb: Vec<Bomb>,
    #[arg(long, value_enum, default_value = "13")]
    version: Version,
    #[arg(long)]
    directory: PathBuf,
}

#[derive(Args)]
struct InsideArgs {
    /// sizegate's program.
    #[arg(long)]
    sizegate: PathBuf,
    /// Rounds.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds measured per cell.
    #[arg(long, default_value_t = 500)]
    measure_ms: u64,
    #[command(flatten)]
    frames: FrameArgs,
    /// Where configs and logs go.
    #[arg(long)]
    directory: PathBuf,
}

#[derive(Args)]
struct LoadArgs {
    /// Whom to load.
    address: SocketAddr,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Wire bytes of a batch.
    #[arg(long, default_value_t = 16384)]
    batch_bytes: usize,
    /// Fetches so many bytes of records, in such batches, instead of producing.
    #[arg(long)]
    fetch_bytes: Option<usize>,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[arg(long, default_value_t = u64::MAX)]
    max_requests: u64,
    #[command(flatten)]
    frames: FrameArgs,
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loopback: {error}");
            ExitCode::from(2)
        }
    }
}

fn start() -> io::Result<()> {
    match Cli::parse().command {
        Command::Run(args) => run(args),
        Command::Count(args) => count(args),
        Command::Bombs(args) => bombs(args),
        Command::Inside(args) => inside(args),
        Command::Claims(args) => claims::run(args),
        Command::Plain(args) => claims::plain::run(&args),
        Command::Sink { bind } => {
            let sink = Sink::start(bind, sink_workers()?)?;
            println!("{}", sink.address());
            loop {
                thread::park();
            }
        }
        Command::Load(args) => load(&args),
    }
}

fn run(args: RunArgs) -> io::Result<()> {
    fs::create_dir_all(&args.directory)?;
    let programs = Programs {
        haproxy: args.haproxy,
        sizegate: args.sizegate,
        before: args.before,
        threads: match args.threads {
            Some(threads) => threads,
            None => thread::available_parallelism()?.get(),
        },
        tls: match args.tls {
            true => Some(Certificate::make(&args.directory)?),
            false => None,
        },
        directory: args.directory,
    };
    let plan = Plan {
        rounds: if args.quick { 3 } else { args.rounds },
        measure: Duration::from_millis(if args.quick { 400 } else { args.measure_ms }),
        warm_up: Duration::from_millis(100),
        version: args.frames.version,
        content: args.frames.content,
    };
    let environment = Environment::of(&programs, &plan);
    let kinds = programs.kinds();
    let sink = start_sink()?;

    let peers = kinds
        .iter()
        .map(|kind| Peer::start(*kind, &programs, sink.address()))
        .collect::<io::Result<Vec<_>>>()?;
    for peer in &peers {
        let Some(pid) = peer.pid() else { continue };
        eprintln!(
            "{} listens on {}: process {pid}, {} threads",
            peer.kind.label(),
            peer.address,
            process::threads(pid)?
        );
    }
    let groups = match args.group.is_empty() {
        true => Group::value_variants(),
        false => &args.group,
    };
    let cases = cases::cases(groups, &args.only, plan.version, plan.content);
    let samples = rounds::run(&plan, &cases, &peers, &sink, |round| {
        eprintln!("round {} of {}", round + 1, plan.rounds);
    })?;
    drop(peers);

    let mut idle = Vec::new();
    let is_weighed = |kind: &&Kind| !matches!(kind, Kind::Direct | Kind::Splicing);
    for kind in kinds.iter().filter(is_weighed) {
        if args.idle_connections > 0 && programs.tls.is_none() {
            idle.push(idle::measure(
                *kind,
                &programs,
                &sink,
                plan.version,
                args.idle_connections,
            )?);
        }
    }
    let report = Report::new(environment, &kinds, &cases, samples, idle);
    let markdown = report.markdown();
    fs::write(programs.directory.join("report.md"), &markdown)?;
    let json = serde_json::to_vec_pretty(&report)?;
    fs::write(programs.directory.join("report.json"), json)?;
    print!("{markdown}");
    Ok(())
}

fn count(args: CountArgs) -> io::Result<()> {
    use count::{Request, Rule};
    const CASES: [(Request, Rule); 7] = [
        (Request::Produce(Version::V9), Rule::Plain),
        (Request::Produce(Version::V13), Rule::Plain),
        (Request::Produce(Version::V13), Rule::Governed),
        (Request::Produce(Version::V13), Rule::Decoding),
        (Request::Produce(Version::V13), Rule::ClaimsElsewhere),
        (Request::Fetch, Rule::Decoding),
        (Request::Fetch, Rule::ClaimsElsewhere),
    ];
    if !count::is_possible() {
        return Err(io::Error::other(
            "valgrind is missing: install it from your system's packages",
        ));
    }
    fs::create_dir_all(&args.directory)?;
    let programs = Programs {
        haproxy: PathBuf::new(),
        sizegate: Some(args.sizegate),
        before: None,
        threads: 1,
        tls: None,
        directory: args.directory,
    };
    let sink = start_sink()?;
    let baseline = args
        .baseline
        .as_deref()
        .map(count::read_figures)
        .transpose()?;
    let mut figures = count::Figures::new();
    let mut slower = Vec::new();
    println!("| batch | request | instructions per request |\n|---|---|---|");
    for size in cases::SIZES {
        if !args.size.is_empty() && size.0 != args.size {
            continue;
        }
        for case in CASES {
            let name = count::name(size.0, case);
            let figure = baseline.as_ref().map(|figures| figures.get(&name).copied());
            if figure == Some(None) {
                continue;
            }
            let count = count::count(&programs, &sink, size, case, args.runs)?;
            let counts: Vec<String> = count
                .instructions_per_request
                .iter()
                .map(u64::to_string)
                .collect();
            println!(
                "| {} | {} | {} |",
                count.batch,
                count.request,
                counts.join(", ")
            );
            slower.extend(
                figure
                    .flatten()
                    .and_then(|figure| count.above(&name, figure)),
            );
            figures.insert(name, count.least());
        }
    }
    if let Some(file) = &args.record {
        count::write_figures(file, &figures)?;
    }
    if !slower.is_empty() {
        return Err(io::Error::other(slower.join("; ")));
    }
    Ok(())
}

fn bombs(args: BombsArgs) -> io::Result<()> {
    fs::create_dir_all(&args.directory)?;
    let programs = Programs {
        haproxy: args.haproxy,
        sizegate: args.sizegate,
        before: None,
        threads: thread::available_parallelism()?.get(),
        tls: None,
        directory: args.directory,
    };
    let kinds = if args.bomb.is_empty() {
        Bomb::value_variants()
    } else {
        &args.bomb
    };
    let sink = start_sink()?;
    println!(
        "| peer | bomb | bombs | calm p50 / p99 µs | bombed p50 / p99 / max µs | peak memory KiB |"
    );
    println!("|---|---|---|---|---|---|");
    for bomb in kinds {
        for kind in programs
            .kinds()
            .into_iter()
            .filter(|kind| matches!(kind, Kind::Haproxy | Kind::Sizegate))
        {
            let b = bombs::measure(kind, &programs, &sink, *bomb, args.version)?;
            println!(
                "| {} | {} | {} | {:.0} / {:.0} | {:.0} / {:.0} / {:.0} | {} |",
                b.peer,
                b.bomb,
                b.bombs,
                b.calm_p50_us,
                b.calm_p99_us,
                b.bombed_p50_us,
                b.bombed_p99_us,
                b.bombed_max_us,
                b.peak_kib
            );
        }
    }
    Ok(())
}

fn inside(args: InsideArgs) -> io::Result<()> {
    fs::create_dir_all(&args.directory)?;
    let programs = Programs {
        haproxy: PathBuf::new(),
        sizegate: Some(args.sizegate),
        before: None,
        threads: thread::available_parallelism()?.get(),
        tls: None,
        directory: args.directory,
    };
    let plan = Plan {
        rounds: args.rounds,
        measure: Duration::from_millis(args.measure_ms),
        warm_up: Duration::from_millis(100),
        version: args.frames.version,
        content: args.frames.content,
    };
    println!(
        "| batch | codec | frame | batch gate only, CPU µs/request | and 4 MiB uncompressed | ratio | used by others |"
    );
    println!("|---|---|---|---|---|---|---|");
    inside::run(&plan, &programs, &start_sink()?, |cost| {
        println!(
            "| {} | {} | {} | {} | {} | {} | {:.0} % |",
            cost.batch,
            cost.codec.label(),
            cost.frame_bytes,
            cost.without_us.text(1),
            cost.with_us.text(1),
            cost.ratio.text(2),
            cost.foreign_share.median * 100.0
        );
    })
}

fn start_sink() -> io::Result<Sink> {
    Sink::start(SocketAddr::from(([127, 0, 0, 1], 0)), sink_workers()?)
}

fn load(args: &LoadArgs) -> io::Result<()> {
    let count = ((2 << 20) / args.batch_bytes).clamp(8, 64);
    let ring = Arc::new(match args.fetch_bytes {
        Some(bytes) => Ring::fetch(count, 1, bytes, args.batch_bytes),
        None => Ring::produce(
            count,
            args.batch_bytes,
            args.frames.version,
            args.frames.content,
        ),
    });
    let mut clients = Clients::connect(args.address, args.connections)?;
    let time = Duration::from_secs(args.seconds);
    let outcome = clients.run(&ring, args.depth, time, args.max_requests)?;
    let seconds = outcome.elapsed.as_secs_f64();
    println!(
        "{} requests, {:.3} GB/s, {:.0} req/s, p50 {:.1} µs, p99 {:.1} µs",
        outcome.requests,
        outcome.bytes as f64 / 1e9 / seconds,
        outcome.requests as f64 / seconds,
        outcome.latency_us(0.5),
        outcome.latency_us(0.99),
    );
    Ok(())
}

/// One, and one more for every four CPUs: the sink must not be what is measured, nor crowd out the proxy.
fn sink_workers() -> io::Result<usize> {
    Ok(1 + thread::available_parallelism()?.get() / 4)
}
