//! A broker made of responses, for tests: it knows topics and limits like a small Kafka, and misbehaves on request.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeConfigsRequest, DescribeConfigsResponse,
    MetadataRequest, MetadataResponse, SaslAuthenticateResponse, SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::config::{self, Config, ENV_PREFIX, HostPort, Overrides};

/// What a broker does with one request.
pub(super) enum Reply {
    /// A whole response: correlation id, header and this body.
    Body(Bytes),
    /// These bytes, as they are.
    Raw(Vec<u8>),
    /// These bytes, and the end.
    Last(Vec<u8>),
    /// Nothing, ever.
    Silence,
    /// Closes the connection.
    Close,
}

/// One request, as it came.
pub(super) struct ReceivedRequest {
    pub(super) api: ApiKey,
    pub(super) correlation_id: i32,
}

type Trick = Box<dyn Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync>;

/// What the broker knows.
#[derive(Default)]
pub(super) struct World {
    pub(super) nodes: Vec<(i32, HostPort)>,
    pub(super) topics: HashMap<String, WorldTopic>,
    /// `message.max.bytes` of this broker.
    pub(super) default_bytes: u64,
    /// DescribeConfigs responses TOPIC_AUTHORIZATION_FAILED.
    pub(super) is_forbidden: bool,
    pub(super) session_lifetime_ms: i64,
}

/// One topic.
#[derive(Clone, Copy)]
pub(super) struct WorldTopic {
    pub(super) id: Uuid,
    /// `max.message.bytes`, where the topic overrides it.
    pub(super) max_message_bytes: Option<u64>,
}

/// A running scripted broker; ends when dropped.
pub(super) struct Scripted {
    pub(super) address: HostPort,
    pub(super) world: Arc<Mutex<World>>,
    asked: Arc<Mutex<Vec<ApiKey>>>,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// A broker that behaves.
    pub(super) async fn start() -> Self {
        Self::with_tricks(|_| None).await
    }

    /// A broker that does as `tricks` say, and behaves where they say nothing.
    pub(super) async fn with_tricks(
        tricks: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::at(0, tricks).await
    }

    pub(super) async fn at(
        port: u16,
        tricks: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        let address = HostPort {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        let world = Arc::new(Mutex::new(World {
            nodes: vec![(1, address.clone())],
            default_bytes: 1_048_588,
            ..World::default()
        }));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let state = (Arc::clone(&world), Arc::clone(&asked));
        let tricks: Arc<Trick> = Arc::new(Box::new(tricks));
        let task = tokio::spawn(async move {
            // Connections end with the broker.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                connections.spawn(serve(
                    tcp,
                    Arc::clone(&state.0),
                    Arc::clone(&state.1),
                    Arc::clone(&tricks),
                ));
            }
        });
        Self {
            address,
            world,
            asked,
            task,
        }
    }

    pub(super) fn put(&self, topic: &str, id: u128, max_message_bytes: Option<u64>) {
        let topic = (
            topic.to_owned(),
            WorldTopic {
                id: Uuid::from_u128(id),
                max_message_bytes,
            },
        );
        self.world.lock().unwrap().topics.extend([topic]);
    }

    pub(super) fn count(&self, api: ApiKey) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|known| **known == api).count()
    }

    /// A configuration with this broker behind it, node ids 0 to 9, and a refresh every hour.
    pub(super) fn config(&self) -> Config {
        config(std::slice::from_ref(&self.address))
    }
}

/// As [`Scripted::config`], with other bootstrap servers.
pub(super) fn config(bootstrap_servers: &[HostPort]) -> Config {
    let servers: Vec<String> = bootstrap_servers.iter().map(HostPort::to_string).collect();
    let env = [
        ("CLUSTER__BOOTSTRAP_SERVERS", servers.join(",")),
        ("CLUSTER__ADMIN__REFRESH_INTERVAL", "1h".to_owned()),
        ("LISTENER__NODE_PORTS__FIRST", "19093".to_owned()),
        ("LISTENER__NODE_PORTS__NODE_IDS", "0-9".to_owned()),
    ];
    let env = env
        .into_iter()
        .map(|(key, value)| (format!("{ENV_PREFIX}{key}"), value))
        .collect();
    config::load(None, &Overrides::default(), &env).unwrap()
}

async fn serve(
    mut tcp: TcpStream,
    world: Arc<Mutex<World>>,
    log: Arc<Mutex<Vec<ApiKey>>>,
    tricks: Arc<Trick>,
) {
    while let Ok(length) = tcp.read_u32().await {
        let mut frame = vec![0; length as usize];
        tcp.read_exact(&mut frame).await.unwrap();
        let mut frame = Bytes::from(frame);
        let header = decode_request_header_from_buffer(&mut frame).unwrap();
        let api = ApiKey::try_from(header.request_api_key).unwrap();
        let version = header.request_api_version;
        let asked = ReceivedRequest {
            api,
            correlation_id: header.correlation_id,
        };
        log.lock().unwrap().push(api);
        let reply = tricks(&asked)
            .unwrap_or_else(|| Reply::Body(world.lock().unwrap().response(api, version, frame)));
        let bytes = match reply {
            Reply::Body(body) => framed(api, version, header.correlation_id, &body),
            Reply::Raw(bytes) => bytes,
            Reply::Last(bytes) => {
                tcp.write_all(&bytes).await.unwrap();
                return;
            }
            Reply::Silence => {
                std::future::pending::<()>().await;
                return;
            }
            Reply::Close => return,
        };
        tcp.write_all(&bytes).await.unwrap();
    }
}

