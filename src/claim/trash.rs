//! The trash: objects that nothing names any more lie there for a while before they are gone.
//!
//! Invariants: an object leaves its place only when a copy of it has been seen in the trash, and stays if somebody has
//! written it since it was listed; what lies in the trash is still found by whoever looks for it in its place, so that a
//! ticket which was on its way meanwhile loses nothing; the copy is as young as its move, whatever the store makes of it.

use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStoreExt as _;

use super::failure::{Class, Failure};
use super::place::Place;
use super::store::{Listed, Store};

/// What became of an object that was to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It was.
    Moved,
    /// Somebody has written it again: it stays.
    Written,
    /// It is not there any more.
    Gone,
}

/// Stores tell an object's time to the second when it is looked at, and more exactly when it is listed. Whatever is moved
/// is older than a second, so that a later writing is told from this one.
const EXACT_TO: Duration = Duration::from_secs(1);

fn is_same_writing(there: &Listed, listed: &Listed) -> bool {
    let apart = there
        .written
        .duration_since(listed.written)
        .unwrap_or_else(|before| before.duration());
    there.bytes == listed.bytes && apart < EXACT_TO
}

impl Store {
    /// The object in its place, or else in the trash.
    ///
    /// # Errors
    /// As [`Store::get`]. [`Class::Missing`]: it is in neither.
    pub async fn object(&self, place: &Place, bytes: u64) -> Result<Bytes, Failure> {
        self.object_made(place, bytes, |object| object).await
    }

    /// The same, and what `make` makes of it ([`Store::get_made`]).
    ///
    /// # Errors
    /// As [`Store::object`].
    pub(super) async fn object_made<T: Send + 'static>(
        &self,
        place: &Place,
        bytes: u64,
        make: impl FnOnce(Bytes) -> T + Clone + Send + 'static,
    ) -> Result<T, Failure> {
        let missing = match self.get_made(place, bytes, make.clone()).await {
            Err(failure) if failure.class == Class::Missing => failure,
            found => return found,
        };
        match self.get_made(&place.in_trash(), bytes, make).await {
            Ok(object) => Ok(object),
            Err(failure) if failure.class == Class::Transient => Err(failure),
            Err(_) => Err(missing),
        }
    }

    /// Bytes and age of the object in its place, or else in the trash; `None`: it is in neither.
    ///
    /// # Errors
    /// It could not be found out.
    pub async fn look(&self, place: &Place) -> Result<Option<Listed>, Failure> {
        match self.head(place).await? {
            Some(there) => Ok(Some(there)),
            None => self.head(&place.in_trash()).await,
        }
    }

    /// Moves an object into the trash, if it is still the one that was listed.
    ///
    /// # Errors
    /// It may be in its place, in the trash, or in both.
    pub async fn put_into_trash(&self, place: &Place, listed: &Listed) -> Result<Moved, Failure> {
        let is_same = |there: &Listed| is_same_writing(there, listed);
        match self.head(place).await? {
            None => return Ok(Moved::Gone),
            Some(there) if !is_same(&there) => return Ok(Moved::Written),
            Some(_) => {}
        }
        if !self.copy(place, &place.in_trash()).await? {
            return Ok(Moved::Gone);
        }
        // Copying takes a while, and what was written meanwhile has been named meanwhile.
        match self.head(place).await? {
            None => Ok(Moved::Gone),
            Some(there) if !is_same(&there) => Ok(Moved::Written),
            Some(_) => self.delete(place).await.map(|()| Moved::Moved),
        }
    }

    /// Moves an object out of the trash, into its place.
    ///
    /// # Errors
    /// It may be in its place, in the trash, or in both.
    pub async fn restore(&self, place: &Place) -> Result<Moved, Failure> {
        let trash = place.in_trash();
        let moved = match self.head(place).await? {
            Some(_) => Moved::Written,
            None if self.copy(&trash, place).await? => Moved::Moved,
            None => return Ok(Moved::Gone),
        };
        self.delete(&trash).await?;
        Ok(moved)
    }

    /// Removes an object from the trash, if it is still the one that was listed there.
    ///
    /// # Errors
    /// It may still be there.
    pub async fn remove_from_trash(
        &self,
        place: &Place,
        listed: &Listed,
    ) -> Result<Moved, Failure> {
        let trash = place.in_trash();
        match self.head(&trash).await? {
            None => Ok(Moved::Gone),
            Some(there) if !is_same_writing(&there, listed) => Ok(Moved::Written),
            Some(_) => self.delete(&trash).await.map(|()| Moved::Moved),
        }
    }

    /// Copies an object; the copy is as young as any that is written now. `false`: there is nothing to copy.
    async fn copy(&self, from: &Place, to: &Place) -> Result<bool, Failure> {
        let (source, target) = (self.path(from.key()), self.path(to.key()));
        let copied = self
            .patience
            .attempt(0, || async {
                let copied = self.store.copy(&source, &target).await;
                copied.map_err(|error| Failure::of(&error))
            })
            .await;
        match copied {
            Err(failure) if failure.class == Class::Missing => return Ok(false),
            copied => copied?,
        }
        let (Some(original), Some(copy)) = (self.head(from).await?, self.head(to).await?) else {
            return Ok(false);
        };
        let is_whole = copy.bytes == original.bytes;
        // A folder's copy is the same file under another name, and as old.
        if is_whole && !is_same_writing(&copy, &original) {
            return Ok(true);
        }
        let object = self.get(from, original.bytes).await?;
        self.patience
            .attempt(object.len(), || async {
                let written = self
                    .write(&target, &object, object_store::PutMode::Overwrite)
                    .await;
                written.map_err(|error| Failure::of(&error))
            })
            .await?;
        Ok(true)
    }
}
