//! What a client does through the proxy: it sends a record, has one refused, sends another, and reads what is there.
//!
//! `bootstrap= topic=`. One JSON line: the refusal's text, the values read.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use chrono::DateTime;
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::record::Record;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<&str, &str> = arguments.iter().filter_map(|argument| argument.split_once('=')).collect();
    let option = |name: &str| options.get(name).copied().ok_or_else(|| format!("{name}= is missing"));
    let bootstrap = option("bootstrap")?.split(',').map(str::to_owned).collect();
    let client = ClientBuilder::new(bootstrap).build().await?;
    let partition = client.partition_client(option("topic")?, 0, UnknownTopicHandling::Error).await?;
    let send = async |value: Vec<u8>| {
        let record = Record {
            key: None,
            value: Some(value),
            headers: BTreeMap::new(),
            timestamp: DateTime::UNIX_EPOCH,
        };
        partition.produce(vec![record], Compression::NoCompression).await
    };
    send(b"first".to_vec()).await?;
    let refusal = match send(vec![b'x'; 100_000]).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    send(b"last".to_vec()).await?;
    let mut offset = partition.get_offset(OffsetAt::Earliest).await?;
    let mut read = Vec::new();
    while read.last().is_none_or(|value| value != "last") {
        let (records, _) = partition.fetch_records(offset, 1..1_000_000, 1_000).await?;
        for record in records {
            offset = record.offset + 1;
            let value = record.record.value.unwrap_or_default();
            read.push(String::from_utf8_lossy(&value[..value.len().min(9)]).into_owned());
        }
    }
    println!("{{\"refusal\": {refusal:?}, \"read\": {:?}}}", read.join(" "));
    Ok(())
}
