//! Recognises client libraries, by what they say of themselves: what they do with a refusal, and what their settings
//! are called.
//!
//! Asked when a refusal is written, never per request.

use crate::vocabulary::labelled;

labelled! {
    /// A client library whose ways are known.
    Library {
        /// `org.apache.kafka:kafka-clients`
        Java = "java",
        /// librdkafka, and what is built on it: confluent-kafka for Python, Go, .NET and JavaScript.
        Librdkafka = "librdkafka",
        /// kafkajs
        Kafkajs = "kafkajs",
        /// kafka-python
        KafkaPython = "kafka-python",
        /// aiokafka
        Aiokafka = "aiokafka",
        /// franz-go
        FranzGo = "franz-go",
        /// sarama
        Sarama = "sarama",
        /// segmentio/kafka-go
        KafkaGo = "kafka-go",
    }
}

/// Names of software (KIP-511), and the client ids that a library takes unless it is told otherwise: beginnings, in lower
/// case. kafkajs and aiokafka name no software.
const NAMES: &[(&str, Library)] = &[
    ("apache-kafka-java", Library::Java),
    ("confluent-kafka-", Library::Librdkafka),
    ("kafka-python", Library::KafkaPython),
    ("aiokafka", Library::Aiokafka),
    ("kafkajs", Library::Kafkajs),
    ("kgo", Library::FranzGo),
    ("sarama", Library::Sarama),
    ("kafka-go", Library::KafkaGo),
];

impl Library {
    /// By the software's name and version, else by the client id.
    pub fn of(software: Option<(&str, &str)>, client_id: Option<&str>) -> Option<Self> {
        let by_software = software.and_then(|(name, version)| {
            named(name).or_else(|| is_on_librdkafka(version).then_some(Self::Librdkafka))
        });
        by_software.or_else(|| client_id.and_then(named))
    }

    /// A text in a response does it no harm.
    ///
    /// librdkafka never shows one; `rd_kafka_message_produce_errstr` (C, C++, Go, .NET) then reads memory that was freed with
    /// the response (2.16.0 and before). Without a text, as the broker leaves it, it has words of its own.
    pub const fn bears_texts(self) -> bool {
        !matches!(self, Self::Librdkafka)
    }

    /// Its user reads what the response says.
    pub const fn shows_texts(self) -> bool {
        matches!(self, Self::Java | Self::KafkaPython | Self::KafkaGo)
    }

    /// It sends uncompressed what compression does not make smaller, whatever codec is set.
    pub const fn compresses_what_shrinks(self) -> bool {
        matches!(self, Self::Librdkafka | Self::KafkaPython | Self::FranzGo)
    }

    /// How its user puts fewer records into a batch.
    pub const fn fewer_records(self) -> &'static str {
        match self {
            Self::Java | Self::Librdkafka => "Lower the producer's batch.size",
            Self::Kafkajs => "Split the messages over more send() calls",
            Self::KafkaPython => "Lower the producer's batch_size",
            Self::Aiokafka => "Lower the producer's max_batch_size",
            Self::FranzGo => "Lower the producer's ProducerBatchMaxBytes",
            Self::Sarama => "Set the producer's Flush.MaxMessages",
            Self::KafkaGo => "Lower the writer's BatchBytes",
        }
    }

    /// How its user puts less into a request.
    pub const fn smaller_requests(self) -> &'static str {
        match self {
            Self::Java => "Lower the producer's max.request.size or batch.size",
            Self::Librdkafka => "Lower the producer's message.max.bytes or batch.size",
            Self::KafkaPython => "Lower the producer's max_request_size or batch_size",
            Self::Aiokafka => "Lower the producer's max_request_size or max_batch_size",
            Self::Sarama => "Lower the producer's MaxMessageBytes or Flush.MaxMessages",
            Self::Kafkajs | Self::FranzGo | Self::KafkaGo => self.fewer_records(),
        }
    }

    /// How its user leaves compression out.
    pub const fn no_compression(self) -> &'static str {
        match self {
            Self::Java | Self::Librdkafka => "Set compression.type=none in the producer",
            _ => "Leave compression out in the producer",
        }
    }
}

fn named(name: &str) -> Option<Library> {
    let name = name.to_ascii_lowercase();
    if is_on_librdkafka(&name) {
        return Some(Library::Librdkafka);
    }
    let known = NAMES.iter().find(|(known, _)| name.starts_with(known));
    known.map(|(_, library)| *library)
}

/// `rdkafka` is its usual client id; clients built on it say so in their name or version: `2.16.1-librdkafka-2.16.0`.
fn is_on_librdkafka(words: &str) -> bool {
    words.to_ascii_lowercase().contains("rdkafka")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_its_software_else_by_its_usual_client_id() {
        for (software, client_id, library) in [
            (
                Some(("apache-kafka-java", "4.3.0")),
                Some("rdkafka"),
                Some(Library::Java),
            ),
            (
                Some(("librdkafka", "2.4.0")),
                None,
                Some(Library::Librdkafka),
            ),
            (
                Some(("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")),
                Some("orders"),
                Some(Library::Librdkafka),
            ),
            (
                Some(("confluent-kafka-dotnet", "2.1")),
                None,
                Some(Library::Librdkafka),
            ),
            (
                Some(("rust-client", "1.0-librdkafka-2.6.0")),
                None,
                Some(Library::Librdkafka),
            ),
            (Some(("kgo", "v1.22.0")), None, Some(Library::FranzGo)),
            (
                Some(("kafka-python", "3.0.12")),
                None,
                Some(Library::KafkaPython),
            ),
            (None, Some("rdkafka"), Some(Library::Librdkafka)),
            (None, Some("kafkajs"), Some(Library::Kafkajs)),
            (None, Some("aiokafka-producer-1"), Some(Library::Aiokafka)),
            (None, Some("sarama"), Some(Library::Sarama)),
            (None, Some("orders"), None),
            (Some(("orders-service", "1.0")), Some("orders"), None),
            (None, None, None),
        ] {
            assert_eq!(
                Library::of(software, client_id),
                library,
                "{software:?} {client_id:?}"
            );
        }
    }
}
