//! A real run in which everything goes wrong that a dashboard shows: refused, observed, near a limit, refused by the
//! broker, resent without end, malformed, too large to be read, lingering, stuck, misaligned, badly configured; and all of
//! a claim check.

use std::time::Duration;

use kafka_protocol::messages::IncrementalAlterConfigsRequest;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};

use crate::support::batch::Batch;
use crate::support::claims::Claims;
use crate::support::client::text;
use crate::support::programs::Running;
use crate::support::{
    Connection, Kafka, Part, Program, Record, Sizegate, Topic, admin, batch, batch_of_bytes,
};
use sizegate::vocabulary::Codec;

/// Of the Java producer.
const VERSION: &str = "4.4.0";
const TOPIC_LIMIT: &str = "2097152";
/// Produce by name, with texts.
const PRODUCE: i16 = 9;

/// No time: a batch of another day would be deleted, and one built slowly would look as if it had lingered.
const NO_TIME: i64 = -1;

/// The run. What it sends goes on as long as [`Trouble::make`] is called.
pub struct Trouble {
    sizegate: Sizegate,
    orders: Topic,
    invoices: Topic,
    shipments: Topic,
    claims: Claims,
    round: u64,
    /// A producer whose large records wait a second each.
    lingering: Option<Running>,
}

impl Trouble {
    /// A proxy in front of `kafka`: a topic with rules, its dead-letter topic with a smaller limit, and a topic that
    /// is only observed. The configuration on disk has a mistake by the time this returns.
    pub fn start(kafka: &Kafka) -> Self {
        // Stored uncompressed: what is small on the wire may be too large for the broker.
        let orders = kafka.create_topic(
            "orders",
            1,
            1,
            &[
                ("max.message.bytes", TOPIC_LIMIT),
                ("compression.type", "uncompressed"),
            ],
        );
        kafka.create_topic("orders-dlt", 1, 1, &[]);
        let invoices = kafka.create_topic("invoices", 1, 1, &[]);
        let shipments = kafka.create_topic("shipments", 1, 1, &[]);
        let claims = Claims::new(kafka);
        let yaml = "rules:\n  - name: orders\n    topics: [orders]\n    limits: {record_bytes: 1536KiB}\n    topic_config: {max_message_bytes: {max: 4MiB}}\n    remedy: Send the \
                    address of the note.\n  - name: invoices\n    topics: [invoices]\n    limits: {value_bytes: 1KiB}\n    \
                    action: observe";
        let mut sizegate = Sizegate::before(&kafka.bootstrap())
            .listener("frame_bytes: 4MiB")
            .yaml(&format!("{}{yaml}\n{}", claims.section(), claims.rule()))
            .start();
        let config = sizegate.process().dir().join("sizegate.yaml");
        let good = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{good}\nrulez: []\n")).unwrap();
        let mut trouble = Self {
            sizegate,
            orders,
            invoices,
            shipments,
            claims,
            round: 0,
            lingering: None,
        };
        // The first batch of the topic is a large one: consumers begin there.
        let halves = [0, 1].map(|seed| Record::of_random(900_000, seed));
        let first = batch(halves).base_timestamp(NO_TIME).build();
        let part = Part::new(&trouble.orders, first);
        let stored = trouble
            .connect("kgo", "1.22.0")
            .produce(PRODUCE, 1, &[part]);
        assert_eq!(stored[0].code, 0, "{:?}", stored[0].text);
        trouble.lingering = Some(trouble.linger());
        trouble
    }

    /// A producer whose large records wait a second each, for as long as the run takes.
    fn linger(&self) -> Running {
        Program::java("TimedLoad", VERSION)
            .arg("bootstrap", self.sizegate.bootstrap())
            .arg("topic", &self.orders.name)
            .arg("p.client.id", "checkout")
            .arg("p.linger.ms", 1_000)
            .arg("p.batch.size", 16_384)
            .arg("small", 300)
            .arg("large", 100_000)
            .spawn()
    }

    /// The proxy.
    pub fn sizegate(&self) -> &Sizegate {
        &self.sizegate
    }

    /// The topic that most happens to.
    pub fn topic(&self) -> &str {
        &self.orders.name
    }

