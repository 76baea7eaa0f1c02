//! Large objects are hashed once: what S3 is told of an object's SHA-256 is what was counted for its ticket.
//!
//! `object_store` counts the digest of every payload that it sends, for the signature and for the checksum beside it, on
//! the thread that all requests run on; the ticket's was counted before, on another. Invariant: a digest is taken for
//! known only of the very bytes in memory that it was counted of, while they are held and cannot change; of all others
//! it is counted.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use sha2::{Digest as _, Sha256};

use super::ticket::Digest;

/// Bytes whose digest is known.
#[derive(Debug, Clone)]
pub(super) struct Known {
    bytes: Bytes,
    digest: Digest,
}

tokio::task_local! {
    static KNOWN: Known;
}

impl Known {
    /// These bytes have this digest.
    pub(super) const fn new(bytes: Bytes, digest: Digest) -> Self {
        Self { bytes, digest }
    }

    /// What `sending` sends of these bytes is not hashed again.
    pub(super) async fn during<T>(self, sending: impl Future<Output = T>) -> T {
        KNOWN.scope(self, sending).await
    }

    /// What is known of these bytes: those at this very place in memory.
    fn of(data: &[u8]) -> Option<Self> {
        let is_same = |known: &Self| std::ptr::eq(data, &known.bytes[..]);
        let known = |known: &Self| is_same(known).then(|| known.clone());
        KNOWN.try_with(known).ok().flatten()
    }
}

/// Counts digests for `object_store`, except where they are known. What S3 needs, and no more: nothing is signed with RSA.
#[derive(Debug)]
pub(super) struct Digests;

impl CryptoProvider for Digests {
    fn digest(&self, _: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        Ok(Box::new(Counted::default()))
    }

    fn hmac(&self, _: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        let mac = Hmac::new_from_slice(secret).map_err(unsupported)?;
        Ok(Box::new(Authenticated {
            mac,
            finished: [0; 32],
        }))
    }

    fn sign(&self, _: SigningAlgorithm, _: &[u8]) -> Result<Box<dyn Signer>> {
        Err(unsupported("S3 signs with HMAC only"))
    }
}

fn unsupported(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::NotSupported { source: why.into() }
}

/// A digest on its way.
#[derive(Default)]
struct Counted {
    /// All there is so far, if its digest is known.
    known: Option<Known>,
    is_begun: bool,
    hasher: Sha256,
    finished: [u8; 32],
}

impl DigestContext for Counted {
    fn update(&mut self, data: &[u8]) {
        if !self.is_begun {
            self.is_begun = true;
            self.known = Known::of(data);
            if self.known.is_some() {
                return;
            }
        }
        if let Some(known) = self.known.take() {
            self.hasher.update(&known.bytes);
        }
        self.hasher.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.finished = match &self.known {
            Some(known) => known.digest.0,
            None => self.hasher.finalize_reset().into(),
        };
        Ok(&self.finished)
    }
}

struct Authenticated {
    mac: Hmac<Sha256>,
    finished: [u8; 32],
}

impl HmacContext for Authenticated {
    fn update(&mut self, data: &[u8]) {
        self.mac.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.finished = self.mac.clone().finalize().into_bytes().into();
        Ok(&self.finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(pieces: &[&[u8]]) -> Vec<u8> {
        let mut context = Digests.digest(DigestAlgorithm::Sha256).unwrap();
        pieces.iter().for_each(|piece| context.update(piece));
        context.finish().unwrap().to_vec()
    }

    #[tokio::test]
    async fn a_digest_is_taken_for_known_of_the_very_bytes_and_of_no_others() {
        let object = Bytes::from(vec![7; 1000]);
        let equal = object.to_vec();
        // Not its digest: so that it is seen whether it was taken.
        let known = Known::new(object.clone(), Digest([1; 32]));
        let right = Digest::of(&object).0;
        known
            .during(async {
                assert_eq!(digest(&[&object]), [1; 32]);
                assert_eq!(digest(&[&equal]), right);
                assert_eq!(digest(&[&object[..999], &object[999..]]), right);
                assert_eq!(digest(&[&object[..999]]), Digest::of(&equal[..999]).0);
                let twice = Digest::of(&[&equal[..], &equal].concat());
                assert_eq!(digest(&[&object, &object]), twice.0);
                assert_eq!(digest(&[&equal, &object]), twice.0);
                assert_eq!(digest(&[]), Digest::of(b"").0);
            })
            .await;
        assert_eq!(digest(&[&object]), right);
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_hmac_is_the_one_of_the_standard() {
        let mut context = Digests.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
        context.update(b"what do ya want ");
        context.update(b"for nothing?");
        let counted: [u8; 32] = context.finish().unwrap().try_into().unwrap();
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(Digest(counted).hex(), expected);
    }
}
