//! What is measured: every load that peers are compared under.

use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;

use crate::frames::{Content, Ring, Version};

/// Sizes of batches, and what they are called.
pub const SIZES: [(&str, usize); 5] = [
    ("1 KiB", 1 << 10),
    ("16 KiB", 16 << 10),
    ("64 KiB", 64 << 10),
    ("256 KiB", 256 << 10),
    ("1 MiB", 1 << 20),
];

/// Partitions in one request, 1 KiB for each.
const PARTITIONS: [i32; 4] = [1, 20, 200, 1000];

/// What a Fetch asks of its one partition, and the batches it is given.
const FETCHES: [(&str, usize, usize); 7] = [
    ("64 KiB of 16 KiB", 64 << 10, 16 << 10),
    ("256 KiB of 16 KiB", 256 << 10, 16 << 10),
    ("1 MiB of 16 KiB", 1 << 20, 16 << 10),
    ("8 MiB of 16 KiB", 8 << 20, 16 << 10),
    ("64 KiB of 64 KiB", 64 << 10, 64 << 10),
    ("1 MiB of 1 MiB", 1 << 20, 1 << 20),
    ("8 MiB of 1 MiB", 8 << 20, 1 << 20),
];

/// Bytes of frames shared by all connections: enough to be no single hot frame, and to stay out of memory's way.
const RING_BYTES: usize = 2 << 20;

/// Loads of one kind stand together in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// One batch in each request.
    Produce,
    /// Many connections, each with a small request now and then.
    Sessions,
    /// Many partitions in each request.
    Partitions,
    /// Responses with records.
    Fetch,
}

impl Group {
    pub const fn title(self) -> &'static str {
        match self {
            Self::Produce => "Produce",
            Self::Sessions => "Produce of 1 KiB, 2,000 requests a second in all",
            Self::Partitions => "Produce to many partitions, 1 KiB for each",
            Self::Fetch => "Fetch",
        }
    }

    /// Requests a second over all connections; `None`: as many as there can be.
    pub const fn rate(self) -> Option<u32> {
        match self {
            Self::Sessions => Some(2_000),
            Self::Produce | Self::Partitions | Self::Fetch => None,
        }
    }

    /// (connections, depth). Consumers have one Fetch in flight.
    pub const fn loads(self) -> &'static [(usize, usize)] {
        match self {
            Self::Produce => &[(1, 1), (4, 8)],
            Self::Sessions => &[(2_000, 1)],
            Self::Partitions => &[(4, 8)],
            Self::Fetch => &[(1, 1), (4, 1)],
        }
    }
}

/// One load, however many connections it comes over.
pub struct Case {
    pub group: Group,
    pub name: String,
    pub ring: Arc<Ring>,
}

/// All cases of these groups whose names have `only` in them.
pub fn cases(groups: &[Group], only: &str, version: Version, content: Content) -> Vec<Case> {
    let mut cases = Vec::new();
    for &group in groups {
        let mut add = |name: &str, ring: &dyn Fn() -> Ring| {
            if name.contains(only) {
                cases.push(Case {
                    group,
                    name: name.to_owned(),
                    ring: Arc::new(ring()),
                });
            }
        };
        match group {
            Group::Produce => {
                for (name, bytes) in SIZES {
                    let count = (RING_BYTES / bytes).clamp(8, 64);
                    add(name, &|| Ring::produce(count, bytes, version, content));
                }
            }
            Group::Sessions => {
                let (name, bytes) = SIZES[0];
                add(name, &|| Ring::produce(64, bytes, version, content));
            }
            Group::Partitions => {
                for partitions in PARTITIONS {
                    let ring = || Ring::produce_to_many(8, partitions, 1 << 10, version, content);
                    add(&partitions.to_string(), &ring);
                }
            }
            Group::Fetch => {
                for (name, bytes, batch_bytes) in FETCHES {
                    add(name, &|| Ring::fetch(64, 1, bytes, batch_bytes));
                }
                add("500 partitions of 1 KiB", &|| {
                    Ring::fetch(8, 500, 1 << 10, 1 << 10)
                });
            }
        }
    }
    cases
}
