//! Reads what Linux says of a process: CPU time, resident memory, who listens on a port.

use std::fs;
use std::io;
use std::time::Duration;

/// `USER_HZ`: the unit of /proc's CPU times on every Linux that Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time spent so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// In the process's own code.
    pub user: Duration,
    /// In the kernel for it, soft interrupts of the loopback device included.
    pub system: Duration,
}

impl Cpu {
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// What neither the peer nor the rig spent, from a moment on.
pub struct Others {
    busy: Duration,
    rig: Cpu,
}

impl Others {
    /// From now on.
    pub fn watch() -> io::Result<Self> {
        Ok(Self {
            busy: machine_busy()?,
            rig: cpu(std::process::id())?,
        })
    }

    /// The CPU time of others by now, where the peer spent so much.
    pub fn spent(&self, peer: Duration) -> io::Result<Duration> {
        let busy = machine_busy()?.saturating_sub(self.busy);
        let rig = cpu(std::process::id())?.since(self.rig);
        Ok(busy.saturating_sub(peer + rig.total()))
    }
}

/// `spent` as a share of the whole machine in a time.
pub fn share_of_machine(spent: Duration, time: Duration) -> io::Result<f64> {
    let cores = std::thread::available_parallelism()?.get() as f64;
    Ok(spent.as_secs_f64() / (time.as_secs_f64() * cores))
}

/// User and system time of a process with all its threads, from /proc/PID/stat. Ticks of 10 ms.
pub fn cpu(pid: u32) -> io::Result<Cpu> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in parentheses, which may hold anything.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let ticks = |nth: usize| -> io::Result<Duration> {
        let ticks: u64 = fields
            .get(nth)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| io::Error::other("/proc/PID/stat is not as proc(5) says"))?;
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    };
    // Fields 14 and 15 of proc(5), counted from field 3.
    Ok(Cpu {
        user: ticks(11)?,
        system: ticks(12)?,
    })
}

/// CPU time that the whole machine spent, stolen time included.
fn machine_busy() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    let busy = fields.iter().sum::<u64>() - idle;
    Ok(Duration::from_millis(busy * 1000 / TICKS_PER_SECOND))
}

/// Resident memory now and at most; KiB.
pub fn resident_kib(pid: u32) -> io::Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|kib| kib.parse().ok())
            .ok_or_else(|| io::Error::other(format!("no {name} in /proc/{pid}/status")))
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// Threads of a process.
pub fn threads(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Whether this process itself, and no other, listens on this port of 127.0.0.1.
pub fn listens(pid: u32, port: u16) -> io::Result<bool> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let local = format!("0100007F:{port:04X}");
    let inodes: Vec<&str> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&local.as_str()) && fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields.get(9).copied())
        .collect();
    if inodes.is_empty() {
        return Ok(false);
    }
    let mut held = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        if let Ok(target) = fs::read_link(descriptor?.path()) {
            held.push(target.to_string_lossy().into_owned());
        }
    }
    // A process may hold several sockets on one port (SO_REUSEPORT): all of them must be its own.
    Ok(inodes
        .iter()
        .all(|inode| held.contains(&format!("socket:[{inode}]"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_belongs_to_the_process_that_listens_on_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port).unwrap());
        assert!(!listens(1, port).unwrap_or(false));
        drop(listener);
        assert!(!listens(std::process::id(), port).unwrap());
    }

    #[test]
    fn spent_time_is_seen() {
        let before = cpu(std::process::id()).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let spent = cpu(std::process::id()).unwrap().since(before).total();
        assert!(spent >= Duration::from_millis(20), "{spent:?}");
    }
}
