//! The shapes of the answers that replicas give together, by path.
//!
//! Invariant: a field of an answer that is not here is not taken from a peer.

use super::merge::Kind::{
    Count, First, Flag, Last, Least, Maybe, Most, Number, Object, Own, Rows as List, Sum,
    SumByWord, SumEach, Text, Texts,
};
use super::merge::Order::{AsTheyCame, Down, Up};
use super::merge::{Fields, Kind, Rows, Together};

/// How the answers for a path become one; `None`: each replica says the same, or it is a question.
pub(super) fn together_of(path: &str) -> Option<&'static Together> {
    let (_, together) = PATHS.iter().find(|(known, _)| *known == path)?;
    Some(together)
}

const PATHS: [(&str, Together); 9] = [
    ("/api/v1/status", Together::Each(STATE)),
    (
        "/api/v1/topics",
        Together::One(&[("topics", List(&TOPICS))]),
    ),
    (
        "/api/v1/sizes",
        Together::One(&[("topic", Text), ("sizes", Maybe(&Object(SIZES)))]),
    ),
    (
        "/api/v1/refusals",
        Together::One(&[("refusals", List(&REFUSALS))]),
    ),
    (
        "/api/v1/refusals/recent",
        Together::One(&[("groups", List(&GROUPS))]),
    ),
    (
        "/api/v1/clients",
        Together::One(&[("clients", List(&CLIENTS))]),
    ),
    (
        "/api/v1/lingering",
        Together::One(&[("lingering", List(&LINGERING))]),
    ),
    (
        "/api/v1/fetch",
        Together::One(&[("oversized", List(&OVERSIZED)), ("stuck", List(&STUCK))]),
    ),
    (
        "/api/v1/claims",
        Together::One(&[
            ("topics", List(&CLAIM_TOPICS)),
            ("held", List(&HELD)),
            ("store", List(&STORE)),
            ("cache_bytes", Sum),
            ("cache_hits", Sum),
        ]),
    ),
];

const MAYBE_TEXT: Kind = Maybe(&Text);
const MAYBE_COUNT: Kind = Maybe(&Count);

/// A list whose entries stay each their own.
const fn each(order: super::merge::Order, who: &'static str, fields: Fields) -> Rows {
    Rows {
        key: &[],
        newest: None,
        who: Some(who),
        order,
        fields,
    }
}

const STATE: Fields = &[
    ("version", Text),
    ("mode", Text),
    ("why_not_ready", Texts),
    ("connections", Count),
    ("held_bytes", Count),
    ("memory_budget_bytes", Count),
    ("memory_waits", Count),
    (
        "control_plane",
        Object(&[
            ("is_up", Flag),
            ("error", MAYBE_TEXT),
            ("limits_age_seconds", MAYBE_COUNT),
        ]),
    ),
    (
        "reload",
        Maybe(&Object(&[("at", Text), ("error", MAYBE_TEXT)])),
    ),
];

const TOPICS: Rows = Rows {
    key: &["topic"],
    newest: None,
    who: Some("batches"),
    order: Up("topic"),
    fields: &[
        ("topic", Text),
        ("rule", MAYBE_TEXT),
        ("action", Text),
        (
            "limits",
            List(&Rows {
                key: &["gate"],
                newest: None,
                who: None,
                order: AsTheyCame,
                fields: &[
                    ("gate", Text),
                    ("limit_bytes", Count),
                    ("source", Text),
                    ("name", MAYBE_TEXT),
                ],
            }),
        ),
        ("topic_config", Own),
        ("codecs", Own),
        (
            "batches",
            Maybe(&Object(&[
                ("forwarded", Sum),
                ("refused", Sum),
                ("observed", Sum),
                ("offloaded", Sum),
            ])),
        ),
        (
            "last",
            Maybe(&Object(&[
                ("batch_bytes", MAYBE_COUNT),
                ("uncompressed_bytes", MAYBE_COUNT),
                ("record_bytes", MAYBE_COUNT),
                ("estimate_bytes", MAYBE_COUNT),
            ])),
        ),
        (
            "largest",
            Maybe(&Object(&[
                ("batch_bytes", Maybe(&Most)),
                ("uncompressed_bytes", Maybe(&Most)),
                ("record_bytes", Maybe(&Most)),
                ("estimate_bytes", Maybe(&Most)),
                ("key_bytes", Maybe(&Most)),
                ("value_bytes", Maybe(&Most)),
                ("headers_bytes", Maybe(&Most)),
            ])),
        ),
        (
            "gates",
            List(&Rows {
                key: &["gate"],
                newest: None,
                who: None,
                order: AsTheyCame,
                fields: &[("gate", Text), ("near_limit", Sum), ("violations", Sum)],
            }),
        ),
    ],
};

const SIZES: Fields = &[
    ("batch", Object(DISTRIBUTION)),
    ("uncompressed", Object(DISTRIBUTION)),
    ("record", Object(DISTRIBUTION)),
    ("estimate", Object(DISTRIBUTION)),
];

