//! ApiVersions: which client speaks, and the response clamped to what this product reads.
//!
//! Only keys in [`api::highest_version`] are clamped, and only at their upper end; unknown keys pass. The
//! answer's header is always version 0, and a broker that does not know the request's version answers in
//! version 0 with code 35 (KIP-511).

use bytes::{Bytes, BytesMut};

use super::{Malformed, Reader, Reason, api};
use crate::error_code::UNSUPPORTED_VERSION;
use crate::text::{first_chars, printable};

/// What a client says of itself (KIP-511, version 3 and up).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSoftware {
    /// `client_software_name`
    pub name: String,
    /// `client_software_version`
    pub version: String,
}

/// Names longer than this are cut: they become labels and log fields.
const LONGEST_NAME: usize = 64;

/// Reads name and version from a whole request frame; `None` before version 3.
pub fn client_software(frame: &[u8], version: i16) -> Result<Option<ClientSoftware>, Malformed> {
    if version < 3 {
        return Ok(None);
    }
    let r = &mut Reader::new(frame);
    r.take(api::HEAD_BYTES, "request_header")?;
    api::client_id(r)?;
    r.skip_tags("request_header_tags")?;
    let name = r.string(true, "client_software_name")?.unwrap_or_default();
    let version = r
        .string(true, "client_software_version")?
        .unwrap_or_default();
    Ok(Some(ClientSoftware {
        name: word(name),
        version: word(version),
    }))
}

/// A name or version, cut.
fn word(bytes: &[u8]) -> String {
    first_chars(&printable(bytes), LONGEST_NAME).to_owned()
}

/// The request as it goes to the broker. In a version that this product does not read, the broker's response could
/// not be clamped, so it is asked in one that no broker has: it answers in version 0, with the versions it does
/// have (KIP-511).
pub fn forwarded(frame: Bytes, version: i16) -> Bytes {
    if (i16::MIN..=5).contains(&version) {
        return frame;
    }
    let mut changed = BytesMut::from(frame);
    if let Some(bytes) = changed.get_mut(6..8) {
        bytes.copy_from_slice(&i16::MAX.to_be_bytes());
    }
    changed.freeze()
}

/// Lowers `max_version` of the keys this product reads. `frame` is a whole response frame, changed in place: no
/// length changes.
pub fn clamp(frame: &mut [u8], version: i16) -> Result<(), Malformed> {
    let mut sites = Vec::new();
    let r = &mut Reader::new(frame);
    r.take(8, "response_header")?;
    let error_code = r.int16("error_code")?;
    let flexible = version >= 3 && error_code != UNSUPPORTED_VERSION;
    for _ in 0..r.count(flexible, "api_keys")?.unwrap_or(0) {
        let api_key = r.int16("api_key")?;
        r.int16("min_version")?;
        let at = r.position();
        let max_version = r.int16("max_version")?;
        if let Some(highest) =
            api::highest_version(api_key).filter(|highest| *highest < max_version)
        {
            sites.push((at, highest));
        }
        if flexible {
            r.skip_tags("api_key_tags")?;
        }
    }
    for (at, highest) in sites {
        frame
            .get_mut(at..)
            .and_then(|bytes| bytes.first_chunk_mut())
            .map(|bytes| *bytes = highest.to_be_bytes())
            .ok_or(Malformed::new("max_version", Reason::Truncated))?;
    }
    Ok(())
}
