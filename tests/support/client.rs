//! A raw Kafka client: any request at any version, any bytes at all, several in flight. Blocking, one connection.
//!
//! It decodes with `kafka-protocol` only what brokers and sizegate answer; a test that wants to send nonsense
//! sends bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use kafka_protocol::messages::produce_response::ProduceResponse;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader,
    SaslAuthenticateRequest, SaslHandshakeRequest, TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use uuid::Uuid;

/// How long a response may take before a test fails: a guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A topic as Produce names it: by name up to v12, by id from v13.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
}

/// What one Produce request carries for one partition.
#[derive(Debug, Clone)]
pub struct Part {
    /// The topic.
    pub topic: Topic,
    /// Partition index.
    pub partition: i32,
    /// The `records` field; `None` is null.
    pub records: Option<Bytes>,
}

impl Part {
    /// Partition 0 of `topic`.
    pub fn new(topic: &Topic, records: Bytes) -> Self {
        Self::at(topic, 0, records)
    }

    /// Any partition.
    pub fn at(topic: &Topic, partition: i32, records: Bytes) -> Self {
        Self {
            topic: topic.clone(),
            partition,
            records: Some(records),
        }
    }
}

/// What a Produce response says of one partition. Equal answers are equal to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Name (to v12) or id (from v13), as the response has it.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Kafka's error code, 0 for none.
    pub code: i16,
    /// `error_message` (from v8).
    pub text: Option<String>,
    /// Batch index and message (from v8).
    pub record_errors: Vec<(i32, Option<String>)>,
    /// −1 when refused.
    pub base_offset: i64,
    /// −1 unless the topic stamps.
    pub log_append_time_ms: i64,
    /// −1 for early refusals (from v5).
    pub log_start_offset: i64,
}

/// The end of a connection, as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The peer closed it.
    Closed,
    /// Nothing came in time.
    Silent,
}

/// One connection.
pub struct Connection {
    stream: TcpStream,
    next_correlation: i32,
    /// Sent with every request.
    pub client_id: Option<String>,
}

impl Connection {
    /// Connects. Nothing is sent yet.
    pub fn open(address: impl ToSocketAddrs) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("connect: {error}"))
    }

    /// Connects, or says why not.
    pub fn try_open(address: impl ToSocketAddrs) -> io::Result<Self> {
        let address = address
            .to_socket_addrs()?
            .next()
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// Over a connection that is there.
    pub fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            next_correlation: 1,
            client_id: Some("raw".into()),
        }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends `request` and returns its response. Nothing else may be in flight.
    pub fn ask<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let sent = self.send(request, version);
        let (correlation, response) = self.receive::<R::Response>(version);
        assert_eq!(correlation, sent, "the response to another request");
        response
    }

    /// Sends `request` and returns its correlation id.
    pub fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        let bytes = frame(request, version, correlation, self.client_id.as_deref());
        self.send_bytes(&bytes);
        correlation
    }

    /// The next response, which must be of this kind: correlation id and body.
    pub fn receive<R: Decodable + HeaderVersion>(&mut self, version: i16) -> (i32, R) {
        match self.try_receive(version) {
            Ok(response) => response,
            Err(end) => panic!("no response: {end:?}"),
        }
    }

    /// The next response, or how the connection ended.
    pub fn try_receive<R: Decodable + HeaderVersion>(
        &mut self,
        version: i16,
    ) -> Result<(i32, R), ErrorKind> {
        let mut body = Bytes::from(self.read_frame()?);
        let header = ResponseHeader::decode(&mut body, R::header_version(version))
            .expect("a response header");
        let response = R::decode(&mut body, version)
            .unwrap_or_else(|error| panic!("undecodable answer: {error}"));
        assert!(body.is_empty(), "{} bytes behind the response", body.len());
        Ok((header.correlation_id, response))
    }

    /// Sends bytes as they are; that the peer closed meanwhile is no error here, reading will tell.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            let closed = matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            );
            assert!(closed, "send: {error}");
        }
    }

    /// The next whole frame, without its length prefix.
    pub fn read_frame(&mut self) -> Result<Vec<u8>, ErrorKind> {
        self.read_frame_within(PATIENCE)
    }

    /// As [`Self::read_frame`], waiting no longer than `limit` for its first byte.
    pub fn read_frame_within(&mut self, limit: Duration) -> Result<Vec<u8>, ErrorKind> {
        let mut prefix = [0; 4];
        self.read_exact(&mut prefix, limit)?;
        let mut body = vec![
            0;
            usize::try_from(i32::from_be_bytes(prefix))
                .expect("a length that is not negative")
        ];
        self.read_exact(&mut body, PATIENCE)?;
        Ok(body)
    }

    fn read_exact(&mut self, buffer: &mut [u8], limit: Duration) -> Result<(), ErrorKind> {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        self.stream
            .read_exact(buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ErrorKind::Silent,
                _ => ErrorKind::Closed,
            })
    }

    /// Says that nothing more will be sent; answers can still be read.
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Whether the peer closes within `limit` without another byte.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        let mut byte = [0];
        match self.read_exact(&mut byte, limit) {
            Err(ErrorKind::Closed) => true,
            Err(ErrorKind::Silent) => false,
            Ok(()) => panic!(
                "a byte ({}) after {:?} where a close was expected",
                byte[0],
                start.elapsed()
            ),
        }
    }

    /// Produces and returns the responses sorted by topic and partition. acks must not be 0.
    pub fn produce(&mut self, version: i16, acks: i16, parts: &[Part]) -> Vec<Response> {
        assert_ne!(acks, 0, "acks=0 has no response: send_produce");
        let correlation = self.send_produce(version, acks, parts);
        let (answered, responses) = self
            .receive_produce(version)
            .unwrap_or_else(|end| panic!("no response: {end:?}"));
        assert_eq!(answered, correlation, "the response to another request");
        responses
    }

    /// Sends a Produce request and returns its correlation id. Parts of one topic in a row share an entry.
    pub fn send_produce(&mut self, version: i16, acks: i16, parts: &[Part]) -> i32 {
        self.send(&produce_request(None, acks, parts), version)
    }

    /// The next response, which must be to a Produce: correlation id, and responses sorted by topic and partition.
    pub fn receive_produce(&mut self, version: i16) -> Result<(i32, Vec<Response>), ErrorKind> {
        let (correlation, response) = self.try_receive::<ProduceResponse>(version)?;
        Ok((correlation, responses(&response, version)))
    }

    /// What the peer advertises; [`Connection::client_id`] stays, name and version are what a client would say.
    pub fn api_versions(&mut self, software: &str, software_version: &str) -> ApiVersionsResponse {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(software))
            .with_client_software_version(text(software_version));
        self.ask(&request, 3)
    }

    /// Authenticates with SASL PLAIN.
    pub fn sasl_plain(&mut self, user: &str, password: &str) {
        let hands = self.ask(
            &SaslHandshakeRequest::default().with_mechanism(text("PLAIN")),
            1,
        );
        assert_eq!(hands.error_code, 0, "SaslHandshake");
        let bytes = Bytes::from(format!("\0{user}\0{password}"));
        let response = self.ask(
            &SaslAuthenticateRequest::default().with_auth_bytes(bytes),
            2,
        );
        assert_eq!(
            response.error_code, 0,
            "SaslAuthenticate: {:?}",
            response.error_message
        );
    }
}

