//! Checks a response before kafka-protocol decodes it: that decoder allocates by declared counts.
//!
//! Invariant: a response passes only if every array element and every byte it declares is there; nothing is
//! allocated. An API without a shape here is not decoded.

use kafka_protocol::messages::ApiKey;

use crate::wire::{Malformed, Reader, Reason};

/// One field of a message: its kind, and the versions that have it.
struct Field {
    name: &'static str,
    kind: FieldType,
    versions: (i16, i16),
}

enum FieldType {
    Fixed(usize),
    Text,
    Bytes,
    Array(&'static [Field]),
}

/// The response of one API, its header excluded.
struct Shape {
    api: ApiKey,
    versions: (i16, i16),
    first_flexible: i16,
    fields: &'static [Field],
}

const fn field(name: &'static str, kind: FieldType) -> Field {
    since(0, name, kind)
}

const fn since(version: i16, name: &'static str, kind: FieldType) -> Field {
    Field {
        name,
        kind,
        versions: (version, i16::MAX),
    }
}

/// Responses with tagged fields that kafka-protocol knows have no place here: it decodes those without regard to
/// their declared size, so passing over them proves nothing.
const SHAPES: &[Shape] = &[
    Shape {
        api: ApiKey::SaslHandshake,
        versions: (0, 1),
        first_flexible: i16::MAX,
        fields: &[
            field("error_code", FieldType::Fixed(2)),
            field(
                "mechanisms",
                FieldType::Array(&[field("mechanism", FieldType::Text)]),
            ),
        ],
    },
    Shape {
        api: ApiKey::SaslAuthenticate,
        versions: (0, 2),
        first_flexible: 2,
        fields: &[
            field("error_code", FieldType::Fixed(2)),
            field("error_message", FieldType::Text),
            field("auth_bytes", FieldType::Bytes),
            since(1, "session_lifetime_ms", FieldType::Fixed(8)),
        ],
    },
    Shape {
        api: ApiKey::DescribeConfigs,
        versions: (1, 4),
        first_flexible: 4,
        fields: &[
            field("throttle_time_ms", FieldType::Fixed(4)),
            field(
                "results",
                FieldType::Array(&[
                    field("error_code", FieldType::Fixed(2)),
                    field("error_message", FieldType::Text),
                    field("resource_type", FieldType::Fixed(1)),
                    field("resource_name", FieldType::Text),
                    field(
                        "configs",
                        FieldType::Array(&[
                            field("name", FieldType::Text),
                            field("value", FieldType::Text),
                            field("read_only", FieldType::Fixed(1)),
                            field("config_source", FieldType::Fixed(1)),
                            field("is_sensitive", FieldType::Fixed(1)),
                            field(
                                "synonyms",
                                FieldType::Array(&[
                                    field("name", FieldType::Text),
                                    field("value", FieldType::Text),
                                    field("source", FieldType::Fixed(1)),
                                ]),
                            ),
                            since(3, "config_type", FieldType::Fixed(1)),
                            since(3, "documentation", FieldType::Text),
                        ]),
                    ),
                ]),
            ),
        ],
    },
    // From version 5 on there are tagged fields that kafka-protocol knows.
    Shape {
        api: ApiKey::CreateTopics,
        versions: (4, 4),
        first_flexible: 5,
        fields: &[
            field("throttle_time_ms", FieldType::Fixed(4)),
            field(
                "topics",
                FieldType::Array(&[
                    field("name", FieldType::Text),
                    field("error_code", FieldType::Fixed(2)),
                    field("error_message", FieldType::Text),
                ]),
            ),
        ],
    },
    Shape {
        api: ApiKey::DeleteTopics,
        versions: (1, 3),
        first_flexible: 4,
        fields: &[
            field("throttle_time_ms", FieldType::Fixed(4)),
            field(
                "responses",
                FieldType::Array(&[
                    field("name", FieldType::Text),
                    field("error_code", FieldType::Fixed(2)),
                ]),
            ),
        ],
    },
    Shape {
        api: ApiKey::InitProducerId,
        versions: (0, 5),
        first_flexible: 2,
        fields: &[
            field("throttle_time_ms", FieldType::Fixed(4)),
            field("error_code", FieldType::Fixed(2)),
            field("producer_id", FieldType::Fixed(8)),
            field("producer_epoch", FieldType::Fixed(2)),
        ],
    },
    // From version 10 on there are tagged fields that kafka-protocol knows.
    Shape {
        api: ApiKey::Produce,
        versions: (3, 9),
        first_flexible: 9,
        fields: &[
            field(
                "responses",
                FieldType::Array(&[
                    field("name", FieldType::Text),
                    field(
                        "partition_responses",
                        FieldType::Array(&[
                            field("index", FieldType::Fixed(4)),
                            field("error_code", FieldType::Fixed(2)),
                            field("base_offset", FieldType::Fixed(8)),
                            field("log_append_time_ms", FieldType::Fixed(8)),
                            since(5, "log_start_offset", FieldType::Fixed(8)),
                            since(
                                8,
                                "record_errors",
                                FieldType::Array(&[
                                    field("batch_index", FieldType::Fixed(4)),
                                    field("batch_index_error_message", FieldType::Text),
                                ]),
                            ),
                            since(8, "error_message", FieldType::Text),
                        ]),
                    ),
                ]),
            ),
            field("throttle_time_ms", FieldType::Fixed(4)),
        ],
    },
    Shape {
        api: ApiKey::ListOffsets,
        versions: (4, 6),
        first_flexible: 6,
        fields: &[
            field("throttle_time_ms", FieldType::Fixed(4)),
            field(
                "topics",
                FieldType::Array(&[
                    field("name", FieldType::Text),
                    field(
                        "partitions",
                        FieldType::Array(&[
                            field("partition_index", FieldType::Fixed(4)),
                            field("error_code", FieldType::Fixed(2)),
                            field("timestamp", FieldType::Fixed(8)),
                            field("offset", FieldType::Fixed(8)),
                            field("leader_epoch", FieldType::Fixed(4)),
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
            field("throttle_time_ms", FieldType::Fixed(4)),
            field(
                "responses",
                FieldType::Array(&[
                    field("error_code", FieldType::Fixed(2)),
                    field("error_message", FieldType::Text),
                    field("resource_type", FieldType::Fixed(1)),
                    field("resource_name", FieldType::Text),
                ]),
            ),
        ],
    },
];

/// The versions of an API whose responses can be checked; `None` if the API has no shape here.
pub(super) fn versions(api: ApiKey) -> Option<(i16, i16)> {
    shape(api).map(|shape| shape.versions)
}

/// Every element and byte that this response's body declares is in it.
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
            FieldType::Fixed(bytes) => {
                r.take(*bytes, field.name)?;
            }
            FieldType::Text => {
                r.string(flexible, field.name)?;
            }
            FieldType::Bytes => {
                r.bytes(flexible, field.name)?;
            }
            FieldType::Array(element) => {
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
