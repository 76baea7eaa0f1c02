//! Medians with their spread, ratios within a round, and where and with what they were measured.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum as _;
use serde::Serialize;

use crate::cases::{Case, Group};
use crate::idle::Idle;
use crate::peers::{Kind, Programs};
use crate::rounds::Sample;

/// Where and with what.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub congestion_control: String,
    pub load_average_at_start: String,
    pub haproxy: String,
    pub sizegate: Option<String>,
    pub before: Option<String>,
    /// Of the tree that was built, if known.
    pub commit: Option<String>,
    pub threads_of_each_proxy: usize,
    pub produce_version: String,
    pub content: String,
    /// The proxies ended clients' TLS.
    pub tls: bool,
    pub rounds: usize,
    pub seconds_per_cell: f64,
}

impl Environment {
    /// What this machine and these programs say of themselves.
    pub fn of(programs: &Programs, plan: &crate::rounds::Plan) -> Self {
        let read = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        Self {
            cpu: cpu
                .unwrap_or("unknown")
                .trim_start_matches(['\t', ' ', ':'])
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average_at_start: read("/proc/loadavg"),
            haproxy: first_line(&programs.haproxy, "-v"),
            sizegate: programs
                .sizegate
                .as_ref()
                .map(|path| first_line(path, "--version")),
            before: programs
                .before
                .as_ref()
                .map(|path| first_line(path, "--version")),
            commit: std::env::var("BENCH_COMMIT").ok(),
            threads_of_each_proxy: programs.threads,
            produce_version: format!("{:?}", plan.version),
            content: format!("{:?}", plan.content),
            tls: programs.tls.is_some(),
            rounds: plan.rounds,
            seconds_per_cell: plan.measure.as_secs_f64(),
        }
    }
}

fn first_line(program: &Path, flag: &str) -> String {
    let output = Command::new(program).arg(flag).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

/// Median, and the quartiles around it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Of what is not NaN; NaN where nothing is left.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let at = |q: f64| {
            let Some(last) = values.len().checked_sub(1) else {
                return f64::NAN;
            };
            let position = last as f64 * q;
            let (below, above) = (position.floor() as usize, position.ceil() as usize);
            values[below] + (values[above] - values[below]) * position.fract()
        };
        Self {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
        }
    }

    pub fn text(self, digits: usize) -> String {
        let Self { median, low, high } = self;
        if median.is_nan() {
            return "–".into();
        }
        format!("{median:.digits$} [{low:.digits$}–{high:.digits$}]")
    }
}

/// One peer in one cell, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub peer: &'static str,
    pub group: Group,
    pub case: String,
    pub connections: usize,
    pub depth: usize,
    pub gb_per_second: Spread,
    pub requests_per_second: Spread,
    pub p50_us: Spread,
    pub p99_us: Spread,
    pub cpu_seconds_per_gb: Spread,
    pub cpu_us_per_request: Spread,
    /// Share of the proxy's CPU time in its own code.
    pub user_share: Spread,
    /// This peer's latency less direct's, round by round.
    pub added_p50_us: Spread,
    pub added_p99_us: Spread,
    /// This peer's over HAProxy's, which copies.
    pub beside_haproxy: Ratios,
    /// This peer's over that of HAProxy, splicing.
    pub beside_splicing: Ratios,
    /// This peer's over that of the other build of sizegate.
    pub beside_before: Ratios,
}

/// One peer's figures over another's, round by round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ratios {
    pub cpu: Spread,
    pub p50: Spread,
    pub p99: Spread,
    pub throughput: Spread,
}

impl Ratios {
    fn of(own: &[&Sample], other: &[&Sample]) -> Self {
        let each = |value: &dyn Fn(&Sample) -> f64| {
            let rounds = own.iter().zip(other);
            Spread::of(rounds.map(|(own, other)| value(own) / value(other)))
        };
        Self {
            cpu: each(&Sample::cpu_seconds_per_gb),
            p50: each(&|s| s.p50_us),
            p99: each(&|s| s.p99_us),
            throughput: each(&Sample::gb_per_second),
        }
    }
}

