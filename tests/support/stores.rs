//! Real object stores: two S3 servers, which differ, and a client for them that is not sizegate's.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use super::process::{Supervised, new_dir};
use super::programs::{self, Program};
use super::{eventually, http, ports, unique};

/// A guard against hanging: Python starts slowly on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(180);
const KEY: &str = "access-key";
const SECRET: &str = "secret-key-of-the-tests";

/// Which S3 server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Keeps objects in memory; takes a wrong checksum.
    Moto,
    /// Keeps them in files; checks signatures and checksums.
    S3sFs,
}

impl Server {
    pub const ALL: [Self; 2] = [Self::Moto, Self::S3sFs];
}

/// A bucket of one's own on a server that tests share.
pub struct Bucket {
    port: u16,
    /// Its name.
    pub name: String,
}

/// Azurite's own account, which its documentation publishes.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A container on an Azurite of its own.
pub struct Azurite {
    port: u16,
    _process: Supervised,
}

impl Azurite {
    pub fn start() -> Self {
        let modules = programs::script("object-stores.sh", &["azurite"]);
        let (dir, port) = (new_dir("azurite"), ports::free_ports(1));
        let mut command = Command::new("node");
        command.arg(modules.join("azurite/dist/src/blob/main.js"));
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        command
            .args(["--skipApiVersionCheck", "--silent", "--location"])
            .arg(&dir);
        let process = Supervised::spawn(&command, &dir);
        eventually(PATIENCE, "Azurite answers", || {
            assert!(
                process.is_running(),
                "Azurite ended\n{}",
                process.last_words()
            );
            http::get(([127, 0, 0, 1], port).into(), "/").ok()
        });
        let azurite = Self {
            port,
            _process: process,
        };
        azurite.ask("create");
        azurite
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{AZURE_ACCOUNT}", self.port)
    }

    /// `store:` and `store_options:` of a `claim_check`, two spaces in.
    pub fn yaml(&self) -> String {
        format!(
            "  store: az://claims/all\n  store_options: {{endpoint: '{}', account_name: {AZURE_ACCOUNT}, \
             account_key: '{AZURE_KEY}', allow_http: 'true'}}\n",
            self.endpoint()
        )
    }

    /// All objects, by key.
    pub fn objects(&self) -> Vec<Object> {
        self.ask("list").iter().map(Object::read).collect()
    }

    fn ask(&self, action: &str) -> Vec<Value> {
        Program::stores("azure.py")
            .arg("endpoint", self.endpoint())
            .arg("account", AZURE_ACCOUNT)
            .arg("key", AZURE_KEY)
            .arg("container", "claims")
            .arg("do", action)
            .run()
            .lines
    }
}

/// An object as the other client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub size: u64,
    pub sha256: String,
    /// As the store keeps it, in base64.
    pub checksum: Option<String>,
}

impl Object {
    fn read(line: &Value) -> Self {
        let text = |field: &str| line[field].as_str().map(str::to_owned);
        Self {
            key: text("key").unwrap(),
            size: line["size"].as_u64().unwrap(),
            sha256: text("sha256").unwrap(),
            checksum: text("checksum"),
        }
    }
}

/// The servers that were started, each with its port.
static SERVERS: Mutex<Vec<(Server, u16, Supervised)>> = Mutex::new(Vec::new());

fn port_of(server: Server) -> u16 {
    let mut servers = super::lock(&SERVERS);
    if let Some((_, port, _)) = servers.iter().find(|(kind, _, _)| *kind == server) {
        return *port;
    }
    let port = ports::free_ports(1);
    let dir = new_dir("store");
    let port_text = port.to_string();
    let mut command = match server {
        Server::Moto => {
            let python = programs::script("object-stores.sh", &["moto"]);
            let mut command = Command::new(python.with_file_name("moto_server"));
            command.args(["-H", "127.0.0.1", "-p", &port_text]);
            command
        }
        Server::S3sFs => {
            let mut command = Command::new(programs::script("object-stores.sh", &["s3s-fs"]));
            let folder = dir.join("buckets");
            std::fs::create_dir_all(&folder).unwrap();
            command.args(["--host", "127.0.0.1", "--port", &port_text]);
            command
                .args(["--access-key", KEY, "--secret-key", SECRET])
                .arg(folder);
            command
        }
    };
    command.env("RUST_LOG", "warn");
    let process = Supervised::spawn(&command, &dir);
    eventually(PATIENCE, &format!("{server:?} answers"), || {
        assert!(
            process.is_running(),
            "{server:?} ended\n{}",
            process.last_words()
        );
        http::get(([127, 0, 0, 1], port).into(), "/").ok()
    });
    servers.push((server, port, process));
    port
}

