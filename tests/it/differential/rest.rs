//! Every request but Produce: the responses are the broker's, byte for byte, but for addresses.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Message, Request};
use memchr::memmem;

use super::raw::any_frame;
use super::ways::{End, Heard, SILENCE, Ways, talk, ways};
use crate::support::client::{Part, frame, text};
use crate::support::{Connection, batch_of_bytes};
use sizegate::wire::api;

const PATIENCE: Duration = Duration::from_secs(30);
/// Other tests change the cluster between two looks at it; that often in a row they do not.
const ATTEMPTS: usize = 40;

/// StreamsGroupHeartbeat, StreamsGroupDescribe and two newer ones: `kafka-protocol` has no bodies for them, so they
/// are only compared with hopeless ones.
const UNKNOWN_TO_US: [i16; 4] = [88, 89, 93, 94];

/// A request with nothing in it, as far as `kafka-protocol` knows the kind.
struct Minimal {
    api_key: i16,
    newest: i16,
    oldest: i16,
    /// The frame in one of these versions.
    frame: fn(i16) -> Vec<u8>,
}

macro_rules! minimal {
    ($($request:ident),+ $(,)?) => {
        [$(Minimal {
            api_key: $request::KEY,
            oldest: $request::VERSIONS.min,
            newest: $request::VERSIONS.max,
            frame: |version| frame(&$request::default(), version, 7, Some("raw")),
        }),+]
    };
}

fn minimal_requests() -> impl IntoIterator<Item = Minimal> {
    minimal![
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        AddRaftVoterRequest,
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        AlterReplicaLogDirsRequest,
        AlterShareGroupOffsetsRequest,
        AlterUserScramCredentialsRequest,
        ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest,
        CreateAclsRequest,
        CreateDelegationTokenRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteAclsRequest,
        DeleteGroupsRequest,
        DeleteRecordsRequest,
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupStateRequest,
        DeleteTopicsRequest,
        DescribeAclsRequest,
        DescribeClientQuotasRequest,
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeDelegationTokenRequest,
        DescribeGroupsRequest,
        DescribeLogDirsRequest,
        DescribeProducersRequest,
        DescribeQuorumRequest,
        DescribeShareGroupOffsetsRequest,
        DescribeTopicPartitionsRequest,
        DescribeTransactionsRequest,
        DescribeUserScramCredentialsRequest,
        ElectLeadersRequest,
        EndTxnRequest,
        ExpireDelegationTokenRequest,
        FetchRequest,
        FindCoordinatorRequest,
        GetTelemetrySubscriptionsRequest,
        HeartbeatRequest,
        IncrementalAlterConfigsRequest,
        InitProducerIdRequest,
        InitializeShareGroupStateRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListConfigResourcesRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
        ListPartitionReassignmentsRequest,
        ListTransactionsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
        PushTelemetryRequest,
        ReadShareGroupStateRequest,
        ReadShareGroupStateSummaryRequest,
        RemoveRaftVoterRequest,
        RenewDelegationTokenRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
        ShareAcknowledgeRequest,
        ShareFetchRequest,
        ShareGroupDescribeRequest,
        ShareGroupHeartbeatRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
        WriteShareGroupStateRequest,
        WriteTxnMarkersRequest,
    ]
}

pub fn every_other_request_in_every_version_with_a_minimal_body(version: &str) {
    let ways = ways(version);
    for (api_key, oldest, newest) in advertised(ways) {
        if api_key == api::API_VERSIONS {
            continue;
        }
        let minimal = minimal_requests()
            .into_iter()
            .find(|minimal| minimal.api_key == api_key);
        let Some(minimal) = minimal else {
            assert!(
                UNKNOWN_TO_US.contains(&api_key),
                "no minimal body for key {api_key}: add its request"
            );
            continue;
        };
        for api_version in oldest..=newest {
            // In a version that `kafka-protocol` does not know, the nearest one's body: the response may be an error.
            let mut frame = (minimal.frame)(api_version.clamp(minimal.oldest, minimal.newest));
            frame[6..8].copy_from_slice(&api_version.to_be_bytes());
            compare(
                ways,
                &format!("key {api_key} v{api_version}"),
                api_key,
                &frame,
            );
        }
    }
}

pub fn every_request_in_every_version_without_a_body(version: &str) {
    let ways = ways(version);
    for (api_key, oldest, newest) in advertised(ways) {
        for api_version in oldest - 1..=newest + 1 {
            for body in [&[][..], &[0], &[0xff; 30]] {
                let frame = any_frame(api_key, api_version, 7, body);
                compare(
                    ways,
                    &format!("key {api_key} v{api_version}, {} bytes of body", body.len()),
                    api_key,
                    &frame,
                );
            }
        }
    }
}

