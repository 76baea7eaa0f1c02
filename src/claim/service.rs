//! The thread that talks to the store: what it has begun it ends, whoever asked and whether or not they still listen.
//!
//! Sessions hold a [`Handle`] and get a response by a channel of one message. Whoever computes owns its bytes: an upload
//! keeps the value and the lease on its memory until it is over. Uploads of one object at a time are one upload.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::digests::Known;
use super::failure::Failure;
use super::issue::{Issuer, SignedTicket};
use super::place::Place;
use super::store::{Put, Store};
use super::ticket::{ContentType, Digest, ObjectForm};
use super::values::Values;
use crate::codec::{Encoder, Encoding};
use crate::telemetry::ClaimMetrics;

/// Requests to the store at once: more would only queue there.
const MOST_REQUESTS: usize = 128;

/// Values hashed and compressed at once.
const MOST_PREPARED: usize = 4;

/// A value that goes to the store.
pub struct Upload {
    /// Whose it is.
    pub issuer: Arc<Issuer>,
    /// The value.
    pub value: Bytes,
    /// What it is.
    pub content_type: ContentType,
    /// How it is to lie there, if that makes it smaller.
    pub form: ObjectForm,
    /// An object above this age is written again, so that it outlives its new ticket.
    pub renew_after: Duration,
    /// The permit for the memory: given back when the upload is over.
    pub lease: Box<dyn Any + Send>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// The ticket, which may now go out.
    pub ticket: SignedTicket,
    /// Where the object is.
    pub place: Place,
    /// How it came to be there.
    pub put: Put,
}

type Response<T> = oneshot::Receiver<Result<T, Failure>>;

/// Asks the service. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    runtime: runtime::Handle,
    tasks: TaskTracker,
    inner: Arc<Inner>,
    values: Arc<Values>,
}

/// Those who wait for what another writes.
type Waiting = Vec<oneshot::Sender<Result<Put, Failure>>>;

struct Inner {
    store: Store,
    metrics: Arc<ClaimMetrics>,
    requests: Semaphore,
    preparing: Arc<Semaphore>,
    /// Who waits for an object that somebody writes.
    writing: Mutex<HashMap<Place, Waiting>>,
}

impl Handle {
    /// Begins an upload; it goes on when nobody waits for its response any more. After [`Service::finish`] it is
    /// refused.
    pub fn upload(&self, upload: Upload) -> Response<Uploaded> {
        let (response, asker) = oneshot::channel();
        if self.tasks.is_closed() {
            let _ = response.send(Err(Failure::stopped("the process ends")));
            return asker;
        }
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn_on(
            async move {
                let done = inner.upload(upload).await;
                // Nobody may be there any more.
                let _ = response.send(done);
            },
            &self.runtime,
        );
        asker
    }

    /// The originals of tickets.
    pub const fn values(&self) -> &Arc<Values> {
        &self.values
    }

    /// Runs what outlives whoever began it; it ends with the process, wherever it is.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// The store, for commands that ask it themselves.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }
}

impl Inner {
    async fn upload(&self, upload: Upload) -> Result<Uploaded, Failure> {
        let Upload {
            issuer,
            value,
            content_type,
            form,
            renew_after,
            lease,
        } = upload;
        let size = value.len() as u64;
        // Hashing takes milliseconds for megabytes: not on the thread that everybody's requests run on. Nobody can stop
        // it once it has begun, so it owns its turn and the memory's permit.
        let turn = Arc::clone(&self.preparing).acquire_owned().await;
        let prepared = tokio::task::spawn_blocking(move || {
            let prepared = Prepared::new(value, form);
            drop(turn);
            (prepared, lease)
        });
        let (prepared, lease) = prepared
            .await
            .map_err(|_| Failure::stopped("the process ends"))?;
        let Prepared {
            digest,
            object,
            form,
        } = prepared;
        let now = SystemTime::now();
        let place = issuer.place(&digest, form, now);
        let putting = self.put(&place, &object, renew_after);
        let put = match form {
            ObjectForm::Plain => Known::new(object.clone(), digest).during(putting).await?,
            ObjectForm::Zstd => putting.await?,
        };
        let object_bytes = object.len() as u64;
        drop((object, lease));
        let ticket = issuer.ticket(
            &place,
            digest,
            size,
            &content_type,
            (form, object_bytes),
            now,
        );
        Ok(Uploaded {
            ticket: issuer.sign(&ticket),
            place,
            put,
        })
    }

