//! CreateTopics, AlterConfigs and IncrementalAlterConfigs as bytes: laid out, spliced and answered in every version that
//! brokers offer, by the word of another implementation of the protocol; and whatever a peer sends.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as Replaced, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as Changed, AlterableConfig as ChangedConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, ApiKey, BrokerId, CreateTopicsRequest,
    CreateTopicsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use proptest::prelude::*;
use sizegate::wire::config_requests::{Key, Kind, Layout, Operation};
use sizegate::wire::config_response::{RefusedResource, merge, response};
use sizegate::wire::splice::Piece;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn frame<R: Request>(request: &R, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(text("a client")))
        .encode(&mut bytes, R::header_version(version))
        .unwrap();
    request.encode(&mut bytes, version).unwrap();
    let mut frame = (bytes.len() as u32).to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

fn decoded<R: Request>(frame: &[u8], version: i16) -> R {
    let (length, body) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, body.len());
    let mut body = Bytes::copy_from_slice(body);
    let header = RequestHeader::decode(&mut body, R::header_version(version)).unwrap();
    assert_eq!(
        (header.correlation_id, header.client_id),
        (7, Some(text("a client")))
    );
    let request = R::decode(&mut body, version).unwrap();
    assert!(body.is_empty(), "nothing is left behind it");
    request
}

fn spliced(layout: &Layout, frame: &[u8], kept: &[usize]) -> Vec<u8> {
    let pieces = layout.splice(kept).into_iter();
    let bytes = pieces.flat_map(|piece| match piece {
        Piece::Original(range) => frame[range].to_vec(),
        Piece::Made(bytes) => bytes.to_vec(),
    });
    bytes.collect()
}

/// Kind, name, and governed configs with their operations as text.
type Told = (i8, String, Vec<(Key, String)>);

/// What each resource of a layout does.
fn told(layout: &Layout, frame: &[u8]) -> Vec<Told> {
    let resources = layout.resources.iter();
    let told = resources.map(|resource| {
        let name = String::from_utf8_lossy(&frame[resource.name.clone()]).into_owned();
        let configs = layout.configs_of(resource).iter();
        let configs = configs.map(|(key, operation)| {
            let what = match operation {
                Operation::Set(range) => {
                    String::from_utf8_lossy(&frame[range.clone()]).into_owned()
                }
                Operation::Delete => "(delete)".to_owned(),
                Operation::Append(range) => {
                    format!(
                        "(append {})",
                        String::from_utf8_lossy(&frame[range.clone()])
                    )
                }
                Operation::Subtract(range) => {
                    format!(
                        "(subtract {})",
                        String::from_utf8_lossy(&frame[range.clone()])
                    )
                }
                Operation::Other => "(other)".to_owned(),
            };
            (*key, what)
        });
        (resource.resource_type, name, configs.collect())
    });
    told.collect()
}

const CONFIGS: [(&str, Option<&str>); 6] = [
    // Not governed.
    ("min.insync.replicas", Some("1")),
    ("retention.ms", Some("1000")),
    ("max.message.bytes", Some("2000000")),
    ("segment.bytes", None),
    ("compression.type", Some("zstd")),
    ("message.max.bytes", Some("1")),
];

fn expected() -> Vec<(Key, String)> {
    vec![
        (Key::RetentionMs, "1000".to_owned()),
        (Key::MaxMessageBytes, "2000000".to_owned()),
        (Key::SegmentBytes, "(delete)".to_owned()),
        (Key::CompressionType, "zstd".to_owned()),
    ]
}

fn topic(name: &str, version: i16) -> CreatableTopic {
    let configs = CONFIGS.map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(value.map(text))
    });
    let mut topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(vec![
            CreatableReplicaAssignment::default()
                .with_partition_index(0)
                .with_broker_ids(vec![BrokerId(1), BrokerId(2)]),
        ])
        .with_configs(configs.to_vec());
    if version >= 5 {
        topic
            .unknown_tagged_fields
            .insert(9, Bytes::from_static(b"tag"));
    }
    topic
}

