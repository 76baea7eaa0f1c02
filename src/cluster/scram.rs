//! SCRAM (RFC 5802, RFC 7677) as Kafka speaks it: no channel binding, no SASLprep (Kafka's `ScramFormatter`
//! takes the UTF-8 bytes as they are).
//!
//! Invariant: the server must prove that it knows the password too, before anything else is sent to it.

use crate::text::first_chars;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::digest::block_api::BlockSizeUser;
use hmac::{KeyInit, Mac, SimpleHmac};
use pbkdf2::pbkdf2_hmac;
use sha2::{Digest, Sha256, Sha512};
use uuid::Uuid;

/// Kafka's brokers and clients take no fewer (`ScramMechanism.minIterations`).
const MIN_ITERATIONS: u32 = 4_096;

/// Kafka's tools make at most 16,384; a server may not keep us computing for long.
const MAX_ITERATIONS: u32 = 131_072;

/// The hash of a SCRAM mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// What a server said wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScramError {
    #[error("the broker's SCRAM message lacks {0}")]
    Lacks(&'static str),
    #[error("the broker's SCRAM nonce does not continue ours")]
    Nonce,
    #[error(
        "the broker asks for {0} SCRAM iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are taken"
    )]
    Iterations(u32),
    #[error("the broker does not know this password's SCRAM keys: its signature is wrong")]
    ServerSignature,
    #[error("the broker's SCRAM response is an error: {0}")]
    Server(String),
}

/// A client that has sent its first message.
pub(super) struct ClientFirst {
    hash: Hash,
    password: String,
    nonce: String,
    /// The first message without its channel binding flag.
    bare: String,
}

/// A client that has sent its proof.
#[derive(Debug)]
pub(super) struct ClientFinal {
    server_signature: Vec<u8>,
}

impl ClientFirst {
    pub(super) fn new(hash: Hash, username: &str, password: &str) -> Self {
        // A version 4 UUID is 122 random bits; RFC 5802 wants a nonce that does not repeat.
        Self::with_nonce(
            hash,
            username,
            password,
            Uuid::new_v4().simple().to_string(),
        )
    }

    fn with_nonce(hash: Hash, username: &str, password: &str, nonce: String) -> Self {
        let username = username.replace('=', "=3D").replace(',', "=2C");
        Self {
            hash,
            password: password.to_owned(),
            bare: format!("n={username},r={nonce}"),
            nonce,
        }
    }

    /// `client-first-message`
    pub(super) fn message(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers `server-first-message` with `client-final-message`.
    pub(super) fn prove(self, server_first: &str) -> Result<(ClientFinal, String), ScramError> {
        let nonce = attribute(server_first, "r=").ok_or(ScramError::Lacks("a nonce"))?;
        let salt = attribute(server_first, "s=")
            .and_then(|salt| BASE64.decode(salt).ok())
            .ok_or(ScramError::Lacks("a salt"))?;
        let iterations: u32 = attribute(server_first, "i=")
            .and_then(|count| count.parse().ok())
            .ok_or(ScramError::Lacks("an iteration count"))?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ScramError::Nonce);
        }
        if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.bare);
        let password = self.password.as_bytes();
        let (proof, server_signature) = match self.hash {
            Hash::Sha256 => {
                let mut salted = [0; 32];
                pbkdf2_hmac::<Sha256>(password, &salt, iterations, &mut salted);
                keys::<Sha256>(&salted, signed.as_bytes())
            }
            Hash::Sha512 => {
                let mut salted = [0; 64];
                pbkdf2_hmac::<Sha512>(password, &salt, iterations, &mut salted);
                keys::<Sha512>(&salted, signed.as_bytes())
            }
        };
        let message = format!("{without_proof},p={}", BASE64.encode(proof));
        Ok((ClientFinal { server_signature }, message))
    }
}