impl Bucket {
    /// An empty one.
    pub fn new(server: Server) -> Self {
        let bucket = Self {
            port: port_of(server),
            name: unique("claims"),
        };
        bucket.ask("create", &[]);
        bucket
    }

    /// `store:` and `store_options:` of a `claim_check`, two spaces in.
    pub fn yaml(&self) -> String {
        self.yaml_as(KEY, SECRET)
    }

    /// With other credentials.
    pub fn yaml_as(&self, key: &str, secret: &str) -> String {
        format!(
            "  store: s3://{}/all\n  store_options: {{endpoint: 'http://127.0.0.1:{}', region: us-east-1, \
             allow_http: 'true', access_key_id: {key}, secret_access_key: {secret}}}\n",
            self.name, self.port
        )
    }

    /// All objects, by key.
    pub fn objects(&self) -> Vec<Object> {
        let mut objects: Vec<Object> = self.ask("list", &[]).iter().map(Object::read).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }

    pub fn delete(&self, key: &str) {
        self.ask("delete", &[("object", key)]);
    }

    pub fn put(&self, key: &str, text: &str) {
        self.ask("put", &[("object", key), ("text", text)]);
    }

    fn ask(&self, action: &str, more: &[(&str, &str)]) -> Vec<Value> {
        let mut program = Program::stores("s3.py")
            .arg("endpoint", format!("http://127.0.0.1:{}", self.port))
            .arg("key", KEY)
            .arg("secret", SECRET)
            .arg("bucket", &self.name)
            .arg("do", action);
        for (key, value) in more {
            program = program.arg(key, value);
        }
        program.run().lines
    }
}

/// A store of one's own, of whatever kind, as it is seen without sizegate. Keys are those below the store's folder.
pub enum Store {
    Folder(PathBuf),
    Bucket(Bucket),
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Self::Folder(folder) = self {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// The folder in a bucket that [`Bucket::yaml`] names.
const IN_BUCKET: &str = "all/";

impl Store {
    pub fn folder() -> Self {
        Self::Folder(new_dir("claims"))
    }

    pub fn bucket(server: Server) -> Self {
        Self::Bucket(Bucket::new(server))
    }

    /// `store:` and `store_options:` of a `claim_check`, two spaces in.
    pub fn yaml(&self) -> String {
        match self {
            Self::Folder(folder) => format!("  store: file://{}\n", folder.display()),
            Self::Bucket(bucket) => bucket.yaml(),
        }
    }

    /// The key of every object, ascending.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = match self {
            Self::Folder(folder) => files_below(folder),
            Self::Bucket(bucket) => {
                let objects = bucket.objects().into_iter();
                objects
                    .map(|object| object.key.trim_start_matches(IN_BUCKET).to_owned())
                    .collect()
            }
        };
        keys.sort();
        keys
    }

    pub fn delete(&self, key: &str) {
        match self {
            Self::Folder(folder) => fs::remove_file(folder.join(key)).unwrap(),
            Self::Bucket(bucket) => bucket.delete(&format!("{IN_BUCKET}{key}")),
        }
    }

    pub fn put(&self, key: &str, text: &str) {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(key);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self::Bucket(bucket) => bucket.put(&format!("{IN_BUCKET}{key}"), text),
        }
    }

    pub fn rename(&self, key: &str, to: &str) {
        match self {
            Self::Folder(folder) => {
                let to = folder.join(to);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::rename(folder.join(key), to).unwrap();
            }
            Self::Bucket(bucket) => {
                let [key, to] = [key, to].map(|key| format!("{IN_BUCKET}{key}"));
                bucket.ask("rename", &[("object", &key), ("to", &to)]);
            }
        }
    }
}

/// All files below a folder, relative to it, in order.
pub fn files_below(folder: &std::path::Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    files.sort();
    files
}
