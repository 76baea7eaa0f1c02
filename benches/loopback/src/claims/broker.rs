//! A broker that answers at once and keeps the tickets of [`CLAIMS_TOPIC`], for whoever fetches them later.
//!
//! The sink keeps nothing, and a ticket can only be redeemed if somebody signed it: so what sizegate forwards is kept
//! here as it came, but for its base offset. One thread for each connection: what is measured is a few large requests,
//! and small ones one at a time.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, RequestHeader,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::frames::CLAIMS_TOPIC_ID;
use crate::sink::control;

/// The largest request: what sizegate takes itself.
const MOST_BYTES: usize = 100 << 20;

/// The batches of each partition, at the offset of each: every batch has one record.
type Logs = Arc<Mutex<HashMap<i32, Vec<Bytes>>>>;

/// A running broker. Its threads end with the process.
pub struct Broker {
    address: SocketAddr,
    logs: Logs,
}

impl Broker {
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let logs = Logs::default();
        let theirs = Arc::clone(&logs);
        thread::Builder::new()
            .name("broker-accept".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let logs = Arc::clone(&theirs);
                    let serve = move || {
                        // Its peer goes away when it is done.
                        let _ = serve(stream, address.port(), &logs);
                    };
                    if let Err(error) = thread::Builder::new().name("broker".into()).spawn(serve) {
                        eprintln!("broker: {error}");
                    }
                }
            })?;
        Ok(Self { address, logs })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets all tickets.
    pub fn clear(&self) {
        self.logs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

fn serve(mut stream: TcpStream, port: u16, logs: &Logs) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix)?;
        let length = u32::from_be_bytes(prefix) as usize;
        if !(8..=MOST_BYTES).contains(&length) {
            return Err(io::Error::other("no request"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let response = answer(body.into(), port, logs).ok_or_else(|| io::Error::other("unspoken"));
        stream.write_all(&response?)?;
    }
}

/// The whole frame of a response; empty where none is wanted.
fn answer(request: Bytes, port: u16, logs: &Logs) -> Option<Vec<u8>> {
    let key = i16::from_be_bytes(request.get(..2)?.try_into().ok()?);
    let version = i16::from_be_bytes(request.get(2..4)?.try_into().ok()?);
    match ApiKey::try_from(key) {
        Ok(ApiKey::Produce) => {
            let (header, asked) = decode::<ProduceRequest>(request, ApiKey::Produce, version)?;
            if asked.acks == 0 {
                return Some(Vec::new());
            }
            encode(
                &produce(asked, version, logs),
                &header,
                ApiKey::Produce,
                version,
            )
        }
        Ok(ApiKey::Fetch) => {
            let (header, asked) = decode::<FetchRequest>(request, ApiKey::Fetch, version)?;
            encode(&fetch(&asked, logs), &header, ApiKey::Fetch, version)
        }
        _ => {
            let mut out = Vec::new();
            control::response(&request, port, &mut out)?;
            Some(out)
        }
    }
}

fn decode<R: Decodable>(
    mut request: Bytes,
    api: ApiKey,
    version: i16,
) -> Option<(RequestHeader, R)> {
    let header = RequestHeader::decode(&mut request, api.request_header_version(version)).ok()?;
    Some((header, R::decode(&mut request, version).ok()?))
}

fn encode<R: Encodable>(
    response: &R,
    header: &RequestHeader,
    api: ApiKey,
    version: i16,
) -> Option<Vec<u8>> {
    let mut out = BytesMut::zeroed(4);
    ResponseHeader::default()
        .with_correlation_id(header.correlation_id)
        .encode(&mut out, api.response_header_version(version))
        .ok()?;
    response.encode(&mut out, version).ok()?;
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    Some(out.to_vec())
}

fn produce(asked: ProduceRequest, version: i16, logs: &Logs) -> ProduceResponse {
    let topics = asked.topic_data.into_iter().map(|topic| {
        let is_kept = version >= 13 && topic.topic_id == CLAIMS_TOPIC_ID;
        let partitions = topic.partition_data.into_iter().map(|partition| {
            let mut offset = 0;
            if let (true, Some(records)) = (is_kept, partition.records) {
                let mut logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
                let log = logs.entry(partition.index).or_default();
                offset = log.len() as i64;
                let mut batch = records.to_vec();
                batch[..8].copy_from_slice(&offset.to_be_bytes());
                log.push(batch.into());
            }
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_base_offset(offset)
        });
        TopicProduceResponse::default()
            .with_name(topic.name)
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions.collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}

/// From the offset on as much as the client takes of a partition, one batch at least.
fn fetch(asked: &FetchRequest, logs: &Logs) -> FetchResponse {
    let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|of| {
            let log = logs.get(&of.partition).map_or(&[][..], Vec::as_slice);
            let from = usize::try_from(of.fetch_offset).unwrap_or(0).min(log.len());
            let mut records = BytesMut::new();
            for batch in &log[from..] {
                let most = usize::try_from(of.partition_max_bytes).unwrap_or(0);
                if !records.is_empty() && records.len() + batch.len() > most {
                    break;
                }
                records.extend_from_slice(batch);
            }
            PartitionData::default()
                .with_partition_index(of.partition)
                .with_high_watermark(log.len() as i64)
                .with_last_stable_offset(log.len() as i64)
                .with_log_start_offset(0)
                .with_aborted_transactions(None)
                .with_records(Some(records.freeze()))
        });
        FetchableTopicResponse::default()
            .with_topic_id(topic.topic_id)
            .with_partitions(partitions.collect())
    });
    FetchResponse::default().with_responses(topics.collect())
}