#[test]
fn create_topics_is_laid_out_and_spliced_in_every_version() {
    for version in 2..=7 {
        let request = CreateTopicsRequest::default()
            .with_topics(["a", "bb", "ccc"].map(|name| topic(name, version)).to_vec())
            .with_timeout_ms(1234)
            .with_validate_only(version % 2 == 0);
        let frame = frame(&request, version);
        let layout = Layout::read(&frame, Kind::Create, version).unwrap();
        let all: Vec<_> = ["a", "bb", "ccc"]
            .map(|name| (2, name.to_owned(), expected()))
            .into();
        assert_eq!(told(&layout, &frame), all, "{version}");
        for kept in [vec![0, 1, 2], vec![1], vec![0, 2], vec![]] {
            let bytes = spliced(&layout, &frame, &kept);
            let topics: Vec<_> = kept.iter().map(|at| request.topics[*at].clone()).collect();
            let wanted = request.clone().with_topics(topics);
            assert_eq!(
                decoded::<CreateTopicsRequest>(&bytes, version),
                wanted,
                "{version}"
            );
        }
        assert_eq!(spliced(&layout, &frame, &[0, 1, 2]), frame);
    }
}

#[test]
fn both_ways_to_alter_configs_are_laid_out_and_spliced_in_every_version() {
    for version in 0..=2 {
        let resource = |kind, name: &str| {
            let configs = CONFIGS.map(|(key, value)| {
                ReplacedConfig::default()
                    .with_name(text(key))
                    .with_value(value.map(text))
            });
            Replaced::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configs(configs.to_vec())
        };
        let request = AlterConfigsRequest::default()
            .with_resources(vec![resource(2, "a"), resource(8, "1"), resource(4, "")])
            .with_validate_only(true);
        let frame = frame(&request, version);
        let layout = Layout::read(&frame, Kind::Replace, version).unwrap();
        let of_broker = vec![
            (Key::CompressionType, "zstd".to_owned()),
            (Key::MaxMessageBytes, "1".to_owned()),
        ];
        let all = vec![
            (2, "a".to_owned(), expected()),
            (8, "1".to_owned(), vec![]),
            (4, String::new(), of_broker),
        ];
        assert_eq!(told(&layout, &frame), all, "{version}");
        let bytes = spliced(&layout, &frame, &[1, 2]);
        let wanted = request
            .clone()
            .with_resources(request.resources[1..].to_vec());
        assert_eq!(decoded::<AlterConfigsRequest>(&bytes, version), wanted);
    }
    for version in 0..=1 {
        let config = |key: &str, operation, value: Option<&str>| {
            ChangedConfig::default()
                .with_name(text(key))
                .with_config_operation(operation)
                .with_value(value.map(text))
        };
        let configs = vec![
            config("max.message.bytes", 0, Some("1")),
            config("segment.bytes", 1, Some("ignored")),
            config("compression.type", 2, Some("zstd")),
            config("internal.segment.bytes", 3, None),
            config("cleanup.policy", 3, Some("compact")),
            config("cleanup.policy", 2, Some("compact")),
            config("max.message.bytes", 0, None),
        ];
        let resource = Changed::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(configs);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![
            resource.clone(),
            resource.clone().with_resource_name(text("u")),
        ]);
        let frame = frame(&request, version);
        let layout = Layout::read(&frame, Kind::Change, version).unwrap();
        let configs = vec![
            (Key::MaxMessageBytes, "1".to_owned()),
            (Key::SegmentBytes, "(delete)".to_owned()),
            (Key::CompressionType, "(append zstd)".to_owned()),
            (Key::InternalSegmentBytes, "(other)".to_owned()),
            (Key::CleanupPolicy, "(subtract compact)".to_owned()),
            (Key::CleanupPolicy, "(append compact)".to_owned()),
            (Key::MaxMessageBytes, "(delete)".to_owned()),
        ];
        assert_eq!(
            told(&layout, &frame)[0],
            (2, "t".to_owned(), configs),
            "{version}"
        );
        let bytes = spliced(&layout, &frame, &[0]);
        let wanted = request.clone().with_resources(vec![resource]);
        assert_eq!(
            decoded::<IncrementalAlterConfigsRequest>(&bytes, version),
            wanted
        );
    }
}

