//! One connection of the control plane to one broker: framing, versions, authentication, calls.
//!
//! Invariant: one request is in flight at a time; after anything but a whole, expected answer the link is
//! broken and says so. A broker's bytes are never taken at their word: a frame is read as it comes, and an
//! answer's shape is checked before it is decoded.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::call_error::CallError;
use super::reader::{self, FETCH_VERSION, Fetched};
use super::responses::{self, Metadata, Versions};
use super::sasl;
use super::shape;
use crate::config::{HostPort, Sasl};
use crate::net::{self, Connector, Stream};
use crate::wire::{Malformed, Reader, Reason};

/// Largest answer taken, Metadata excepted: 500 topics' configs with their synonyms are under 1 MiB, and
/// decoding can take some thirty times the bytes.
const MAX_RESPONSE_BYTES: u32 = 8 << 20;

/// Largest Metadata response taken: a million partitions are about 45 MB. It is read in place, not decoded.
const MAX_METADATA_BYTES: u32 = 256 << 20;

/// Room that is made at once for the response to a Fetch.
const EXPECTED_FETCH_BYTES: u32 = reader::FETCH_BYTES + reader::ENVELOPE_BYTES;

/// Share of a session's lifetime after which we authenticate again (Java clients: 85 to 95 %).
const REAUTHENTICATE_AFTER: f64 = 0.85;

/// `client_id` of every request but the first, which bears a name that tells a loop ([`Own`](net::Own)).
const CLIENT_ID: &str = "sizegate";

/// `ApiVersions` since KIP-511; its responses can be told from v0.
const API_VERSIONS_VERSION: i16 = 3;

/// One authenticated connection to one broker.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    peer: HostPort,
    sasl: Option<Sasl>,
    /// What the broker speaks, by API key.
    versions: Versions,
    correlation_id: i32,
    /// What the next request names as its client.
    client_id: StrBytes,
    reauthenticate_at: Option<Instant>,
    is_broken: bool,
}

