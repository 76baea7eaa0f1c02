//! The clients of an hour: who writes what, and who reads.

use crate::support::Program;

/// Between the limits that take turns, and beside them.
const SPECIALS: [usize; 7] = [5_999, 6_000, 6_001, 9_000, 11_999, 12_000, 12_001];
/// Within the limit, whichever is in force.
const WITHIN: [usize; 2] = [5_999, 6_000];

/// One producer.
pub struct Writer {
    pub name: &'static str,
    pub client: Client,
    /// To the topic whose limit is a rule's, else to that whose limit is learned.
    pub is_ruled: bool,
    /// What it is sure of: a record is stored once.
    pub is_once: bool,
    /// Bytes of the values that one record in a while has.
    pub specials: &'static [usize],
    pub args: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Java,
    Confluent,
    KafkaPython,
    Franz,
    Sarama,
}

impl Client {
    /// kafka-python has no codec but gzip of its own: it reads what comes uncompressed, where the limit is learned.
    pub fn reads_every_codec(self) -> bool {
        self != Client::KafkaPython
    }

    pub fn program(self) -> Program {
        let named = |program: Program, name: &str| program.arg("client", name);
        match self {
            Client::Java => Program::java_with("Soak", "4.4.0", "soak"),
            Client::Confluent => named(Program::python("soak.py"), "confluent"),
            Client::KafkaPython => named(Program::python("soak.py"), "kafka-python"),
            Client::Franz => named(Program::go_soak(), "franz"),
            Client::Sarama => named(Program::go_soak(), "sarama"),
        }
    }
}

/// librdkafka sends records again under a new epoch after a refusal while connections die (docs/clients.md): the one that is
/// refused promises nothing, and the one that promises is never refused.
pub const WRITERS: [Writer; 8] = [
    Writer {
        name: "java",
        client: Client::Java,
        is_ruled: true,
        is_once: true,
        specials: &SPECIALS,
        args: &[("p.compression.type", "lz4")],
    },
    Writer {
        name: "java-learned",
        client: Client::Java,
        is_ruled: false,
        is_once: true,
        specials: &SPECIALS,
        args: &[("single", "true")],
    },
    Writer {
        name: "confluent-within",
        client: Client::Confluent,
        is_ruled: true,
        is_once: true,
        specials: &WITHIN,
        args: &[("codec", "zstd"), ("idempotent", "true")],
    },
    Writer {
        name: "confluent-learned",
        client: Client::Confluent,
        is_ruled: false,
        is_once: false,
        specials: &SPECIALS,
        args: &[("single", "true"), ("idempotent", "false")],
    },
    Writer {
        name: "kafka-python",
        client: Client::KafkaPython,
        is_ruled: true,
        is_once: true,
        specials: &SPECIALS,
        args: &[("codec", "gzip"), ("idempotent", "true")],
    },
    Writer {
        name: "franz",
        client: Client::Franz,
        is_ruled: true,
        is_once: true,
        specials: &SPECIALS,
        args: &[],
    },
    Writer {
        name: "franz-learned",
        client: Client::Franz,
        is_ruled: false,
        is_once: true,
        specials: &SPECIALS,
        args: &[("single", "true")],
    },
    Writer {
        name: "sarama",
        client: Client::Sarama,
        is_ruled: true,
        is_once: true,
        specials: &SPECIALS,
        args: &[],
    },
];

pub const READERS: [(&str, Client); 5] = [
    ("group-java", Client::Java),
    ("group-confluent", Client::Confluent),
    ("group-kafka-python", Client::KafkaPython),
    ("group-franz", Client::Franz),
    ("group-sarama", Client::Sarama),
];