/// Versions 0 and 1 are in no broker since 4.0: their bytes by hand, after the protocol guide.
#[test]
fn the_oldest_create_topics_is_read_too() {
    for version in [0i16, 1] {
        let mut body = vec![0, 19, 0, version as u8, 0, 0, 0, 7, 0, 1, b'c'];
        body.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 3, 0, 2]);
        body.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        body.extend([0, 0, 0, 1, 0, 13]);
        body.extend(b"segment.bytes");
        body.extend([0, 2, b'1', b'4', 0, 0, 0x10, 0]);
        if version == 1 {
            body.push(1);
        }
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(&body);
        let layout = Layout::read(&frame, Kind::Create, version).unwrap();
        let configs = vec![(Key::SegmentBytes, "14".to_owned())];
        assert_eq!(told(&layout, &frame), [(2, "t".to_owned(), configs)]);
        assert_eq!(spliced(&layout, &frame, &[0]), frame);
        let refused = response(Kind::Create, version, 7, &refused(&["t"]));
        let mut wanted = vec![0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b't', 0, 44];
        if version == 1 {
            wanted.extend([0, 6]);
            wanted.extend(b"no (t)");
        }
        assert_eq!(refused[4..], wanted);
    }
}

fn refused(names: &[&str]) -> Vec<RefusedResource> {
    let one = |name: &&str| RefusedResource {
        resource_type: 2,
        name: name.as_bytes().to_vec(),
        error_code: 44,
        message: format!("no ({name})"),
    };
    names.iter().map(one).collect()
}

fn received<R: Decodable + HeaderVersion>(frame: &[u8], version: i16) -> R {
    let (length, body) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, body.len());
    let mut body = Bytes::copy_from_slice(body);
    let header = ResponseHeader::decode(&mut body, R::header_version(version)).unwrap();
    assert_eq!(header.correlation_id, 7);
    let response = R::decode(&mut body, version).unwrap();
    assert!(body.is_empty());
    response
}

