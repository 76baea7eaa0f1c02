//! What is compared with: a process of its own that puts and gets objects with the library that sizegate uses, and
//! nothing else.
//!
//! *Bare*: objects from memory to the store, or from the store to nowhere. *Whole*: with what no claim check can do
//! without, each value comes from a client's socket or goes to one, and its SHA-256 is counted. The library is set as
//! sizegate sets it: files written beside, synced and renamed; S3 with SHA-256 checksums, nothing tried again.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::stores::{BUCKET, KEY, SECRET};
use crate::frames::Large;
use crate::process;

/// Which way objects go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    Put,
    Get,
}

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    Bare,
    Whole,
}

#[derive(Args)]
pub struct PlainArgs {
    /// A folder, or the endpoint of an S3 server.
    store: String,
    #[arg(long, value_enum)]
    way: Way,
    #[arg(long, value_enum)]
    how: How,
    /// How many objects.
    #[arg(long)]
    count: usize,
    /// How large each is.
    #[arg(long)]
    value_bytes: usize,
    /// How many at a time.
    #[arg(long)]
    connections: usize,
    /// What its values differ by from those of other runs.
    #[arg(long)]
    seed: u64,
}

/// What it tells.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Told {
    pub bytes: u64,
    pub seconds: f64,
    pub cpu_user_seconds: f64,
    pub cpu_system_seconds: f64,
}

/// The store as sizegate opens it.
pub fn open(store: &str) -> io::Result<Arc<dyn ObjectStore>> {
    if !store.starts_with("http") {
        let folder = LocalFileSystem::new_with_prefix(store)?.with_fsync(true);
        return Ok(Arc::new(folder));
    }
    // TLS is not spoken, and its provider is asked for all the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bucket = AmazonS3Builder::new()
        .with_endpoint(store)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(KEY)
        .with_secret_access_key(SECRET)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    Ok(Arc::new(bucket.build()?))
}

/// The process: says its port, waits for a line, does its work, and tells what it took.
pub fn run(args: &PlainArgs) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work(args))
}

async fn work(args: &PlainArgs) -> io::Result<()> {
    let store = open(&args.store)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let paths = match args.way {
        Way::Put => Vec::new(),
        Way::Get => objects(&*store, args).await?,
    };
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let mut clients = Vec::new();
    if args.how == How::Whole {
        for _ in 0..args.connections {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            clients.push(stream);
        }
    }
    let own = match (args.way, args.how) {
        (Way::Put, How::Bare) => values(args),
        _ => Vec::new(),
    };
    io::stdin().lock().read_line(&mut String::new())?;
    let (began, before) = (Instant::now(), process::cpu(std::process::id())?);
    let next = AtomicUsize::new(0);
    let share = |at: usize| (at..args.count).step_by(args.connections).len();
    match (args.way, args.how) {
        (Way::Put, How::Bare) => {
            let lanes = (0..args.connections).map(|_| put_own(&*store, args, &own, &next));
            try_join_all(lanes).await?;
        }
        (Way::Put, How::Whole) => {
            let lanes = clients.into_iter().enumerate();
            let lanes =
                lanes.map(|(at, client)| put_theirs(&*store, args, client, share(at), &next));
            try_join_all(lanes).await?;
        }
        (Way::Get, How::Bare) => {
            let lanes = (0..args.connections).map(|_| get(&*store, args, &paths, &next, None));
            try_join_all(lanes).await?;
        }
        (Way::Get, How::Whole) => {
            let lanes = clients.into_iter();
            let lanes = lanes.map(|client| get(&*store, args, &paths, &next, Some(client)));
            try_join_all(lanes).await?;
        }
    }
    let cpu = process::cpu(std::process::id())?.since(before);
    let told = Told {
        bytes: (args.count * args.value_bytes) as u64,
        seconds: began.elapsed().as_secs_f64(),
        cpu_user_seconds: cpu.user.as_secs_f64(),
        cpu_system_seconds: cpu.system.as_secs_f64(),
    };
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

/// The objects of that size that somebody wrote.
async fn objects(store: &dyn ObjectStore, args: &PlainArgs) -> io::Result<Vec<Path>> {
    let all: Vec<_> = store.list(None).try_collect().await?;
    let all = all
        .into_iter()
        .filter(|object| object.size == args.value_bytes as u64);
    let paths: Vec<Path> = all.map(|object| object.location).collect();
    if paths.len() < args.count {
        return Err(io::Error::other(format!(
            "{} objects, not {}",
            paths.len(),
            args.count
        )));
    }
    Ok(paths)
}

fn values(args: &PlainArgs) -> Vec<Bytes> {
    let mut large = Large::new(args.value_bytes, 0);
    let number = |n: usize| u128::from(args.seed) << 64 | n as u128;
    let value = |n| Bytes::from(large.value(number(n)).concat());
    (0..args.count).map(value).collect()
}

async fn put(store: &dyn ObjectStore, args: &PlainArgs, n: usize, value: Bytes) -> io::Result<()> {
    let path = Path::from(format!("plain/{}/{n}", args.seed));
    let options = PutOptions {
        mode: PutMode::Create,
        ..PutOptions::default()
    };
    store
        .put_opts(&path, PutPayload::from(value), options)
        .await?;
    Ok(())
}

async fn put_own(
    store: &dyn ObjectStore,
    args: &PlainArgs,
    own: &[Bytes],
    next: &AtomicUsize,
) -> io::Result<()> {
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let Some(value) = own.get(n) else {
            return Ok(());
        };
        put(store, args, n, value.clone()).await?;
    }
}

/// So many values of one client, each answered by a byte.
async fn put_theirs(
    store: &dyn ObjectStore,
    args: &PlainArgs,
    mut client: TcpStream,
    count: usize,
    next: &AtomicUsize,
) -> io::Result<()> {
    for _ in 0..count {
        let mut value = Vec::with_capacity(args.value_bytes);
        let read = (&mut client)
            .take(args.value_bytes as u64)
            .read_to_end(&mut value)
            .await?;
        if read < args.value_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let value = digested(value.into()).await?;
        let n = next.fetch_add(1, Ordering::Relaxed);
        put(store, args, n, value).await?;
        client.write_all(&[1]).await?;
    }
    Ok(())
}

/// Each object once among all connections; to its client, if it has one.
async fn get(
    store: &dyn ObjectStore,
    args: &PlainArgs,
    paths: &[Path],
    next: &AtomicUsize,
    mut client: Option<TcpStream>,
) -> io::Result<()> {
    while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
        let value = store.get(path).await?.bytes().await?;
        if value.len() != args.value_bytes {
            return Err(io::Error::other("another object"));
        }
        if let Some(client) = &mut client {
            let value = digested(value).await?;
            client.write_all(&value).await?;
        }
    }
    Ok(())
}

/// Away from the thread that everything runs on, as it takes milliseconds.
async fn digested(value: Bytes) -> io::Result<Bytes> {
    let digested = tokio::task::spawn_blocking(move || {
        std::hint::black_box(Sha256::digest(&value));
        value
    });
    digested.await.map_err(io::Error::other)
}
