//! The proxy under test, as a process of its own.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::kafka::Kafka;
use super::process::{Supervised, new_dir};
use super::{eventually, http, ports};

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// Ports for nodes 1 to 6: room for brokers that join later.
const NODE_PORTS: u16 = 6;

/// A running `sizegate run`; ends when dropped, or with the test process.
pub struct Sizegate {
    process: Supervised,
    command: Command,
    first_port: u16,
    admin: SocketAddr,
}

/// A sizegate to be started.
pub struct Builder {
    bootstrap: String,
    listener: String,
    advertise: Option<String>,
    cluster: String,
    yaml: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
    file: Option<PathBuf>,
}

impl Sizegate {
    /// In front of `kafka`, with `yaml` below the addresses: `rules:`, `limits:`, `mode:` … Ready when it returns.
    pub fn start(kafka: &Kafka, yaml: &str) -> Self {
        Self::before(&kafka.bootstrap()).yaml(yaml).start()
    }

    /// In front of any addresses.
    pub fn before(bootstrap: &str) -> Builder {
        Builder {
            bootstrap: bootstrap.to_string(),
            listener: String::new(),
            advertise: None,
            cluster: String::new(),
            yaml: String::new(),
            env: Vec::new(),
            args: Vec::new(),
            file: None,
        }
    }

    /// The clients' bootstrap address.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.first_port)
    }

    /// The address that stands for one broker.
    pub fn node(&self, id: i32) -> String {
        format!("127.0.0.1:{}", self.first_port + id as u16)
    }

    /// The admin server.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Status and body of a GET on the admin server.
    pub fn get(&self, path: &str) -> (u16, String) {
        http::get(self.admin, path)
            .unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.process.last_words()))
    }

    /// The JSON that a GET answers with 200.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("GET {path}: {error}: {body}"))
    }

    /// All metrics now, with all histograms.
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics?histograms=all");
        assert_eq!(status, 200, "GET /metrics: {body}");
        Metrics::parse(&body)
    }

    /// Waits until it is ready; [`Builder::start`] did already.
    pub fn wait_until_ready(&self) {
        eventually(PATIENCE, "sizegate ready", || {
            assert!(
                self.process.is_running(),
                "sizegate ended at its start\n{}",
                self.process.last_words()
            );
            matches!(http::get(self.admin, "/readyz"), Ok((200, _))).then_some(())
        });
    }

    /// What it logged so far, to both streams.
    pub fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }

    /// The first log line that holds all of `words`, once there is one.
    pub fn log_line(&self, words: &[&str]) -> String {
        eventually(PATIENCE, &format!("a log line with {words:?}"), || {
            let log = self.log();
            log.lines()
                .find(|line| words.iter().all(|word| line.contains(word)))
                .map(str::to_string)
        })
    }

    /// The process: memory, signals, exit code.
    pub fn process(&mut self) -> &mut Supervised {
        &mut self.process
    }

    /// Ends it by a signal (`KILL`, `TERM`) and waits until it has ended.
    pub fn end(&mut self, signal: &str) {
        self.process.signal(signal);
        let ended = self.process.wait(PATIENCE);
        assert!(ended.is_some(), "does not end: {}", self.log());
    }

    /// Starts it again at its addresses once it has ended, and waits until it is ready. Only of a [`Builder::file`]: another
    /// configuration went with the process.
    pub fn start_again(&mut self) {
        self.process = Supervised::spawn(&self.command, &new_dir("proxy"));
        self.wait_until_ready();
    }

    /// Asks it to end (SIGTERM) and returns its exit code.
    pub fn terminate(mut self) -> i32 {
        self.process.signal("TERM");
        self.process
            .wait(PATIENCE)
            .unwrap_or_else(|| panic!("did not end: {}", self.log()))
    }
}

impl Builder {
    /// Top-level YAML below the addresses.
    pub fn yaml(mut self, yaml: &str) -> Self {
        self.yaml = yaml.to_string();
        self
    }

    /// Further lines of the `listener` section, e.g. `frame_bytes: 1MiB`.
    pub fn listener(mut self, line: &str) -> Self {
        let _ = writeln!(self.listener, "  {line}");
        self
    }

    /// Brokers are told apart by name at one port: `listener.sni`, with these names.
    pub fn sni(mut self, bootstrap: &str, node: &str) -> Self {
        self.advertise = Some(format!("sni: {{bootstrap: {bootstrap}, node: \"{node}\"}}"));
        self
    }

    /// Further lines of the `cluster` section.
    pub fn cluster(mut self, line: &str) -> Self {
        let _ = writeln!(self.cluster, "  {line}");
        self
    }

