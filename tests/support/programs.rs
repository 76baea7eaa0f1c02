//! Real clients as programs (`tests/clients/`), and the scripts that prepare what they need (`scripts/`).
//!
//! Every program takes `key=value` arguments, prints JSON objects, one a line, and exits with 0 when it could do
//! its job; refused records are part of the job.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::{Supervised, new_dir};

/// The repository.
pub fn repo() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs `scripts/NAME` once for these arguments and returns the path it prints.
pub fn script(name: &str, args: &[&str]) -> PathBuf {
    static DONE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut done = super::lock(&DONE);
    let done = done.get_or_insert_default();
    let key = format!("{name} {}", args.join(" "));
    if let Some(path) = done.get(&key) {
        return path.clone();
    }
    let output = Command::new(repo().join("scripts").join(name))
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert!(
        output.status.success(),
        "scripts/{key}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let path = PathBuf::from(said);
    done.insert(key, path.clone());
    path
}

/// Writes `NAME.properties` into a folder.
pub fn properties(dir: &Path, name: &str, lines: &[String]) -> PathBuf {
    let path = dir.join(format!("{name}.properties"));
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

/// The properties of a worker of Kafka Connect that has Kafka's own plugins, with this converter for keys and values.
pub fn worker_properties(dir: &Path, version: &str, bootstrap: &str, converter: &str) -> PathBuf {
    let plugins = script("kafka-libs.sh", &[version, "connect"]);
    let lines = [
        format!("bootstrap.servers={bootstrap}"),
        format!("key.converter={converter}"),
        format!("value.converter={converter}"),
        format!(
            "offset.storage.file.filename={}",
            dir.join("offsets").display()
        ),
        "offset.flush.interval.ms=1000".into(),
        "listeners=http://127.0.0.1:0".into(),
        "plugin.discovery=service_load".into(),
        format!("plugin.path={}", plugins.display()),
    ];
    properties(dir, "worker", &lines)
}

/// A program to be run.
pub struct Program {
    name: String,
    command: Command,
    dir: PathBuf,
    limit: Duration,
}

/// A program that ended.
#[derive(Debug)]
pub struct Output {
    /// What it printed: one JSON value a line.
    pub lines: Vec<Value>,
    /// Exit code.
    pub code: i32,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// A program that runs.
pub struct Running {
    name: String,
    process: Supervised,
    limit: Duration,
}

impl Program {
    /// A class of `tests/clients/java`, with kafka-clients of release `version`.
    pub fn java(class: &str, version: &str) -> Self {
        Self::java_with(class, version, "client")
    }

    /// A class of `tests/clients/java/SET`, with the jars of that set: `streams`, `kafka4`, `spring`.
    pub fn java_with(class: &str, version: &str, set: &str) -> Self {
        let jars = match set {
            "streams" | "spring" => set,
            _ => "client",
        };
        Self::java_class(class, version, set, jars)
    }

    /// A class of `tests/clients/java`, with all that a broker has: tokens need Jackson, which is the application's to
    /// bring.
    pub fn java_beside_broker(class: &str, version: &str) -> Self {
        Self::java_class(class, version, "client", "broker")
    }

    fn java_class(class: &str, version: &str, set: &str, jars: &str) -> Self {
        let mut program = Self::jvm(&format!("{class} {version}"));
        let archived = set == "client" && jars == "client";
        let jars = script("kafka-libs.sh", &[version, jars]);
        let classes = if archived {
            let jar = script("java-classes.sh", &[set, version]);
            program.command.arg(format!(
                "-XX:SharedArchiveFile={}.{version}.jsa",
                jar.display()
            ));
            jar
        } else {
            script("java-classes.sh", &[set])
        };
        program
            .command
            .arg("-cp")
            .arg(format!("{}:{}/*", classes.display(), jars.display()))
            .arg(class);
        program
    }

    /// A Java program that ships with Kafka, by its main class and jar set.
    pub fn java_main(main: &str, version: &str, set: &str) -> Self {
        let jars = script("kafka-libs.sh", &[version, set]);
        Self::java_main_in(main, &format!("{}/*", jars.display()))
    }

    /// A worker of Kafka Connect that finds the plugins in `tests/clients/java/connect`.
    pub fn connect_worker(version: &str) -> Self {
        let jars = script("kafka-libs.sh", &[version, "connect"]);
        let classes = script("java-classes.sh", &["connect"]);
        let path = format!("{}:{}/*", classes.display(), jars.display());
        Self::java_main_in("org.apache.kafka.connect.cli.ConnectStandalone", &path)
    }

    fn java_main_in(main: &str, path: &str) -> Self {
        let mut program = Self::jvm(main);
        program.command.arg("-cp").arg(path).arg(main);
        program
    }

    fn jvm(name: &str) -> Self {
        let mut program = Self::new(name, "java");
        program.command.args([
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-Xmx512m",
        ]);
        program.command.args([
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]);
        // Native libraries are uncompressed there.
        program
            .command
            .arg(format!("-Djava.io.tmpdir={}", program.dir.display()));
        program
    }

    /// A script of `tests/clients/python`.
    pub fn python(file: &str) -> Self {
        let python = script("python-env.sh", &[]);
        let mut program = Self::new(file, &python.display().to_string());
        program
            .command
            .arg("-u")
            .arg(repo().join("tests/clients/python").join(file));
        program
    }

    /// A script of `tests/stores`, with the Python that has boto3.
    pub fn stores(file: &str) -> Self {
        let python = script("object-stores.sh", &["moto"]);
        let mut program = Self::new(file, &python.display().to_string());
        program
            .command
            .arg("-u")
            .arg(repo().join("tests/stores").join(file));
        program
    }

    /// A script of `tests/clients/node`.
    pub fn node(file: &str) -> Self {
        let modules = script("node-env.sh", &[]);
        let mut program = Self::new(file, "node");
        program
            .command
            .env("NODE_PATH", modules)
            .env("KAFKAJS_NO_PARTITIONER_WARNING", "1");
        program
            .command
            .arg(repo().join("tests/clients/node").join(file));
        program
    }

    /// A script of `tests/browser`, which drives a real Chromium.
    pub fn browser(file: &str) -> Self {
        let modules = script("browser-env.sh", &[]);
        let mut program = Self::new(file, "node");
        program.command.env("NODE_PATH", modules);
        program.command.arg(repo().join("tests/browser").join(file));
        program
    }

    /// A program of `tests/clients/go`, by its folder.
    pub fn go(name: &str) -> Self {
        Self::go_of("tests/clients/go", name)
    }

    /// The Go client of `make soak`.
    pub fn go_soak() -> Self {
        Self::go_of("tests/compatibility/go", "soak")
    }

    fn go_of(folder: &str, name: &str) -> Self {
        let binaries = script("go-clients.sh", &[folder]);
        Self::new(name, &binaries.join(name).display().to_string())
    }

    fn new(name: &str, program: &str) -> Self {
        let dir = new_dir("client");
        Self {
            name: name.to_string(),
            command: Command::new(program),
            dir,
            limit: Duration::from_secs(300),
        }
    }

    /// One `key=value` argument.
    pub fn arg(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.command.arg(format!("{key}={value}"));
        self
    }

    /// One argument as it is.
    pub fn raw_arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// One environment variable.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Its folder, which goes with it: for files it reads or writes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long it may take before it is killed and the test fails (300 s unless said).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end; it must exit with 0.
    pub fn run(self) -> Output {
        let name = self.name.clone();
        let output = self.run_any();
        assert_eq!(
            output.code, 0,
            "{name} failed: {:?}\n{}",
            output.lines, output.stderr
        );
        output
    }

    /// Runs it to its end, whatever its exit code.
    pub fn run_any(self) -> Output {
        self.spawn().finish()
    }

    /// Starts it.
    pub fn spawn(self) -> Running {
        let process = Supervised::spawn(&self.command, &self.dir);
        Running {
            name: self.name,
            process,
            limit: self.limit,
        }
    }
}

impl Running {
    /// The whole lines it printed so far.
    pub fn lines(&self) -> Vec<Value> {
        let text = self.process.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| self.parse(line)).collect()
    }

    /// The first line for which `wanted` holds, once there is one.
    pub fn line(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        super::eventually(self.limit, &format!("{}: {what}", self.name), || {
            let found = self.lines().into_iter().find(|line| wanted(line));
            let running = self.process.is_running();
            assert!(
                found.is_some() || running,
                "{} ended before {what}\n{}",
                self.name,
                self.process.last_words()
            );
            found
        })
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// The end of what it wrote, for a message about a failure.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// Waits for its end, whatever it prints; its exit code.
    pub fn end(&mut self) -> i32 {
        let start = Instant::now();
        self.process.wait(self.limit).unwrap_or_else(|| {
            panic!(
                "{} still runs after {:?}\n{}",
                self.name,
                start.elapsed(),
                self.process.last_words()
            )
        })
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Output {
        let code = self.end();
        let lines = self
            .process
            .stdout()
            .lines()
            .map(|line| self.parse(line))
            .collect();
        Output {
            lines,
            code,
            stderr: self.process.stderr(),
        }
    }

    fn parse(&self, line: &str) -> Value {
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{} printed no JSON ({error}): {line}", self.name))
    }
}

impl Output {
    /// The lines whose `field` is `value`.
    pub fn where_is(&self, field: &str, value: impl Into<Value>) -> Vec<&Value> {
        let value = value.into();
        self.lines
            .iter()
            .filter(|line| line.get(field) == Some(&value))
            .collect()
    }

    /// The only line whose `field` is `value`.
    pub fn only(&self, field: &str, value: impl Into<Value>) -> &Value {
        let value = value.into();
        let found = self.where_is(field, value.clone());
        assert_eq!(
            found.len(),
            1,
            "lines with {field} = {value}: {:?}",
            self.lines
        );
        found[0]
    }
}
