//! Error codes of the Kafka protocol: those that this product tells apart, and everyone's name as Kafka writes it.
//! Source: `org.apache.kafka.common.protocol.Errors` of kafka-clients 4.4.0. Invariant: depends on no other module.

/// The log does not hold this offset: not yet, or no more.
pub const OFFSET_OUT_OF_RANGE: i16 = 1;
/// The broker does not know the topic or partition: retriable.
pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// The partition has no leader now: retriable.
pub const LEADER_NOT_AVAILABLE: i16 = 5;
/// Another broker leads the partition: retriable.
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// The replicas did not answer the leader in time: it may be stored or not.
pub const REQUEST_TIMED_OUT: i16 = 7;
/// A batch is over `max.message.bytes`.
pub const MESSAGE_TOO_LARGE: i16 = 10;
/// No topic can have this name.
pub const INVALID_TOPIC_EXCEPTION: i16 = 17;
/// A batch is over `segment.bytes`.
pub const RECORD_LIST_TOO_LARGE: i16 = 18;
/// Not stored for want of replicas: every client sends the batch again, and none takes it for stored.
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
/// Stored by the leader and not yet by enough others.
pub const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
/// A permission on the topic is missing.
pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
/// A permission on the cluster is missing.
pub const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
/// A request came that SASL does not allow at this point.
pub const ILLEGAL_SASL_STATE: i16 = 34;
/// ApiVersions with this code is in version 0, whatever was asked.
pub const UNSUPPORTED_VERSION: i16 = 35;
/// A policy of the cluster's owner refuses it.
pub const POLICY_VIOLATION: i16 = 44;
/// A batch's sequence does not follow the one that the broker knows.
pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
/// This very batch was stored before.
pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
/// A producer's epoch is over.
pub const INVALID_PRODUCER_EPOCH: i16 = 47;
/// The broker knows the producer's id as another's.
pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
/// The broker has forgotten the producer's id.
pub const UNKNOWN_PRODUCER_ID: i16 = 59;
/// The broker has no such fetch session: the consumer names again everything it asks for.
pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
/// A record was refused; clients do not send it again.
pub const INVALID_RECORD: i16 = 87;
/// The broker does not know the topic's id: retriable.
pub const UNKNOWN_TOPIC_ID: i16 = 100;

/// Index = error code.
const ERROR_NAMES: [&str; 137] = [
    "NONE",
    "OFFSET_OUT_OF_RANGE",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "INVALID_FETCH_SIZE",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "MESSAGE_TOO_LARGE",
    "STALE_CONTROLLER_EPOCH",
    "OFFSET_METADATA_TOO_LARGE",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "INVALID_TOPIC_EXCEPTION",
    "RECORD_LIST_TOO_LARGE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "INVALID_REQUIRED_ACKS",
    "ILLEGAL_GENERATION",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "UNKNOWN_MEMBER_ID",
    "INVALID_SESSION_TIMEOUT",
    "REBALANCE_IN_PROGRESS",
    "INVALID_COMMIT_OFFSET_SIZE",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_TIMESTAMP",
    "UNSUPPORTED_SASL_MECHANISM",
    "ILLEGAL_SASL_STATE",
    "UNSUPPORTED_VERSION",
    "TOPIC_ALREADY_EXISTS",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_CONFIG",
    "NOT_CONTROLLER",
    "INVALID_REQUEST",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "POLICY_VIOLATION",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TRANSACTION_TIMEOUT",
    "CONCURRENT_TRANSACTIONS",
    "TRANSACTION_COORDINATOR_FENCED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SECURITY_DISABLED",
    "OPERATION_NOT_ATTEMPTED",
    "KAFKA_STORAGE_ERROR",
    "LOG_DIR_NOT_FOUND",
    "SASL_AUTHENTICATION_FAILED",
    "UNKNOWN_PRODUCER_ID",
    "REASSIGNMENT_IN_PROGRESS",
    "DELEGATION_TOKEN_AUTH_DISABLED",
    "DELEGATION_TOKEN_NOT_FOUND",
    "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_EXPIRED",
    "INVALID_PRINCIPAL_TYPE",
    "NON_EMPTY_GROUP",
    "GROUP_ID_NOT_FOUND",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "LISTENER_NOT_FOUND",
    "TOPIC_DELETION_DISABLED",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "STALE_BROKER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "MEMBER_ID_REQUIRED",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "GROUP_MAX_SIZE_REACHED",
    "FENCED_INSTANCE_ID",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
    "NO_REASSIGNMENT_IN_PROGRESS",
    "GROUP_SUBSCRIBED_TO_TOPIC",
    "INVALID_RECORD",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "PRODUCER_FENCED",
    "RESOURCE_NOT_FOUND",
    "DUPLICATE_RESOURCE",
    "UNACCEPTABLE_CREDENTIAL",
    "INCONSISTENT_VOTER_SET",
    "INVALID_UPDATE_VERSION",
    "FEATURE_UPDATE_FAILED",
    "PRINCIPAL_DESERIALIZATION_FAILURE",
    "SNAPSHOT_NOT_FOUND",
    "POSITION_OUT_OF_RANGE",
    "UNKNOWN_TOPIC_ID",
    "DUPLICATE_BROKER_REGISTRATION",
    "BROKER_ID_NOT_REGISTERED",
    "INCONSISTENT_TOPIC_ID",
    "INCONSISTENT_CLUSTER_ID",
    "TRANSACTIONAL_ID_NOT_FOUND",
    "FETCH_SESSION_TOPIC_ID_ERROR",
    "INELIGIBLE_REPLICA",
    "NEW_LEADER_ELECTED",
    "OFFSET_MOVED_TO_TIERED_STORAGE",
    "FENCED_MEMBER_EPOCH",
    "UNRELEASED_INSTANCE_ID",
    "UNSUPPORTED_ASSIGNOR",
    "STALE_MEMBER_EPOCH",
    "MISMATCHED_ENDPOINT_TYPE",
    "UNSUPPORTED_ENDPOINT_TYPE",
    "UNKNOWN_CONTROLLER_ID",
    "UNKNOWN_SUBSCRIPTION_ID",
    "TELEMETRY_TOO_LARGE",
    "INVALID_REGISTRATION",
    "TRANSACTION_ABORTABLE",
    "INVALID_RECORD_STATE",
    "SHARE_SESSION_NOT_FOUND",
    "INVALID_SHARE_SESSION_EPOCH",
    "FENCED_STATE_EPOCH",
    "INVALID_VOTER_KEY",
    "DUPLICATE_VOTER",
    "VOTER_NOT_FOUND",
    "INVALID_REGULAR_EXPRESSION",
    "REBOOTSTRAP_REQUIRED",
    "STREAMS_INVALID_TOPOLOGY",
    "STREAMS_INVALID_TOPOLOGY_EPOCH",
    "STREAMS_TOPOLOGY_FENCED",
    "SHARE_SESSION_LIMIT_REACHED",
    "GROUP_DELETION_FAILED",
    "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
    "CONTROLLER_ID_NOT_REGISTERED",
];

