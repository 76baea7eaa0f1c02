//! Real Kafka brokers (KRaft, combined roles), on free ports of 127.0.0.1, in folders of their own.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;

use super::certs::Certs;
use super::client::{Connection, Topic};
use super::process::{Supervised, new_dir};
use super::{admin, eventually, ports, programs, unique};

/// Users of a broker with `sasl`: PLAIN.
pub const PLAIN_USER: (&str, &str) = ("alice", "alice-pw");
/// SCRAM-SHA-256.
pub const SCRAM_256_USER: (&str, &str) = ("bob", "bob-pw");
/// SCRAM-SHA-512.
pub const SCRAM_512_USER: (&str, &str) = ("carol", "carol-pw");

/// A broker that is not up by then never will be: ten times what a loaded machine of two cores takes.
const START_LIMIT: Duration = Duration::from_secs(300);
const READY: &str = "Kafka Server started";

/// What kind of cluster to start.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// Nodes 1 to n, each broker and controller.
    pub nodes: i32,
    /// A listener for SASL (PLAIN, SCRAM) without TLS, and with TLS if `tls` is set too.
    pub sasl: bool,
    /// A listener for TLS.
    pub tls: bool,
    /// Further lines of server.properties, which win over ours.
    pub properties: Vec<(String, String)>,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            nodes: 1,
            sasl: false,
            tls: false,
            properties: Vec::new(),
        }
    }
}

impl KafkaOptions {
    /// So many nodes.
    pub fn nodes(nodes: i32) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// With one more line of server.properties.
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.properties.push((key.to_string(), value.to_string()));
        self
    }
}

/// A cluster; ends when dropped, or with the test process.
pub struct Kafka {
    version: String,
    options: KafkaOptions,
    cluster_id: String,
    voters: String,
    nodes: Vec<Node>,
    /// In the first node's folder, which is removed with it.
    certs: Option<Certs>,
}

struct Node {
    id: i32,
    /// PLAIN, CONTROLLER, SASL, TLS, SASLTLS in a row.
    first_port: u16,
    is_controller: bool,
    /// Kept over kills; removed with the cluster.
    dir: PathBuf,
    process: Mutex<Option<Supervised>>,
}

const PORTS_A_NODE: u16 = 5;

impl Node {
    fn is_up(&self) -> bool {
        self.process.lock().unwrap().is_some()
    }
}

impl Kafka {
    /// Starts a cluster and waits until every node says that it serves.
    pub fn start(version: &str, options: KafkaOptions) -> Self {
        let count = options.nodes;
        let first = ports::free_ports(PORTS_A_NODE * count as u16);
        let ids: Vec<i32> = (1..=count).collect();
        let port = |id: i32| first + PORTS_A_NODE * (id - 1) as u16;
        let voters: Vec<String> = ids
            .iter()
            .map(|id| format!("{id}@127.0.0.1:{}", port(*id) + 1))
            .collect();
        let nodes = ids.iter().map(|id| Node {
            id: *id,
            first_port: port(*id),
            is_controller: true,
            dir: new_dir(&format!("kafka-{id}")),
            process: Mutex::new(None),
        });
        let nodes: Vec<Node> = nodes.collect();
        let certs = options
            .tls
            .then(|| Certs::make(&nodes[0].dir.join("certs")));
        // The format tool takes an id that begins with '-' for an option.
        let mut cluster_id = *uuid::Uuid::new_v4().as_bytes();
        cluster_id[0] &= 0x7f;
        let kafka = Self {
            version: version.to_string(),
            cluster_id: base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(cluster_id),
            voters: voters.join(","),
            nodes,
            certs,
            options,
        };
        // The jars first, so that the nodes do not wait for each other's download.
        programs::script("kafka-libs.sh", &[version, "broker"]);
        kafka.nodes.iter().for_each(|node| kafka.launch(node));
        kafka
            .nodes
            .iter()
            .for_each(|node| kafka.wait_until_up(node, 1));
        kafka.wait_until_all_are_known();
        kafka
    }

