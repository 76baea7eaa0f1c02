//! The messages that are walked, field by field, after the message definitions of Apache Kafka 4.4.0.

use super::{Kind, Message, field};

/// Fetch answer, versions 4–18, behind the correlation id. The tail is `NodeEndpoints` (version 16, tag 0).
pub static FETCH_ANSWER: Message = Message {
    flexible_since: 12,
    fields: &[
        field("response_header_tags", Kind::Struct(&[])).since(12),
        field("throttle_time_ms", Kind::Fixed(4)).since(1),
        field("error_code", Kind::Fixed(2)).since(7),
        field("session_id", Kind::Fixed(4)).since(7),
        field(
            "responses",
            Kind::Array(&[
                field("topic", Kind::Text).until(12),
                field("topic_id", Kind::Fixed(16)).since(13),
                field(
                    "partitions",
                    Kind::Array(&[
                        field("partition_index", Kind::Fixed(4)),
                        field("error_code", Kind::Fixed(2)),
                        field("high_watermark", Kind::Fixed(8)),
                        field("last_stable_offset", Kind::Fixed(8)).since(4),
                        field("log_start_offset", Kind::Fixed(8)).since(5),
                        field(
                            "aborted_transactions",
                            Kind::Array(&[
                                field("producer_id", Kind::Fixed(8)),
                                field("first_offset", Kind::Fixed(8)),
                            ]),
                        )
                        .since(4),
                        field("preferred_read_replica", Kind::Fixed(4)).since(11),
                        field("records", Kind::Bytes),
                    ]),
                ),
            ]),
        ),
        field("node_endpoints", Kind::Tail),
    ],
};

/// ShareFetch answer, versions 0–2, behind the correlation id. The tail is `NodeEndpoints`, an ordinary array.
pub static SHARE_FETCH_ANSWER: Message = Message {
    flexible_since: 0,
    fields: &[
        field("response_header_tags", Kind::Struct(&[])),
        field("throttle_time_ms", Kind::Fixed(4)),
        field("error_code", Kind::Fixed(2)),
        field("error_message", Kind::Text),
        field("acquisition_lock_timeout_ms", Kind::Fixed(4)).since(1),
        field(
            "responses",
            Kind::Array(&[
                field("topic_id", Kind::Fixed(16)),
                field(
                    "partitions",
                    Kind::Array(&[
                        field("partition_index", Kind::Fixed(4)),
                        field("error_code", Kind::Fixed(2)),
                        field("error_message", Kind::Text),
                        field("acknowledge_error_code", Kind::Fixed(2)),
                        field("acknowledge_error_message", Kind::Text),
                        field(
                            "current_leader",
                            Kind::Struct(&[
                                field("leader_id", Kind::Fixed(4)),
                                field("leader_epoch", Kind::Fixed(4)),
                            ]),
                        ),
                        field("records", Kind::Bytes),
                        field(
                            "acquired_records",
                            Kind::Array(&[
                                field("first_offset", Kind::Fixed(8)),
                                field("last_offset", Kind::Fixed(8)),
                                field("delivery_count", Kind::Fixed(2)),
                            ]),
                        ),
                    ]),
                ),
            ]),
        ),
        field("node_endpoints", Kind::Tail),
    ],
};

/// Metadata answer, versions 10–13, behind its broker list: the topics it names. The tail is what follows them.
pub static METADATA_TOPICS: Message = Message {
    flexible_since: 9,
    fields: &[
        field("cluster_id", Kind::Text),
        field("controller_id", Kind::Fixed(4)),
        field(
            "topics",
            Kind::Array(&[
                field("topic_error_code", Kind::Fixed(2)),
                field("name", Kind::Text),
                field("topic_id", Kind::Fixed(16)),
                field("is_internal", Kind::Fixed(1)),
                field(
                    "partitions",
                    Kind::Array(&[
                        field("error_code", Kind::Fixed(2)),
                        field("partition_index", Kind::Fixed(4)),
                        field("leader_id", Kind::Fixed(4)),
                        field("leader_epoch", Kind::Fixed(4)),
                        field("replica_nodes", Kind::Int32s),
                        field("isr_nodes", Kind::Int32s),
                        field("offline_replicas", Kind::Int32s),
                    ]),
                ),
                field("topic_authorized_operations", Kind::Fixed(4)),
            ]),
        ),
        field("metadata_tail", Kind::Tail),
    ],
};

/// Produce request, versions 0–13, from its client id on: what a refusal must name.
pub static PRODUCE_REQUEST: Message = Message {
    flexible_since: 9,
    fields: &[
        field("client_id", Kind::Text), // INT16-prefixed in every version: see `Walker::text_is_compact`
        field("request_header_tags", Kind::Struct(&[])).since(9),
        field("transactional_id", Kind::Text).since(3),
        field("acks", Kind::Fixed(2)),
        field("timeout_ms", Kind::Fixed(4)),
        field(
            "topic_data",
            Kind::Array(&[
                field("topic", Kind::Text).until(12),
                field("topic_id", Kind::Fixed(16)).since(13),
                field(
                    "partition_data",
                    Kind::Array(&[
                        field("index", Kind::Fixed(4)),
                        field("records", Kind::Bytes),
                    ]),
                ),
            ]),
        ),
        field("produce_tags", Kind::Tail),
    ],
};
