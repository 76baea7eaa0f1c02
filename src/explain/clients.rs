//! Tells what each client library compares by itself before it sends, by its own arithmetic, and the words that it
//! shows.
//!
//! Each was tried with the library at its limit and one byte above (`tests/explain_clients.rs`).

use super::EstimatedRecord;
use crate::policy::Library;

/// The libraries whose limits are known here.
pub(super) const KNOWN: [Library; 7] = [
    Library::Java,
    Library::Librdkafka,
    Library::Kafkajs,
    Library::KafkaPython,
    Library::Aiokafka,
    Library::FranzGo,
    Library::Sarama,
];

/// What a producer compares before anything is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnLimit {
    /// Its setting.
    pub setting: &'static str,
    /// Unless it is set.
    pub default_bytes: u64,
    /// What it takes the record for.
    pub size_bytes: u64,
    /// Whose default, for people.
    pub default_of: &'static str,
    /// What it compares.
    pub note: &'static str,
    /// Its size may be smaller by so much: it depends on what the library knows at that moment.
    pub unsure_bytes: u64,
}

/// librdkafka's and sarama's bound of what format 2 adds to a record: five varints of 32 bits, one of 64 and the attributes.
const MOST_RECORD_OVERHEAD: u64 = 5 * 5 + 10 + 1;

/// `None`: it leaves sizes to the broker.
pub(super) fn own_limit(library: Library, record: &EstimatedRecord) -> Option<OwnLimit> {
    let of = |setting, default_bytes, size_bytes, default_of, note| OwnLimit {
        setting,
        default_bytes,
        size_bytes,
        default_of,
        note,
        unsure_bytes: 0,
    };
    let content = record
        .key_bytes
        .unwrap_or(0)
        .saturating_add(record.value_bytes.unwrap_or(0));
    Some(match library {
        Library::Java => of(
            "max.request.size",
            super::DEFAULT_MAX_REQUEST_SIZE,
            record.estimate_bytes,
            "Java's default",
            "the Java producer's estimate of one record, before compression whatever the codec",
        ),
        Library::KafkaPython | Library::Aiokafka => of(
            "max_request_size",
            super::DEFAULT_MAX_REQUEST_SIZE,
            record.estimate_bytes,
            "the client's default",
            "its estimate of one record, as Java's, before compression",
        ),
        Library::Librdkafka => of(
            "message.max.bytes",
            1_000_000,
            MOST_RECORD_OVERHEAD
                .saturating_add(content)
                .saturating_add(record.encoded_headers_bytes),
            "librdkafka's default",
            "key, value, headers and 36 bytes of one record, before compression",
        ),
        Library::Sarama => of(
            "Producer.MaxMessageBytes",
            1_048_576,
            MOST_RECORD_OVERHEAD
                .saturating_add(content)
                .saturating_add(record.headers_bytes)
                .saturating_add(u64::from(record.headers).saturating_mul(10)),
            "sarama's default",
            "key, value and 36 bytes of one record, 10 bytes for each header, before compression",
        ),
        Library::FranzGo => OwnLimit {
            // The length in front of the batch: four bytes, or one once it knows the broker's version.
            unsure_bytes: 3,
            ..of(
                "ProducerBatchMaxBytes",
                1_000_012,
                record.alone_bytes.saturating_add(4),
                "franz-go's default",
                "the record alone in its batch, before compression, with the batch's length",
            )
        },
        Library::Kafkajs | Library::KafkaGo => return None,
    })
}

