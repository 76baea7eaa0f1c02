//! The ways to the sink that are compared: direct, through HAProxy, through sizegate.
//!
//! Invariant: a peer that started is listening on its own port, seen in /proc, and ends when it is dropped.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::frames::TOPIC;
use crate::process;
use crate::tls::{self, Certificate};

const START_DEADLINE: Duration = Duration::from_secs(30);

const END_DEADLINE: Duration = Duration::from_secs(60);

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Direct,
    Haproxy,
    /// HAProxy with `option splice-request` and `option splice-response`.
    Splicing,
    /// Another build of sizegate, to compare with.
    Before,
    Sizegate,
}

impl Kind {
    pub const fn label(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Haproxy => "haproxy",
            Self::Splicing => "haproxy, splicing",
            Self::Before => "sizegate before",
            Self::Sizegate => "sizegate",
        }
    }
}

/// Where the proxies are, and how many threads each gets.
#[derive(Debug, Clone)]
pub struct Programs {
    pub haproxy: PathBuf,
    pub sizegate: Option<PathBuf>,
    /// Another build of sizegate that takes part too.
    pub before: Option<PathBuf>,
    pub threads: usize,
    /// The proxies speak TLS to clients.
    pub tls: Option<Certificate>,
    /// Written configs and logs go here.
    pub directory: PathBuf,
}

impl Programs {
    /// What can be compared.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::Direct, Kind::Haproxy];
        // What is decrypted cannot be spliced.
        kinds.extend(self.tls.is_none().then_some(Kind::Splicing));
        kinds.extend(self.before.as_ref().map(|_| Kind::Before));
        kinds.extend(self.sizegate.as_ref().map(|_| Kind::Sizegate));
        kinds
    }
}

/// A way to the sink.
pub struct Peer {
    pub kind: Kind,
    /// Where the load connects.
    pub address: SocketAddr,
    /// The proxy's own port.
    port: u16,
    child: Option<Child>,
    /// Speaks TLS to the proxy.
    front: Option<Child>,
}

impl Peer {
    /// Starts it in front of `sink`.
    pub fn start(kind: Kind, programs: &Programs, sink: SocketAddr) -> io::Result<Self> {
        Self::start_with(kind, programs, sink, More::default())
    }

