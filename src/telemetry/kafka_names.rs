//! Kafka's own names of its API keys, as metric labels and log words.
//!
//! Source: `org.apache.kafka.common.protocol.ApiKeys` of kafka-clients 4.4.0. The keys 4–7 left in 4.0
//! and still have their names.

/// Index = API key.
const API_NAMES: [&str; 95] = [
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "DescribeQuorum",
    "AlterPartition",
    "UpdateFeatures",
    "Envelope",
    "FetchSnapshot",
    "DescribeCluster",
    "DescribeProducers",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "UnregisterBroker",
    "DescribeTransactions",
    "ListTransactions",
    "AllocateProducerIds",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ControllerRegistration",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "AssignReplicasToDirs",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "UpdateRaftVoter",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "StreamsGroupTopologyDescriptionUpdate",
    "UnregisterController",
];

/// How many API keys have a name: `0..API_COUNT`.
pub(super) const API_COUNT: usize = API_NAMES.len();

/// The name of an API key (`Produce`); `other` for one that Kafka 4.4 does not have.
pub fn api_name(api_key: i16) -> &'static str {
    lookup(&API_NAMES, api_key).unwrap_or("other")
}

fn lookup(names: &[&'static str], index: i16) -> Option<&'static str> {
    names.get(usize::try_from(index).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_java_client() {
        for (key, name) in [
            (0, "Produce"),
            (18, "ApiVersions"),
            (78, "ShareFetch"),
            (94, "UnregisterController"),
        ] {
            assert_eq!(api_name(key), name);
        }
    }

    #[test]
    fn numbers_kafka_does_not_have_share_one_label() {
        for number in [i16::MIN, -1, 95, i16::MAX] {
            assert_eq!(api_name(number), "other");
        }
    }

    #[test]
    fn the_names_agree_with_the_protocol_crate() {
        for key in 0..i16::MAX {
            if let Ok(api) = kafka_protocol::messages::ApiKey::try_from(key) {
                assert_eq!(format!("{api:?}"), api_name(key), "{key}");
            }
        }
    }
}
