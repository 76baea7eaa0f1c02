//! The object store as the claim check uses it: a folder, and an S3 that answers what a test scripts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::stores::files_below;
use bytes::Bytes;
use sizegate::claim::{
    Class, ContentType, Digest, Issuer, Key, Keys, Layout, Namespace, ObjectForm, Patience, Place,
    Put, Service, Store, Ticket, Upload,
};
use sizegate::telemetry::ClaimMetrics;
use tokio_util::sync::CancellationToken;

const DAY: Duration = Duration::from_secs(86_400);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Pauses that cost a test nothing; an attempt may take as long as a slow machine needs.
fn quick() -> Patience {
    Patience {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        attempt: Duration::from_secs(30),
        ..Patience::default()
    }
}

fn namespace(base: &str) -> Namespace {
    Namespace::new(base, "cluster-1")
}

fn place(topic: &str, value: &[u8]) -> Place {
    namespace("x://y").place(
        topic,
        Layout::Content,
        ObjectForm::Plain,
        &Digest::of(value),
        SystemTime::now(),
    )
}

// ---- a folder ----

fn folder_store(folder: &Path) -> Store {
    let uri = format!("file://{}", folder.display());
    Store::open(&uri.parse().unwrap(), &[])
        .unwrap()
        .with_patience(quick())
}

#[test]
fn a_folder_keeps_what_was_put_and_gives_it_back() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("claims");
    let store = folder_store(&folder);
    let value = Bytes::from(vec![b'v'; 300_000]);
    let at = place("orders", &value);
    runtime().block_on(async {
        assert_eq!(store.head(&at).await, Ok(None));
        let missing = store.get(&at, 300_000).await.unwrap_err();
        assert_eq!(
            (missing.class, missing.code.as_str()),
            (Class::Missing, "NotFound")
        );
        assert_eq!(store.put(&at, &value, DAY).await, Ok(Put::Created));
        assert_eq!(store.put(&at, &value, DAY).await, Ok(Put::There));
        // As if every object were too old.
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(
            store.put(&at, &value, Duration::ZERO).await,
            Ok(Put::Renewed)
        );
        assert_eq!(store.get(&at, 300_000).await, Ok(value.clone()));
        let there = store.head(&at).await.unwrap().unwrap();
        assert_eq!((there.key.as_str(), there.bytes), (at.key(), 300_000));
        let other = store.get(&at, 299_999).await.unwrap_err();
        assert_eq!(
            (other.class, other.code.as_str()),
            (Class::Corrupt, "SizeMismatch")
        );
        let mut listed = Vec::new();
        store
            .list(&namespace("").prefix("orders"), |object| {
                listed.push(object.key)
            })
            .await
            .unwrap();
        assert_eq!(listed, [at.key()]);
        assert_eq!(files_below(&folder), [at.key()]);
        assert_eq!(store.delete(&at).await, Ok(()));
        assert_eq!(store.delete(&at).await, Ok(()));
        assert_eq!(files_below(&folder), Vec::<String>::new());
    });
}

#[test]
fn nothing_leaves_the_folder_whatever_a_topic_is_called() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("claims");
    let store = folder_store(&folder);
    let topics = [
        "..",
        ".",
        "../../x",
        "/etc",
        "a/../../b",
        "",
        "\0",
        "a#1",
        "~",
        "%2e%2e",
        "ä",
    ];
    let value = Bytes::from_static(b"value");
    runtime().block_on(async {
        for topic in topics {
            let at = place(topic, &value);
            assert_eq!(
                store.put(&at, &value, DAY).await,
                Ok(Put::Created),
                "{topic:?}"
            );
            assert_eq!(store.get(&at, 5).await, Ok(value.clone()), "{topic:?}");
            assert_eq!(store.head(&at).await.unwrap().unwrap().key, at.key());
        }
    });
    assert_eq!(files_below(&folder).len(), topics.len());
    assert_eq!(files_below(outside.path()).len(), topics.len());
}

