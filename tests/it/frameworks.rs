//! Where a setting goes: refusals to producers of Connect, MirrorMaker 2 and Streams, and `explain`, name it there.

use crate::support::batch::Record;
use crate::support::{Connection, Kafka, Part, Sizegate, batch, command};

const RULES: &str = "rules: [{name: small, topics: ['framework-*'], limits: {batch_bytes: 2000}}]";

#[test]
fn a_refusal_names_the_setting_at_the_place_where_the_framework_has_it() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, RULES);
    let topic = kafka.topic("framework", 1, &[]);
    for (client_id, place) in [
        (
            "connector-producer-orders-0",
            Some("producer.override.batch.size in the connector's configuration"),
        ),
        (
            "connector-dlq-producer-orders-0",
            Some("producer.override.batch.size in the connector's configuration"),
        ),
        (
            "connector-producer-MirrorSourceConnector-0",
            Some("TARGET.producer.batch.size in mm2.properties"),
        ),
        (
            "orders-1b2c-StreamThread-1-producer",
            Some("producer.batch.size in the application's StreamsConfig"),
        ),
        ("producer-1", None),
    ] {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.client_id = Some(client_id.to_owned());
        connection.api_versions("apache-kafka-java", "4.3.0");
        // Many small records: fewer in a batch would do.
        let records = batch((0..40).map(|n| Record::of_a(50 + n))).build();
        let response = connection
            .produce(9, -1, &[Part::new(&topic, records)])
            .remove(0);
        let text = response.text.unwrap_or_default();
        assert!(text.contains("Lower the producer's batch.size"), "{text}");
        match place {
            Some(place) => assert!(text.contains(place), "{client_id}: {text}"),
            None => assert!(!text.contains(" that is "), "{text}"),
        }
        assert!(text.len() <= 1024);
        let kept = &sizegate.json("/api/v1/refusals?limit=1")["refusals"][0];
        assert_eq!(kept["text"], *text);
        assert_eq!(kept["client_id"], client_id);
    }
}

#[test]
fn explain_places_the_clients_own_limit_for_every_framework() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("framework-own", 1, &[]).name;
    let yaml = format!(
        "cluster: {{bootstrap_servers: [{:?}]}}\n",
        kafka.bootstrap()
    );
    for (client, place) in [
        ("connect", "producer.override.max.request.size"),
        ("mirrormaker2", "TARGET.producer.max.request.size"),
        ("streams", "producer.max.request.size"),
        (
            "spring",
            "spring.kafka.producer.properties.max.request.size",
        ),
        ("debezium", "debezium.sink.kafka.producer.max.request.size"),
        ("rest-proxy", "kafka-rest.properties"),
    ] {
        let arguments = [
            "explain",
            &topic,
            "--value-bytes",
            "1048576",
            "--client",
            client,
        ];
        let ran = command::sizegate(&arguments, &yaml);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.out
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(place),
            "{client}: {}",
            ran.out
        );
    }
}
