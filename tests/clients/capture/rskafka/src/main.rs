//! Sends given records with rskafka, all in one batch.
//!
//! `bootstrap= topic= records=FILE [codec=none|gzip|snappy|lz4|zstd]`
//!
//! FILE has a line for each record: its key, a space, its value in base64.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::record::Record;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<&str, &str> = arguments.iter().filter_map(|argument| argument.split_once('=')).collect();
    let option = |name: &str| options.get(name).copied().ok_or_else(|| format!("{name}= is missing"));
    let codec = match options.get("codec").copied() {
        None | Some("none") => Compression::NoCompression,
        Some("gzip") => Compression::Gzip,
        Some("snappy") => Compression::Snappy,
        Some("lz4") => Compression::Lz4,
        Some("zstd") => Compression::Zstd,
        Some(other) => return Err(format!("unknown codec {other}").into()),
    };
    let mut records = Vec::new();
    for line in std::fs::read_to_string(option("records")?)?.lines() {
        let (key, value) = line.split_once(' ').ok_or("a line is a key, a space and a value")?;
        records.push(Record {
            key: Some(key.into()),
            value: Some(STANDARD.decode(value)?),
            headers: BTreeMap::new(),
            timestamp: DateTime::UNIX_EPOCH,
        });
    }
    let bootstrap = option("bootstrap")?.split(',').map(str::to_owned).collect();
    let client = ClientBuilder::new(bootstrap).build().await?;
    let partition = client.partition_client(option("topic")?, 0, UnknownTopicHandling::Error).await?;
    partition.produce(records, codec).await?;
    Ok(())
}