#[test]
fn a_folder_that_cannot_be_written_is_a_matter_of_configuration() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("claims");
    let store = folder_store(&folder);
    // A file where the topic's folder would be: nobody can make it, not even root.
    fs::write(folder.join("cluster-1"), "in the way").unwrap();
    let value = Bytes::from_static(b"value");
    let at = place("orders", &value);
    let failure = runtime().block_on(store.put(&at, &value, DAY)).unwrap_err();
    assert_eq!(failure.class, Class::Config, "{failure}");
    let beneath = format!("file://{}/cluster-1/x", folder.display());
    assert!(Store::open(&beneath.parse().unwrap(), &[]).is_err());
}

// ---- an S3 with a script ----

/// What it does to the next request of a method.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A status and the code in the body.
    Error(u16, &'static str),
    /// The connection is closed before anything is said.
    Reset,
    /// The head promises all of the object, the connection ends in the middle.
    Cut,
    /// Nothing at all.
    Silence,
    /// The object as it should be, with a byte changed.
    Tampered,
    /// The request is done, and the connection closed before that is said.
    DoneAndReset,
    /// The request is done, and nothing is said of it.
    DoneAndSilence,
    /// The connection is closed before the request's body is read.
    ResetInTheMiddle,
    /// The request is done, a second late.
    Late,
    /// None: for one among others.
    Sound,
    /// None, when the test says so; until then it is seen as `HELD`.
    Held(CancellationToken),
}

#[derive(Default)]
struct Bucket {
    /// What becomes of every such request.
    always: Option<(String, Fault)>,
    /// Nobody may list: what is missing is denied.
    denies_missing: bool,
    objects: HashMap<String, (Vec<u8>, SystemTime)>,
    faults: VecDeque<(String, Fault)>,
    /// Method and path of each request, and when it came.
    seen: Vec<(Instant, String)>,
    /// What each upload says of its checksum.
    checksums: Vec<String>,
}

#[derive(Clone)]
pub struct S3 {
    bucket: Arc<Mutex<Bucket>>,
    pub port: u16,
}