/// The words of its own refusal.
pub(super) fn own_words(library: Library, record: &EstimatedRecord, limit: u64) -> String {
    let size = own_limit(library, record).map_or(0, |own| own.size_bytes);
    match library {
        Library::Java => format!(
            "The message is {size} bytes when serialized which is larger than {limit}, which is the value of the \
             max.request.size configuration."
        ),
        Library::KafkaPython | Library::Aiokafka => format!(
            "[Error 10] MessageSizeTooLargeError: The message is {size} bytes when serialized which is larger than the \
             maximum request size you have configured with the max_request_size configuration"
        ),
        Library::Librdkafka => {
            "Unable to produce message: Broker: Message size too large".to_owned()
        }
        Library::FranzGo => format!(
            "MESSAGE_TOO_LARGE: The request included a message larger than the max message size the server will accept \
             (uncompressed_bytes={})",
            record
                .key_bytes
                .unwrap_or(0)
                .saturating_add(record.value_bytes.unwrap_or(0))
                .saturating_add(record.headers_bytes)
        ),
        Library::Sarama => format!(
            "kafka: invalid configuration (Attempt to produce message larger than configured Producer.MaxMessageBytes: \
             {size} > {limit})"
        ),
        Library::Kafkajs | Library::KafkaGo => String::new(),
    }
}

/// Java's other limit, which is compared after the first: the whole memory for records that wait.
pub(super) const BUFFER_MEMORY: &str = "buffer.memory";
/// Unless it is set.
pub(super) const DEFAULT_BUFFER_MEMORY: u64 = 33_554_432;

/// What came of a record that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// MESSAGE_TOO_LARGE
    TooLarge,
    /// RECORD_LIST_TOO_LARGE
    AboveSegment,
    /// POLICY_VIOLATION
    Policy,
    /// INVALID_RECORD
    Invalid,
    /// The connection was closed without a response, again and again.
    Closed,
}

impl Fate {
    pub(super) const fn code(self) -> Option<i16> {
        match self {
            Self::TooLarge => Some(10),
            Self::AboveSegment => Some(18),
            Self::Policy => Some(44),
            Self::Invalid => Some(87),
            Self::Closed => None,
        }
    }
}

/// What the user of a library reads where the response has no text, or where the library shows none.
pub(super) const fn words(library: Library, fate: Fate) -> &'static str {
    match (library, fate) {
        (Library::Librdkafka, Fate::TooLarge) => "Broker: Message size too large",
        (Library::Librdkafka, Fate::AboveSegment) => {
            "Broker: Message batch larger than configured server segment size"
        }
        (Library::Librdkafka, Fate::Policy) => "Broker: Policy violation",
        (Library::Librdkafka, Fate::Invalid) => "Broker: Broker failed to validate record",
        (Library::Librdkafka, Fate::Closed) => "Local: Message timed out",
        (Library::KafkaPython | Library::Aiokafka, Fate::TooLarge) => {
            "[Error 10] MessageSizeTooLargeError"
        }
        (Library::KafkaPython | Library::Aiokafka, Fate::AboveSegment) => {
            "[Error 18] RecordListTooLargeError"
        }
        (Library::KafkaPython | Library::Aiokafka, Fate::Policy) => {
            "[Error 44] PolicyViolationError"
        }
        (Library::KafkaPython, Fate::Invalid) => "[Error 87] InvalidRecordError",
        (Library::Aiokafka, Fate::Invalid) => "[Error -1] UnknownError",
        (Library::KafkaPython | Library::Aiokafka, Fate::Closed) => "KafkaTimeoutError",
        (Library::Kafkajs, Fate::TooLarge) => {
            "The request included a message larger than the max message size the server will accept"
        }
        (Library::Kafkajs, Fate::AboveSegment) => {
            "The request included message batch larger than the configured segment size on the server"
        }
        (Library::Kafkajs, Fate::Policy) => {
            "Request parameters do not satisfy the configured policy"
        }
        (Library::Kafkajs, Fate::Invalid) => {
            "This record has failed the validation on broker and hence be rejected"
        }
        (Library::Kafkajs, Fate::Closed) => "Closed connection",
        (Library::FranzGo, Fate::TooLarge) => {
            "MESSAGE_TOO_LARGE: The request included a message larger than the max message size the server will accept"
        }
        (Library::FranzGo, Fate::AboveSegment) => {
            "RECORD_LIST_TOO_LARGE: The request included message batch larger than the configured segment size on the server."
        }
        (Library::FranzGo, Fate::Policy) => {
            "POLICY_VIOLATION: Request parameters do not satisfy the configured policy."
        }
        (Library::FranzGo, Fate::Invalid) => {
            "INVALID_RECORD: This record has failed the validation on the broker and hence been rejected."
        }
        (Library::FranzGo, Fate::Closed) => {
            "records have timed out before they were able to be produced"
        }
        (Library::Sarama, Fate::TooLarge) => {
            "kafka server: Message was too large, server rejected it to avoid allocation error"
        }
        (Library::Sarama, Fate::AboveSegment) => {
            "kafka server: The request included message batch larger than the configured segment size on the server"
        }
        (Library::Sarama, Fate::Policy) => {
            "kafka server: Request parameters do not satisfy the configured policy"
        }
        (Library::Sarama, Fate::Invalid) => {
            "kafka server: This record has failed the validation on broker and hence will be rejected"
        }
        (Library::Sarama, Fate::Closed) => "EOF",
        (Library::Java | Library::KafkaGo, Fate::TooLarge) => {
            "The request included a message larger than the max message size the server will accept."
        }
        (Library::Java | Library::KafkaGo, Fate::AboveSegment) => {
            "The request included message batch larger than the configured segment size on the server."
        }
        (Library::Java | Library::KafkaGo, Fate::Policy) => {
            "Request parameters do not satisfy the configured policy."
        }
        (Library::Java | Library::KafkaGo, Fate::Invalid) => {
            "This record has failed the validation on broker and hence will be rejected."
        }
        (Library::Java | Library::KafkaGo, Fate::Closed) => {
            "… ms has passed since batch creation. The request has not been sent, or no server response has been received yet."
        }
    }
}

