//! Other replicas' admin servers (`admin.peers`): asked the same as this one, and shown together (`?peers=1`). The
//! browser cannot do it: it asks nobody but the server that the page came from.
//!
//! Invariants: a peer is asked for itself alone, never for its own peers; all of it takes at most [`PATIENCE`] and a
//! little, and [`MOST_BYTES`] of each; what a peer says is data of known shapes, whatever it says (`merge`).

mod merge;
mod shapes;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use self::merge::{Together, merged};
use self::shapes::together_of;
use super::routes::{blocking, failed};
use crate::config::HostPort;
use crate::net::http::{self, Get};
use crate::text::printable;

/// What asks for all replicas.
const ASKS: &str = "peers=1";
/// Every answer says which process gave it: a name may lead back to this one.
pub(super) const INSTANCE: HeaderName = HeaderName::from_static("x-sizegate-instance");
/// For one peer, its name looked up first.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of one answer: some ten thousand topics.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Addresses that are asked.
const MOST_PEERS: usize = 16;
/// Questions to all peers at once: more wait. Each holds a place among the admin server's responses.
const AT_ONCE: usize = 4;
/// A peer that did not answer in time is not waited for again this soon: a page asks several questions at a time.
const SILENT: Duration = Duration::from_secs(15);

/// This process among its replicas.
#[derive(Clone)]
pub struct Replicas {
    /// Its name: host and admin port.
    instance: Arc<str>,
    /// No other process has it.
    run: Arc<str>,
    peers: Arc<dyn Fn() -> Vec<HostPort> + Send + Sync>,
    turns: Arc<Semaphore>,
    /// Those that did not answer in time, and when; no more than are asked.
    silent: Arc<Mutex<HashMap<SocketAddr, Instant>>>,
}

/// What one peer answered.
struct Answer {
    /// As the configuration or the name's look-up says.
    address: String,
    instance: Option<String>,
    /// Its body, or why there is none.
    body: Result<String, String>,
}

impl Replicas {
    /// `peers` is asked each time: `admin.peers` of the configuration in force.
    pub fn new(instance: &str, peers: impl Fn() -> Vec<HostPort> + Send + Sync + 'static) -> Self {
        Self {
            instance: instance.into(),
            run: Uuid::new_v4().to_string().into(),
            peers: Arc::new(peers),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            silent: Arc::default(),
        }
    }

    /// What [`INSTANCE`] says with every answer.
    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&format!("{} {}", self.run, self.instance))
            .unwrap_or_else(|_| HeaderValue::from_static("unnamed"))
    }

    /// Every other replica's answer, in the order of their addresses.
    async fn ask(&self, path: &str) -> Vec<Answer> {
        let found = join_all((self.peers)().into_iter().map(addresses)).await;
        let mut asked: BTreeSet<SocketAddr> = BTreeSet::new();
        let mut answers = Vec::new();
        for (peer, addresses) in found {
            match addresses {
                Ok(addresses) => asked.extend(addresses),
                Err(why) => answers.push(Answer {
                    address: peer.to_string(),
                    instance: None,
                    body: Err(why),
                }),
            }
        }
        let left_out = asked.len().saturating_sub(MOST_PEERS);
        if left_out > 0 {
            answers.push(Answer {
                address: format!("{left_out} more addresses"),
                instance: None,
                body: Err(format!("not asked: at most {MOST_PEERS} are")),
            });
        }
        let asked = asked.into_iter().take(MOST_PEERS);
        let all = join_all(asked.map(|address| self.ask_one(address, path))).await;
        let others = all
            .into_iter()
            .filter(|(run, _)| run.as_deref() != Some(&*self.run));
        others.map(|(_, answer)| answer).chain(answers).collect()
    }

    /// The process that answered, and what.
    async fn ask_one(&self, address: SocketAddr, path: &str) -> (Option<String>, Answer) {
        if self.is_silent(address) {
            return (None, Answer::none(address, no_answer()));
        }
        let path = path.to_owned();
        let response = blocking(move || {
            let get = Get {
                host: &address.to_string(),
                path: &path,
                silence: PATIENCE,
                total: PATIENCE,
                most_bytes: MOST_BYTES,
            };
            get.ask(address)
        });
        match response.await {
            Ok(Ok(response)) => Answer::of(address, response),
            Ok(Err(error)) if is_late(&error) => {
                self.silent().insert(address, Instant::now());
                (None, Answer::none(address, no_answer()))
            }
            Ok(Err(error)) => (None, Answer::none(address, in_words(&error))),
            Err(_) => (
                None,
                Answer::none(address, "it could not be asked".to_owned()),
            ),
        }
    }

    fn is_silent(&self, address: SocketAddr) -> bool {
        let mut silent = self.silent();
        silent.retain(|_, since| since.elapsed() < SILENT);
        silent.contains_key(&address)
    }

    fn silent(&self) -> MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn none(address: SocketAddr, why: String) -> Self {
        Self {
            address: address.to_string(),
            instance: None,
            body: Err(why),
        }
    }

    /// With the process that gave it.
    fn of(address: SocketAddr, response: http::Response) -> (Option<String>, Self) {
        let named = response
            .header(INSTANCE.as_str())
            .and_then(|who| who.split_once(' '));
        let (run, instance) = named.unzip();
        let (run, instance) = (run.map(str::to_owned), instance.map(name));
        let answer = Self {
            address: address.to_string(),
            instance,
            body: body_of(response),
        };
        (run, answer)
    }
}

