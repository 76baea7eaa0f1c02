//! A broker that answers as a script says: soundly, twice, out of order, with rubbish, in halves, or never.
//!
//! What the proxy's control plane asks (its client id is `sizegate`, or begins with `sizegate-`) is answered soundly and
//! never shown to the script, so a test says only what its own connection meets. A broker whose metadata is behind has a
//! script for that ([`Broker::start_behind`]).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeConfigsRequest, DescribeConfigsResponse,
    MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client::{Topic, text};
use super::ports;

/// A topic of the scripted cluster.
#[derive(Debug, Clone)]
pub struct ScriptedTopic {
    /// Name and id.
    pub topic: Topic,
    /// How many partitions.
    pub partitions: i32,
    /// `max.message.bytes`, an override of the topic's own.
    pub max_message_bytes: u64,
}

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which connection, counted from 0 (the control plane's are counted too).
    pub connection: usize,
    /// Which request of that connection, counted from 0.
    pub nth: usize,
    /// −1 where the frame is too short for a request.
    pub api_key: i16,
    /// Of the request.
    pub version: i16,
    /// Of the request.
    pub correlation_id: i32,
    /// Without its length prefix.
    pub body: Bytes,
}

/// What the broker does.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes these bytes.
    Send(Vec<u8>),
    /// Waits.
    Wait(Duration),
    /// Waits until the test says so.
    Until(CancellationToken),
    /// Tells the test how far it has come: counts one up.
    Tell(Arc<AtomicUsize>),
    /// Closes the connection.
    Close,
    /// Keeps the connection open and never reads again.
    Deaf,
}

/// What a script answers to one request; `None` is the sound answer.
pub type Script = dyn Fn(&Request, &Cluster) -> Option<Vec<Step>> + Send + Sync;

/// What the broker knows of itself.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its topics.
    pub topics: Vec<ScriptedTopic>,
}

/// A running scripted broker: node 1, and all of the cluster.
pub struct Broker {
    /// What it knows of itself.
    pub cluster: Cluster,
    received: Arc<Mutex<Vec<Request>>>,
    open: Arc<AtomicUsize>,
    arriving: Arc<Arriving>,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    /// Until this is cancelled the control plane is not answered.
    held: Arc<Mutex<CancellationToken>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Starts it, with `topics` (name, partitions, `max.message.bytes`).
    pub fn start(
        topics: &[(&str, i32, u64)],
        script: impl Fn(&Request, &Cluster) -> Option<Vec<Step>> + Send + Sync + 'static,
    ) -> Self {
        Self::start_behind(topics, script, |_, _| None)
    }

    /// As [`Self::start`]; what the control plane asks is shown to a script of its own.
    pub fn start_behind(
        topics: &[(&str, i32, u64)],
        script: impl Fn(&Request, &Cluster) -> Option<Vec<Step>> + Send + Sync + 'static,
        control: impl Fn(&Request, &Cluster) -> Option<Vec<Step>> + Send + Sync + 'static,
    ) -> Self {
        let topics = topics
            .iter()
            .map(|(name, partitions, max_message_bytes)| ScriptedTopic {
                topic: Topic {
                    name: (*name).to_owned(),
                    id: Uuid::new_v4(),
                },
                partitions: *partitions,
                max_message_bytes: *max_message_bytes,
            })
            .collect();
        let listener = std::net::TcpListener::bind(("127.0.0.1", ports::free_ports(1))).unwrap();
        listener.set_nonblocking(true).unwrap();
        let cluster = Cluster {
            address: listener.local_addr().unwrap(),
            topics,
        };
        let (received, open, stop) = (Arc::default(), Arc::default(), CancellationToken::new());
        let (peers, arriving) = (Arc::default(), Arc::<Arriving>::default());
        let free = CancellationToken::new();
        free.cancel();
        let held = Arc::new(Mutex::new(free));
        let serving = Serving {
            cluster: cluster.clone(),
            script: Box::new(script),
            control: Box::new(control),
            received: Arc::clone(&received),
            open: Arc::clone(&open),
            arriving: Arc::clone(&arriving),
            peers: Arc::clone(&peers),
            held: Arc::clone(&held),
        };
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, Arc::new(serving)) => {}
                    () = stopped.cancelled() => {}
                }
            });
        });
        Self {
            cluster,
            received,
            open,
            arriving,
            peers,
            held,
            stop,
            thread: Some(thread),
        }
    }

    /// One that answers everything soundly.
    pub fn sound(topics: &[(&str, i32, u64)]) -> Self {
        Self::start(topics, |_, _| None)
    }

    /// Its address, as `bootstrap_servers` takes it.
    pub fn bootstrap(&self) -> String {
        self.cluster.address.to_string()
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Topic {
        self.cluster
            .topics
            .iter()
            .find(|topic| topic.topic.name == name)
            .unwrap()
            .topic
            .clone()
    }

    /// Answers the control plane no more until the token is cancelled.
    pub fn hold_control_plane(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.held.lock().unwrap() = token.clone();
        token
    }

    /// Requests of clients (not of the control plane) so far.
    pub fn received(&self) -> Vec<Request> {
        self.received.lock().unwrap().clone()
    }

    /// Requests of clients with this key so far.
    pub fn received_of(&self, api_key: ApiKey) -> Vec<Request> {
        self.received()
            .into_iter()
            .filter(|request| request.api_key == api_key as i16)
            .collect()
    }

    /// Where each connection so far came from.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap().clone()
    }

    /// Bytes here of requests that are not whole yet, without their length prefixes.
    pub fn arriving(&self) -> usize {
        self.arriving.bytes.load(Ordering::SeqCst)
    }

    /// Requests that were cut off.
    pub fn cut_off(&self) -> usize {
        self.arriving.cut_off.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// When it is dropped nobody listens at its address any more, and nobody else will.
impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A script that panicked has told its test already.
            let _ = thread.join();
        }
    }
}