    /// Writes an object, or waits for who writes it already.
    async fn put(
        &self,
        place: &Place,
        object: &Bytes,
        renew_after: Duration,
    ) -> Result<Put, Failure> {
        if let Some(writer) = self.join(place) {
            return writer
                .await
                .unwrap_or_else(|_| Err(Failure::stopped("its writer stopped")));
        }
        let leaving = Leaving { inner: self, place };
        let permit = self.requests.acquire().await;
        let began = Instant::now();
        let put = self.store.put(place, object, renew_after).await;
        drop(permit);
        let outcome = match &put {
            Ok(put) => put.label(),
            Err(failure) => failure.class.label(),
        };
        self.metrics.store_request("put", outcome, began.elapsed());
        for waiting in leaving.leave() {
            let _ = waiting.send(put.clone());
        }
        put
    }

    /// `None`: nobody writes it, and now the caller does.
    fn join(&self, place: &Place) -> Option<oneshot::Receiver<Result<Put, Failure>>> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = writing.get_mut(place) else {
            writing.insert(place.clone(), Vec::new());
            return None;
        };
        let (sender, receiver) = oneshot::channel();
        waiting.push(sender);
        Some(receiver)
    }
}

/// Who writes an object leaves its entry behind in no case: those who wait for it would wait for ever.
struct Leaving<'a> {
    inner: &'a Inner,
    place: &'a Place,
}

impl Leaving<'_> {
    fn leave(&self) -> Waiting {
        let mut writing = self
            .inner
            .writing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        writing.remove(self.place).unwrap_or_default()
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A value, hashed, and the object that it will be.
struct Prepared {
    digest: Digest,
    object: Bytes,
    form: ObjectForm,
}

impl Prepared {
    fn new(value: Bytes, form: ObjectForm) -> Self {
        let digest = Digest::of(&value);
        let smaller = (form == ObjectForm::Zstd)
            .then(|| compressed(&value))
            .flatten()
            .filter(|object| object.len() < value.len());
        match smaller {
            Some(object) => Self {
                digest,
                object: object.into(),
                form,
            },
            None => Self {
                digest,
                object: value,
                form: ObjectForm::Plain,
            },
        }
    }
}

fn compressed(value: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(Encoding::Zstd).ok()?;
    encoder.write(value).ok()?;
    encoder.finish().ok()
}

/// The service itself; ends what it has begun when it is stopped.
pub struct Service {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts its thread. Originals on their way to consumers take at most `values_bytes`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        store: Store,
        metrics: Arc<ClaimMetrics>,
        values_bytes: usize,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("claim-work")
            .build()?;
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let values = Values::new(
            store.clone(),
            Arc::clone(&metrics),
            runtime.handle().clone(),
            values_bytes,
        );
        let handle = Handle {
            values: Arc::new(values),
            runtime: runtime.handle().clone(),
            tasks: tasks.clone(),
            inner: Arc::new(Inner {
                store,
                metrics,
                requests: Semaphore::new(MOST_REQUESTS),
                preparing: Arc::new(Semaphore::new(MOST_PREPARED)),
                writing: Mutex::default(),
            }),
        };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("claim".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    stopped.cancelled().await;
                    tasks.close();
                    tasks.wait().await;
                });
            })?;
        Ok(Self {
            handle,
            stop,
            thread: Some(thread),
        })
    }

    /// To ask it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes nothing new and waits until all that was begun is over. Every request's time is bounded.
    pub fn finish(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