pub fn requests_about_a_topic_with_records(version: &str) {
    let ways = ways(version);
    let topic = ways.kafka.topic("read", 2, &[]);
    let mut connection = Connection::open(ways.sizegate.bootstrap().as_str());
    for bytes in [500, 100_000, 900_000, 900_000] {
        let responses =
            connection.produce(8, -1, &[Part::new(&topic, batch_of_bytes(bytes).build())]);
        assert_eq!(responses[0].code, 0, "{responses:?}");
    }
    let name = || TopicName(text(&topic.name));

    let fetch = |epoch: i32, max_bytes: i32| {
        let part = |partition: i32| {
            fetch_request::FetchPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(epoch)
                .with_partition_max_bytes(max_bytes)
        };
        let entry = fetch_request::FetchTopic::default()
            .with_topic(name())
            .with_topic_id(topic.id)
            .with_partitions(vec![part(0), part(1), part(9)]);
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_bytes(i32::MAX)
            .with_session_epoch(-1)
            .with_topics(vec![entry])
    };
    every_version(ways, "Fetch", |_| fetch(-1, 1_000_000));
    every_version(ways, "Fetch of everything", |_| fetch(0, i32::MAX));
    every_version(ways, "Fetch at another epoch", |version| {
        fetch(if version < 9 { -1 } else { 77 }, 1_000)
    });

    every_version(ways, "Metadata of one topic", |version| {
        let mut one = metadata_request::MetadataRequestTopic::default().with_name(Some(name()));
        if version >= 12 {
            one = one.with_name(None).with_topic_id(topic.id);
        }
        MetadataRequest::default()
            .with_topics(Some(vec![one]))
            .with_allow_auto_topic_creation(true)
    });
    every_version(ways, "Metadata of no topic", |_| {
        MetadataRequest::default()
            .with_topics(Some(vec![]))
            .with_allow_auto_topic_creation(true)
    });
    every_version(ways, "FindCoordinator", |version| match version {
        ..4 => FindCoordinatorRequest::default().with_key(text("a group")),
        4.. => FindCoordinatorRequest::default().with_coordinator_keys(vec![
            text("a group"),
            text("another"),
            text(""),
        ]),
    });
    every_version(ways, "DescribeCluster", |version| {
        DescribeClusterRequest::default()
            .with_endpoint_type(1)
            .with_include_fenced_brokers(version >= 2)
    });
    every_version(ways, "DescribeTopicPartitions", |_| {
        let one = describe_topic_partitions_request::TopicRequest::default().with_name(name());
        DescribeTopicPartitionsRequest::default()
            .with_topics(vec![one])
            .with_response_partition_limit(10)
    });
    every_version(ways, "ListOffsets", |_| {
        let part = list_offsets_request::ListOffsetsPartition::default()
            .with_timestamp(-1)
            .with_current_leader_epoch(-1);
        let one = list_offsets_request::ListOffsetsTopic::default()
            .with_name(name())
            .with_partitions(vec![part]);
        ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![one])
    });
    every_version(ways, "DescribeConfigs of the topic", |_| {
        let one = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(&topic.name))
            .with_configuration_keys(None);
        DescribeConfigsRequest::default().with_resources(vec![one])
    });
    every_version(ways, "OffsetForLeaderEpoch", |_| {
        let part = offset_for_leader_epoch_request::OffsetForLeaderPartition::default()
            .with_current_leader_epoch(-1);
        let one = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
            .with_topic(name())
            .with_partitions(vec![part]);
        OffsetForLeaderEpochRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![one])
    });
    every_version(ways, "DescribeQuorum", |_| {
        let part = describe_quorum_request::PartitionData::default();
        let one = describe_quorum_request::TopicData::default()
            .with_topic_name(TopicName(text("__cluster_metadata")))
            .with_partitions(vec![part]);
        DescribeQuorumRequest::default().with_topics(vec![one])
    });
    every_version(ways, "ShareFetch", |_| {
        let part = share_fetch_request::FetchPartition::default().with_partition_max_bytes(1_000);
        let one = share_fetch_request::FetchTopic::default()
            .with_topic_id(topic.id)
            .with_partitions(vec![part]);
        ShareFetchRequest::default()
            .with_group_id(Some(GroupId(text("a share group"))))
            .with_member_id(Some(text("AAAAAAAAAAAAAAAAAAAAAQ")))
            .with_share_session_epoch(0)
            .with_max_bytes(10_000)
            .with_topics(vec![one])
    });
}

/// Compares a request in all versions that both `kafka-protocol` and the broker know.
fn every_version<R: Request>(ways: &Ways, what: &str, request: impl Fn(i16) -> R) {
    let known = advertised(ways)
        .into_iter()
        .find(|(api_key, ..)| *api_key == R::KEY);
    let (_, oldest, newest) = known.unwrap_or_else(|| panic!("{what} is not advertised"));
    let versions = oldest.max(R::VERSIONS.min)..=newest.min(R::VERSIONS.max);
    assert!(!versions.is_empty(), "{what}");
    for api_version in versions {
        let frame = frame(&request(api_version), api_version, 7, Some("raw"));
        let answered = compare(ways, &format!("{what} v{api_version}"), R::KEY, &frame);
        assert!(answered, "{what} v{api_version}: not answered");
    }
}

