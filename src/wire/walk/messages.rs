//! The messages that are walked, field by field, after the message definitions of Apache Kafka 4.4.0.

use super::{FieldKind, Message, field};

/// Fetch response, versions 4–18, behind the correlation id. The tail is `NodeEndpoints` (version 16, tag 0).
pub static FETCH_RESPONSE: Message = Message {
    flexible_since: 12,
    fields: &[
        field("response_header_tags", FieldKind::Struct(&[])).since(12),
        field("throttle_time_ms", FieldKind::Fixed(4)).since(1),
        field("error_code", FieldKind::Fixed(2)).since(7),
        field("session_id", FieldKind::Fixed(4)).since(7),
        field(
            "responses",
            FieldKind::Array(&[
                field("topic", FieldKind::Text).until(12),
                field("topic_id", FieldKind::Fixed(16)).since(13),
                field(
                    "partitions",
                    FieldKind::Array(&[
                        field("partition_index", FieldKind::Fixed(4)),
                        field("error_code", FieldKind::Fixed(2)),
                        field("high_watermark", FieldKind::Fixed(8)),
                        field("last_stable_offset", FieldKind::Fixed(8)).since(4),
                        field("log_start_offset", FieldKind::Fixed(8)).since(5),
                        field(
                            "aborted_transactions",
                            FieldKind::Array(&[
                                field("producer_id", FieldKind::Fixed(8)),
                                field("first_offset", FieldKind::Fixed(8)),
                            ]),
                        )
                        .since(4),
                        field("preferred_read_replica", FieldKind::Fixed(4)).since(11),
                        field("records", FieldKind::Bytes),
                    ]),
                ),
            ]),
        ),
        field("node_endpoints", FieldKind::Tail),
    ],
};

/// ShareFetch response, versions 0–2, behind the correlation id. The tail is `NodeEndpoints`, an ordinary array.
pub static SHARE_FETCH_RESPONSE: Message = Message {
    flexible_since: 0,
    fields: &[
        field("response_header_tags", FieldKind::Struct(&[])),
        field("throttle_time_ms", FieldKind::Fixed(4)),
        field("error_code", FieldKind::Fixed(2)),
        field("error_message", FieldKind::Text),
        field("acquisition_lock_timeout_ms", FieldKind::Fixed(4)).since(1),
        field(
            "responses",
            FieldKind::Array(&[
                field("topic_id", FieldKind::Fixed(16)),
                field(
                    "partitions",
                    FieldKind::Array(&[
                        field("partition_index", FieldKind::Fixed(4)),
                        field("error_code", FieldKind::Fixed(2)),
                        field("error_message", FieldKind::Text),
                        field("acknowledge_error_code", FieldKind::Fixed(2)),
                        field("acknowledge_error_message", FieldKind::Text),
                        field(
                            "current_leader",
                            FieldKind::Struct(&[
                                field("leader_id", FieldKind::Fixed(4)),
                                field("leader_epoch", FieldKind::Fixed(4)),
                            ]),
                        ),
                        field("records", FieldKind::Bytes),
                        field(
                            "acquired_records",
                            FieldKind::Array(&[
                                field("first_offset", FieldKind::Fixed(8)),
                                field("last_offset", FieldKind::Fixed(8)),
                                field("delivery_count", FieldKind::Fixed(2)),
                            ]),
                        ),
                    ]),
                ),
            ]),
        ),
        field("node_endpoints", FieldKind::Tail),
    ],
};

/// Metadata response, versions 10–13, behind its broker list: the topics it names. The tail is what follows them.
pub static METADATA_TOPICS: Message = Message {
    flexible_since: 9,
    fields: &[
        field("cluster_id", FieldKind::Text),
        field("controller_id", FieldKind::Fixed(4)),
        field(
            "topics",
            FieldKind::Array(&[
                field("topic_error_code", FieldKind::Fixed(2)),
                field("name", FieldKind::Text),
                field("topic_id", FieldKind::Fixed(16)),
                field("is_internal", FieldKind::Fixed(1)),
                field(
                    "partitions",
                    FieldKind::Array(&[
                        field("error_code", FieldKind::Fixed(2)),
                        field("partition_index", FieldKind::Fixed(4)),
                        field("leader_id", FieldKind::Fixed(4)),
                        field("leader_epoch", FieldKind::Fixed(4)),
                        field("replica_nodes", FieldKind::Int32s),
                        field("isr_nodes", FieldKind::Int32s),
                        field("offline_replicas", FieldKind::Int32s),
                    ]),
                ),
                field("topic_authorized_operations", FieldKind::Fixed(4)),
            ]),
        ),
        field("metadata_tail", FieldKind::Tail),
    ],
};

