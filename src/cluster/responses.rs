//! Responses that are read in place, without building a message of them: Metadata, because a cluster's whole
//! list is large; ApiVersions, because it is read before a broker has shown anything of itself.

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;

use super::registry::TopicSeen;
use crate::config::HostPort;
use crate::error_code::{
    INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, error_name,
};
use crate::wire::{Malformed, Reader, Reason};

/// v10 brings topic ids (Kafka 2.8), v12 look-ups by id; the newest is Kafka 4.4's.
pub(super) const METADATA_VERSIONS: (i16, i16) = (10, 13);

/// First version that can ask for a topic by its id alone.
pub(super) const METADATA_BY_ID: i16 = 12;

/// An error code's name, such as `TOPIC_AUTHORIZATION_FAILED`; `None` for 0.
pub(super) fn failure_name(code: i16) -> Option<String> {
    match error_name(code) {
        "other" => Some(format!("error code {code}")),
        name => (code != 0).then(|| name.to_owned()),
    }
}

/// A broker that does not know our ApiVersions responses in v0 with this code.
pub(super) fn is_unsupported_version(body: &[u8]) -> bool {
    body.starts_with(&UNSUPPORTED_VERSION.to_be_bytes())
}

/// (min, max) by API key.
pub(super) type Versions = HashMap<i16, (i16, i16)>;

/// ApiVersionsResponse v0 or v3: its error code, and (min, max) by API key. What follows the list is left alone.
pub(super) fn read_api_versions(body: &[u8], version: i16) -> Result<(i16, Versions), Malformed> {
    let r = &mut Reader::new(body);
    let flexible = version >= 3;
    let error_code = r.int16("error_code")?;
    let mut versions = Versions::new();
    for _ in 0..r.count(flexible, "api_keys")?.unwrap_or(0) {
        let key = r.int16("api_key")?;
        let range = (r.int16("min_version")?, r.int16("max_version")?);
        if flexible {
            r.skip_tags("api_key")?;
        }
        versions.insert(key, range);
    }
    Ok((error_code, versions))
}

/// A MetadataResponse that was read through once, so that it can be read again without surprises.
#[derive(Debug)]
pub(super) struct Metadata {
    body: Bytes,
    version: i16,
    error_code: i16,
    topics: usize,
    cluster_id: Option<String>,
}

/// One topic of a MetadataResponse.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicEntry<'a> {
    pub(super) error_code: i16,
    /// `None` when a topic asked for by id has no name that we may see.
    pub(super) name: Option<&'a str>,
    pub(super) id: Uuid,
    pub(super) is_internal: bool,
    pub(super) partitions: i32,
    /// From the first partition on.
    listed: &'a [u8],
}

impl<'a> TopicEntry<'a> {
    /// Each partition with the id of its leader; negative where it has none now.
    pub(super) fn leaders(&self) -> impl Iterator<Item = (i32, i32)> + use<'a> {
        let mut r = Reader::new(self.listed);
        // They have been read before, all of them.
        (0..self.partitions).map_while(move |_| read_partition(&mut r).ok())
    }

    /// The topic, if the entry says that there is one. Errors of its partitions (no leader now) do not matter.
    pub(super) fn observation(&self) -> Option<TopicSeen<'a>> {
        match self.error_code {
            UNKNOWN_TOPIC_OR_PARTITION
            | INVALID_TOPIC_EXCEPTION
            | TOPIC_AUTHORIZATION_FAILED
            | UNKNOWN_TOPIC_ID => None,
            code => Some(TopicSeen {
                name: self.name.filter(|name| !name.is_empty())?,
                id: self.id,
                is_internal: self.is_internal,
                // With an error, the partitions may be missing from the response.
                partitions: (code == 0).then_some(self.partitions),
            }),
        }
    }
}

impl Metadata {
    /// Reads the whole response once.
    pub(super) fn check(body: Bytes, version: i16) -> Result<Self, Malformed> {
        let mut topics = 0usize;
        let mut cluster_id = None;
        let error_code = read_metadata(
            &body,
            version,
            |_, _| {},
            |id| cluster_id = id.map(str::to_owned),
            |_| topics = topics.saturating_add(1),
        )?;
        Ok(Self {
            body,
            version,
            error_code,
            topics,
            cluster_id,
        })
    }

