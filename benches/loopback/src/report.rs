//! Medians with their spread, ratios within a round, and where and with what they were measured.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::idle::Idle;
use crate::peers::{Kind, Programs};
use crate::rounds::{LOADS, SIZES, Sample};

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
    pub batch: &'static str,
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
    /// This peer's over HAProxy's, round by round.
    pub cpu_ratio: Spread,
    pub p50_ratio: Spread,
    pub p99_ratio: Spread,
    pub throughput_ratio: Spread,
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
        samples: Vec<Sample>,
        idle: Vec<Idle>,
    ) -> Self {
        let mut cells = Vec::new();
        for (connections, depth) in LOADS {
            for (batch, _) in SIZES {
                for kind in kinds {
                    let of = |kind: Kind| of(&samples, kind, batch, depth);
                    cells.push(cell(
                        kind.label(),
                        batch,
                        connections,
                        depth,
                        &of(*kind),
                        [&of(Kind::Direct), &of(Kind::Haproxy)],
                    ));
                }
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
        writeln!(out, "\n## Depth 1, one connection: latency\n")?;
        writeln!(
            out,
            "| batch | peer | p50 µs | p99 µs | added p50 µs | added p99 µs | p50 / HAProxy's | p99 / HAProxy's | CPU-s/GB | CPU / HAProxy's |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
        for cell in self.cells.iter().filter(|cell| cell.depth == 1) {
            let is_direct = cell.peer == Kind::Direct.label();
            let unless_direct = |text: String| if is_direct { "–".into() } else { text };
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                cell.batch,
                cell.peer,
                cell.p50_us.text(0),
                cell.p99_us.text(0),
                unless_direct(cell.added_p50_us.text(0)),
                unless_direct(cell.added_p99_us.text(0)),
                cell.p50_ratio.text(2),
                cell.p99_ratio.text(2),
                unless_direct(cell.cpu_seconds_per_gb.text(2)),
                unless_direct(cell.cpu_ratio.text(2)),
            )?;
        }
        writeln!(out, "\n## Depth 8, four connections: throughput and CPU\n")?;
        writeln!(
            out,
            "| batch | peer | GB/s | k req/s | GB/s / HAProxy's | CPU-s/GB | CPU µs/request | user share | **CPU / HAProxy's** |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        for cell in self.cells.iter().filter(|cell| cell.depth > 1) {
            let is_direct = cell.peer == Kind::Direct.label();
            let unless_direct = |text: String| if is_direct { "–".into() } else { text };
            let k_requests = Spread {
                median: cell.requests_per_second.median / 1e3,
                low: cell.requests_per_second.low / 1e3,
                high: cell.requests_per_second.high / 1e3,
            };
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                cell.batch,
                cell.peer,
                cell.gb_per_second.text(2),
                k_requests.text(1),
                cell.throughput_ratio.text(2),
                unless_direct(cell.cpu_seconds_per_gb.text(2)),
                unless_direct(cell.cpu_us_per_request.text(1)),
                cell.user_share.text(2),
                unless_direct(cell.cpu_ratio.text(2)),
            )?;
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
            "* {}; {}{}",
            e.haproxy,
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

fn of<'a>(samples: &'a [Sample], kind: Kind, batch: &str, depth: usize) -> Vec<&'a Sample> {
    let mut of: Vec<&Sample> = samples
        .iter()
        .filter(|s| s.peer == kind.label() && s.batch == batch && s.depth == depth)
        .collect();
    of.sort_by_key(|sample| sample.round);
    of
}

fn cell(
    peer: &'static str,
    batch: &'static str,
    connections: usize,
    depth: usize,
    own: &[&Sample],
    [direct, haproxy]: [&[&Sample]; 2],
) -> Cell {
    let each = |value: &dyn Fn(&Sample) -> f64| Spread::of(own.iter().map(|sample| value(sample)));
    let with = |other: &[&Sample], value: &dyn Fn(&Sample, &Sample) -> f64| {
        Spread::of(own.iter().zip(other).map(|(own, other)| value(own, other)))
    };
    let cpu = |s: &Sample| s.cpu_user_seconds + s.cpu_system_seconds;
    Cell {
        peer,
        batch,
        connections,
        depth,
        gb_per_second: each(&Sample::gb_per_second),
        requests_per_second: each(&Sample::requests_per_second),
        p50_us: each(&|s| s.p50_us),
        p99_us: each(&|s| s.p99_us),
        cpu_seconds_per_gb: each(&Sample::cpu_seconds_per_gb),
        cpu_us_per_request: each(&|s| cpu(s) * 1e6 / s.requests as f64),
        user_share: each(&|s| s.cpu_user_seconds / cpu(s)),
        added_p50_us: with(direct, &|own, direct| own.p50_us - direct.p50_us),
        added_p99_us: with(direct, &|own, direct| own.p99_us - direct.p99_us),
        cpu_ratio: with(haproxy, &|own, haproxy| {
            own.cpu_seconds_per_gb() / haproxy.cpu_seconds_per_gb()
        }),
        p50_ratio: with(haproxy, &|own, haproxy| own.p50_us / haproxy.p50_us),
        p99_ratio: with(haproxy, &|own, haproxy| own.p99_us / haproxy.p99_us),
        throughput_ratio: with(haproxy, &|own, haproxy| {
            own.gb_per_second() / haproxy.gb_per_second()
        }),
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