/// A Produce request; parts of one topic in a row share an entry.
pub fn produce_request(
    transactional_id: Option<&str>,
    acks: i16,
    parts: &[Part],
) -> ProduceRequest {
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for part in parts {
        if topics
            .last()
            .is_none_or(|last| last.name.as_str() != part.topic.name)
        {
            topics.push(
                TopicProduceData::default()
                    .with_name(TopicName(text(&part.topic.name)))
                    .with_topic_id(part.topic.id),
            );
        }
        let data = PartitionProduceData::default()
            .with_index(part.partition)
            .with_records(part.records.clone());
        topics.last_mut().unwrap().partition_data.push(data);
    }
    ProduceRequest::default()
        .with_transactional_id(transactional_id.map(|id| TransactionalId(text(id))))
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(topics)
}

/// A whole frame: length prefix, header, body.
pub fn frame<R: Request>(
    request: &R,
    version: i16,
    correlation: i32,
    client_id: Option<&str>,
) -> Vec<u8> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(client_id.map(text));
    let mut buffer = BytesMut::new();
    header
        .encode(&mut buffer, R::header_version(version))
        .expect("an encodable header");
    // Produce leaves the name out at v13 and the id out below: both may be set.
    request
        .encode(&mut buffer, version)
        .unwrap_or_else(|error| panic!("not encodable at v{version}: {error}"));
    let mut out = (buffer.len() as i32).to_be_bytes().to_vec();
    out.extend_from_slice(&buffer);
    out
}

/// The responses in a Produce response, sorted by topic and partition.
pub fn responses(response: &ProduceResponse, version: i16) -> Vec<Response> {
    let mut found = Vec::new();
    for topic in &response.responses {
        let name = if version >= 13 {
            topic.topic_id.to_string()
        } else {
            topic.name.to_string()
        };
        for part in &topic.partition_responses {
            found.push(Response {
                topic: name.clone(),
                partition: part.index,
                code: part.error_code,
                text: part.error_message.as_ref().map(ToString::to_string),
                record_errors: part
                    .record_errors
                    .iter()
                    .map(|error| {
                        (
                            error.batch_index,
                            error
                                .batch_index_error_message
                                .as_ref()
                                .map(ToString::to_string),
                        )
                    })
                    .collect(),
                base_offset: part.base_offset,
                log_append_time_ms: part.log_append_time_ms,
                log_start_offset: part.log_start_offset,
            });
        }
    }
    found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    found
}

/// Protocol text.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}
