//! Checks an answer before kafka-protocol decodes it: that decoder allocates by declared counts.
//!
//! Invariant: an answer passes only if every array element and every byte it declares is there; nothing is
//! allocated. An API without a shape here is not decoded.

use kafka_protocol::messages::ApiKey;

use crate::wire::{Malformed, Reader, Reason};

/// One field of a message: its kind, and the versions that have it.
struct Field {
    name: &'static str,
    kind: Kind,
    versions: (i16, i16),
}

enum Kind {
    Fixed(usize),
    Text,
    Bytes,
    Array(&'static [Field]),
}

/// The answer of one API, its header excluded.
struct Shape {
    api: ApiKey,
    versions: (i16, i16),
    first_flexible: i16,
    fields: &'static [Field],
}

const fn field(name: &'static str, kind: Kind) -> Field {
    since(0, name, kind)
}

const fn since(version: i16, name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        versions: (version, i16::MAX),
    }
}

/// Answers with tagged fields that kafka-protocol knows have no place here: it decodes those without regard to
/// their declared size, so passing over them proves nothing.
const SHAPES: &[Shape] = &[
    Shape {
        api: ApiKey::SaslHandshake,
        versions: (0, 1),
        first_flexible: i16::MAX,
        fields: &[
            field("error_code", Kind::Fixed(2)),
            field("mechanisms", Kind::Array(&[field("mechanism", Kind::Text)])),
        ],
    },
    Shape {
        api: ApiKey::SaslAuthenticate,
        versions: (0, 2),
        first_flexible: 2,
        fields: &[
            field("error_code", Kind::Fixed(2)),
            field("error_message", Kind::Text),
            field("auth_bytes", Kind::Bytes),
            since(1, "session_lifetime_ms", Kind::Fixed(8)),
        ],
    },
    Shape {
        api: ApiKey::DescribeConfigs,
        versions: (1, 4),
        first_flexible: 4,
        fields: &[
            field("throttle_time_ms", Kind::Fixed(4)),
            field(
                "results",
                Kind::Array(&[
                    field("error_code", Kind::Fixed(2)),
                    field("error_message", Kind::Text),
                    field("resource_type", Kind::Fixed(1)),
                    field("resource_name", Kind::Text),
                    field(
                        "configs",
                        Kind::Array(&[
                            field("name", Kind::Text),
                            field("value", Kind::Text),
                            field("read_only", Kind::Fixed(1)),
                            field("config_source", Kind::Fixed(1)),
                            field("is_sensitive", Kind::Fixed(1)),
                            field(
                                "synonyms",
                                Kind::Array(&[
                                    field("name", Kind::Text),
                                    field("value", Kind::Text),
                                    field("source", Kind::Fixed(1)),
                                ]),
                            ),
                            since(3, "config_type", Kind::Fixed(1)),
                            since(3, "documentation", Kind::Text),
                        ]),
                    ),
                ]),
            ),
        ],
    },
    Shape {
        api: ApiKey::IncrementalAlterConfigs,
        versions: (0, 1),
        first_flexible: 1,
        fields: &[
            field("throttle_time_ms", Kind::Fixed(4)),
            field(
                "responses",
                Kind::Array(&[
                    field("error_code", Kind::Fixed(2)),
                    field("error_message", Kind::Text),
                    field("resource_type", Kind::Fixed(1)),
                    field("resource_name", Kind::Text),
                ]),
            ),
        ],
    },
];

/// The versions of an API whose answers can be checked; `None` if the API has no shape here.
pub(super) fn versions(api: ApiKey) -> Option<(i16, i16)> {
    shape(api).map(|shape| shape.versions)
}

/// Every element and byte that this answer's body declares is in it.
pub(super) fn check_shape(api: ApiKey, version: i16, body: &[u8]) -> Result<(), Malformed> {
    let unsupported = Malformed::new("api_version", Reason::UnsupportedVersion);
    let shape = shape(api).ok_or(unsupported)?;
    if version < shape.versions.0 || version > shape.versions.1 {
        return Err(unsupported);
    }
    let flexible = version >= shape.first_flexible;
    walk(&mut Reader::new(body), shape.fields, version, flexible)
}

fn shape(api: ApiKey) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.api == api)
}

fn walk(
    r: &mut Reader<'_>,
    fields: &'static [Field],
    version: i16,
    flexible: bool,
) -> Result<(), Malformed> {
    for field in fields {
        if version < field.versions.0 || version > field.versions.1 {
            continue;
        }
        match &field.kind {
            Kind::Fixed(bytes) => {
                r.take(*bytes, field.name)?;
            }
            Kind::Text => {
                r.string(flexible, field.name)?;
            }
            Kind::Bytes => {
                r.bytes(flexible, field.name)?;
            }
            Kind::Array(element) => {
                for _ in 0..r.count(flexible, field.name)?.unwrap_or(0) {
                    walk(r, element, version, flexible)?;
                }
            }
        }
    }
    if flexible {
        r.skip_tags("tagged_fields")?;
    }
    Ok(())
}