impl S3 {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let s3 = Self {
            bucket: Arc::default(),
            port: listener.local_addr().unwrap().port(),
        };
        let serving = s3.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream.unwrap()));
            }
        });
        s3
    }

    fn store(&self, patience: Patience) -> Store {
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let options = [
            option("endpoint", &format!("http://127.0.0.1:{}", self.port)),
            option("region", "eu-west-1"),
            option("allow_http", "true"),
            option("access_key_id", "k"),
            option("secret_access_key", "s"),
        ];
        Store::open(&"s3://bucket/claims".parse().unwrap(), &options)
            .unwrap()
            .with_patience(patience)
    }

    pub fn script(&self, method: &str, faults: impl IntoIterator<Item = Fault>) {
        let faults = faults.into_iter().map(|fault| (method.to_owned(), fault));
        self.bucket.lock().unwrap().faults.extend(faults);
    }

    pub fn seen(&self, method: &str) -> usize {
        let bucket = self.bucket.lock().unwrap();
        bucket
            .seen
            .iter()
            .filter(|(_, seen)| seen.starts_with(method))
            .count()
    }

    /// When each object was asked for in its place, by its path.
    pub fn looks(&self) -> BTreeMap<String, Vec<Instant>> {
        let mut looks: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
        for (at, seen) in &self.bucket.lock().unwrap().seen {
            let path = seen
                .strip_prefix("GET ")
                .filter(|path| !path.contains("/trash/"));
            if let Some(path) = path {
                looks.entry(path.to_owned()).or_default().push(*at);
            }
        }
        looks
    }

    /// What becomes of every such request from now on.
    pub fn always(&self, method: &str, fault: Option<Fault>) {
        self.bucket.lock().unwrap().always = fault.map(|fault| (method.to_owned(), fault));
    }

    /// From now on nobody may list.
    pub fn deny_missing(&self) {
        self.bucket.lock().unwrap().denies_missing = true;
    }

    /// All objects are gone.
    pub fn forget(&self) {
        self.bucket.lock().unwrap().objects.clear();
    }

    /// `store:` and `store_options:` of a `claim_check`, two spaces in.
    pub fn yaml(&self) -> String {
        format!(
            "  store: s3://bucket/claims\n  store_options: {{endpoint: 'http://127.0.0.1:{}', region: eu-west-1, \
             allow_http: 'true', access_key_id: k, secret_access_key: s}}\n",
            self.port
        )
    }

    /// The same as Google's: with a service account that needs no token.
    pub fn google_yaml(&self) -> String {
        let account = "{\"private_key\": \"p\", \"private_key_id\": \"i\", \"client_email\": \"e\", \"disable_oauth\": true}";
        format!(
            "  store: gs://bucket/claims\n  store_options: {{base_url: 'http://127.0.0.1:{}', allow_http: 'true', \
             service_account_key: '{account}'}}\n",
            self.port
        )
    }

    /// What each upload said of its checksum.
    pub fn checksums(&self) -> Vec<String> {
        self.bucket.lock().unwrap().checksums.clone()
    }

    /// Every object that is there.
    pub fn objects(&self) -> usize {
        self.bucket.lock().unwrap().objects.len()
    }

    fn put(&self, place: &Place, object: &[u8], written: SystemTime) {
        let key = format!("/bucket/claims/{}", place.key());
        let mut bucket = self.bucket.lock().unwrap();
        bucket.objects.insert(key, (object.to_vec(), written));
    }

    fn object(&self, place: &Place) -> Option<Vec<u8>> {
        let key = format!("/bucket/claims/{}", place.key());
        let bucket = self.bucket.lock().unwrap();
        bucket.objects.get(&key).map(|(object, _)| object.clone())
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let mut words = head[0].split(' ');
        let method = words.next().unwrap().to_owned();
        let path = words.next().unwrap();
        let path = percent_decoded(path);
        let header = |name: &str| {
            head.iter().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        if let Some(checksum) = header("x-amz-checksum-sha256") {
            self.bucket.lock().unwrap().checksums.push(checksum);
        }
        match self.before_the_body(&method, &path) {
            Some(Fault::Held(token)) => {
                while !token.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Some(_) => return,
            None => {}
        }
        let length = header("content-length").map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let google = header("x-goog-if-generation-match").is_some_and(|of| of == "0");
        let is_create = google || header("if-none-match").is_some();
        let late = self.bucket.lock().unwrap().always.clone();
        if late.is_some_and(|(on, fault)| on == method && matches!(fault, Fault::Late)) {
            std::thread::sleep(Duration::from_secs(1));
        }
        let response = self.response(&method, &path, body, is_create);
        response.write(stream, &method);
    }

    /// The next fault, if it comes before the request's body is read.
    fn before_the_body(&self, method: &str, path: &str) -> Option<Fault> {
        let mut bucket = self.bucket.lock().unwrap();
        let seen = match bucket.faults.front() {
            Some((on, Fault::ResetInTheMiddle)) if *on == method => format!("{method} {path}"),
            Some((on, Fault::Held(_))) if *on == method => "HELD".to_owned(),
            _ => return None,
        };
        bucket.seen.push((Instant::now(), seen));
        bucket.faults.pop_front().map(|(_, fault)| fault)
    }

    fn response(&self, method: &str, path: &str, body: Vec<u8>, is_create: bool) -> Response {
        let mut bucket = self.bucket.lock().unwrap();
        bucket
            .seen
            .push((Instant::now(), format!("{method} {path}")));
        let always = bucket.always.clone();
        let fault = match bucket.faults.front() {
            Some((on, _)) if on == method => bucket.faults.pop_front().map(|(_, fault)| fault),
            _ => always
                .filter(|(on, _)| on == method)
                .map(|(_, fault)| fault),
        };
        match fault {
            Some(Fault::Error(status, code)) => return Response::error(status, code),
            Some(Fault::Reset) => return Response::Close,
            Some(Fault::Silence) => return Response::Silence,
            _ => {}
        }
        if let Some(prefix) = path.strip_prefix("/bucket?").and_then(listed_prefix) {
            return match bucket.denies_missing {
                true => Response::error(403, "AccessDenied"),
                false => bucket.list(&prefix),
            };
        }
        let there = bucket.objects.get(path).cloned();
        let response = match (method, there) {
            ("GET" | "HEAD", None) if bucket.denies_missing => Response::error(403, "AccessDenied"),
            // Of many at a time, by their keys.
            ("POST", _) if path.contains("?delete") => {
                let body = String::from_utf8(body).unwrap();
                for key in body.split("<Key>").skip(1) {
                    let key = key.split("</Key>").next().unwrap();
                    bucket.objects.remove(&format!("/bucket/{key}"));
                }
                Response::Object(b"<DeleteResult/>".to_vec(), SystemTime::now())
            }
            ("DELETE", _) => {
                bucket.objects.remove(path);
                Response::Object(Vec::new(), SystemTime::now())
            }
            ("PUT", Some(_)) if is_create => Response::error(412, "PreconditionFailed"),
            ("PUT", _) => {
                bucket
                    .objects
                    .insert(path.to_owned(), (body, SystemTime::now()));
                Response::Object(Vec::new(), SystemTime::now())
            }
            ("GET" | "HEAD", Some((object, written))) => Response::Object(object, written),
            ("GET" | "HEAD", None) => Response::error(404, "NoSuchKey"),
            other => panic!("{other:?}"),
        };
        match (fault, response) {
            (Some(Fault::DoneAndReset), _) => Response::Close,
            (Some(Fault::DoneAndSilence), _) => Response::Silence,
            (Some(Fault::Cut), Response::Object(object, written)) => Response::Cut(object, written),
            (Some(Fault::Tampered), Response::Object(mut object, written)) => {
                object[0] ^= 1;
                Response::Object(object, written)
            }
            (_, response) => response,
        }
    }
}

/// What a request lists, if it does.
fn listed_prefix(query: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(key, _)| *key == "prefix")
        .map(|(_, prefix)| prefix.to_owned())
}