/// Keys with the oldest and newest version the broker itself advertises.
fn advertised(ways: &Ways) -> Vec<(i16, i16, i16)> {
    let response = Connection::open(ways.kafka.bootstrap().as_str()).api_versions("raw", "1");
    response
        .api_keys
        .iter()
        .map(|key| (key.api_key, key.min_version, key.max_version))
        .collect()
}

/// Demands the broker's response byte for byte, but for addresses. Between two equal answers by the broker, so that
/// nothing else has changed meanwhile.
fn compare(ways: &Ways, case: &str, api_key: i16, frame: &[u8]) -> bool {
    let patience = if is_never_answered(frame) {
        SILENCE
    } else {
        PATIENCE
    };
    let direct = || {
        let heard = talk(&ways.kafka.bootstrap(), &[frame.to_vec()], patience);
        Heard {
            frames: heard
                .frames
                .iter()
                .map(|frame| translated(ways, frame))
                .collect(),
            end: heard.end,
        }
    };
    let mut before = direct();
    for _ in 0..ATTEMPTS {
        let proxied = talk(&ways.sizegate.bootstrap(), &[frame.to_vec()], patience);
        assert_names_no_broker(ways, case, &proxied);
        let after = direct();
        let shape = |heard: &Heard| {
            (
                heard.frames.iter().map(Vec::len).collect::<Vec<_>>(),
                heard.end,
            )
        };
        let is_stable = if is_never_the_same(api_key) {
            shape(&before) == shape(&after)
        } else {
            before == after
        };
        if is_stable {
            assert_eq!(
                before.end == End::Silent,
                is_never_answered(frame),
                "{case}"
            );
            let same = if is_never_the_same(api_key) {
                shape(&before) == shape(&proxied)
            } else {
                before == proxied
            };
            assert!(
                same,
                "{case}\n  broker:   {before:02x?}\n  sizegate: {proxied:02x?}"
            );
            return !proxied.frames.is_empty();
        }
        before = after;
    }
    panic!("{case}: the broker's own responses are never twice the same");
}

/// AddPartitionsToTxn without transactions, from version 4 on: the broker forgets to answer.
fn is_never_answered(frame: &[u8]) -> bool {
    let empty = frame.ends_with(&[1, 0]) && frame.len() < 24;
    frame[4..6] == AddPartitionsToTxnRequest::KEY.to_be_bytes() && frame[7] >= 4 && empty
}

/// Its response tells the bytes on the disk, which other tests write to meanwhile.
const DESCRIBE_LOG_DIRS: i16 = 35;

/// Responses that hold new ids, the time or what others do: only their length is compared.
fn is_never_the_same(api_key: i16) -> bool {
    matches!(
        api_key,
        api::DESCRIBE_QUORUM
            | InitProducerIdRequest::KEY
            | GetTelemetrySubscriptionsRequest::KEY
            | DESCRIBE_LOG_DIRS
    )
}

/// A broker's response with its address as the proxy gives it.
fn translated(ways: &Ways, frame: &[u8]) -> Vec<u8> {
    let port = |address: &str| {
        address
            .rsplit(':')
            .next()
            .unwrap()
            .parse::<i32>()
            .unwrap()
            .to_be_bytes()
    };
    let (real, ours) = (port(&ways.kafka.bootstrap()), port(&ways.sizegate.node(1)));
    let mut out = frame.to_vec();
    let real = [b"127.0.0.1", &real[..]].concat();
    for at in memmem::find_iter(frame, &real) {
        out[at + 9..at + 13].copy_from_slice(&ours);
    }
    out
}

/// No broker's host and port in a response: not as an INT32 or INT16 port, not as text.
///
/// DescribeConfigs of a broker is another matter: `advertised.listeners` is a setting there, and no client
/// connects to it.
fn assert_names_no_broker(ways: &Ways, case: &str, heard: &Heard) {
    let first: u16 = ways
        .kafka
        .bootstrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    for frame in &heard.frames {
        let frame = Bytes::copy_from_slice(frame);
        for port in first..first + 5 {
            let ways_to_say_it = [
                [b"127.0.0.1", &i32::from(port).to_be_bytes()[..]].concat(),
                [b"127.0.0.1", &port.to_be_bytes()[..]].concat(),
                format!("127.0.0.1:{port}").into_bytes(),
            ];
            for said in ways_to_say_it {
                assert!(
                    memmem::find(&frame, &said).is_none(),
                    "{case} names the broker's port {port}: {frame:02x?}"
                );
            }
        }
    }
}
