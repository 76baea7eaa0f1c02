//! Reads from an object the value that a ticket promises.
//!
//! The digest and the size are the ticket's, and signed; whatever the store says of an object is checked against them. A
//! value comes out whole and right, or not at all.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::failure::{Class, Failure};
use super::place::Place;
use super::store::Store;
use super::ticket::{Digest, ObjectForm, Ticket};
use crate::codec::{Decoders, End, Output};
use crate::vocabulary::Codec;

/// Room made for a value before any of it is there.
const MOST_AT_ONCE: usize = 16 * 1024 * 1024;

impl Store {
    /// The value of a ticket that was found sound.
    ///
    /// # Errors
    /// [`Class::Corrupt`] is certain: it was read once and is not what was promised.
    pub async fn value(&self, ticket: &Ticket, place: &Place) -> Result<Bytes, Failure> {
        let object_bytes = ticket.object_bytes.unwrap_or(ticket.size);
        // No object is larger than its value: such a ticket would only have us read more than its size.
        if object_bytes > ticket.size {
            return Err(corrupt(
                "SizeMismatch",
                "the object is larger than its value",
            ));
        }
        let (form, size, digest) = (ticket.form, ticket.size, ticket.sha256);
        let restored = move |object| restore(object, form, size, &digest);
        self.object_made(place, object_bytes, restored).await?
    }
}

fn corrupt(code: &str, text: &str) -> Failure {
    Failure::new(Class::Corrupt, code, text)
}

/// The value of an object, checked.
fn restore(object: Bytes, form: ObjectForm, size: u64, digest: &Digest) -> Result<Bytes, Failure> {
    let value = match form {
        ObjectForm::Plain => object,
        ObjectForm::Zstd => decompressed(&object, size)?,
    };
    if value.len() as u64 != size {
        return Err(corrupt("SizeMismatch", "not as long as the ticket says"));
    }
    if Digest::of(&value) != *digest {
        return Err(corrupt(
            "DigestMismatch",
            "not the value that was offloaded",
        ));
    }
    Ok(value)
}

fn decompressed(object: &[u8], size: u64) -> Result<Bytes, Failure> {
    struct Whole(Vec<u8>);

    impl Output for Whole {
        fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
            self.0.extend_from_slice(bytes);
            ControlFlow::Continue(())
        }
    }

    // A ticket's size is signed, and still nothing is allocated by a number alone.
    let room = usize::try_from(size).unwrap_or(0).min(MOST_AT_ONCE);
    let mut value = Whole(Vec::with_capacity(room));
    let decoded = Decoders::new()
        .decoder(Codec::Zstd, size)
        .decode(object, &mut value);
    match decoded {
        Ok(End::Complete) => Ok(value.0.into()),
        Ok(_) => Err(corrupt("SizeMismatch", "longer than the ticket says")),
        Err(error) => Err(corrupt("Undecodable", error.label())),
    }
}