fn percent_decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (hex, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(hex, 16).unwrap()));
        decoded.push_str(rest);
    }
    decoded
}

impl Bucket {
    fn list(&self, prefix: &str) -> Response {
        let prefix = format!("/bucket/{prefix}");
        let below = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix));
        let entries: String = below
            .map(|(key, (object, written))| {
                format!(
                    "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>\"e\"</ETag><Size>{}</Size></Contents>",
                    key.trim_start_matches("/bucket/"),
                    sizegate::text::rfc3339(*written),
                    object.len()
                )
            })
            .collect();
        let body = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        );
        Response::Object(body.into_bytes(), SystemTime::now())
    }
}

enum Response {
    Error(u16, String),
    Object(Vec<u8>, SystemTime),
    Cut(Vec<u8>, SystemTime),
    Close,
    Silence,
}

impl Response {
    fn error(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"
        );
        Self::Error(status, body)
    }

    fn write(self, mut stream: TcpStream, method: &str) {
        let has_body = method != "HEAD";
        let (status, object, written, sent) = match self {
            Self::Close => return,
            Self::Silence => {
                // Until the other side has had enough.
                let _ = stream.read(&mut [0]);
                return;
            }
            Self::Error(status, body) => (status, body.into_bytes(), UNIX_EPOCH, usize::MAX),
            Self::Object(object, written) => (200, object, written, usize::MAX),
            Self::Cut(object, written) => {
                let half = object.len() / 2;
                (200, object, written, half)
            }
        };
        let seconds = written.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\netag: \"e\"\r\nlast-modified: {}\r\nconnection: close\r\n\r\n",
            object.len(),
            http_date(seconds),
        );
        let _ = stream.write_all(head.as_bytes());
        if has_body {
            let _ = stream.write_all(&object[..sent.min(object.len())]);
        }
    }
}

/// RFC 9110, section 5.6.7.
fn http_date(seconds: u64) -> String {
    let at = sizegate::text::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let month = months[at[5..7].parse::<usize>().unwrap() - 1];
    let day = days[(seconds / 86_400 % 7) as usize];
    format!(
        "{day}, {} {month} {} {} GMT",
        &at[8..10],
        &at[..4],
        &at[11..19]
    )
}

const VALUE: &[u8] = &[b'v'; 100_000];

