//! Recognises frameworks that make producers, by the client ids that they give them: there a producer's setting has
//! another name and stands in another file.
//!
//! Asked when a refusal is written, never per request.

use crate::vocabulary::labelled;

labelled! {
    /// What makes and configures a producer.
    Framework {
        /// A connector in Kafka Connect.
        Connect = "connect",
        /// MirrorMaker 2.
        MirrorMaker = "mirrormaker2",
        /// Kafka Streams.
        Streams = "streams",
        /// Spring for Apache Kafka, configured by Spring Boot.
        Spring = "spring",
        /// Debezium; in Connect it is a connector as others are.
        Debezium = "debezium",
        /// Confluent's REST Proxy.
        RestProxy = "rest-proxy",
    }
}

/// Settings of a Java producer that our texts name.
const SETTINGS: [&str; 4] = [
    "max.request.size",
    "batch.size",
    "compression.type",
    "buffer.memory",
];

impl Framework {
    /// By a client id as the framework gives it; of Spring, Debezium and the REST proxy it is the user's own.
    ///
    /// Connect: `connector-producer-NAME-TASK`, `connector-dlq-producer-NAME-TASK` (`Worker`, `ConnectorTaskId`).
    /// MirrorMaker 2 runs as such connectors. Streams: `…-StreamThread-N-producer` (`ClientUtils`).
    pub fn of(client_id: &str) -> Option<Self> {
        let in_connect = ["connector-producer-", "connector-dlq-producer-"]
            .iter()
            .find_map(|made| client_id.split_once(made));
        match in_connect {
            Some((_, connector)) if is_mirror(connector) => Some(Self::MirrorMaker),
            Some(_) => Some(Self::Connect),
            None if client_id.contains("-StreamThread-") && client_id.ends_with("-producer") => {
                Some(Self::Streams)
            }
            None => None,
        }
    }

    /// Where a setting of the producer goes.
    pub fn place_of(self, setting: &str) -> String {
        match self {
            Self::Connect => format!(
                "In Kafka Connect that is producer.override.{setting} in the connector's configuration"
            ),
            Self::MirrorMaker => format!(
                "In MirrorMaker 2 that is TARGET.producer.{setting} in mm2.properties (as a connector: producer.override.{setting})"
            ),
            Self::Streams => {
                format!(
                    "In Kafka Streams that is producer.{setting} in the application's StreamsConfig"
                )
            }
            Self::Spring => format!(
                "In Spring Boot that is spring.kafka.producer.properties.{setting}; a dead-letter template may have a factory of its own"
            ),
            Self::Debezium => format!(
                "With Debezium that is producer.override.{setting} in the connector's configuration (Debezium Server: \
                 debezium.sink.kafka.producer.{setting})"
            ),
            Self::RestProxy => {
                format!("In the REST Proxy that is producer.{setting} in kafka-rest.properties")
            }
        }
    }

    /// A sentence for a text that names settings of the producer: where these go. `None` where it names none.
    pub fn places(self, text: &str) -> Option<String> {
        let named: Vec<&str> = SETTINGS
            .into_iter()
            .filter(|setting| text.contains(setting))
            .collect();
        let (first, more) = named.split_first()?;
        let others = if more.is_empty() {
            String::new()
        } else {
            format!(", and {} likewise", more.join(" and "))
        };
        Some(format!("{}{others}.", self.place_of(first)))
    }
}

/// `MirrorSourceConnector`, `MirrorHeartbeatConnector`, `MirrorCheckpointConnector`, by which MirrorMaker 2 names its own.
fn is_mirror(connector: &str) -> bool {
    ["MirrorSource", "MirrorHeartbeat", "MirrorCheckpoint"]
        .iter()
        .any(|name| connector.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framework_is_known_by_the_client_ids_that_it_gives() {
        for (client_id, framework) in [
            ("connector-producer-orders-sink-0", Some(Framework::Connect)),
            (
                "connector-dlq-producer-orders-sink-0",
                Some(Framework::Connect),
            ),
            (
                "connector-producer-MirrorSourceConnector-0",
                Some(Framework::MirrorMaker),
            ),
            (
                "a->b|connector-producer-MirrorHeartbeatConnector-0",
                Some(Framework::MirrorMaker),
            ),
            (
                "orders-3f0a-StreamThread-1-producer",
                Some(Framework::Streams),
            ),
            ("orders-3f0a-StreamThread-1-consumer", None),
            ("producer-1", None),
            ("", None),
        ] {
            assert_eq!(Framework::of(client_id), framework, "{client_id}");
        }
    }

    #[test]
    fn the_settings_that_a_text_names_are_placed_and_others_are_not() {
        let text = "Lower the producer's max.request.size or batch.size.";
        assert_eq!(
            Framework::Connect.places(text).unwrap(),
            "In Kafka Connect that is producer.override.max.request.size in the connector's configuration, and batch.size \
             likewise."
        );
        assert_eq!(Framework::Streams.places("Send less in one record."), None);
        for framework in Framework::ALL {
            assert!(framework.place_of("batch.size").contains("batch.size"));
        }
    }
}
