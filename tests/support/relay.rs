//! A relay between sizegate and a real broker that stops at a step: it holds back the one request or response that a
//! test waits for, so that a process can be killed exactly there.
//!
//! All brokers that a cluster names are itself: addresses in Metadata are replaced by its own, so it is in the way of
//! sessions and of the control plane alike. It serves clusters of one broker.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, MetadataResponse, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::client::text;

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// sizegate's own connections.
    ControlPlane,
    /// A client's.
    Session,
}

/// Where it is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the broker has it.
    Request,
    /// The broker has done it, and its response is held back.
    Response,
}

/// What is held back.
pub type Step = (Sender, ApiKey, Moment);

#[derive(Default)]
struct State {
    armed: Option<Step>,
    is_caught: bool,
}

#[derive(Default)]
struct Trap {
    state: Mutex<State>,
    told: Condvar,
}

impl Trap {
    /// Whether this is what is waited for; then it is caught, and nothing else is.
    fn catches(&self, step: Step) -> bool {
        let mut state = self.state.lock().unwrap();
        let is_it = state.armed == Some(step);
        if is_it {
            state.armed = None;
            state.is_caught = true;
            self.told.notify_all();
        }
        is_it
    }
}

/// A running relay. Its threads end with their connections.
pub struct Relay {
    address: SocketAddr,
    trap: Arc<Trap>,
}

impl Relay {
    /// In front of a broker.
    pub fn before(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let trap = Arc::<Trap>::default();
        let (theirs, broker) = (Arc::clone(&trap), broker.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, trap) = (client.unwrap(), Arc::clone(&theirs));
                let Ok(upstream) = TcpStream::connect(&broker) else {
                    continue;
                };
                let asked = Arc::default();
                let link = Link {
                    trap,
                    asked,
                    address,
                };
                link.start(&client, &upstream).unwrap();
            }
        });
        Self { address, trap }
    }

    /// Its address, as `bootstrap_servers` takes it.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Holds back the next of these, for good.
    pub fn arm(&self, step: Step) {
        *self.trap.state.lock().unwrap() = State {
            armed: Some(step),
            is_caught: false,
        };
    }

    /// Waits until it is held back.
    pub fn wait(&self, limit: Duration) {
        let start = Instant::now();
        let mut state = self.trap.state.lock().unwrap();
        while !state.is_caught {
            assert!(
                start.elapsed() < limit,
                "{:?}: not within {limit:?}",
                state.armed
            );
            let second = Duration::from_secs(1);
            state = self.trap.told.wait_timeout(state, second).unwrap().0;
        }
    }
}

/// A request that has no response yet.
#[derive(Clone, Copy)]
struct Asked {
    sender: Sender,
    key: i16,
    version: i16,
}

impl Asked {
    fn read(request: &[u8]) -> Option<Self> {
        let short = |at: usize| {
            Some(i16::from_be_bytes([
                *request.get(at)?,
                *request.get(at + 1)?,
            ]))
        };
        let id = request.get(10..)?;
        let sender = if id.starts_with(b"sizegate") {
            Sender::ControlPlane
        } else {
            Sender::Session
        };
        Some(Self {
            sender,
            key: short(0)?,
            version: short(2)?,
        })
    }

    fn step(self, moment: Moment) -> Option<Step> {
        Some((self.sender, ApiKey::try_from(self.key).ok()?, moment))
    }
}

/// One connection.
#[derive(Clone)]
struct Link {
    trap: Arc<Trap>,
    asked: Arc<Mutex<VecDeque<Asked>>>,
    address: SocketAddr,
}

impl Link {
    fn start(self, client: &TcpStream, upstream: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        upstream.set_nodelay(true)?;
        for (from, to, is_request) in [(client, upstream, true), (upstream, client, false)] {
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            let link = self.clone();
            std::thread::spawn(move || {
                // It ends when either side does.
                let _ = link.pass(&mut from, &mut to, is_request);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn pass(&self, from: &mut TcpStream, to: &mut TcpStream, is_request: bool) -> io::Result<()> {
        loop {
            let mut prefix = [0; 4];
            from.read_exact(&mut prefix)?;
            let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
            from.read_exact(&mut body)?;
            let (asked, moment) = if is_request {
                let asked = Asked::read(&body);
                if let Some(asked) = asked {
                    self.asked.lock().unwrap().push_back(asked);
                }
                (asked, Moment::Request)
            } else {
                (self.asked.lock().unwrap().pop_front(), Moment::Response)
            };
            let step = asked.and_then(|asked| asked.step(moment));
            if step.is_some_and(|step| self.trap.catches(step)) {
                // Whoever waits for it is killed.
                return from.read_exact(&mut [0]);
            }
            if let Some(asked) = asked
                && asked.key == ApiKey::Metadata as i16
                && moment == Moment::Response
            {
                body = self.named(&body, asked.version);
            }
            to.write_all(&(body.len() as u32).to_be_bytes())?;
            to.write_all(&body)?;
        }
    }

    /// Metadata with this address for every broker.
    fn named(&self, response: &[u8], version: i16) -> Vec<u8> {
        let header_version = ApiKey::Metadata.response_header_version(version);
        let mut rest = Bytes::copy_from_slice(response);
        let header = ResponseHeader::decode(&mut rest, header_version).unwrap();
        let mut metadata = MetadataResponse::decode(&mut rest, version).unwrap();
        for broker in &mut metadata.brokers {
            broker.host = text(&self.address.ip().to_string());
            broker.port = self.address.port().into();
        }
        let mut out = BytesMut::new();
        header.encode(&mut out, header_version).unwrap();
        metadata.encode(&mut out, version).unwrap();
        out.to_vec()
    }
}