#[test]
fn what_passes_is_tried_again_and_the_object_is_there() {
    for fault in [
        Fault::Error(500, "InternalError"),
        Fault::Error(503, "SlowDown"),
        Fault::Error(429, "TooManyRequests"),
        Fault::Error(408, "RequestTimeout"),
        Fault::Error(409, "ConditionalRequestConflict"),
        Fault::Error(400, "ExpiredToken"),
        Fault::Error(403, "RequestExpired"),
        Fault::Error(502, ""),
        Fault::Reset,
    ] {
        let s3 = S3::start();
        let at = place("orders", VALUE);
        let value = Bytes::from_static(VALUE);
        s3.script("PUT", [fault.clone(), fault.clone()]);
        let put = runtime().block_on(s3.store(quick()).put(&at, &value, DAY));
        assert_eq!(put, Ok(Put::Created), "{fault:?}");
        assert_eq!(s3.object(&at).as_deref(), Some(VALUE));
        assert_eq!(s3.seen("PUT"), 3, "{fault:?}");
        assert_eq!(s3.seen("HEAD"), 0, "{fault:?}");

        s3.script("GET", [fault.clone(), fault.clone()]);
        let got = runtime().block_on(s3.store(quick()).get(&at, VALUE.len() as u64));
        assert_eq!(got, Ok(value), "{fault:?}");
        assert_eq!(s3.seen("GET"), 3, "{fault:?}");
    }
}

#[test]
fn attempts_are_bounded() {
    let s3 = S3::start();
    let at = place("orders", VALUE);
    s3.script("PUT", vec![Fault::Error(503, "SlowDown"); 9]);
    let put = runtime().block_on(s3.store(quick()).put(&at, &Bytes::from_static(VALUE), DAY));
    let failure = put.unwrap_err();
    assert_eq!(
        (failure.class, failure.code.as_str()),
        (Class::Transient, "SlowDown")
    );
    assert_eq!(s3.seen("PUT"), 4);
}

#[test]
fn what_somebody_must_mend_is_tried_once() {
    for (status, code) in [
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (403, "RequestTimeTooSkewed"),
        (403, "InvalidObjectState"),
        (404, "NoSuchBucket"),
        (400, "KMS.DisabledException"),
        (400, "InvalidArgument"),
    ] {
        let s3 = S3::start();
        let at = place("orders", VALUE);
        s3.put(&at, VALUE, SystemTime::now());
        let store = s3.store(quick());
        s3.script("PUT", [Fault::Error(status, code)]);
        let put = runtime().block_on(store.put(&at, &Bytes::from_static(VALUE), DAY));
        s3.script("GET", [Fault::Error(status, code)]);
        let got = runtime().block_on(store.get(&at, VALUE.len() as u64));
        for failure in [put.unwrap_err(), got.unwrap_err()] {
            assert_eq!(
                (failure.class, failure.code.as_str()),
                (Class::Config, code)
            );
        }
        assert_eq!((s3.seen("PUT"), s3.seen("GET")), (1, 1), "{code}");
    }
}

#[test]
fn a_missing_object_is_told_from_a_missing_bucket() {
    let s3 = S3::start();
    let got = runtime().block_on(s3.store(quick()).get(&place("orders", VALUE), 5));
    let failure = got.unwrap_err();
    assert_eq!(
        (failure.class, failure.code.as_str()),
        (Class::Missing, "NoSuchKey")
    );
}

#[test]
fn a_put_that_was_done_and_not_answered_is_found_to_be_there() {
    let s3 = S3::start();
    let at = place("orders", VALUE);
    s3.script("PUT", [Fault::DoneAndReset]);
    let put = runtime().block_on(s3.store(quick()).put(&at, &Bytes::from_static(VALUE), DAY));
    assert_eq!(put, Ok(Put::There));
    assert_eq!((s3.seen("PUT"), s3.seen("HEAD")), (2, 1));
}

