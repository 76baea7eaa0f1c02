//! Who leads a topic's partitions, as its lanes share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::call_error::CallError;
use super::super::control_plane::ControlPlane;
use super::super::link::Link;
use super::super::responses::{Metadata, failure_name};
use crate::config::HostPort;
use crate::error_code::{INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED};
use crate::net::deadline_in;

/// For one look at the cluster, connecting included.
const LOOK: Duration = Duration::from_secs(10);

/// A topic's partitions and who leads them.
#[derive(Debug, Default)]
pub(super) struct Leaders(BTreeMap<i32, Option<HostPort>>);

impl Leaders {
    pub(super) fn partitions(&self) -> usize {
        self.0.len()
    }

    pub(super) fn of(&self, partition: i32) -> Option<&HostPort> {
        self.0.get(&partition)?.as_ref()
    }
}

/// Why nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotFound {
    /// It may be known a moment later.
    Yet(String),
    /// It will not.
    Ever(String),
}

/// One topic's leaders, read when somebody needs them and shared by those who need them at once.
pub(super) struct Directory {
    pub(super) shared: Arc<ControlPlane>,
    pub(super) topic: Arc<str>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    link: Option<Link>,
    leaders: Option<(Instant, Arc<Leaders>)>,
}

impl Directory {
    pub(super) fn new(shared: Arc<ControlPlane>, topic: Arc<str>) -> Self {
        Self {
            shared,
            topic,
            known: Mutex::default(),
        }
    }

    /// The leaders as some broker told them at `since` or later.
    pub(super) async fn leaders(&self, since: Instant) -> Result<Arc<Leaders>, NotFound> {
        let mut known = self.known.lock().await;
        if let Some((_, leaders)) = known.leaders.as_ref().filter(|(at, _)| *at >= since) {
            return Ok(Arc::clone(leaders));
        }
        let sent_at = Instant::now();
        let metadata = match self.look(&mut known.link).await {
            Ok(metadata) => metadata,
            Err(error) => {
                known.link = None;
                return Err(NotFound::Yet(error.to_string()));
            }
        };
        self.shared.learn_nodes(&metadata);
        let leaders = Arc::new(self.read(&metadata)?);
        known.leaders = Some((sent_at, Arc::clone(&leaders)));
        Ok(leaders)
    }

    /// Over the kept link; over a new one where that has gone stale.
    async fn look(&self, link: &mut Option<Link>) -> Result<Metadata, CallError> {
        let name = TopicName(StrBytes::from_string(self.topic.to_string()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![
                MetadataRequestTopic::default().with_name(Some(name)),
            ]))
            .with_allow_auto_topic_creation(false);
        let deadline = deadline_in(LOOK);
        if let Some(kept) = link {
            match kept.metadata(&request, deadline).await {
                Err(error) if error.may_be_stale() => {}
                result => return result,
            }
        }
        let link = link.insert(self.shared.open_any(deadline).await?);
        link.metadata(&request, deadline).await
    }

    fn read(&self, metadata: &Metadata) -> Result<Leaders, NotFound> {
        let nodes: BTreeMap<i32, HostPort> = metadata.nodes().into_iter().collect();
        let (mut error_code, mut leaders) = (None, Leaders::default());
        metadata.each_topic(|entry| {
            if entry.name == Some(&*self.topic) {
                error_code = Some(entry.error_code);
                let led = entry
                    .leaders()
                    .map(|(partition, id)| (partition, nodes.get(&id).cloned()));
                leaders.0.extend(led);
            }
        });
        if let Some(error) = failure_name(error_code.unwrap_or(0)) {
            let words = format!("topic {}: {error}", self.topic);
            return Err(match error_code {
                Some(TOPIC_AUTHORIZATION_FAILED | INVALID_TOPIC_EXCEPTION) => NotFound::Ever(words),
                _ => NotFound::Yet(words),
            });
        }
        match leaders.partitions() {
            0 => Err(NotFound::Yet(format!(
                "topic {}: no partitions",
                self.topic
            ))),
            _ => Ok(leaders),
        }
    }
}
