//! Names and successes read from frames of every version, and from frames that lie.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    RequestHeader, ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes};
use proptest::prelude::*;

use super::*;

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

fn request<R: Request>(request: &R, version: i16) -> Vec<u8> {
    let mut body = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("orders")))
        .encode(&mut body, R::header_version(version))
        .unwrap();
    request.encode(&mut body, version).unwrap();
    framed(&body)
}

fn token(message: &[u8], version: i16) -> Vec<u8> {
    let auth_bytes = Bytes::copy_from_slice(message);
    request(
        &SaslAuthenticateRequest::default().with_auth_bytes(auth_bytes),
        version,
    )
}

fn response(error_code: i16, message: &[u8], version: i16) -> Vec<u8> {
    let mut body = BytesMut::new();
    ResponseHeader::default()
        .encode(&mut body, SaslAuthenticateResponse::header_version(version))
        .unwrap();
    SaslAuthenticateResponse::default()
        .with_error_code(error_code)
        .with_error_message(Some(StrBytes::from_static_str("as you say")))
        .with_auth_bytes(Bytes::copy_from_slice(message))
        .encode(&mut body, version)
        .unwrap();
    framed(&body)
}

#[test]
fn the_mechanism_is_read_from_the_handshake() {
    for (name, mechanism) in [
        ("PLAIN", Mechanism::Plain),
        ("SCRAM-SHA-256", Mechanism::Scram),
        ("SCRAM-SHA-512", Mechanism::Scram),
        ("OAUTHBEARER", Mechanism::Other),
        ("plain", Mechanism::Other),
    ] {
        for version in [0, 1] {
            let asked = SaslHandshakeRequest::default()
                .with_mechanism(StrBytes::from_string(name.to_owned()));
            assert_eq!(super::mechanism(&request(&asked, version)), Ok(mechanism));
        }
    }
}

#[test]
fn names_are_read_whole_or_not_at_all() {
    use Mechanism::{Other, Plain, Scram};
    let long = format!("\0{}\0secret", "x".repeat(257));
    for (mechanism, message, name) in [
        (Plain, "\0alice\0alice-pw", Some("alice")),
        (Plain, "alice\0alice\0with\0zero", Some("alice")),
        (Plain, "\0alice", None),
        (Plain, "\0\0secret", None),
        (Plain, "\0al\nice\0secret", None),
        (Plain, long.as_str(), None),
        (Scram, "n,,n=bob,r=fyko+d2lbbFgONRv9qkxdawL", Some("bob")),
        (Scram, "n,a=bob,n=bob,r=x", Some("bob")),
        (Scram, "n,,n=b=2Co=3Db,r=x", Some("b,o=b")),
        (Scram, "n,,n=b=41b,r=x", None),
        (Scram, "n,,n=token-id,r=x,tokenauth=true", None),
        (Scram, "c=biws,r=nonce,p=proof", None),
        (Scram, "", None),
        (
            Other,
            "n,,\u{1}auth=Bearer eyJhbGciOiJub25lIn0\u{1}\u{1}",
            None,
        ),
    ] {
        for version in 0..=HIGHEST_AUTHENTICATE {
            let found = claimed_name(&token(message.as_bytes(), version), version, mechanism);
            assert_eq!(found, Ok(name.map(str::to_owned)), "{message:?}");
        }
    }
}

#[test]
fn only_the_brokers_last_word_proves_a_name() {
    use Mechanism::{Plain, Scram};
    for (mechanism, error_code, message, proves) in [
        (Plain, 0, "", true),
        (Plain, 58, "", false),
        (Scram, 0, "r=nonce,s=salt,i=4096", false),
        (Scram, 0, "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", true),
        (Scram, 58, "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", false),
        (Scram, 0, "e=invalid-proof", false),
    ] {
        for version in 0..=HIGHEST_AUTHENTICATE {
            let frame = response(error_code, message.as_bytes(), version);
            assert_eq!(
                is_authenticated(&frame, version, mechanism),
                Ok(proves),
                "{message:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), version in -1i16..4) {
        let _ = super::mechanism(&bytes);
        for mechanism in [Mechanism::Plain, Mechanism::Scram, Mechanism::Other] {
            let _ = claimed_name(&bytes, version, mechanism);
            let _ = is_authenticated(&bytes, version, mechanism);
        }
        let mut frame = BytesMut::new();
        frame.put_slice(&[0; 12]);
        frame.put_slice(&bytes);
        let _ = claimed_name(&frame, version, Mechanism::Scram);
    }
}
