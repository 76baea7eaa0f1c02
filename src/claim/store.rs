//! The object store: what the claim check asks of it, one attempt at a time, and how often it asks again.
//!
//! Invariants: an object that is said to be there *is* there, whole, and young enough to outlive its ticket; a value
//! that comes back is the one that the ticket promises; every request ends in a bounded time.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    GetResult, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};

use super::failure::{Class, Failure};
use super::patience::Patience;
use super::place::Place;

/// An object store, and the folder in it that is ours.
#[derive(Clone)]
pub struct Store {
    pub(super) store: Arc<dyn ObjectStore>,
    folder: Path,
    pub(super) patience: Patience,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("store", &self.store.to_string())
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// How an object came to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was written.
    Created,
    /// It was there, young enough.
    There,
    /// It was there, too old or of another size, and was written again.
    Renewed,
}

impl Put {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::There => "there",
            Self::Renewed => "renewed",
        }
    }
}

/// An object as the store lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key below our folder.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was last written.
    pub written: SystemTime,
}

impl Store {
    pub(super) fn new(store: Arc<dyn ObjectStore>, folder: Path, patience: Patience) -> Self {
        Self {
            store,
            folder,
            patience,
        }
    }

    /// With another patience.
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn path(&self, key: &str) -> Path {
        self.folder.parts().chain(Path::from(key).parts()).collect()
    }

    /// Sees to it that the object is there: written if it is not, or again if it is older than `renew_after` or of
    /// another size. A ticket may go out when this has returned, and not before.
    ///
    /// # Errors
    /// It may or may not be there.
    pub async fn put(
        &self,
        place: &Place,
        object: &Bytes,
        renew_after: Duration,
    ) -> Result<Put, Failure> {
        let path = self.path(place.key());
        self.patience
            .attempt(object.len(), || self.put_once(&path, object, renew_after))
            .await
    }

    async fn put_once(
        &self,
        path: &Path,
        object: &Bytes,
        renew_after: Duration,
    ) -> Result<Put, Failure> {
        let error = match self.write(path, object, PutMode::Create).await {
            Ok(()) => return Ok(Put::Created),
            Err(error) => error,
        };
        let failure = Failure::of(&error);
        if !failure.is_already_there(&error) {
            return Err(failure);
        }
        // "Already there" is believed when it has been seen: it may be about to be deleted.
        let there = self.store.head(path).await.map_err(|error| {
            let failure = Failure::of(&error);
            match failure.class {
                // It has gone between the two: once more from the start.
                Class::Missing => Failure {
                    class: Class::Transient,
                    ..failure
                },
                _ => failure,
            }
        })?;
        if there.size == object.len() as u64 && age(&there) <= renew_after {
            return Ok(Put::There);
        }
        let renewed = self.write(path, object, PutMode::Overwrite).await;
        renewed.map_err(|error| Failure::of(&error))?;
        Ok(Put::Renewed)
    }