/// Everything that is written.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub environment: Environment,
    /// Median share of the machine that others used while it was measured.
    pub foreign_share: Spread,
    pub cells: Vec<Cell>,
    pub idle: Vec<Idle>,
    pub samples: Vec<Sample>,
}

impl Report {
    pub fn new(
        environment: Environment,
        kinds: &[Kind],
        cases: &[Case],
        samples: Vec<Sample>,
        idle: Vec<Idle>,
    ) -> Self {
        let mut cells = Vec::new();
        for case in cases {
            for &load in case.group.loads() {
                cells.extend(kinds.iter().map(|kind| cell(*kind, case, load, &samples)));
            }
        }
        Self {
            environment,
            foreign_share: Spread::of(samples.iter().map(|sample| sample.foreign_share)),
            cells,
            idle,
            samples,
        }
    }

    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        self.write_environment(out)?;
        for group in Group::value_variants() {
            for &(connections, depth) in group.loads() {
                let cells: Vec<&Cell> = self
                    .cells
                    .iter()
                    .filter(|cell| cell.group == *group)
                    .filter(|cell| (cell.connections, cell.depth) == (connections, depth))
                    .collect();
                if cells.is_empty() {
                    continue;
                }
                let title = group.title();
                writeln!(
                    out,
                    "\n## {title}: connections {connections}, depth {depth}\n"
                )?;
                // At a rate that all reach it is latency and CPU for a request that tell.
                if connections == 1 || group.rate().is_some() {
                    write_latency(out, &cells)?;
                } else {
                    write_cpu(out, &cells)?;
                }
            }
        }
        self.write_idle(out)
    }

    fn write_environment(&self, out: &mut String) -> std::fmt::Result {
        let e = &self.environment;
        writeln!(out, "# Loopback bench\n")?;
        writeln!(
            out,
            "Medians [quartiles] of {} interleaved rounds of {} s per cell; ratios are taken within a round. Compare within one run only.\n",
            e.rounds, e.seconds_per_cell
        )?;
        writeln!(
            out,
            "* {} × {}, Linux {}, congestion control {}, load {} at the start",
            e.cores, e.cpu, e.kernel, e.congestion_control, e.load_average_at_start
        )?;
        writeln!(
            out,
            "* {}; {}{}{}",
            e.haproxy,
            e.before
                .as_ref()
                .map_or_else(String::new, |before| format!("{before} before, ")),
            e.sizegate.as_deref().unwrap_or("no sizegate"),
            e.commit
                .as_ref()
                .map_or_else(String::new, |commit| format!(" ({commit})"))
        )?;
        writeln!(
            out,
            "* {} threads in each proxy, nothing pinned; Produce {}, {} values, uncompressed; {}",
            e.threads_of_each_proxy,
            e.produce_version,
            e.content,
            if e.tls {
                "clients' TLS ends at the proxies (not at `direct`)"
            } else {
                "plaintext"
            }
        )?;
        writeln!(
            out,
            "* others used {:.0} % of the machine meanwhile (median)",
            self.foreign_share.median * 100.0
        )
    }

    fn write_idle(&self, out: &mut String) -> std::fmt::Result {
        if self.idle.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n## Resident memory of the proxy, KiB per client connection\n"
        )?;
        writeln!(
            out,
            "| peer | connections | idle | after ApiVersions and 1 KiB | after 64 KiB | in all: before | all closed | peak |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|")?;
        for idle in &self.idle {
            writeln!(
                out,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {} | {} | {} |",
                idle.peer,
                idle.connections,
                idle.idle_kib,
                idle.small_kib,
                idle.used_kib,
                idle.base_kib,
                idle.closed_kib,
                idle.peak_kib,
            )?;
        }
        Ok(())
    }
}

/// Except for what has no proxy.
fn unless_direct(cell: &Cell, text: String) -> String {
    match cell.peer == Kind::Direct.label() {
        true => "–".into(),
        false => text,
    }
}