#[test]
fn what_is_there_is_looked_at_before_it_counts() {
    let old = SystemTime::now() - 3 * DAY;
    for (object, written, expected) in [
        (VALUE, SystemTime::now(), Put::There),
        (VALUE, old, Put::Renewed),
        (&VALUE[1..], SystemTime::now(), Put::Renewed),
    ] {
        let s3 = S3::start();
        let at = place("orders", VALUE);
        s3.put(&at, object, written);
        let put = runtime().block_on(s3.store(quick()).put(&at, &Bytes::from_static(VALUE), DAY));
        assert_eq!(put, Ok(expected));
        assert_eq!(s3.object(&at).as_deref(), Some(VALUE));
        assert_eq!(s3.seen("HEAD"), 1);
    }
    // It goes between the two questions: once more from the start.
    let s3 = S3::start();
    let at = place("orders", VALUE);
    s3.script("PUT", [Fault::Error(412, "PreconditionFailed")]);
    let put = runtime().block_on(s3.store(quick()).put(&at, &Bytes::from_static(VALUE), DAY));
    assert_eq!(put, Ok(Put::Created));
    assert_eq!((s3.seen("PUT"), s3.seen("HEAD")), (2, 1));
}

#[test]
fn silence_ends_and_is_tried_again() {
    let s3 = S3::start();
    let at = place("orders", VALUE);
    let patience = Patience {
        attempt: Duration::from_secs(2),
        ..quick()
    };
    s3.script("PUT", [Fault::Silence]);
    let put = runtime().block_on(s3.store(patience).put(&at, &Bytes::from_static(VALUE), DAY));
    assert_eq!(put, Ok(Put::Created));
    s3.script("GET", vec![Fault::Silence; 4]);
    let got = runtime().block_on(s3.store(patience).get(&at, VALUE.len() as u64));
    let failure = got.unwrap_err();
    assert_eq!(
        (failure.class, failure.code.as_str()),
        (Class::Transient, "Timeout")
    );
    assert_eq!(s3.seen("GET"), 4);
}

#[test]
fn a_body_cut_short_is_read_again_and_another_size_is_not() {
    let s3 = S3::start();
    let at = place("orders", VALUE);
    s3.put(&at, VALUE, SystemTime::now());
    let store = s3.store(quick());
    s3.script("GET", [Fault::Cut, Fault::Cut]);
    let got = runtime().block_on(store.get(&at, VALUE.len() as u64));
    assert_eq!(got.as_deref(), Ok(VALUE));
    assert_eq!(s3.seen("GET"), 3);
    let got = runtime().block_on(store.get(&at, VALUE.len() as u64 + 1));
    assert_eq!(got.unwrap_err().class, Class::Corrupt);
    assert_eq!(s3.seen("GET"), 4);
}

/// The ticket and the object of a value.
fn offloaded(value: &[u8], form: ObjectForm) -> (Ticket, Place, Vec<u8>) {
    let issuer = issuer("s3://bucket/claims");
    let digest = Digest::of(value);
    let now = SystemTime::now();
    let place = issuer.place(&digest, form, now);
    let object = match form {
        ObjectForm::Plain => value.to_vec(),
        ObjectForm::Zstd => {
            crate::support::batch::compress(sizegate::vocabulary::Codec::Zstd, value)
        }
    };
    let form = (form, object.len() as u64);
    let kind = ContentType::default();
    let ticket = issuer.ticket(&place, digest, value.len() as u64, &kind, form, now);
    (ticket, place, object)
}

#[test]
fn a_value_comes_back_right_or_not_at_all() {
    for form in ObjectForm::ALL {
        let s3 = S3::start();
        let store = s3.store(quick());
        let (ticket, place, object) = offloaded(VALUE, form);
        let value = |ticket: &Ticket| runtime().block_on(store.value(ticket, &place));
        s3.put(&place, &object, SystemTime::now());
        assert_eq!(value(&ticket).as_deref(), Ok(VALUE), "{form:?}");
        let corrupt = |ticket: &Ticket, why: &str| {
            let before = s3.seen("GET");
            let failure = value(ticket).unwrap_err();
            assert_eq!(failure.class, Class::Corrupt, "{form:?} {why}: {failure}");
            assert!(s3.seen("GET") <= before + 1, "{form:?} {why}");
        };
        s3.script("GET", [Fault::Tampered]);
        corrupt(&ticket, "a byte changed");
        // What the signature does not cover is no way around it.
        for size in [0, 1, VALUE.len() as u64 - 1, VALUE.len() as u64 + 1] {
            let mut other = ticket.clone();
            other.size = size;
            corrupt(&other, "another size");
        }
        let mut other = ticket.clone();
        other.object_bytes = Some(VALUE.len() as u64 + 1);
        corrupt(&other, "an object larger than its value");
        s3.put(&place, &vec![b'x'; object.len()], SystemTime::now());
        corrupt(&ticket, "replaced");
    }
}

