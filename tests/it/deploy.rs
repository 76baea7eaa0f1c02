//! Running it: health checks, replicas behind a load balancer, upgrades that nobody notices, and the files in
//! `deploy/`. What needs Helm and container tools is in `scripts/check-deploy.sh`.

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as SocketName, UnixDatagram};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::process::{Supervised, new_dir};
use crate::support::{
    KAFKA_VERSIONS, Kafka, Program, Sizegate, eventually, http, ports, programs, unique,
};
use serde_json::{Value, json};
use sizegate::config::Takes;

const PATIENCE: Duration = Duration::from_secs(60);

fn check(arguments: &[&str], env: &[(&str, String)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .arg("check")
        .args(arguments)
        .envs(env.iter().map(|(key, value)| (key, value)))
        .output()
        .unwrap()
}

/// One of several with the same configuration, each at an address of its own.
struct Replica {
    process: Supervised,
    admin: SocketAddr,
    ip: &'static str,
}

/// The same for all replicas: what clients are told is the load balancer's.
#[derive(Clone, Copy)]
struct Fleet<'a> {
    kafka: &'a Kafka,
    first_port: u16,
}

impl Fleet<'_> {
    fn env(self, ip: &str) -> Vec<(&'static str, String)> {
        let port = |n: u16| self.first_port + n;
        vec![
            (
                "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS",
                self.kafka.bootstrap(),
            ),
            ("SIZEGATE__LISTENER__BIND", format!("{ip}:{}", port(0))),
            ("SIZEGATE__LISTENER__ADVERTISED_HOST", "127.0.0.1".into()),
            ("SIZEGATE__LISTENER__NODE_PORTS__FIRST", port(1).to_string()),
            ("SIZEGATE__LISTENER__NODE_PORTS__NODE_IDS", "1".into()),
            ("SIZEGATE__ADMIN__BIND", format!("{ip}:{}", port(2))),
        ]
    }

    fn start(self, ip: &'static str) -> Replica {
        let dir = new_dir("replica");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sizegate"));
        command.arg("run").envs(self.env(ip));
        let replica = Replica {
            process: Supervised::spawn(&command, &dir),
            admin: format!("{ip}:{}", self.first_port + 2).parse().unwrap(),
            ip,
        };
        eventually(PATIENCE, "the replica is ready", || {
            matches!(http::get(replica.admin, "/readyz"), Ok((200, _))).then_some(())
        });
        replica
    }

    /// As a rolling update does it: SIGTERM, wait for its end, start the next version at the same place.
    fn replace(self, replica: &mut Replica) {
        replica.process.signal("TERM");
        let code = replica.process.wait(PATIENCE);
        assert_eq!(code, Some(0), "{}", replica.process.last_words());
        *replica = self.start(replica.ip);
    }
}

/// A load balancer for TCP: each new connection to the next replica that accepts it, as HAProxy's `redispatch` does.
fn balance(port: u16, to: &'static [&'static str]) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let turn = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let first = turn.fetch_add(1, Ordering::Relaxed);
            let upstream = (0..to.len())
                .find_map(|n| TcpStream::connect((to[(first + n) % to.len()], port)).ok());
            let Some(upstream) = upstream else { continue };
            let (from, back) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || carry(from, upstream));
            std::thread::spawn(move || carry(back, client));
        }
    });
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

const RECORDS: u64 = 12_000;
const REPLICAS: &[&str] = &["127.0.0.2", "127.0.0.3"];

#[test]
fn replicas_are_replaced_one_by_one_and_neither_producer_nor_group_notices() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let topic = kafka.topic("rolling", 3, &[]);
    let fleet = Fleet {
        kafka,
        first_port: ports::free_ports(3),
    };
    let mut replicas = [fleet.start(REPLICAS[0]), fleet.start(REPLICAS[1])];
    balance(fleet.first_port, REPLICAS);
    balance(fleet.first_port + 1, REPLICAS);
    let bootstrap = format!("127.0.0.1:{}", fleet.first_port);

    let group = Program::java("GroupRead", "4.3.0")
        .arg("bootstrap", &bootstrap)
        .arg("topic", &topic.name)
        .arg("group", unique("rolling"))
        .arg("records", RECORDS)
        .spawn();
    group.line("both members read", |line| line["reading"] == true);
    let producer = Program::java("IdempotentLoad", "4.3.0")
        .arg("bootstrap", &bootstrap)
        .arg("topic", &topic.name)
        .arg("partitions", 3)
        .arg("records", RECORDS)
        .arg("per_second", 1500);
    // The load is not over before both replicas are replaced, and some comes after.
    let go_on = producer.dir().join("go-on");
    let producer = producer
        .arg("hold_at", 10_000)
        .arg("hold", go_on.display())
        .spawn();
    for (replica, at) in replicas.iter_mut().zip([2_000, 5_000]) {
        producer.line("so much", |line| line["progress"].as_u64() >= Some(at));
        fleet.replace(replica);
    }
    fs::write(go_on, "").unwrap();

    let produced = producer.finish();
    let end = produced.lines.last().unwrap();
    assert_eq!(end["failed"].as_array().unwrap().len(), 0, "{end}");
    assert_eq!(end["acked"].as_array().unwrap().len() as u64, RECORDS);
    let stored: i64 = (0..3).map(|n| kafka.latest_offset(&topic.name, n)).sum();
    assert_eq!(stored as u64, RECORDS, "stored once each");
    let read = group.finish();
    let end = read.lines.last().unwrap();
    assert_eq!(end["read"], RECORDS, "{end}");
    assert_eq!(end["repeated"], 0, "{end}");
    assert_eq!(end["errors"].as_array().unwrap().len(), 0, "{end}");
}