/// The Produce version that a library speaks with a recent broker, and its client id unless one is set.
const fn speaks(library: Library) -> (i16, &'static str) {
    match library {
        Library::Java => (13, "producer-1"),
        Library::Librdkafka => (10, "rdkafka"),
        Library::Kafkajs => (7, "kafkajs"),
        Library::KafkaPython => (9, "kafka-python-producer-1"),
        Library::Aiokafka => (7, "aiokafka-producer-1"),
        Library::FranzGo => (13, "kgo"),
        Library::Sarama => (9, "sarama"),
        Library::KafkaGo => (8, ""),
    }
}

/// What a Produce request with one batch has around it, its length prefix left out: that is what `frame_bytes` and
/// `socket.request.max.bytes` are compared with (`ProduceRequest.json`, `RequestHeader.json`).
pub(super) fn around_the_batch(
    library: Library,
    client_id: Option<&str>,
    topic: &str,
    batch_bytes: u64,
) -> u64 {
    let (version, usual_id) = speaks(library);
    let is_flexible = version >= 9;
    let topic_bytes = topic.len() as u64;
    // Key, version, correlation id, client id.
    let header = if is_flexible {
        2 + 2 + 4 + 2 + 1
    } else {
        2 + 2 + 4 + 2
    };
    // Transactional id (null), acks, timeout, topics' count.
    let (before, name) = match version {
        13.. => (1 + 2 + 4 + 1, 16),
        9.. => (
            1 + 2 + 4 + 1,
            unsigned_varint_bytes(topic_bytes.saturating_add(1)).saturating_add(topic_bytes),
        ),
        _ => (2 + 2 + 4 + 4, topic_bytes.saturating_add(2)),
    };
    // Partitions' count, index, the batch's length, tags of partition, topic and request.
    let after = if is_flexible {
        unsigned_varint_bytes(batch_bytes.saturating_add(1)).saturating_add(1 + 4 + 3)
    } else {
        4 + 4 + 4
    };
    let client_id = client_id.unwrap_or(usual_id).len() as u64;
    [header, client_id, before, name, after]
        .into_iter()
        .fold(0, u64::saturating_add)
}

fn unsigned_varint_bytes(n: u64) -> u64 {
    u64::from(
        u64::BITS
            .saturating_sub(n.leading_zeros())
            .max(1)
            .div_ceil(7),
    )
}
