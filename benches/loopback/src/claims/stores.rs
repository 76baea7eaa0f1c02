//! The stores: a folder on the disk, and a real S3 server that keeps its objects in one.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::free_ports;

/// The S3 server's bucket.
pub const BUCKET: &str = "bench";
pub const KEY: &str = "access-key";
pub const SECRET: &str = "secret-key-of-the-bench";

const START_DEADLINE: Duration = Duration::from_secs(30);

/// A store that ends, and whose objects go, when it is dropped.
pub struct Store {
    pub label: &'static str,
    /// Where its objects are.
    folder: PathBuf,
    /// Of the S3 server.
    server: Option<(Child, u16)>,
}

impl Store {
    /// `file://`.
    pub fn folder(directory: &Path) -> io::Result<Self> {
        let folder = fs::canonicalize(directory)?.join("claims-file");
        clear(&folder)?;
        Ok(Self {
            label: "file://",
            folder,
            server: None,
        })
    }

    /// s3s-fs, whose buckets are folders.
    pub fn s3(program: &Path, directory: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(directory)?.join("claims-s3");
        let folder = root.join(BUCKET);
        clear(&folder)?;
        let port = free_ports(1)?;
        let log = File::create(directory.join("s3s-fs.log"))?;
        let mut command = Command::new(program);
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", KEY, "--secret-key", SECRET])
            .arg(&root)
            .env("RUST_LOG", "error");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let store = Self {
            label: "S3",
            folder,
            server: Some((child, port)),
        };
        let start = Instant::now();
        while TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
            if start.elapsed() > START_DEADLINE {
                return Err(io::Error::other("the S3 server did not start"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(store)
    }

    /// As the plain process takes it.
    pub fn plain(&self) -> String {
        match &self.server {
            None => self.folder.display().to_string(),
            Some((_, port)) => format!("http://127.0.0.1:{port}"),
        }
    }

    /// As sizegate takes it; two spaces in.
    pub fn yaml(&self) -> String {
        match &self.server {
            None => format!("  store: file://{}\n", self.folder.display()),
            Some((_, port)) => format!(
                "  store: s3://{BUCKET}\n  store_options: {{endpoint: 'http://127.0.0.1:{port}', region: us-east-1, \
                 allow_http: 'true', access_key_id: {KEY}, secret_access_key: {SECRET}}}\n"
            ),
        }
    }

    /// The key of an object in the store, by the URI that a ticket names.
    pub fn key<'a>(&self, uri: &'a str) -> Option<&'a str> {
        match &self.server {
            None => uri
                .strip_prefix("file://")?
                .strip_prefix(&*self.folder.to_string_lossy())?
                .strip_prefix('/'),
            Some(_) => uri
                .strip_prefix("s3://")?
                .strip_prefix(BUCKET)?
                .strip_prefix('/'),
        }
    }

    /// Removes all objects.
    pub fn clear(&self) -> io::Result<()> {
        clear(&self.folder)
    }
}

/// The folder, with nothing in it.
fn clear(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.server {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.clear();
    }
}