    /// An environment variable.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_string(), value.to_string()));
        self
    }

    /// A further command-line argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_string());
        self
    }

    /// A configuration as it is shipped, by its path in the repository: the addresses are overridden by the
    /// environment, further YAML is not used.
    pub fn file(mut self, path: &str) -> Self {
        self.file = Some(super::programs::repo().join(path));
        self
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Sizegate {
        let sizegate = self.start_unready();
        sizegate.wait_until_ready();
        sizegate
    }

    /// Starts it and returns at once.
    pub fn start_unready(self) -> Sizegate {
        let first_port = ports::free_ports(NODE_PORTS + 2);
        let admin_port = first_port + NODE_PORTS + 1;
        let servers: Vec<&str> = self.bootstrap.split(',').collect();
        let config = format!(
            "cluster:\n  bootstrap_servers: [{}]\n{}listener:\n  bind: 127.0.0.1:{first_port}\n  {}\n{}admin: \
             {{bind: 127.0.0.1:{admin_port}}}\n{}\n",
            servers.join(", "),
            self.cluster,
            self.advertise.unwrap_or_else(|| format!(
                "advertised_host: 127.0.0.1\n  node_ports: {{first: {}, node_ids: 1-{NODE_PORTS}}}",
                first_port + 1
            )),
            self.listener,
            self.yaml,
        );
        let dir = new_dir("proxy");
        // Another build, for tests that somebody runs by hand at their full size.
        let program = std::env::var_os("SIZEGATE_BIN");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_sizegate").into());
        let mut command = Command::new(program);
        let file = if let Some(file) = self.file {
            command.envs([
                (
                    "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS",
                    self.bootstrap.clone(),
                ),
                (
                    "SIZEGATE__LISTENER__BIND",
                    format!("127.0.0.1:{first_port}"),
                ),
                ("SIZEGATE__LISTENER__ADVERTISED_HOST", "127.0.0.1".into()),
                (
                    "SIZEGATE__LISTENER__NODE_PORTS__FIRST",
                    (first_port + 1).to_string(),
                ),
                (
                    "SIZEGATE__LISTENER__NODE_PORTS__NODE_IDS",
                    format!("1-{NODE_PORTS}"),
                ),
                ("SIZEGATE__ADMIN__BIND", format!("127.0.0.1:{admin_port}")),
            ]);
            file
        } else {
            let file = dir.join("sizegate.yaml");
            std::fs::write(&file, config).unwrap();
            file
        };
        command
            .arg("run")
            .arg("--config")
            .arg(&file)
            .args(&self.args)
            .envs(self.env);
        Sizegate {
            process: Supervised::spawn(&command, &dir),
            command,
            first_port,
            admin: SocketAddr::from(([127, 0, 0, 1], admin_port)),
        }
    }
}

/// Name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// One scrape of `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

impl Metrics {
    /// Reads the text format.
    pub fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        Self {
            samples: lines.map(parse_sample).collect(),
        }
    }

    /// The sum of all samples of `name` (with the `sizegate_` prefix left out) that bear these labels; 0 if none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let name = format!("sizegate_{name}");
        let has = |have: &Vec<(String, String)>| {
            labels
                .iter()
                .all(|(key, value)| have.iter().any(|(k, v)| k == key && v == value))
        };
        self.samples
            .iter()
            .filter(|(n, have, _)| *n == name && has(have))
            .map(|(_, _, value)| value)
            .sum()
    }

    /// Whether there is any sample of `name`.
    pub fn has(&self, name: &str) -> bool {
        let name = format!("sizegate_{name}");
        self.samples.iter().any(|(n, ..)| *n == name)
    }
}

fn parse_sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let (series, value) = line
        .rsplit_once(' ')
        .unwrap_or_else(|| panic!("not a sample: {line}"));
    let value = value
        .parse()
        .unwrap_or_else(|_| panic!("not a number: {line}"));
    let Some((name, rest)) = series.split_once('{') else {
        return (series.to_string(), Vec::new(), value);
    };
    let mut labels = Vec::new();
    let mut rest = rest.trim_end_matches('}');
    while let Some((key, after)) = rest.split_once("=\"") {
        // The value ends at the first quote that no backslash escapes.
        let mut text = String::new();
        let mut chars = after.chars();
        loop {
            match chars
                .next()
                .unwrap_or_else(|| panic!("an open label: {line}"))
            {
                '"' => break,
                '\\' => text.extend(
                    chars
                        .next()
                        .map(|escaped| if escaped == 'n' { '\n' } else { escaped }),
                ),
                plain => text.push(plain),
            }
        }
        labels.push((key.trim_start_matches(',').to_string(), text));
        rest = chars.as_str();
    }
    (name.to_string(), labels, value)
}