impl Link {
    /// Connects, asks for versions, authenticates; all before `deadline`.
    pub async fn open(
        connector: &Connector,
        to: &HostPort,
        sasl: Option<&Sasl>,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let own = connector.own();
        let call = own.next_call();
        let stream = timeout_at(deadline, connector.connect_even_in_a_loop(to))
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("connect {to}: timed out"))))
            .map_err(CallError::Connect)?;
        let mut link = Self {
            stream,
            peer: to.clone(),
            sasl: sasl.cloned(),
            versions: Versions::new(),
            correlation_id: 0,
            client_id: StrBytes::from_string(own.client_id(&call)),
            reauthenticate_at: None,
            is_broken: false,
        };
        let versions = link.ask_versions(deadline).await;
        let is_loop = own.came_back(call);
        own.set_loop(to, is_loop);
        if is_loop {
            let text =
                format!("connect {to}: it leads back to this sizegate, through another proxy");
            return Err(CallError::Connect(io::Error::other(text)));
        }
        versions?;
        link.client_id = StrBytes::from_static_str(CLIENT_ID);
        link.authenticate(deadline).await?;
        Ok(link)
    }

    /// The broker, as it was connected to.
    pub const fn peer(&self) -> &HostPort {
        &self.peer
    }

    /// Sends a request and waits for its response until `deadline`.
    ///
    /// Only APIs with a known shape of their responses ([`shape`]): SaslHandshake, SaslAuthenticate,
    /// DescribeConfigs, IncrementalAlterConfigs, ListOffsets, InitProducerId, Produce,
    /// CreateTopics, DeleteTopics. Error codes inside the response are
    /// the caller's to read.
    pub async fn call<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, CallError> {
        self.reauthenticate_when_due(deadline).await?;
        self.call_now(request, deadline).await
    }

    /// Metadata, read in place. `deadline` as in [`Link::call`].
    pub(super) async fn metadata(
        &mut self,
        request: &kafka_protocol::messages::MetadataRequest,
        deadline: Instant,
    ) -> Result<Metadata, CallError> {
        self.reauthenticate_when_due(deadline).await?;
        let api = ApiKey::Metadata;
        let version = self.version(api, responses::METADATA_VERSIONS)?;
        let body = self
            .exchange(request, api, version, MAX_METADATA_BYTES, deadline)
            .await?;
        let metadata =
            Metadata::check(body, version).map_err(|what| self.malformed(api, what, ""))?;
        match responses::failure_name(metadata.error_code()) {
            None => Ok(metadata),
            Some(error) => Err(self.refused(api, error)),
        }
    }

    /// Fetch of one partition, read in place: at most `most_bytes`. `deadline` as in [`Link::call`].
    pub(super) async fn fetch(
        &mut self,
        request: &kafka_protocol::messages::FetchRequest,
        most_bytes: u32,
        deadline: Instant,
    ) -> Result<Fetched, CallError> {
        self.reauthenticate_when_due(deadline).await?;
        let api = ApiKey::Fetch;
        let version = self.version(api, (FETCH_VERSION, FETCH_VERSION))?;
        let body = self
            .exchange(request, api, version, most_bytes, deadline)
            .await?;
        Fetched::read(&body).map_err(|what| self.malformed(api, what, ""))
    }

    pub(super) async fn call_now<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, CallError> {
        let api = ApiKey::try_from(R::KEY).unwrap_or(ApiKey::ApiVersions);
        let versions = shape::versions(api).ok_or_else(|| CallError::Unsupported {
            peer: self.peer.clone(),
            api,
        })?;
        let version = self.version(api, versions)?;
        let mut body = self
            .exchange(request, api, version, MAX_RESPONSE_BYTES, deadline)
            .await?;
        shape::check_shape(api, version, &body).map_err(|what| self.malformed(api, what, ""))?;
        R::Response::decode(&mut body, version).map_err(|_| {
            let what = Malformed::new("body", Reason::InvalidValue);
            self.malformed(api, what, "")
        })
    }

    async fn ask_versions(&mut self, deadline: Instant) -> Result<(), CallError> {
        let api = ApiKey::ApiVersions;
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("sizegate"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let mut version = API_VERSIONS_VERSION;
        let mut body = self
            .exchange(&request, api, version, MAX_RESPONSE_BYTES, deadline)
            .await?;
        if responses::is_unsupported_version(&body) {
            version = 0;
            body = self
                .exchange(&request, api, version, MAX_RESPONSE_BYTES, deadline)
                .await?;
        }
        let (error_code, versions) = responses::read_api_versions(&body, version)
            .map_err(|what| self.malformed(api, what, ""))?;
        if let Some(error) = responses::failure_name(error_code) {
            return Err(self.refused(api, error));
        }
        self.versions = versions;
        Ok(())
    }

    async fn reauthenticate_when_due(&mut self, deadline: Instant) -> Result<(), CallError> {
        match self.reauthenticate_at {
            Some(at) if at <= Instant::now() => self.authenticate(deadline).await,
            _ => Ok(()),
        }
    }

    /// SASL, first or again (KIP-368): the same exchange on the same connection.
    async fn authenticate(&mut self, deadline: Instant) -> Result<(), CallError> {
        let Some(credentials) = self.sasl.clone() else {
            return Ok(());
        };
        let lifetime_ms = sasl::authenticate(self, &credentials, deadline).await?;
        self.reauthenticate_at = match u64::try_from(lifetime_ms) {
            Ok(lifetime_ms) if lifetime_ms > 0 => Instant::now()
                .checked_add(Duration::from_millis(lifetime_ms).mul_f64(REAUTHENTICATE_AFTER)),
            _ => None,
        };
        Ok(())
    }

    /// The broker speaks this version of an API.
    pub(super) fn speaks(&self, api: ApiKey, version: i16) -> bool {
        let range = self.versions.get(&(api as i16));
        range.is_some_and(|(min, max)| (*min..=*max).contains(&version))
    }

    /// The newest version that both speak.
    fn version(&self, api: ApiKey, ours: (i16, i16)) -> Result<i16, CallError> {
        let theirs = self.versions.get(&(api as i16)).copied();
        theirs
            .map(|(min, max)| (min.max(ours.0), max.min(ours.1)))
            .filter(|(min, max)| min <= max)
            .map(|(_, max)| max)
            .ok_or_else(|| CallError::Unsupported {
                peer: self.peer.clone(),
                api,
            })
    }

    /// One request, one response: its body, behind the response header.
    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        api: ApiKey,
        version: i16,
        max_response_bytes: u32,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        if self.is_broken {
            return Err(self.closed(api, ""));
        }
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame =
            encode(request, version, self.correlation_id, &self.client_id).map_err(|source| {
                CallError::Io {
                    peer: self.peer.clone(),
                    api,
                    source,
                }
            })?;
        // Until the response is whole; also if this future is dropped half-way.
        self.is_broken = true;
        let began = Instant::now();
        let response = timeout_at(deadline, self.round_trip(&frame, api, max_response_bytes))
            .await
            .map_err(|_| CallError::Timeout {
                peer: self.peer.clone(),
                api,
                waited: began.elapsed(),
                hint: match api {
                    ApiKey::ApiVersions => {
                        ": is it a Kafka listener, and is cluster.tls as that listener has it?"
                    }
                    _ => "",
                },
            })??;
        let mut r = Reader::new(&response);
        let header = read_response_header(
            &mut r,
            self.correlation_id,
            <R::Response as HeaderVersion>::header_version(version) > 0,
        );
        header.map_err(|what| self.malformed(api, what, ""))?;
        self.is_broken = false;
        Ok(response.slice(r.position()..))
    }

    async fn round_trip(
        &mut self,
        frame: &[u8],
        api: ApiKey,
        max_response_bytes: u32,
    ) -> Result<Bytes, CallError> {
        let io_error = |link: &Self, source| CallError::Io {
            peer: link.peer.clone(),
            api,
            source: net::explained(source, net::Side::Broker),
        };
        let sent = match self.stream.write_all(frame).await {
            Ok(()) => self.stream.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            return Err(io_error(self, error));
        }
        let mut prefix = [0; 4];
        match self.stream.read_exact(&mut prefix).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.closed(api, self.hint_at_close(api)));
            }
            Err(error) => return Err(io_error(self, error)),
        }
        let length = u32::from_be_bytes(prefix);
        if length > max_response_bytes {
            let what = Malformed::new("length", Reason::TooLong);
            return Err(self.malformed(api, what, hint_at_prefix(prefix)));
        }
        // Grows as bytes come: a declared length alone takes no memory. Records are most of what is read here, and what
        // was asked for of them comes: growing would copy each byte once more.
        let expected = match api {
            ApiKey::Fetch => length.min(EXPECTED_FETCH_BYTES),
            _ => 0,
        };
        let mut response = Vec::with_capacity(expected as usize);
        (&mut self.stream)
            .take(u64::from(length))
            .read_to_end(&mut response)
            .await
            .map_err(|error| io_error(self, error))?;
        if response.len() < length as usize {
            return Err(self.closed(api, ""));
        }
        Ok(Bytes::from(response))
    }

    fn hint_at_close(&self, api: ApiKey) -> &'static str {
        match (api, &self.sasl) {
            (ApiKey::ApiVersions, _) => "; a TLS listener does that: is cluster.tls missing?",
            (ApiKey::SaslHandshake | ApiKey::SaslAuthenticate, _) => "",
            (_, None) => {
                "; a listener that asks for SASL does that: is cluster.admin.sasl missing?"
            }
            _ => "",
        }
    }

    fn closed(&self, api: ApiKey, hint: &'static str) -> CallError {
        CallError::Closed {
            peer: self.peer.clone(),
            api,
            hint,
        }
    }

    fn malformed(&mut self, api: ApiKey, what: Malformed, hint: &'static str) -> CallError {
        self.is_broken = true;
        CallError::Malformed {
            peer: self.peer.clone(),
            api,
            what,
            hint,
        }
    }

    fn refused(&self, api: ApiKey, error: String) -> CallError {
        CallError::Refused {
            peer: self.peer.clone(),
            api,
            error,
        }
    }

    pub(super) fn authentication_failed(&self, reason: String) -> CallError {
        CallError::Authentication {
            peer: self.peer.clone(),
            reason,
        }
    }
}