    /// As [`Peer::start`]; if it is sizegate, with this in its configuration.
    pub fn start_with(
        kind: Kind,
        programs: &Programs,
        sink: SocketAddr,
        more: More<'_>,
    ) -> io::Result<Self> {
        let port = match kind {
            Kind::Direct => {
                return Ok(Self {
                    kind,
                    address: sink,
                    port: sink.port(),
                    child: None,
                    front: None,
                });
            }
            Kind::Haproxy | Kind::Splicing | Kind::Before | Kind::Sizegate => free_ports(3)?,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let log = programs.directory.join(format!(
            "{}-{port}.log",
            kind.label().replace([',', ' '], "")
        ));
        let command = match kind {
            Kind::Sizegate => sizegate(programs, address, sink, more)?,
            Kind::Before => {
                let before = Programs {
                    sizegate: programs.before.clone(),
                    ..programs.clone()
                };
                sizegate(&before, address, sink, more)?
            }
            Kind::Splicing => splicing(programs, address, sink)?,
            Kind::Haproxy | Kind::Direct => haproxy(programs, address, sink)?,
        };
        let mut peer = Self::spawn(kind, address, command, &log)?;
        peer.await_ready(&log)?;
        if programs.tls.is_some() {
            peer.put_front(programs)?;
        }
        Ok(peer)
    }

    /// From here on the load connects to what speaks TLS to this proxy.
    fn put_front(&mut self, programs: &Programs) -> io::Result<()> {
        let front = SocketAddr::from(([127, 0, 0, 1], free_ports(1)?));
        let mut command = tls::front(programs, front, self.address)?;
        let child = self.front.insert(command.stdin(Stdio::null()).spawn()?);
        let start = Instant::now();
        while !process::listens(child.id(), front.port())? {
            if child.try_wait()?.is_some() || start.elapsed() > START_DEADLINE {
                return Err(io::Error::other("the front of a proxy did not start"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.address = front;
        Ok(())
    }

    /// sizegate with one worker, under callgrind, which writes `profile` at its end.
    pub fn start_counted(
        programs: &Programs,
        sink: SocketAddr,
        profile: &Path,
        more: More<'_>,
    ) -> io::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(3)?));
        let log = programs.directory.join("callgrind.log");
        let one = Programs {
            threads: 1,
            ..programs.clone()
        };
        let counted = sizegate(&one, address, sink, more)?;
        let mut command = Command::new("valgrind");
        // Set, or sizegate starts itself once more with them, and valgrind would be left behind.
        command
            .env("MALLOC_MMAP_THRESHOLD_", "2097152")
            .env("MALLOC_TRIM_THRESHOLD_", "8388608");
        command
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", profile.display()))
            .arg(counted.get_program())
            .args(counted.get_args());
        let mut peer = Self::spawn(Kind::Sizegate, address, command, &log)?;
        peer.await_ready(&log)?;
        Ok(peer)
    }

    fn spawn(
        kind: Kind,
        address: SocketAddr,
        mut command: Command,
        log: &Path,
    ) -> io::Result<Self> {
        let log = File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self {
            kind,
            address,
            port: address.port(),
            child: Some(child),
            front: None,
        })
    }

    /// Ends it with SIGTERM and waits until it has.
    pub fn end(mut self) -> io::Result<()> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        Command::new("kill")
            .arg("-TERM")
            .arg(child.id().to_string())
            .status()?;
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > END_DEADLINE {
                return Err(io::Error::other("it did not end after SIGTERM"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The proxy's process; none for direct.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The sum of all samples of a metric; if it is sizegate.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port + 2))?;
        stream.set_read_timeout(Some(START_DEADLINE))?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        if !text.starts_with("HTTP/1.1 200 ") {
            return Err(io::Error::other("no metrics"));
        }
        let of_it = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let values = text.lines().filter(of_it);
        let values = values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// Its process listens on its port.
    pub fn check_port(&self) -> io::Result<()> {
        let pid = self.pid().unwrap_or_else(std::process::id);
        if process::listens(pid, self.port)? {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "port {} is not that of {} (process {pid})",
            self.port,
            self.kind.label()
        )))
    }

    fn await_ready(&mut self, log: &Path) -> io::Result<()> {
        let start = Instant::now();
        while self.check_port().is_err() {
            let exited = match &mut self.child {
                Some(child) => child.try_wait()?,
                None => None,
            };
            if exited.is_some() || start.elapsed() > START_DEADLINE {
                return Err(io::Error::other(format!(
                    "{} did not start: {}",
                    self.kind.label(),
                    fs::read_to_string(log).unwrap_or_default()
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for child in [&mut self.child, &mut self.front].into_iter().flatten() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// TLS from clients, if any, ends here.
fn haproxy(programs: &Programs, address: SocketAddr, sink: SocketAddr) -> io::Result<Command> {
    let tls = match &programs.tls {
        Some(certificate) => format!(" ssl crt {}", certificate.both.display()),
        None => String::new(),
    };
    haproxy_in_tcp_mode(
        programs,
        ("haproxy.cfg", "", ""),
        &format!("{address}{tls}"),
        &sink.to_string(),
    )
}

/// Splices, whatever it takes the stream for, through pipes of a mebibyte: smaller ones cost it more.
fn splicing(programs: &Programs, address: SocketAddr, sink: SocketAddr) -> io::Result<Command> {
    let global = "tune.pipesize 1048576";
    let defaults = "option splice-request\n    option splice-response";
    haproxy_in_tcp_mode(
        programs,
        ("haproxy-splicing.cfg", global, defaults),
        &address.to_string(),
        &sink.to_string(),
    )
}

/// TCP mode, untuned but for the number of threads and what is given for its sections `global` and `defaults`, with this
/// `bind` line and this `server` line. (It wants twice `maxconn` descriptors.)
pub fn haproxy_in_tcp_mode(
    programs: &Programs,
    (file, global, defaults): (&str, &str, &str),
    bind: &str,
    server: &str,
) -> io::Result<Command> {
    let config = programs.directory.join(file);
    let threads = programs.threads;
    fs::write(
        &config,
        format!(
            "global
    nbthread {threads}
    maxconn 4000
    {global}
defaults
    mode tcp
    {defaults}
    timeout connect 5s
    timeout client 10m
    timeout server 10m
frontend clients
    bind {bind}
    default_backend servers
backend servers
    server one {server}
"
        ),
    )?;
    let mut command = Command::new(&programs.haproxy);
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

/// What stands in sizegate's configuration beside what always does.
#[derive(Debug, Clone, Copy, Default)]
pub struct More<'a> {
    /// Limits beside the batch gate's.
    pub limits: &'a str,
    /// More of the rule of [`TOPIC`].
    pub rule: &'a str,
    /// Rules in front of it.
    pub rules: &'a str,
    /// Whole sections.
    pub sections: &'a str,
}

/// The batch gate on: the learned limit, and a rule's.
fn sizegate(
    programs: &Programs,
    address: SocketAddr,
    sink: SocketAddr,
    More {
        limits,
        rule,
        rules,
        sections,
    }: More<'_>,
) -> io::Result<Command> {
    let config = programs
        .directory
        .join(format!("sizegate-{}.yaml", address.port()));
    let (node_port, admin_port) = (address.port() + 1, address.port() + 2);
    let tls = match &programs.tls {
        Some(Certificate { cert, key, .. }) => format!(
            "  tls: {{cert_file: {}, key_file: {}}}\n",
            cert.display(),
            key.display()
        ),
        None => String::new(),
    };
    fs::write(
        &config,
        format!(
            "cluster:
  bootstrap_servers: [{sink}]
listener:
  bind: {address}
  advertised_host: 127.0.0.1
  node_ports: {{first: {node_port}, node_ids: \"0\"}}
{tls}limits: {{batch_bytes: inherit, {limits}}}
rules:
{rules}  - name: bench
    topics: [\"{TOPIC}*\"]
    limits: {{batch_bytes: 2MiB}}
    action: reject
    {rule}
admin: {{bind: 127.0.0.1:{admin_port}}}
{sections}
"
        ),
    )?;
    let program = programs.sizegate.as_ref();
    let mut command = Command::new(program.ok_or_else(|| io::Error::other("no sizegate"))?);
    command
        .arg("run")
        .arg("--config")
        .arg(config)
        .arg("--workers")
        .arg(programs.threads.to_string());
    Ok(command)
}

/// The first of `count` neighbouring ports that nobody listens on, below the range that the kernel gives to outgoing
/// connections: no client can sit on one before its process does. Another server could; the port check sees it.
pub fn free_ports(count: u16) -> io::Result<u16> {
    for attempt in 0..100u32 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let spread = now.subsec_micros().wrapping_add(attempt.wrapping_mul(977));
        let first = 20_000 + (spread % 11_000) as u16;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(is_free) {
            return Ok(first);
        }
    }
    Err(io::Error::other("no free ports"))
}