fn write_latency(out: &mut String, cells: &[&Cell]) -> std::fmt::Result {
    writeln!(
        out,
        "| case | peer | p50 µs | p99 µs | added p50 µs | added p99 µs | p50 / HAProxy's | p99 / HAProxy's | p50 / splicing's | p50 / before | CPU µs/request | CPU / HAProxy's |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    for cell in cells {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.case,
            cell.peer,
            cell.p50_us.text(0),
            cell.p99_us.text(0),
            unless_direct(cell, cell.added_p50_us.text(0)),
            unless_direct(cell, cell.added_p99_us.text(0)),
            cell.beside_haproxy.p50.text(2),
            cell.beside_haproxy.p99.text(2),
            cell.beside_splicing.p50.text(2),
            cell.beside_before.p50.text(2),
            unless_direct(cell, cell.cpu_us_per_request.text(1)),
            unless_direct(cell, cell.beside_haproxy.cpu.text(2)),
        )?;
    }
    Ok(())
}

fn write_cpu(out: &mut String, cells: &[&Cell]) -> std::fmt::Result {
    writeln!(
        out,
        "| case | peer | GB/s | k req/s | GB/s / HAProxy's | CPU-s/GB | CPU µs/request | user share | **CPU / HAProxy's** | CPU / splicing's | CPU / before |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    for cell in cells {
        let k_requests = Spread {
            median: cell.requests_per_second.median / 1e3,
            low: cell.requests_per_second.low / 1e3,
            high: cell.requests_per_second.high / 1e3,
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.case,
            cell.peer,
            cell.gb_per_second.text(2),
            k_requests.text(1),
            cell.beside_haproxy.throughput.text(2),
            unless_direct(cell, cell.cpu_seconds_per_gb.text(3)),
            unless_direct(cell, cell.cpu_us_per_request.text(1)),
            unless_direct(cell, cell.user_share.text(2)),
            unless_direct(cell, cell.beside_haproxy.cpu.text(2)),
            unless_direct(cell, cell.beside_splicing.cpu.text(2)),
            unless_direct(cell, cell.beside_before.cpu.text(2)),
        )?;
    }
    Ok(())
}

fn cell(kind: Kind, case: &Case, (connections, depth): (usize, usize), all: &[Sample]) -> Cell {
    let of = |kind: Kind| {
        let mut of: Vec<&Sample> = all
            .iter()
            .filter(|s| s.peer == kind.label() && s.group == case.group && s.case == case.name)
            .filter(|s| (s.connections, s.depth) == (connections, depth))
            .collect();
        of.sort_by_key(|sample| sample.round);
        of
    };
    let (own, direct) = (of(kind), of(Kind::Direct));
    let each = |value: &dyn Fn(&Sample) -> f64| Spread::of(own.iter().map(|sample| value(sample)));
    let added = |value: &dyn Fn(&Sample) -> f64| {
        let rounds = own.iter().zip(&direct);
        Spread::of(rounds.map(|(own, direct)| value(own) - value(direct)))
    };
    let cpu = |s: &Sample| s.cpu_user_seconds + s.cpu_system_seconds;
    Cell {
        peer: kind.label(),
        group: case.group,
        case: case.name.clone(),
        connections,
        depth,
        gb_per_second: each(&Sample::gb_per_second),
        requests_per_second: each(&Sample::requests_per_second),
        p50_us: each(&|s| s.p50_us),
        p99_us: each(&|s| s.p99_us),
        cpu_seconds_per_gb: each(&Sample::cpu_seconds_per_gb),
        cpu_us_per_request: each(&|s| cpu(s) * 1e6 / s.requests as f64),
        user_share: each(&|s| s.cpu_user_seconds / cpu(s)),
        added_p50_us: added(&|s| s.p50_us),
        added_p99_us: added(&|s| s.p99_us),
        beside_haproxy: Ratios::of(&own, &of(Kind::Haproxy)),
        beside_splicing: Ratios::of(&own, &of(Kind::Splicing)),
        beside_before: Ratios::of(&own, &of(Kind::Before)),
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn medians_and_quartiles_are_interpolated() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0, f64::NAN]);
        assert_eq!((spread.low, spread.median, spread.high), (1.75, 2.5, 3.25));
        assert!(Spread::of([]).median.is_nan());
    }
}