fn read_response_header(
    r: &mut Reader<'_>,
    correlation_id: i32,
    flexible: bool,
) -> Result<(), Malformed> {
    if r.int32("correlation_id")? != correlation_id {
        return Err(Malformed::new(
            "correlation_id",
            Reason::UnexpectedCorrelationId,
        ));
    }
    if flexible {
        r.skip_tags("response_header")?;
    }
    Ok(())
}

fn encode<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &StrBytes,
) -> io::Result<BytesMut> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(client_id.clone()));
    let mut frame = BytesMut::new();
    frame.put_u32(0);
    header
        .encode(&mut frame, R::header_version(version))
        .and_then(|()| request.encode(&mut frame, version))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let length = u32::try_from(frame.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(prefix) = frame.first_chunk_mut() {
        *prefix = length.to_be_bytes();
    }
    Ok(frame)
}

/// What else a "length" may be. TLS alerts and hellos begin 0x15 0x03 and 0x16 0x03; HTTP with its name.
fn hint_at_prefix(prefix: [u8; 4]) -> &'static str {
    match prefix {
        [0x15 | 0x16, 3, ..] => "; this is TLS: is cluster.tls missing?",
        [b'H', b'T', b'T', b'P'] => "; this is an HTTP server",
        _ => "",
    }
}