impl ClientFinal {
    /// Reads `server-final-message`: the server's proof, or its error.
    pub(super) fn verify(self, server_final: &str) -> Result<(), ScramError> {
        if let Some(error) = attribute(server_final, "e=") {
            return Err(ScramError::Server(first_chars(error, 200).to_owned()));
        }
        let signature = attribute(server_final, "v=")
            .and_then(|signature| BASE64.decode(signature).ok())
            .ok_or(ScramError::Lacks("a signature"))?;
        if signature == self.server_signature {
            Ok(())
        } else {
            Err(ScramError::ServerSignature)
        }
    }
}

/// The client's proof and the server's signature.
fn keys<D: Digest + BlockSizeUser>(salted: &[u8], signed: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let client_key = mac::<D>(salted, b"Client Key");
    let stored_key = D::digest(&client_key);
    let client_signature = mac::<D>(&stored_key, signed);
    let proof = client_key
        .iter()
        .zip(&client_signature)
        .map(|(key, signature)| key ^ signature)
        .collect();
    let server_key = mac::<D>(salted, b"Server Key");
    (proof, mac::<D>(&server_key, signed))
}

fn mac<D: Digest + BlockSizeUser>(key: &[u8], data: &[u8]) -> Vec<u8> {
    // HMAC takes keys of any length: this cannot fail, and an empty signature matches nothing.
    let Ok(mac) = <SimpleHmac<D> as KeyInit>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.chain_update(data).finalize().into_bytes().to_vec()
}

fn attribute<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message
        .split(',')
        .find_map(|attribute| attribute.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exchange_of_rfc_7677_comes_out_as_printed() {
        let client = ClientFirst::with_nonce(
            Hash::Sha256,
            "user",
            "pencil",
            "rOprNGfwEbeRWgbNEkqO".to_owned(),
        );
        assert_eq!(client.message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (client, message) = client.prove(server_first).unwrap();
        assert_eq!(
            message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        client
            .verify("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
            .unwrap();
    }

    fn prove(server_first: &str) -> Result<(ClientFinal, String), ScramError> {
        ClientFirst::with_nonce(Hash::Sha512, "user", "pencil", "abc".to_owned())
            .prove(server_first)
    }

    #[test]
    fn commas_and_equal_signs_of_a_user_name_are_escaped() {
        let client = ClientFirst::with_nonce(Hash::Sha256, "a=b,c", "", "abc".to_owned());
        assert_eq!(client.message(), "n,,n=a=3Db=2Cc,r=abc");
    }

    #[test]
    fn a_server_that_does_not_continue_our_nonce_is_refused() {
        for nonce in ["xyz123", "ab", "abc"] {
            let result = prove(&format!("r={nonce},s=c2FsdA==,i=4096"));
            assert_eq!(result.unwrap_err(), ScramError::Nonce, "{nonce}");
        }
    }

    #[test]
    fn iteration_counts_outside_the_bounds_are_refused_without_computing() {
        for (iterations, taken) in [
            (1, false),
            (MIN_ITERATIONS - 1, false),
            (MIN_ITERATIONS, true),
            (MAX_ITERATIONS + 1, false),
            (u32::MAX, false),
        ] {
            let result = prove(&format!("r=abcd,s=c2FsdA==,i={iterations}"));
            assert_eq!(result.is_ok(), taken, "{iterations}");
        }
    }

    #[test]
    fn a_server_without_the_password_is_refused() {
        let (client, _) = prove("r=abcd,s=c2FsdA==,i=4096").unwrap();
        assert_eq!(client.verify("v=AAAA"), Err(ScramError::ServerSignature));
        let (client, _) = prove("r=abcd,s=c2FsdA==,i=4096").unwrap();
        assert_eq!(
            client.verify("e=unknown-user"),
            Err(ScramError::Server("unknown-user".to_owned()))
        );
        let (client, _) = prove("r=abcd,s=c2FsdA==,i=4096").unwrap();
        assert_eq!(
            client.verify("nothing"),
            Err(ScramError::Lacks("a signature"))
        );
    }
}