    /// The single broker of this version that tests of one binary share. Use [`Self::topic`] for names of your
    /// own, and change nothing that another test could notice.
    pub fn shared(version: &str) -> &'static Self {
        static SHARED: Mutex<Option<HashMap<String, &'static Kafka>>> = Mutex::new(None);
        // A test that failed to start it must not fail the rest by poison: they try again.
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let shared = shared.get_or_insert_default();
        if let Some(kafka) = shared.get(version) {
            return kafka;
        }
        let kafka = Box::leak(Box::new(Self::start(version, KafkaOptions::default())));
        shared.insert(version.to_string(), kafka);
        kafka
    }

    /// The release.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// All nodes' plain addresses, comma-separated.
    pub fn bootstrap(&self) -> String {
        self.addresses(0)
    }

    /// All nodes' SASL addresses (no TLS).
    pub fn sasl_bootstrap(&self) -> String {
        assert!(self.options.sasl, "started without sasl");
        self.addresses(2)
    }

    /// All nodes' TLS addresses (no SASL).
    pub fn tls_bootstrap(&self) -> String {
        assert!(self.options.tls, "started without tls");
        self.addresses(3)
    }

    /// All nodes' addresses with SASL over TLS.
    pub fn sasl_tls_bootstrap(&self) -> String {
        assert!(
            self.options.sasl && self.options.tls,
            "started without sasl and tls"
        );
        self.addresses(4)
    }

    fn addresses(&self, offset: u16) -> String {
        let all: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.first_port + offset))
            .collect();
        all.join(",")
    }

    /// The ids of all nodes, those that joined later included.
    pub fn node_ids(&self) -> Vec<i32> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// One node's plain address.
    pub fn node(&self, id: i32) -> String {
        format!("127.0.0.1:{}", self.find(id).first_port)
    }

    /// The certificates of a cluster with `tls`.
    pub fn certs(&self) -> &Certs {
        self.certs.as_ref().expect("started without tls")
    }

    /// What a node logged so far.
    pub fn log(&self, id: i32) -> String {
        fs::read_to_string(self.find(id).dir.join("stdout")).unwrap_or_default()
    }

    /// Kills a node as a power cut would.
    pub fn kill(&self, id: i32) {
        let process = self.find(id).process.lock().unwrap().take();
        process
            .unwrap_or_else(|| panic!("node {id} is down already"))
            .kill();
    }

    /// Stops a node without ending it, as a long pause of its garbage collector would.
    pub fn pause(&self, id: i32) {
        self.signal(id, "STOP");
    }

    /// Lets a paused node go on: for a moment it is behind the others.
    pub fn resume(&self, id: i32) {
        self.signal(id, "CONT");
    }

    fn signal(&self, id: i32, name: &str) {
        let process = self.find(id).process.lock().unwrap();
        process.as_ref().expect("a node that is up").signal(name);
    }

    /// Starts a killed node again, on its old ports and data, and waits until it serves.
    pub fn restart(&self, id: i32) {
        let node = self.find(id);
        let starts = self.log(id).matches(READY).count();
        self.launch(node);
        self.wait_until_up(node, starts + 1);
        self.wait_until_all_are_known();
    }

    /// Adds a node that is a broker only, and returns its id.
    pub fn add_broker(&mut self) -> i32 {
        let id = self.nodes.iter().map(|node| node.id).max().unwrap_or(0) + 1;
        let node = Node {
            id,
            first_port: ports::free_ports(PORTS_A_NODE),
            is_controller: false,
            dir: new_dir(&format!("kafka-{id}")),
            process: Mutex::new(None),
        };
        self.launch(&node);
        self.wait_until_up(&node, 1);
        self.nodes.push(node);
        self.wait_until_all_are_known();
        id
    }

    /// Creates a topic `stem-xxxxxxxx` with one replica, ready to be produced to.
    pub fn topic(&self, stem: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
        self.create_topic(&unique(stem), partitions, 1, configs)
    }

    /// Creates a topic, ready to be produced to.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Topic {
        admin::create_topic(&self.any(), name, partitions, replicas, configs)
    }

    /// Sets (`Some`) or unsets (`None`) keys of a topic's configuration.
    pub fn alter_topic_config(&self, topic: &str, changes: &[(&str, Option<&str>)]) {
        admin::alter_topic_config(&self.any(), topic, changes);
    }

    /// Sets or unsets keys of a broker's dynamic configuration; an empty id is the cluster's default.
    pub fn alter_broker_config(&self, id: &str, changes: &[(&str, Option<&str>)]) {
        admin::alter_broker_config(&self.any(), id, changes);
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, topic: &str) {
        admin::delete_topic(&self.any(), topic);
    }

    /// The offset the next record of a partition will get: for a partition without transactions, records stored.
    pub fn latest_offset(&self, topic: &str, partition: i32) -> i64 {
        admin::latest_offset(&self.any(), topic, partition)
    }

    fn any(&self) -> String {
        let node = self.nodes.iter().find(|node| node.is_up());
        self.node(node.expect("a node that is up").id)
    }

    fn find(&self, id: i32) -> &Node {
        self.nodes
            .iter()
            .find(|node| node.id == id)
            .unwrap_or_else(|| panic!("no node {id}"))
    }

    fn launch(&self, node: &Node) {
        fs::write(node.dir.join("server.properties"), self.properties(node)).unwrap();
        let mut command = Command::new(programs::repo().join("scripts/kafka-node.sh"));
        command
            .arg(&self.version)
            .arg(&node.dir)
            .env("KAFKA_CLUSTER_ID", &self.cluster_id);
        let scram = |mechanism: &str, (user, password): (&str, &str)| {
            format!("--add-scram\n{mechanism}=[name={user},password={password}]")
        };
        command.env(
            "KAFKA_FORMAT_ARGS",
            [
                scram("SCRAM-SHA-256", SCRAM_256_USER),
                scram("SCRAM-SHA-512", SCRAM_512_USER),
            ]
            .join("\n"),
        );
        *node.process.lock().unwrap() = Some(Supervised::spawn(&command, &node.dir));
    }

    fn wait_until_up(&self, node: &Node, starts: usize) {
        let process = node.process.lock().unwrap();
        let process = process.as_ref().unwrap();
        eventually(START_LIMIT, &format!("node {} serves", node.id), || {
            if process.stdout().matches(READY).count() >= starts {
                return Some(());
            }
            assert!(
                process.is_running(),
                "node {} ended at its start\n{}",
                node.id,
                process.last_words()
            );
            None
        });
    }

    /// Waits until every node that is up tells clients of all that are: a node serves before the others have heard.
    fn wait_until_all_are_known(&self) {
        let up: Vec<&Node> = self.nodes.iter().filter(|node| node.is_up()).collect();
        for node in &up {
            eventually(
                START_LIMIT,
                &format!("node {} knows the others", node.id),
                || {
                    let address = format!("127.0.0.1:{}", node.first_port);
                    let mut connection = Connection::try_open(address).ok()?;
                    let known = admin::metadata(&mut connection, &[]).brokers;
                    let knows =
                        |node: &&Node| known.iter().any(|broker| broker.node_id.0 == node.id);
                    up.iter().all(knows).then_some(())
                },
            );
        }
    }

    fn properties(&self, node: &Node) -> String {
        let mut listeners = vec![("PLAIN", "PLAINTEXT", 0)];
        if self.options.sasl {
            listeners.push(("SASL", "SASL_PLAINTEXT", 2));
        }
        if self.options.tls {
            listeners.push(("TLS", "SSL", 3));
        }
        if self.options.sasl && self.options.tls {
            listeners.push(("SASLTLS", "SASL_SSL", 4));
        }
        let join = |parts: Vec<String>| parts.join(",");
        let address = |(name, _, offset): &(&str, &str, u16)| {
            format!("{name}://127.0.0.1:{}", node.first_port + offset)
        };
        let advertised = join(listeners.iter().map(address).collect());
        let controller = format!("CONTROLLER://127.0.0.1:{}", node.first_port + 1);
        let bound = if node.is_controller {
            format!("{advertised},{controller}")
        } else {
            advertised.clone()
        };
        let protocols = join(
            listeners
                .iter()
                .map(|(name, protocol, _)| format!("{name}:{protocol}"))
                .collect(),
        );
        let replicas = self.options.nodes.min(3);
        let min_isr = (replicas - 1).max(1);
        let role = if node.is_controller {
            "broker,controller"
        } else {
            "broker"
        };

        let mut lines = vec![
            format!("process.roles={role}"),
            format!("node.id={}", node.id),
            format!("controller.quorum.voters={}", self.voters),
            "controller.listener.names=CONTROLLER".into(),
            "inter.broker.listener.name=PLAIN".into(),
            format!("listeners={bound}"),
            format!("advertised.listeners={advertised}"),
            format!("listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT"),
            format!("log.dirs={}", node.dir.join("data").display()),
            format!("offsets.topic.replication.factor={replicas}"),
            "offsets.topic.num.partitions=1".into(),
            format!("transaction.state.log.replication.factor={replicas}"),
            format!("transaction.state.log.min.isr={min_isr}"),
            "transaction.state.log.num.partitions=1".into(),
            format!("share.coordinator.state.topic.replication.factor={replicas}"),
            format!("share.coordinator.state.topic.min.isr={min_isr}"),
            "share.coordinator.state.topic.num.partitions=1".into(),
            "group.initial.rebalance.delay.ms=0".into(),
            "auto.create.topics.enable=false".into(),
            "num.network.threads=2".into(),
            "num.io.threads=4".into(),
            "log.cleaner.dedupe.buffer.size=33554432".into(),
            // Who waits for compaction does not wait for 15 s.
            "log.cleaner.backoff.ms=500".into(),
            // Tests send records of any time: their age must not delete them half a minute later.
            "log.retention.ms=-1".into(),
        ];
        if self.options.sasl {
            let plain = "org.apache.kafka.common.security.plain.PlainLoginModule";
            let scram = "org.apache.kafka.common.security.scram.ScramLoginModule";
            lines.push("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".into());
            let (user, password) = PLAIN_USER;
            for listener in listeners
                .iter()
                .map(|(name, ..)| name.to_lowercase())
                .filter(|name| name.starts_with("sasl"))
            {
                let of = format!("listener.name.{listener}");
                lines.push(format!(
                    "{of}.plain.sasl.jaas.config={plain} required user_{user}=\"{password}\";"
                ));
                lines.push(format!(
                    "{of}.scram-sha-256.sasl.jaas.config={scram} required;"
                ));
                lines.push(format!(
                    "{of}.scram-sha-512.sasl.jaas.config={scram} required;"
                ));
            }
        }
        if let Some(certs) = &self.certs {
            lines.push("ssl.keystore.type=PEM".into());
            lines.push(format!(
                "ssl.keystore.location={}",
                certs.store("server").display()
            ));
            lines.push("ssl.truststore.type=PEM".into());
            lines.push(format!("ssl.truststore.location={}", certs.ca().display()));
        }
        lines.extend(
            self.options
                .properties
                .iter()
                .map(|(key, value)| format!("{key}={value}")),
        );
        lines.join("\n") + "\n"
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        for node in &self.nodes {
            // Kills it and removes its folder; of a node that a test killed, the folder is left.
            drop(
                node.process
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .take(),
            );
            let _ = fs::remove_dir_all(&node.dir);
        }
    }
}