/// Fetch request, versions 4–18, from its client id on: what a consumer asks for. The tail is what it no longer asks
/// for (KIP-227), and where it runs.
pub static FETCH_REQUEST: Message = Message {
    flexible_since: 12,
    fields: &[
        field("client_id", FieldKind::Text),
        field("request_header_tags", FieldKind::Struct(&[])).since(12),
        field("replica_id", FieldKind::Fixed(4)).until(14),
        field("max_wait_ms", FieldKind::Fixed(4)),
        field("min_bytes", FieldKind::Fixed(4)),
        field("max_bytes", FieldKind::Fixed(4)).since(3),
        field("isolation_level", FieldKind::Fixed(1)).since(4),
        field("session_id", FieldKind::Fixed(4)).since(7),
        field("session_epoch", FieldKind::Fixed(4)).since(7),
        field(
            "topics",
            FieldKind::Array(&[
                field("topic", FieldKind::Text).until(12),
                field("topic_id", FieldKind::Fixed(16)).since(13),
                field(
                    "partitions",
                    FieldKind::Array(&[
                        field("partition", FieldKind::Fixed(4)),
                        field("current_leader_epoch", FieldKind::Fixed(4)).since(9),
                        field("fetch_offset", FieldKind::Fixed(8)),
                        field("last_fetched_epoch", FieldKind::Fixed(4)).since(12),
                        field("log_start_offset", FieldKind::Fixed(8)).since(5),
                        field("partition_max_bytes", FieldKind::Fixed(4)),
                    ]),
                ),
            ]),
        ),
        field("forgotten_topics_data", FieldKind::Tail),
    ],
};

/// ListOffsets request, versions 0–11, from its client id on.
pub static LIST_OFFSETS_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", FieldKind::Text),
        field("request_header_tags", FieldKind::Struct(&[])).since(6),
        field("replica_id", FieldKind::Fixed(4)),
        field("isolation_level", FieldKind::Fixed(1)).since(2),
        field(
            "topics",
            FieldKind::Array(&[
                field("topic", FieldKind::Text),
                field(
                    "partitions",
                    FieldKind::Array(&[
                        field("partition", FieldKind::Fixed(4)),
                        field("current_leader_epoch", FieldKind::Fixed(4)).since(4),
                        field("timestamp", FieldKind::Fixed(8)),
                        field("max_num_offsets", FieldKind::Fixed(4)).until(0),
                    ]),
                ),
            ]),
        ),
        field("timeout_ms", FieldKind::Tail),
    ],
};

/// OffsetFetch request, versions 0–10, from its client id to the first group's name.
pub static OFFSET_FETCH_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", FieldKind::Text),
        field("request_header_tags", FieldKind::Struct(&[])).since(6),
        field("group_id", FieldKind::Text).until(7),
        field(
            "groups",
            FieldKind::Array(&[
                field("group_id", FieldKind::Text),
                field("member_id", FieldKind::Tail),
            ]),
        )
        .since(8),
        field("topics", FieldKind::Tail),
    ],
};

/// JoinGroup request, versions 0–9, from its client id to the member's id.
pub static JOIN_GROUP_REQUEST: Message = Message {
    flexible_since: 6,
    fields: &[
        field("client_id", FieldKind::Text),
        field("request_header_tags", FieldKind::Struct(&[])).since(6),
        field("group_id", FieldKind::Text),
        field("session_timeout_ms", FieldKind::Fixed(4)),
        field("rebalance_timeout_ms", FieldKind::Fixed(4)).since(1),
        field("member_id", FieldKind::Text),
        field("group_instance_id", FieldKind::Tail),
    ],
};

/// ConsumerGroupHeartbeat request, versions 0–1, from its client id to the member's epoch.
pub static CONSUMER_GROUP_HEARTBEAT_REQUEST: Message = Message {
    flexible_since: 0,
    fields: &[
        field("client_id", FieldKind::Text),
        field("request_header_tags", FieldKind::Struct(&[])),
        field("group_id", FieldKind::Text),
        field("member", FieldKind::Text),
        field("member_epoch", FieldKind::Fixed(4)),
        field("instance_id", FieldKind::Tail),
    ],
};

/// Produce request, versions 0–13, from its client id on: what a refusal must name.
pub static PRODUCE_REQUEST: Message = Message {
    flexible_since: 9,
    fields: &[
        field("client_id", FieldKind::Text), // INT16-prefixed in every version: see `Walker::text_is_compact`
        field("request_header_tags", FieldKind::Struct(&[])).since(9),
        field("transactional_id", FieldKind::Text).since(3),
        field("acks", FieldKind::Fixed(2)),
        field("timeout_ms", FieldKind::Fixed(4)),
        field(
            "topic_data",
            FieldKind::Array(&[
                field("topic", FieldKind::Text).until(12),
                field("topic_id", FieldKind::Fixed(16)).since(13),
                field(
                    "partition_data",
                    FieldKind::Array(&[
                        field("index", FieldKind::Fixed(4)),
                        field("records", FieldKind::Bytes),
                    ]),
                ),
            ]),
        ),
        field("produce_tags", FieldKind::Tail),
    ],
};