struct Serving {
    cluster: Cluster,
    script: Box<Script>,
    control: Box<Script>,
    received: Arc<Mutex<Vec<Request>>>,
    open: Arc<AtomicUsize>,
    arriving: Arc<Arriving>,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    held: Arc<Mutex<CancellationToken>>,
}

/// Requests that are not whole yet.
#[derive(Default)]
struct Arriving {
    bytes: AtomicUsize,
    cut_off: AtomicUsize,
}

impl Arriving {
    async fn read(&self, stream: &mut TcpStream, body: &mut [u8]) -> std::io::Result<()> {
        let mut here = 0;
        while here < body.len() {
            let read = stream.read(&mut body[here..]).await.unwrap_or(0);
            here += read;
            self.bytes.fetch_add(read, Ordering::SeqCst);
            if read == 0 {
                self.bytes.fetch_sub(here, Ordering::SeqCst);
                self.cut_off.fetch_add(1, Ordering::SeqCst);
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.bytes.fetch_sub(here, Ordering::SeqCst);
        Ok(())
    }
}

async fn serve(listener: TcpListener, serving: Arc<Serving>) {
    let mut connections = 0;
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        serving.peers.lock().unwrap().push(peer);
        stream.set_nodelay(true).unwrap();
        let (serving, connection) = (Arc::clone(&serving), connections);
        connections += 1;
        serving.open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            // The peer may go away at any moment: that is what these tests are about.
            let _ = talk(stream, &serving, connection).await;
            serving.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn talk(mut stream: TcpStream, serving: &Serving, connection: usize) -> std::io::Result<()> {
    for nth in 0.. {
        let length = stream.read_i32().await?;
        let mut body = vec![0; usize::try_from(length).map_err(std::io::Error::other)?];
        serving.arriving.read(&mut stream, &mut body).await?;
        let body = Bytes::from(body);
        let short = |at: usize| {
            body.get(at..at + 2)
                .map_or(-1, |b| i16::from_be_bytes(b.try_into().unwrap()))
        };
        let request = Request {
            connection,
            nth,
            api_key: if body.len() >= 8 { short(0) } else { -1 },
            version: short(2),
            correlation_id: body
                .get(4..8)
                .map_or(-1, |b| i32::from_be_bytes(b.try_into().unwrap())),
            body,
        };
        let steps = if request.is_of_control_plane() {
            let held = serving.held.lock().unwrap().clone();
            held.cancelled().await;
            (serving.control)(&request, &serving.cluster)
        } else {
            serving.received.lock().unwrap().push(request.clone());
            (serving.script)(&request, &serving.cluster)
        };
        let steps = match steps {
            Some(steps) => steps,
            None => match sound(&request, &serving.cluster) {
                Some(bytes) => vec![Step::Send(bytes)],
                None => vec![],
            },
        };
        for step in steps {
            match step {
                Step::Send(bytes) => stream.write_all(&bytes).await?,
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Until(told) => told.cancelled().await,
                Step::Tell(count) => {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Step::Close => return Ok(()),
                Step::Deaf => std::future::pending().await,
            }
        }
    }
    Ok(())
}

impl Request {
    /// Its connections introduce themselves with a name of their own, then all go by the same.
    fn is_of_control_plane(&self) -> bool {
        let is_named = |id: &[u8]| id == b"sizegate" || id.starts_with(b"sizegate-");
        self.client_id().is_some_and(is_named)
    }

    /// Who sent it.
    pub fn client_id(&self) -> Option<&[u8]> {
        let length =
            usize::try_from(i16::from_be_bytes(self.body.get(8..10)?.try_into().ok()?)).ok()?;
        self.body.get(10..10 + length)
    }

    /// A whole response frame to this request.
    pub fn response<R: Encodable + HeaderVersion>(&self, response: &R) -> Vec<u8> {
        let mut frame = BytesMut::new();
        frame.put_u32(0);
        let header = ResponseHeader::default().with_correlation_id(self.correlation_id);
        header
            .encode(&mut frame, R::header_version(self.version))
            .unwrap();
        response.encode(&mut frame, self.version).unwrap();
        let length = frame.len() as u32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame.to_vec()
    }

    /// The request, decoded.
    pub fn decode<R: kafka_protocol::protocol::Request>(&self) -> R {
        let mut body = self.body.clone();
        RequestHeader::decode(&mut body, R::header_version(self.version)).unwrap();
        R::decode(&mut body, self.version).unwrap()
    }
}

/// What a sound broker answers; `None` is nothing (acks 0).
pub fn sound(request: &Request, cluster: &Cluster) -> Option<Vec<u8>> {
    match ApiKey::try_from(request.api_key).ok()? {
        ApiKey::ApiVersions if request.version > 4 || request.version < 0 => {
            let refused = Request {
                version: 0,
                ..request.clone()
            };
            Some(refused.response(&api_versions().with_error_code(35)))
        }
        ApiKey::ApiVersions => Some(request.response(&api_versions())),
        ApiKey::Metadata => Some(request.response(&metadata(&request.decode(), cluster))),
        ApiKey::DescribeConfigs => {
            Some(request.response(&describe_configs(&request.decode(), cluster)))
        }
        ApiKey::Produce => {
            let asked: ProduceRequest = request.decode();
            (asked.acks != 0).then(|| request.response(&produced(&asked, request.version)))
        }
        _ => None,
    }
}

fn api_versions() -> ApiVersionsResponse {
    let keys = [
        (ApiKey::Produce, 0, 13),
        (ApiKey::Fetch, 4, 18),
        (ApiKey::Metadata, 0, 13),
        (ApiKey::SaslHandshake, 0, 1),
        (ApiKey::ApiVersions, 0, 4),
        (ApiKey::DescribeConfigs, 1, 4),
    ];
    let keys = keys.map(|(key, min, max)| {
        ApiVersion::default()
            .with_api_key(key as i16)
            .with_min_version(min)
            .with_max_version(max)
    });
    ApiVersionsResponse::default().with_api_keys(keys.to_vec())
}

fn metadata(asked: &MetadataRequest, cluster: &Cluster) -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(text(&cluster.address.ip().to_string()))
        .with_port(cluster.address.port().into());
    let found = |topic: &ScriptedTopic| {
        let partitions = (0..topic.partitions).map(|index| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(1))
                .with_replica_nodes(vec![BrokerId(1)])
                .with_isr_nodes(vec![BrokerId(1)])
        });
        MetadataResponseTopic::default()
            .with_name(Some(TopicName(text(&topic.topic.name))))
            .with_topic_id(topic.topic.id)
            .with_partitions(partitions.collect())
    };
    let topics = match &asked.topics {
        None => cluster.topics.iter().map(found).collect(),
        Some(topics) => topics
            .iter()
            .map(|wanted| {
                let known = cluster.topics.iter().find(|known| match &wanted.name {
                    Some(name) => known.topic.name == name.as_str(),
                    None => known.topic.id == wanted.topic_id,
                });
                let missing = || {
                    MetadataResponseTopic::default()
                        .with_error_code(if wanted.name.is_some() { 3 } else { 100 })
                        .with_name(wanted.name.clone())
                        .with_topic_id(wanted.topic_id)
                };
                known.map_or_else(missing, found)
            })
            .collect(),
    };
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(text("scripted")))
        .with_controller_id(BrokerId(1))
        .with_topics(topics)
}

fn describe_configs(asked: &DescribeConfigsRequest, cluster: &Cluster) -> DescribeConfigsResponse {
    let results = asked.resources.iter().map(|resource| {
        let known = cluster
            .topics
            .iter()
            .find(|known| known.topic.name == resource.resource_name.as_str());
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let Some(known) = known else {
            return result.with_error_code(3);
        };
        let value = text(&known.max_message_bytes.to_string());
        let own = DescribeConfigsSynonym::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(value.clone()))
            .with_source(1);
        let config = DescribeConfigsResourceResult::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(value))
            .with_config_source(1)
            .with_synonyms(vec![own]);
        result.with_configs(vec![config])
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// Success for every partition asked.
pub fn produced(asked: &ProduceRequest, version: i16) -> ProduceResponse {
    let topics = asked.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            let response = PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_base_offset(7);
            if version >= 5 {
                response.with_log_start_offset(0)
            } else {
                response
            }
        });
        let response =
            TopicProduceResponse::default().with_partition_responses(partitions.collect());
        if version >= 13 {
            response.with_topic_id(topic.topic_id)
        } else {
            response.with_name(topic.name.clone())
        }
    });
    ProduceResponse::default().with_responses(topics.collect())
}