/// The name of an error code (`MESSAGE_TOO_LARGE`); `other` for one that Kafka 4.4 does not have.
pub fn error_name(code: i16) -> &'static str {
    match code {
        -1 => "UNKNOWN_SERVER_ERROR",
        code => {
            let name = usize::try_from(code)
                .ok()
                .and_then(|at| ERROR_NAMES.get(at));
            name.copied().unwrap_or("other")
        }
    }
}

/// Whether a Produce that gets this may succeed later (`RetriableException` of kafka-clients 4.4.0, as far as brokers
/// answer Produce and InitProducerId with it).
pub const fn is_retriable(code: i16) -> bool {
    matches!(code, 2 | 3 | 5..=9 | 13..=16 | 19 | 20 | 51 | 56 | 74 | 75 | 89 | 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_java_client() {
        for (code, name) in [
            (-1, "UNKNOWN_SERVER_ERROR"),
            (0, "NONE"),
            (10, "MESSAGE_TOO_LARGE"),
            (18, "RECORD_LIST_TOO_LARGE"),
            (44, "POLICY_VIOLATION"),
            (87, "INVALID_RECORD"),
            (100, "UNKNOWN_TOPIC_ID"),
            (136, "CONTROLLER_ID_NOT_REGISTERED"),
        ] {
            assert_eq!(error_name(code), name);
        }
    }

    #[test]
    fn constants_bear_their_own_names() {
        for (code, name) in [
            (UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC_OR_PARTITION"),
            (LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE"),
            (NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER"),
            (REQUEST_TIMED_OUT, "REQUEST_TIMED_OUT"),
            (MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE"),
            (INVALID_TOPIC_EXCEPTION, "INVALID_TOPIC_EXCEPTION"),
            (RECORD_LIST_TOO_LARGE, "RECORD_LIST_TOO_LARGE"),
            (NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS"),
            (TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
            (CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED"),
            (ILLEGAL_SASL_STATE, "ILLEGAL_SASL_STATE"),
            (UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
            (POLICY_VIOLATION, "POLICY_VIOLATION"),
            (
                NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            ),
            (OUT_OF_ORDER_SEQUENCE_NUMBER, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
            (DUPLICATE_SEQUENCE_NUMBER, "DUPLICATE_SEQUENCE_NUMBER"),
            (INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
            (INVALID_PRODUCER_ID_MAPPING, "INVALID_PRODUCER_ID_MAPPING"),
            (UNKNOWN_PRODUCER_ID, "UNKNOWN_PRODUCER_ID"),
            (INVALID_RECORD, "INVALID_RECORD"),
            (UNKNOWN_TOPIC_ID, "UNKNOWN_TOPIC_ID"),
        ] {
            assert_eq!(error_name(code), name);
        }
    }

    #[test]
    fn numbers_kafka_does_not_have_share_one_label() {
        for number in [i16::MIN, -2, 137, i16::MAX] {
            assert_eq!(error_name(number), "other");
        }
    }
}