// ---- the service ----

fn issuer(base: &str) -> Arc<Issuer> {
    Arc::new(Issuer {
        topic: "orders".into(),
        namespace: Arc::new(namespace(base)),
        keys: Arc::new(Keys::new([Key::new("k1", &[7; 32]).unwrap()]).unwrap()),
        layout: Layout::Content,
    })
}

fn upload(value: &Bytes, form: ObjectForm, lease: impl Send + 'static) -> Upload {
    Upload {
        issuer: issuer("s3://bucket/claims"),
        value: value.clone(),
        content_type: ContentType::default(),
        form,
        renew_after: DAY,
        lease: Box::new(lease),
    }
}

#[test]
fn one_object_that_many_want_at_a_time_is_written_once() {
    let s3 = S3::start();
    // The first attempt hangs until all have asked.
    s3.script("PUT", [Fault::Silence]);
    let patience = Patience {
        attempt: Duration::from_secs(2),
        ..quick()
    };
    let metrics = Arc::new(ClaimMetrics::new(10));
    let service = Service::start(s3.store(patience), Arc::clone(&metrics), 1 << 20).unwrap();
    let value = Bytes::from_static(VALUE);
    let handle = service.handle();
    let asked: Vec<_> = (0..20)
        .map(|_| handle.upload(upload(&value, ObjectForm::Plain, ())))
        .collect();
    for response in asked {
        let uploaded = response.blocking_recv().unwrap().unwrap();
        assert_eq!(uploaded.put, Put::Created);
        assert_eq!(uploaded.place, place("orders", VALUE));
    }
    assert_eq!(s3.seen("PUT"), 2);
    let mut text = String::new();
    metrics.write(&mut text);
    let line = "sizegate_claim_store_requests_total{operation=\"put\",outcome=\"created\"} 1";
    assert!(text.lines().any(|found| found == line), "{text}");
    service.finish();
}

#[test]
fn an_upload_outlives_who_asked_and_keeps_its_lease_until_it_is_over() {
    let s3 = S3::start();
    s3.script("PUT", [Fault::Error(503, "SlowDown"), Fault::Reset]);
    let service =
        Service::start(s3.store(quick()), Arc::new(ClaimMetrics::new(1)), 1 << 20).unwrap();
    let lease = Arc::new(());
    let value = Bytes::from_static(VALUE);
    let held = Arc::clone(&lease);
    drop(
        service
            .handle()
            .upload(upload(&value, ObjectForm::Plain, held)),
    );
    service.finish();
    assert_eq!(s3.object(&place("orders", VALUE)).as_deref(), Some(VALUE));
    assert_eq!(Arc::strong_count(&lease), 1);
}

#[test]
fn objects_of_compressed_batches_lie_compressed_if_that_makes_them_smaller() {
    let s3 = S3::start();
    let service =
        Service::start(s3.store(quick()), Arc::new(ClaimMetrics::new(1)), 1 << 20).unwrap();
    let noise = Bytes::from(crate::support::batch::random(50_000, 1));
    let plain = Bytes::from_static(VALUE);
    for (value, suffix) in [(&plain, ".zst"), (&noise, "")] {
        let response = service.handle().upload(upload(value, ObjectForm::Zstd, ()));
        let uploaded = response.blocking_recv().unwrap().unwrap();
        let key = uploaded.place.key();
        assert!(
            key.ends_with(&format!("{}{suffix}", Digest::of(value))),
            "{key}"
        );
        let object = s3.object(&uploaded.place).unwrap();
        assert_eq!(object.len() < value.len(), !suffix.is_empty());
    }
    service.finish();
}