/// Looked up again each time.
async fn addresses(peer: HostPort) -> (HostPort, Result<Vec<SocketAddr>, String>) {
    let looked_up = tokio::net::lookup_host((peer.host.as_str(), peer.port));
    let found = match tokio::time::timeout(PATIENCE, looked_up).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => Err(format!("its name is not found: {error}")),
        Err(_) => Err(format!(
            "its name is not found within {} s",
            PATIENCE.as_secs()
        )),
    };
    (peer, found)
}

/// What another process calls itself.
fn name(said: &str) -> String {
    printable(said.as_bytes())
}

fn body_of(response: http::Response) -> Result<String, String> {
    match response.status {
        200 => Ok(response.body),
        _ => Err(format!("it answers `{}`", name(&response.status_line))),
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn no_answer() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::FileTooLarge => format!("it answers more than {MOST_BYTES} bytes"),
        _ => error.to_string(),
    }
}

/// `?peers=1`: the answer of this process, and those of its peers, as one.
pub(super) async fn together(
    State(replicas): State<Replicas>,
    mut request: Request,
    next: Next,
) -> Response {
    let uri = request.uri();
    let rest = without_asking(uri.query().unwrap_or_default());
    let shape = together_of(uri.path()).filter(|_| request.method() == Method::GET);
    let (Some(rest), Some(shape)) = (rest, shape) else {
        return next.run(request).await;
    };
    let path = if rest.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{rest}", uri.path())
    };
    let Ok(alone) = Uri::try_from(&path) else {
        return failed();
    };
    *request.uri_mut() = alone;
    let own = next.run(request).await;
    if own.status() != StatusCode::OK {
        return own;
    }
    let Ok(_turn) = replicas.turns.acquire().await else {
        return failed();
    };
    let (own, answers) = tokio::join!(to_bytes(own.into_body(), usize::MAX), replicas.ask(&path));
    let Ok(own) = own else { return failed() };
    let instance = Arc::clone(&replicas.instance);
    let body = blocking(move || all_as_one(shape, &own, &instance, answers));
    match body.await {
        Ok(body) => Json(body).into_response(),
        Err(response) => response,
    }
}

fn all_as_one(together: &Together, own: &[u8], instance: &str, answers: Vec<Answer>) -> Value {
    let own = serde_json::from_slice(own).unwrap_or_default();
    let mut told = vec![json!({"instance": instance, "address": null, "error": null})];
    let mut names = BTreeSet::from([instance.to_owned()]);
    let mut bodies = Vec::new();
    for Answer {
        address,
        instance,
        body,
    } in answers
    {
        let mut name = instance.unwrap_or_else(|| address.clone());
        if !names.insert(name.clone()) {
            // Two hosts that call themselves alike.
            name = format!("{name} ({address})");
        }
        let body = body.and_then(|body| {
            serde_json::from_str(&body).map_err(|_| "it answers no JSON".to_owned())
        });
        let error = body.as_ref().err();
        told.push(json!({"instance": name, "address": address, "error": error}));
        bodies.extend(body.ok().map(|body| (name, body)));
    }
    merged(together, (instance.to_owned(), own), bodies, told)
}

/// A query less [`ASKS`]; `None`: nobody asks for all.
fn without_asking(query: &str) -> Option<String> {
    let pairs: Vec<&str> = query.split('&').collect();
    pairs.contains(&ASKS).then(|| {
        let rest: Vec<&str> = pairs.into_iter().filter(|pair| *pair != ASKS).collect();
        rest.join("&")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_all_is_not_asked_of_others() {
        for (query, rest) in [
            ("peers=1", Some("")),
            ("topic=a%26peers=1", None),
            ("topic=a&peers=1&limit=3", Some("topic=a&limit=3")),
            ("peers=10", None),
            ("", None),
        ] {
            assert_eq!(without_asking(query).as_deref(), rest, "{query}");
        }
    }
}