    pub(super) fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    pub(super) const fn error_code(&self) -> i16 {
        self.error_code
    }

    pub(super) const fn topics_count(&self) -> usize {
        self.topics
    }

    pub(super) fn nodes(&self) -> Vec<(i32, HostPort)> {
        let mut nodes = Vec::new();
        // Checked before: it cannot fail now.
        let _ = read_metadata(
            &self.body,
            self.version,
            |id, address| nodes.push((id, address)),
            |_| {},
            |_| {},
        );
        nodes
    }

    pub(super) fn each_topic(&self, each: impl FnMut(TopicEntry<'_>)) {
        let _ = read_metadata(&self.body, self.version, |_, _| {}, |_| {}, each);
    }
}

/// MetadataResponse, versions 10 to 13. Returns its own error code (v13), else 0.
fn read_metadata(
    body: &[u8],
    version: i16,
    mut node: impl FnMut(i32, HostPort),
    cluster_id: impl FnOnce(Option<&str>),
    mut topic: impl FnMut(TopicEntry<'_>),
) -> Result<i16, Malformed> {
    if version < METADATA_VERSIONS.0 || version > METADATA_VERSIONS.1 {
        return Err(Malformed::new("api_version", Reason::UnsupportedVersion));
    }
    let r = &mut Reader::new(body);
    r.int32("throttle_time_ms")?;
    for _ in 0..r.count(true, "brokers")?.unwrap_or(0) {
        let id = r.int32("node_id")?;
        let host = text(r, "host")?.unwrap_or_default();
        let port = r.int32("port")?;
        r.string(true, "rack")?;
        r.skip_tags("broker")?;
        let port = u16::try_from(port).map_err(|_| Malformed::new("port", Reason::InvalidValue))?;
        node(
            id,
            HostPort {
                host: host.to_owned(),
                port,
            },
        );
    }
    cluster_id(text(r, "cluster_id")?);
    r.int32("controller_id")?;
    for _ in 0..r.count(true, "topics")?.unwrap_or(0) {
        topic(read_topic(r)?);
    }
    if version == 10 {
        r.int32("cluster_authorized_operations")?;
    }
    let error_code = if version >= 13 {
        r.int16("error_code")?
    } else {
        0
    };
    r.skip_tags("metadata")?;
    Ok(error_code)
}

fn read_topic<'a>(r: &mut Reader<'a>) -> Result<TopicEntry<'a>, Malformed> {
    let error_code = r.int16("error_code")?;
    let name = text(r, "name")?;
    let id = Uuid::from_bytes(r.array("topic_id")?);
    let is_internal = r.int8("is_internal")? != 0;
    let partitions = r.count(true, "partitions")?.unwrap_or(0);
    let listed = r.rest();
    for _ in 0..partitions {
        read_partition(r)?;
    }
    r.int32("topic_authorized_operations")?;
    r.skip_tags("topic")?;
    Ok(TopicEntry {
        error_code,
        name,
        id,
        is_internal,
        partitions: i32::try_from(partitions)
            .map_err(|_| Malformed::new("partitions", Reason::ImpossibleCount))?,
        listed,
    })
}

/// A partition and the id of its leader.
fn read_partition(r: &mut Reader<'_>) -> Result<(i32, i32), Malformed> {
    r.int16("error_code")?;
    let partition = (r.int32("partition_index")?, r.int32("leader_id")?);
    r.int32("leader_epoch")?;
    for replicas in ["replica_nodes", "isr_nodes", "offline_replicas"] {
        let count = r.count(true, replicas)?.unwrap_or(0);
        r.take(count.saturating_mul(4), replicas)?;
    }
    r.skip_tags("partition")?;
    Ok(partition)
}

fn text<'a>(r: &mut Reader<'a>, field: &'static str) -> Result<Option<&'a str>, Malformed> {
    match r.string(true, field)? {
        None => Ok(None),
        Some(bytes) => std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Malformed::new(field, Reason::InvalidValue)),
    }
}