#[test]
fn a_health_check_asks_the_running_proxy_and_says_why_it_is_not_ready() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let fleet = Fleet {
        kafka,
        first_port: ports::free_ports(3),
    };
    let env = fleet.env("127.0.0.1");
    let nobody = check(&["--ready"], &env);
    assert_eq!(nobody.status.code(), Some(2));
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        said.contains("no response from 127.0.0.1:") && said.contains("admin.bind"),
        "{said}"
    );

    let replica = fleet.start("127.0.0.1");
    // It gives a response two seconds, which a busy machine may take.
    let is_ready = |env: &[(&str, String)]| {
        eventually(PATIENCE, "ready", || {
            let ready = check(&["--ready"], env);
            (ready.status.code() == Some(0)).then_some(ready.stdout)
        })
    };
    assert_eq!(String::from_utf8_lossy(&is_ready(&env)), "ready\n");
    // Brokers may be named on the command line of `run` alone.
    is_ready(&env[1..]);
    drop(replica);

    let lonely = Fleet {
        kafka,
        first_port: ports::free_ports(3),
    };
    let mut env = lonely.env("127.0.0.1");
    env[0].1 = format!("127.0.0.1:{}", ports::free_ports(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sizegate"));
    command.arg("run").envs(env.clone());
    let _process = Supervised::spawn(&command, &new_dir("lonely"));
    let said = eventually(PATIENCE, "a proxy without its brokers", || {
        let output = check(&["--ready"], &env);
        (output.status.code() == Some(1))
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    assert!(
        said.starts_with("not ready: no broker is reached"),
        "{said}"
    );
}

/// What systemd reads of a service of `Type=notify`: by a path, and by an abstract name.
#[test]
fn systemd_is_told_of_ready_reloading_and_stopping() {
    let dir = new_dir("notify");
    let path = dir.join("s");
    let name = format!("sizegate-{}", unique("notify"));
    let of_name = SocketName::from_abstract_name(&name).unwrap();
    for (socket, told) in [
        (
            UnixDatagram::bind(&path).unwrap(),
            path.display().to_string(),
        ),
        (
            UnixDatagram::bind_addr(&of_name).unwrap(),
            format!("@{name}"),
        ),
    ] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let hear = || {
            let mut datagram = [0; 1_024];
            let bytes = socket.recv(&mut datagram).unwrap();
            String::from_utf8_lossy(&datagram[..bytes]).into_owned()
        };
        // It does not wait for Kafka.
        let nobody = format!("127.0.0.1:{}", ports::free_ports(1));
        let mut sizegate = Sizegate::before(&nobody)
            .env("NOTIFY_SOCKET", &told)
            .start_unready();
        let ready = hear();
        assert!(
            ready.starts_with("READY=1\nSTATUS=listening; the page is at http://127.0.0.1:"),
            "{ready}"
        );
        sizegate.process().signal("HUP");
        assert_eq!(hear(), "RELOADING=1");
        assert_eq!(hear(), "READY=1\nSTATUS=the configuration was reloaded");
        let file = sizegate.process().dir().join("sizegate.yaml");
        fs::write(&file, "mood: enforce\n").unwrap();
        sizegate.process().signal("HUP");
        assert_eq!(hear(), "RELOADING=1");
        assert!(hear().starts_with("READY=1\nSTATUS=the changed configuration has a mistake"));
        sizegate.process().signal("TERM");
        assert!(hear().starts_with("STOPPING=1\n"));
        assert_eq!(sizegate.process().wait(PATIENCE), Some(0));
    }
    fs::remove_dir_all(dir).unwrap();
}

/// `config` in the chart's schema, made of the table of all keys.
fn schema_of_the_config() -> Value {
    let mut root = json!({"type": "object", "additionalProperties": false, "properties": {}});
    root["description"] = "sizegate's own config file: config/sizegate.yaml".into();
    for key in sizegate::config::key_table() {
        let mut at = &mut root;
        for part in key.path.split('.') {
            let place = match part.strip_suffix("[]") {
                Some(list) => &mut at["properties"][list]["items"],
                None => &mut at["properties"][part],
            };
            // Of a section that may be a word, the section.
            at = if place["anyOf"].is_array() {
                &mut place["anyOf"][0]
            } else {
                place
            };
        }
        let section = json!({"type": "object", "additionalProperties": false, "properties": {}});
        let one = match &key.takes {
            Takes::Section => section,
            Takes::Options => {
                json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
            }
            Takes::SectionOr(words) => {
                json!({"anyOf": [section, {"type": ["boolean", "string"]}], "description": words})
            }
            Takes::Text(allowed) => text_schema(allowed),
        };
        let is_of_texts = matches!(key.takes, Takes::Text(_));
        *at = match (key.is_list, is_of_texts) {
            (false, _) => one,
            (true, false) => json!({"type": "array", "items": one}),
            // `a,b` is a list, too.
            (true, true) => {
                json!({"type": ["array", "string", "number"], "items": {"type": ["string", "number"]}, "description": one["description"]})
            }
        };
    }
    root
}

/// One of a few words is told by its words, all else by what it is in words: sizegate itself checks the rest.
fn text_schema(allowed: &str) -> Value {
    let words: Vec<&str> = allowed.split('`').skip(1).step_by(2).collect();
    let between: String = allowed.split('`').step_by(2).collect();
    let is_closed = !words.is_empty() && between.replace(" or ", "").replace(", ", "").is_empty();
    if is_closed && words == ["true", "false"] {
        return json!({"type": ["boolean", "string"], "description": allowed});
    }
    if is_closed {
        // `${VAR}` becomes one of them later.
        return json!({"anyOf": [{"enum": words}, {"type": "string", "pattern": "\\$\\{"}], "description": allowed});
    }
    json!({"type": ["string", "number", "boolean"], "description": allowed})
}

#[test]
fn the_charts_schema_knows_every_key_of_the_config_and_what_it_takes() {
    let file = programs::repo().join("deploy/helm/sizegate/values.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let expected = schema_of_the_config();
    assert_eq!(
        schema["properties"]["config"], expected,
        "as it should be:\n{expected}"
    );
}

/// The lines of a block below `key: |`, their indent taken off.
fn block(text: &str, key: &str) -> String {
    let mut lines = text
        .lines()
        .skip_while(|line| line.trim() != format!("{key}: |"));
    let head = lines.next().unwrap_or_else(|| panic!("no {key}"));
    let indent = head.len() - head.trim_start().len();
    let inside =
        |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
    lines
        .take_while(inside)
        .map(|line| format!("{}\n", line.get(indent + 2..).unwrap_or_default()))
        .collect()
}

/// No engine runs in tests: Cargo is asked about the folder that the image is built in.
#[test]
fn the_image_is_built_from_all_that_the_manifest_names() {
    let repo = programs::repo();
    let read = |name: &str| fs::read_to_string(repo.join(name)).unwrap();
    let (dockerfile, ignored) = (read("Dockerfile"), read(".dockerignore"));
    let context: Vec<&str> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    let dir = new_dir("image-context");
    let copies = dockerfile
        .lines()
        .take_while(|line| !line.starts_with("RUN "));
    for copy in copies.filter_map(|line| line.strip_prefix("COPY ")) {
        let (from, to) = copy.rsplit_once(' ').unwrap();
        for pattern in from.split(' ') {
            assert!(context.contains(&pattern), ".dockerignore hides {pattern}");
        }
        let to = dir.join(to);
        if copy.ends_with('/') {
            fs::create_dir_all(&to).unwrap();
        }
        let copied = Command::new("sh")
            .args(["-c", &format!("cp -r {from} '{}'", to.display())])
            .current_dir(repo)
            .status();
        assert!(copied.unwrap().success(), "COPY {copy}");
    }
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(asked.status.success(), "{asked:?}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn every_configuration_in_deploy_and_in_the_guide_is_accepted() {
    let read = |path: &str| fs::read_to_string(programs::repo().join(path)).unwrap();
    // The guide shows rules alone.
    let guide = read("docs/operations.md");
    let (_, shown) = guide.split_once("```yaml\n").expect("an example");
    let (rules, _) = shown.split_once("```").expect("its end");
    for (path, config) in [
        (
            "deploy/compose/sizegate.yaml",
            read("deploy/compose/sizegate.yaml"),
        ),
        (
            "deploy/kubernetes/sidecar.yaml",
            block(&read("deploy/kubernetes/sidecar.yaml"), "sizegate.yaml"),
        ),
        (
            "docs/operations.md",
            format!("cluster: {{bootstrap_servers: [b:9092]}}\n{rules}"),
        ),
    ] {
        let dir = new_dir("deploy");
        let file = dir.join("sizegate.yaml");
        fs::write(&file, &config).unwrap();
        let output = check(&["--config", &file.display().to_string()], &[]);
        assert!(
            output.status.success(),
            "{path}: {}\n{config}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