fn encoded<R: Encodable + HeaderVersion>(response: &R, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(7)
        .encode(&mut bytes, R::header_version(version))
        .unwrap();
    response.encode(&mut bytes, version).unwrap();
    let mut frame = (bytes.len() as u32).to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

#[test]
fn refusals_are_merged_into_the_brokers_response_in_every_version() {
    for version in 2..=7 {
        let mut theirs = CreateTopicsResponse::default().with_throttle_time_ms(5);
        let empty = encoded(&theirs, version);
        theirs.topics.push(
            kafka_protocol::messages::create_topics_response::CreatableTopicResult::default()
                .with_name(TopicName(text("theirs")))
                .with_num_partitions(if version >= 5 { 3 } else { -1 }),
        );
        let alone: CreateTopicsResponse = received(
            &response(Kind::Create, version, 7, &refused(&["a", "b"])),
            version,
        );
        let frame = encoded(&theirs, version);
        let merged: CreateTopicsResponse = received(
            &merge(&frame, Kind::Create, version, &refused(&["a", "b"])).unwrap(),
            version,
        );
        assert_eq!(merged.throttle_time_ms, 5);
        assert_eq!(alone.topics[..], merged.topics[..2]);
        assert_eq!(theirs.topics[..], merged.topics[2..]);
        let first = &merged.topics[0];
        assert_eq!((&*first.name.0, first.error_code), ("a", 44));
        assert_eq!(first.error_message.as_deref(), Some("no (a)"));
        assert!(first.topic_id.is_nil());
        if version >= 5 {
            assert_eq!((first.num_partitions, first.replication_factor), (-1, -1));
            assert_eq!(first.configs.as_ref().map(Vec::len), Some(0));
        }
        let into_empty: CreateTopicsResponse = received(
            &merge(&empty, Kind::Create, version, &refused(&["a"])).unwrap(),
            version,
        );
        assert_eq!(into_empty.topics.len(), 1);
    }
    for version in 0..=2 {
        let theirs = AlterConfigsResponse::default().with_throttle_time_ms(5).with_responses(vec![
            kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse::default()
                .with_resource_type(4)
                .with_resource_name(text("1")),
        ]);
        let frame = encoded(&theirs, version);
        let merged: AlterConfigsResponse = received(
            &merge(&frame, Kind::Replace, version, &refused(&["a"])).unwrap(),
            version,
        );
        let first = &merged.responses[0];
        assert_eq!(
            (&*first.resource_name, first.resource_type, first.error_code),
            ("a", 2, 44)
        );
        assert_eq!(first.error_message.as_deref(), Some("no (a)"));
        assert_eq!(
            (merged.throttle_time_ms, &merged.responses[1..]),
            (5, &theirs.responses[..])
        );
    }
    for version in 0..=1 {
        let alone: IncrementalAlterConfigsResponse = received(
            &response(Kind::Change, version, 7, &refused(&["a", "b"])),
            version,
        );
        assert_eq!(alone.responses.len(), 2);
        let frame = encoded(&alone, version);
        let merged: IncrementalAlterConfigsResponse = received(
            &merge(&frame, Kind::Change, version, &refused(&["c"])).unwrap(),
            version,
        );
        assert_eq!(merged.responses.len(), 3);
    }
    assert_eq!(Kind::of(ApiKey::CreateTopics as i16, 8), None);
    assert_eq!(Kind::of(ApiKey::AlterConfigs as i16, -1), None);
    assert_eq!(Kind::of(ApiKey::Metadata as i16, 1), None);
}

#[test]
fn a_request_that_claims_more_than_it_has_is_malformed_and_allocates_nothing() {
    let head = |key: u8, version: u8| vec![0, 0, 0, 0, 0, key, 0, version, 0, 0, 0, 7, 0, 0];
    for (kind, key, version) in [
        (Kind::Create, 19, 2),
        (Kind::Replace, 33, 1),
        (Kind::Change, 44, 0),
    ] {
        let mut frame = head(key, version);
        frame.extend(i32::MAX.to_be_bytes());
        assert!(Layout::read(&frame, kind, version.into()).is_err());
        let mut null = head(key, version);
        null.extend((-1i32).to_be_bytes());
        assert!(Layout::read(&null, kind, version.into()).is_err());
    }
    // More entries than any controller takes.
    let mut frame = head(44, 0);
    frame.extend(40_000u32.to_be_bytes());
    for _ in 0..40_000 {
        frame.extend([2, 0, 1, b't', 0, 0, 0, 0]);
    }
    frame.push(0);
    assert!(Layout::read(&frame, Kind::Change, 0).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_laid_out_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        count in 0u8..4,
        version in 0i16..8,
    ) {
        for kind in [Kind::Create, Kind::Replace, Kind::Change] {
            let mut frame = vec![0; 12];
            // No client id, no tags, few entries: it comes further than pure noise.
            frame.extend([0xff, 0xff, 0, count]);
            frame.extend(&bytes);
            if let Ok(layout) = Layout::read(&frame, kind, version) {
                let all: Vec<usize> = (0..layout.resources.len()).collect();
                let again = spliced(&layout, &frame, &all);
                prop_assert!(again.len() <= frame.len() + 8);
                told(&layout, &frame);
            }
            let _ = merge(&frame, kind, version, &refused(&["a"]));
        }
    }
}