    pub(super) async fn write(
        &self,
        path: &Path,
        object: &Bytes,
        mode: PutMode,
    ) -> Result<(), object_store::Error> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let payload = PutPayload::from(object.clone());
        self.store
            .put_opts(path, payload, options)
            .await
            .map(|_| ())
    }

    /// The object, which must have so many bytes. It is not read if it has not.
    ///
    /// # Errors
    /// [`Class::Corrupt`] is certain at the first attempt; [`Class::Missing`] is what one look found.
    pub async fn get(&self, place: &Place, bytes: u64) -> Result<Bytes, Failure> {
        self.get_made(place, bytes, |object| object).await
    }

    /// The same, and what `make` makes of it where nobody waits for the thread: on the one that reads it, if it is a
    /// file.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(super) async fn get_made<T: Send + 'static>(
        &self,
        place: &Place,
        bytes: u64,
        make: impl FnOnce(Bytes) -> T + Clone + Send + 'static,
    ) -> Result<T, Failure> {
        let path = self.path(place.key());
        let expected = usize::try_from(bytes)
            .map_err(|_| Failure::new(Class::Corrupt, "SizeMismatch", "larger than memory"))?;
        self.patience
            .attempt(expected, || self.get_once(&path, expected, make.clone()))
            .await
    }

    async fn get_once<T: Send + 'static>(
        &self,
        path: &Path,
        expected: usize,
        make: impl FnOnce(Bytes) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let object = self
            .store
            .get(path)
            .await
            .map_err(|error| Failure::of(&error))?;
        if object.meta.size != expected as u64 {
            return Err(Failure::new(
                Class::Corrupt,
                "SizeMismatch",
                format_args!("{} bytes, not {expected}", object.meta.size),
            ));
        }
        if let GetResultPayload::File(file, _) = object.payload {
            // As a stream it comes in pieces of 8 KiB, each by a thread of its own.
            return off_thread(move || read(file, expected).map(make)).await?;
        }
        let whole = gather(object, expected).await?;
        off_thread(move || make(whole)).await
    }

    /// Bytes and age of an object; `None`: there is none.
    ///
    /// # Errors
    /// It could not be found out.
    pub async fn head(&self, place: &Place) -> Result<Option<Listed>, Failure> {
        let path = self.path(place.key());
        let looked = self
            .patience
            .attempt(0, || async {
                let there = self.store.head(&path).await;
                there.map_err(|error| Failure::of(&error))
            })
            .await;
        match looked {
            Ok(there) => Ok(Some(self.listed(&there))),
            Err(failure) if failure.class == Class::Missing => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Removes an object; that there was none is no failure.
    ///
    /// # Errors
    /// It may still be there.
    pub async fn delete(&self, place: &Place) -> Result<(), Failure> {
        let path = self.path(place.key());
        let deleted = self
            .patience
            .attempt(0, || async {
                let deleted = self.store.delete(&path).await;
                deleted.map_err(|error| Failure::of(&error))
            })
            .await;
        match deleted {
            Err(failure) if failure.class != Class::Missing => Err(failure),
            _ => Ok(()),
        }
    }

    /// Goes through all objects below a prefix and says each to `visit`; holds one page at a time.
    ///
    /// # Errors
    /// The first failure ends it: what was visited is not all.
    pub async fn list(&self, prefix: &str, mut visit: impl FnMut(Listed)) -> Result<(), Failure> {
        let prefix = self.path(prefix);
        let mut objects = self.store.list(Some(&prefix));
        loop {
            let next = tokio::time::timeout(self.patience.one_attempt(0), objects.try_next());
            match next.await {
                Err(_) => return Err(Failure::timeout()),
                Ok(Err(error)) => return Err(Failure::of(&error)),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(object))) => visit(self.listed(&object)),
            }
        }
    }

    fn listed(&self, object: &ObjectMeta) -> Listed {
        let below = object.location.prefix_match(&self.folder);
        Listed {
            key: below.map_or_else(
                || object.location.to_string(),
                |parts| Path::from_iter(parts).to_string(),
            ),
            bytes: object.size,
            written: object.last_modified.into(),
        }
    }
}

/// Runs what takes long away from the thread that all requests run on.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Failure::stopped("the process ends"))
}

/// All of a file, which was that long a moment ago.
fn read(file: File, expected: usize) -> Result<Bytes, Failure> {
    let mut whole = Vec::with_capacity(expected);
    let read = file.take(expected as u64).read_to_end(&mut whole);
    read.map_err(|error| Failure::new(Class::Transient, "FileNotRead", error))?;
    match whole.len() == expected {
        true => Ok(whole.into()),
        false => Err(short(whole.len(), expected)),
    }
}

/// All of an object as it comes.
async fn gather(object: GetResult, expected: usize) -> Result<Bytes, Failure> {
    let mut chunks = object.into_stream();
    let mut whole = Vec::with_capacity(expected);
    while whole.len() < expected
        && let Some(chunk) = chunks.next().await
    {
        let chunk = chunk.map_err(|error| Failure {
            class: Class::Transient,
            ..Failure::of(&error)
        })?;
        let wanted = expected.saturating_sub(whole.len());
        whole.extend_from_slice(chunk.get(..wanted).unwrap_or(&chunk));
    }
    match whole.len() == expected {
        true => Ok(whole.into()),
        false => Err(short(whole.len(), expected)),
    }
}

fn short(bytes: usize, expected: usize) -> Failure {
    Failure::new(
        Class::Transient,
        "ShortBody",
        format_args!("{bytes} of {expected} bytes"),
    )
}

/// Since it was last written; a store whose clock is ahead has just written it.
fn age(object: &ObjectMeta) -> Duration {
    let written: SystemTime = object.last_modified.into();
    written.elapsed().unwrap_or_default()
}