const DISTRIBUTION: Fields = &[
    ("count", Sum),
    ("sum_bytes", Sum),
    ("last_bytes", MAYBE_COUNT),
    ("largest_bytes", Maybe(&Most)),
    (
        "buckets",
        List(&Rows {
            key: &["le_bytes"],
            newest: None,
            who: None,
            order: AsTheyCame,
            fields: &[("le_bytes", MAYBE_COUNT), ("count", Sum)],
        }),
    ),
];

const REFUSALS: Rows = each(
    Down("at"),
    "id",
    &[
        ("refused_by", Text),
        ("id", Text),
        ("at", Text),
        ("text", Text),
        ("topic", Text),
        ("partition", Count),
        ("gate", MAYBE_TEXT),
        ("size_bytes", Count),
        ("at_least", Maybe(&Flag)),
        ("limit_bytes", MAYBE_COUNT),
        ("source", MAYBE_TEXT),
        ("rule", MAYBE_TEXT),
        ("member", MAYBE_TEXT),
        ("action", MAYBE_TEXT),
        ("error_code", Count),
        ("is_loop", Maybe(&Flag)),
        ("client_id", Text),
        ("software", Text),
        ("address", Text),
        ("principal", MAYBE_TEXT),
        ("batch_bytes", MAYBE_COUNT),
        ("uncompressed_bytes", MAYBE_COUNT),
        ("codec", MAYBE_TEXT),
        ("records", MAYBE_COUNT),
        ("record", MAYBE_COUNT),
        ("record_key", MAYBE_TEXT),
    ],
);

const GROUPS: Rows = Rows {
    key: &["topic", "gate", "client_id", "refused_by", "is_observed"],
    newest: Some("last_at"),
    who: Some("topic"),
    order: Down("last_ten_minutes"),
    fields: &[
        ("topic", Text),
        ("gate", MAYBE_TEXT),
        ("client_id", Text),
        ("software", Text),
        ("refused_by", Text),
        ("is_observed", Flag),
        ("last_ten_minutes", Sum),
        ("last_hour", Sum),
        ("by_minute", SumEach),
        ("first_at", First),
        ("last_at", Last),
        ("last_id", Text),
    ],
};

const CLIENTS: Rows = Rows {
    key: &["software", "version"],
    newest: None,
    who: Some("software"),
    order: Down("connections"),
    fields: &[
        ("software", Text),
        ("version", Text),
        ("connections", Sum),
        ("connections_total", Sum),
        ("client_ids", Texts),
        ("more_client_ids", Flag),
    ],
};

const LINGERING: Rows = each(
    Down("last_at"),
    "topic",
    &[
        ("topic", Text),
        ("client_id", Text),
        ("software", Text),
        ("address", Text),
        ("linger_seconds", Number),
        ("batch_bytes", Count),
        ("largest_bytes", Count),
        ("suggestion", Text),
        ("count", Count),
        ("first_at", Text),
        ("last_at", Text),
    ],
);

const OVERSIZED: Rows = each(
    Down("last_at"),
    "topic",
    &[
        ("topic", Text),
        ("partition", Count),
        ("offset", Count),
        ("client_id", Text),
        ("software", Text),
        ("address", Text),
        ("batch_bytes", Count),
        ("largest_bytes", Count),
        ("setting", Text),
        ("setting_bytes", Count),
        ("note", Text),
        ("count", Count),
        ("first_at", Text),
        ("last_at", Text),
    ],
);

const STUCK: Rows = each(
    Down("last_at"),
    "topic",
    &[
        ("topic", Text),
        ("partition", Count),
        ("offset", Count),
        ("batch_offset", MAYBE_COUNT),
        ("client_id", Text),
        ("software", Text),
        ("address", Text),
        ("batch_bytes", Count),
        ("served", Count),
        ("note", Text),
        ("count", Count),
        ("first_at", Text),
        ("last_at", Text),
    ],
);

const CLAIM_TOPICS: Rows = Rows {
    key: &["topic"],
    newest: None,
    who: Some("topic"),
    order: Up("topic"),
    fields: &[
        ("topic", Text),
        ("offloaded_records", Sum),
        ("offloaded_bytes", Sum),
        ("log_bytes", Maybe(&Sum)),
        ("redeemed_records", Sum),
        ("redeemed_bytes", Sum),
        ("fallback_records", SumByWord),
        ("fallback_age_seconds", Maybe(&Least)),
        ("fallback_failures", Sum),
        ("redeem_failures", SumByWord),
        ("forged", Sum),
        ("orphans", Sum),
    ],
};

const HELD: Rows = Rows {
    key: &["topic", "partition", "offset"],
    newest: None,
    who: Some("topic"),
    order: Down("seconds"),
    fields: &[
        ("topic", Text),
        ("partition", Count),
        ("offset", Count),
        ("seconds", Most),
    ],
};

const STORE: Rows = each(
    Up("operation"),
    "operation",
    &[
        ("operation", Text),
        ("outcomes", SumByWord),
        ("mean_seconds", Number),
        ("failing", MAYBE_TEXT),
        ("failing_seconds", MAYBE_COUNT),
        ("failed_age_seconds", MAYBE_COUNT),
    ],
);
