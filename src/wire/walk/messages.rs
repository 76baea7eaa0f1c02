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

/// Fetch request, versions 4–18, from its client id on: what a consumer asks for. The tail is what it no longer asks
/// for (KIP-227), and where it runs.
pub static FETCH_REQUEST: Message = Message {
    flexible_since: 12,
    fields: &[
        field("client_id", Kind::Text),
        field("request_header_tags", Kind::Struct(&[])).since(12),
        field("replica_id", Kind::Fixed(4)).until(14),
        field("max_wait_ms", Kind::Fixed(4)),
        field("min_bytes", Kind::Fixed(4)),
        field("max_bytes", Kind::Fixed(4)).since(3),
        field("isolation_level", Kind::Fixed(1)).since(4),
        field("session_id", Kind::Fixed(4)).since(7),
        field("session_epoch", Kind::Fixed(4)).since(7),
        field(
            "topics",
            Kind::Array(&[
                field("topic", Kind::Text).until(12),
                field("topic_id", Kind::Fixed(16)).since(13),
                field(
                    "partitions",
                    Kind::Array(&[
                        field("partition", Kind::Fixed(4)),
                        field("current_leader_epoch", Kind::Fixed(4)).since(9),
                        field("fetch_offset", Kind::Fixed(8)),
                        field("last_fetched_epoch", Kind::Fixed(4)).since(12),
                        field("log_start_offset", Kind::Fixed(8)).since(5),
                        field("partition_max_bytes", Kind::Fixed(4)),
                    ]),
                ),
            ]),
        ),
        field("forgotten_topics_data", Kind::Tail),
    ],
};

/// ListOffsets request, versions 0–11, from its client id on.
pub static LIST_OFFSETS_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", Kind::Text),
        field("request_header_tags", Kind::Struct(&[])).since(6),
        field("replica_id", Kind::Fixed(4)),
        field("isolation_level", Kind::Fixed(1)).since(2),
        field(
            "topics",
            Kind::Array(&[
                field("topic", Kind::Text),
                field(
                    "partitions",
                    Kind::Array(&[
                        field("partition", Kind::Fixed(4)),
                        field("current_leader_epoch", Kind::Fixed(4)).since(4),
                        field("timestamp", Kind::Fixed(8)),
                        field("max_num_offsets", Kind::Fixed(4)).until(0),
                    ]),
                ),
            ]),
        ),
        field("timeout_ms", Kind::Tail),
    ],
};

/// OffsetFetch request, versions 0–10, from its client id to the first group's name.
pub static OFFSET_FETCH_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", Kind::Text),
        field("request_header_tags", Kind::Struct(&[])).since(6),
        field("group_id", Kind::Text).until(7),
        field(
            "groups",
            Kind::Array(&[
                field("group_id", Kind::Text),
                field("member_id", Kind::Tail),
            ]),
        )
        .since(8),
        field("topics", Kind::Tail),
    ],
};

/// JoinGroup request, versions 0–9, from its client id to the member's id.
pub static JOIN_GROUP_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", Kind::Text),
        field("request_header_tags", Kind::Struct(&[])).since(6),
        field("group_id", Kind::Text),
        field("session_timeout_ms", Kind::Fixed(4)),
        field("rebalance_timeout_ms", Kind::Fixed(4)).since(1),
        field("member_id", Kind::Text),
        field("group_instance_id", Kind::Tail),
    ],
};

/// ConsumerGroupHeartbeat request, versions 0–1, from its client id to the member's epoch.
pub static CONSUMER_GROUP_HEARTBEAT_REQUEST: Message = Message {
    flexible_since: 0,
    fields: &[
        field("client_id", Kind::Text),
        field("request_header_tags", Kind::Struct(&[])),
        field("group_id", Kind::Text),
        field("member", Kind::Text),
        field("member_epoch", Kind::Fixed(4)),
        field("instance_id", Kind::Tail),
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
