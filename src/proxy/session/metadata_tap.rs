//! The topics that a Metadata response names, read as it streams past to the client.
//!
//! The control plane learns of new topics by them before its own next refresh, and where it has no right to ask it is
//! the only way to learn a topic's id. Invariant: nothing here keeps a response from the client.

use uuid::Uuid;

use crate::cluster::Cluster;
use crate::wire::walk::{METADATA_TOPICS, Visitor, Walker};

/// TopicFields ids came with Metadata 10 (KIP-516).
const FIRST_WITH_IDS: i16 = 10;

/// Reads one response from behind its broker list.
pub(super) struct MetadataTap {
    walker: Walker,
    listener: TopicReader,
}

/// Puts a topic's fields together and tells the control plane.
struct TopicReader {
    cluster: Cluster,
    topic: TopicFields,
}

/// The topic in hand.
#[derive(Default)]
struct TopicFields {
    has_failed: bool,
    name: String,
    id: Uuid,
    is_internal: bool,
    partitions: i32,
}

impl MetadataTap {
    /// For a response of which `left` bytes follow its broker list; `None` if it bears no topic ids.
    pub(super) fn of(cluster: &Cluster, version: i16, left: usize) -> Option<Box<Self>> {
        (version >= FIRST_WITH_IDS).then(|| {
            Box::new(Self {
                walker: Walker::new(&METADATA_TOPICS, version, left as u64),
                listener: TopicReader {
                    cluster: cluster.clone(),
                    topic: TopicFields::default(),
                },
            })
        })
    }

    /// More of the response. `false`: there is no more to learn from it.
    pub(super) fn read(&mut self, bytes: &[u8]) -> bool {
        match self.walker.advance(bytes, &mut self.listener) {
            Ok(_) => !self.walker.is_at_tail(),
            Err(malformed) => {
                tracing::debug!(%malformed, "a Metadata response cannot be read to its end");
                false
            }
        }
    }
}

impl Visitor for TopicReader {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        let topic = &mut self.topic;
        match field {
            "topic_error_code" => {
                *topic = TopicFields {
                    has_failed: bytes != [0, 0],
                    ..TopicFields::default()
                }
            }
            "topic_id" => topic.id = Uuid::from_slice(bytes).unwrap_or_default(),
            "is_internal" => topic.is_internal = bytes != [0],
            "partition_index" => topic.partitions = topic.partitions.saturating_add(1),
            // A topic's last field.
            "topic_authorized_operations" => self.tell(),
            _ => {}
        }
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        if field == "name" {
            self.topic.name = String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        }
    }
}

impl TopicReader {
    fn tell(&self) {
        let topic = &self.topic;
        if !topic.has_failed && !topic.name.is_empty() && !topic.id.is_nil() {
            self.cluster
                .learn_topic(&topic.name, topic.id, topic.is_internal, topic.partitions);
        }
    }
}