/// A sound DescribeConfigs response of one topic with one override.
pub(super) fn describe_configs_response(version: i16) -> Bytes {
    let topic = WorldTopic {
        id: Uuid::nil(),
        max_message_bytes: Some(100),
    };
    let result = DescribeConfigsResult::default()
        .with_resource_name(text("orders"))
        .with_configs(vec![World::default().max_message_bytes(&topic)]);
    let response = DescribeConfigsResponse::default().with_results(vec![result]);
    encoded(&response, version)
}

/// A sound Metadata response of one broker and one topic.
pub(super) fn metadata_response(version: i16) -> Bytes {
    let broker = MetadataResponseBroker::default().with_host(text("b1"));
    let response = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(vec![entry(Some("orders"), Uuid::from_u128(1), 0)]);
    encoded(&response, version)
}

/// Length, response header, body.
fn framed(api: ApiKey, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let tags: &[u8] = match api.response_header_version(version) {
        0 => &[],
        _ => &[0],
    };
    let mut frame = Vec::new();
    frame.put_u32(u32::try_from(4 + tags.len() + body.len()).unwrap());
    frame.put_i32(correlation_id);
    frame.put_slice(tags);
    frame.put_slice(body);
    frame
}

fn encoded(message: &impl Encodable, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    message.encode(&mut body, version).unwrap();
    body.freeze()
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

impl World {
    fn response(&self, api: ApiKey, version: i16, body: Bytes) -> Bytes {
        match api {
            ApiKey::ApiVersions => encoded(&versions(), version),
            ApiKey::Metadata => encoded(&self.metadata(version, body), version),
            ApiKey::DescribeConfigs => encoded(&self.configs(version, body), version),
            ApiKey::SaslHandshake => encoded(
                &SaslHandshakeResponse::default().with_mechanisms(vec![text("PLAIN")]),
                version,
            ),
            ApiKey::SaslAuthenticate => encoded(
                &SaslAuthenticateResponse::default()
                    .with_session_lifetime_ms(self.session_lifetime_ms),
                version,
            ),
            other => panic!("the script has no response for {other:?}"),
        }
    }

    fn metadata(&self, version: i16, mut body: Bytes) -> MetadataResponse {
        let request = MetadataRequest::decode(&mut body, version).unwrap();
        assert!(!body.has_remaining());
        assert!(!request.allow_auto_topic_creation);
        let topics = match request.topics {
            None => self
                .topics
                .iter()
                .map(|(name, topic)| entry(Some(name), topic.id, 0))
                .collect(),
            Some(asked) => asked
                .iter()
                .map(|asked| {
                    let found = self.topics.iter().find(|(name, topic)| {
                        asked.name.as_ref().is_some_and(|n| n.as_str() == *name)
                            || topic.id == asked.topic_id
                    });
                    let name = asked.name.as_ref().map(|name| name.as_str());
                    match (found, name) {
                        (Some((name, topic)), _) => entry(Some(name), topic.id, 0),
                        (None, Some(name)) => entry(Some(name), Uuid::nil(), 3),
                        (None, None) => entry(None, asked.topic_id, 100),
                    }
                })
                .collect(),
        };
        let brokers = self.nodes.iter().map(|(id, address)| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(*id))
                .with_host(text(&address.host))
                .with_port(address.port.into())
        });
        MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_topics(topics)
    }

    fn configs(&self, version: i16, mut body: Bytes) -> DescribeConfigsResponse {
        let request = DescribeConfigsRequest::decode(&mut body, version).unwrap();
        let results = request.resources.iter().map(|resource| {
            let name = resource.resource_name.as_str();
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(text(name));
            match self.topics.get(name) {
                _ if self.is_forbidden => result.with_error_code(29),
                None => result.with_error_code(3),
                Some(topic) => result.with_configs(vec![self.max_message_bytes(topic)]),
            }
        });
        DescribeConfigsResponse::default().with_results(results.collect())
    }

    fn max_message_bytes(&self, topic: &WorldTopic) -> DescribeConfigsResourceResult {
        let synonym = |name: &str, value: u64, source| {
            DescribeConfigsSynonym::default()
                .with_name(text(name))
                .with_value(Some(text(&value.to_string())))
                .with_source(source)
        };
        let own = topic
            .max_message_bytes
            .map(|value| synonym("max.message.bytes", value, 1));
        let (value, source) = match topic.max_message_bytes {
            Some(value) => (value, 1),
            None => (self.default_bytes, 4),
        };
        DescribeConfigsResourceResult::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(text(&value.to_string())))
            .with_config_source(source)
            .with_synonyms(
                own.into_iter()
                    .chain([synonym("message.max.bytes", self.default_bytes, 4)])
                    .collect(),
            )
    }
}

fn entry(name: Option<&str>, id: Uuid, error_code: i16) -> MetadataResponseTopic {
    let partitions = match error_code {
        0 => vec![MetadataResponsePartition::default(); 3],
        _ => Vec::new(),
    };
    MetadataResponseTopic::default()
        .with_error_code(error_code)
        .with_name(name.map(|name| TopicName(text(name))))
        .with_topic_id(id)
        .with_partitions(partitions)
}

fn versions() -> ApiVersionsResponse {
    let range = |api: ApiKey, min, max| {
        ApiVersion::default()
            .with_api_key(api as i16)
            .with_min_version(min)
            .with_max_version(max)
    };
    ApiVersionsResponse::default().with_api_keys(vec![
        range(ApiKey::ApiVersions, 0, 4),
        range(ApiKey::Metadata, 0, 13),
        range(ApiKey::DescribeConfigs, 1, 4),
        range(ApiKey::SaslHandshake, 0, 1),
        range(ApiKey::SaslAuthenticate, 0, 2),
    ])
}