    /// One round of everything.
    pub fn make(&mut self) {
        self.round += 1;
        let lingering = self.lingering.as_ref().expect("started");
        assert!(lingering.is_running(), "{}", lingering.last_words());
        // On a machine that is too busy all its records were kept alike: another may show the difference.
        if self.round.is_multiple_of(50)
            && self.sizegate.metrics().sum("linger_suspects_total", &[]) == 0.0
        {
            self.lingering = Some(self.linger());
        }
        self.sizegate.process().signal("HUP");
        self.produce();
        self.resend();
        self.break_frames();
        self.raise_a_limit();
        self.claims.make(&self.sizegate, self.round);
        for _ in 0..2 {
            // Less than the batch there: it is served all the same, and the consumer does not get on.
            admin::fetch_stored(&self.sizegate.bootstrap(), &self.orders.name, 0, 1_000);
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Against its rule.
    fn raise_a_limit(&self) {
        let config = AlterableConfig::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(text("8388608")));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(&self.orders.name))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let response = self.connect("kgo", "1.22.0").ask(&request, 1);
        assert_eq!(response.responses[0].error_code, 44);
    }

    fn connect(&self, software: &str, version: &str) -> Connection {
        let mut connection = Connection::open(self.sizegate.node(1).as_str());
        connection.client_id = Some(format!("{software}-{}", self.round));
        connection.api_versions(software, version);
        connection
    }

    fn produce(&self) {
        let mut connection = self.connect("librdkafka", "2.16.1");
        let mut send = |topic: &Topic, records: Batch, expected: i16| {
            let records = records.base_timestamp(NO_TIME).build();
            let responses = connection.produce(PRODUCE, 1, &[Part::new(topic, records)]);
            assert_eq!(responses[0].code, expected, "{:?}", responses[0].text);
        };
        let halves = [0, 1].map(|seed| Record::of_random(900_000, seed));
        send(&self.orders, batch(halves), 0);
        for power in 0..6 {
            let records = (0..3).map(|seed| Record::of_random(200 << power, seed));
            send(&self.orders, batch(records), 0);
        }
        for codec in [Codec::Lz4, Codec::Zstd, Codec::Gzip] {
            let records = (0..20).map(|_| Record::of_a(5_000));
            send(&self.orders, batch(records).codec(codec), 0);
        }
        send(&self.orders, batch([Record::of_random(1_700_000, 1)]), 10);
        send(&self.orders, batch_of_bytes(2_200_000), 10);
        let unpacked = (0..2).map(|_| Record::of_a(1_400_000));
        send(&self.orders, batch(unpacked).codec(Codec::Gzip), 10);
        send(&self.invoices, batch([Record::of_random(2_000, 1)]), 0);
        // More in one round than in another, as on any day.
        for seed in 0..self.round * 7 % 11 {
            let records = (0..4).map(|at| Record::of_random(9_000 << (seed % 5), seed * 4 + at));
            send(&self.shipments, batch(records), 0);
        }
    }

    /// A batch that was refused comes again, as Java up to 4.1 sends it.
    fn resend(&self) {
        let mut connection = self.connect("apache-kafka-java", "3.9.1");
        let halves = [2, 3].map(|seed| Record::of_random(1_100_000, seed));
        let records = batch(halves).producer(7, 0, 0).build();
        for _ in 0..3 {
            connection.produce(PRODUCE, 1, &[Part::new(&self.orders, records.clone())]);
        }
    }

    /// A request that is not Kafka's, and one above `frame_bytes`.
    fn break_frames(&self) {
        let mut connection = self.connect("kgo", "1.22.0");
        connection.send_bytes(&[
            0, 0, 0, 14, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b'x', 0x7f, 0x7f, 0x7f,
        ]);
        assert!(connection.read_frame().is_err(), "it closes the connection");
        let mut connection = self.connect("kgo", "1.22.0");
        let records = (0..5).map(|seed| Record::of_random(1_000_000, seed));
        let part = Part::new(&self.orders, batch(records).build());
        let responses = connection.produce(PRODUCE, 1, &[part]);
        assert_eq!(responses[0].code, 10, "{:?}", responses[0].text);
    }
}
