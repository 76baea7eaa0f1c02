//! Explains why a call to a broker failed, in words that say where to look.

use std::io;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use crate::config::HostPort;
use crate::wire::{Malformed, Reason};

/// Why a call to a broker failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection. The text names the broker and the step.
    #[error("{0}")]
    Connect(io::Error),
    /// The connection broke.
    #[error("{peer}, {api:?}: {source}")]
    Io {
        /// The broker.
        peer: HostPort,
        /// The request.
        api: ApiKey,
        /// What broke.
        source: io::Error,
    },
    /// The broker closed the connection instead of answering.
    #[error("{peer} closed the connection instead of answering {api:?}{hint}")]
    Closed {
        /// The broker.
        peer: HostPort,
        /// The request.
        api: ApiKey,
        /// What usually makes a broker do that; may be empty.
        hint: &'static str,
    },
    /// No response in time.
    #[error("{peer} did not answer {api:?} within {} s{hint}", waited.as_secs_f64().round())]
    Timeout {
        /// The broker.
        peer: HostPort,
        /// The request.
        api: ApiKey,
        /// How long it was waited for.
        waited: Duration,
        /// What usually keeps a broker silent; may be empty.
        hint: &'static str,
    },
    /// The response is not what the protocol says.
    #[error("{peer} answered {api:?} with bytes that are not the Kafka protocol ({what}){hint}")]
    Malformed {
        /// The broker.
        peer: HostPort,
        /// The request.
        api: ApiKey,
        /// What is wrong with it.
        what: Malformed,
        /// What it may be instead; may be empty.
        hint: &'static str,
    },
    /// No version of this API that both speak.
    #[error("{peer} does not speak {api:?} in a version that sizegate does")]
    Unsupported {
        /// The broker.
        peer: HostPort,
        /// The API.
        api: ApiKey,
    },
    /// The broker does not know us.
    #[error("{peer}: authentication failed: {reason}")]
    Authentication {
        /// The broker.
        peer: HostPort,
        /// User, mechanism and the broker's own words.
        reason: String,
    },
    /// The broker refuses the whole request.
    #[error("{peer} refused {api:?}: {error}")]
    Refused {
        /// The broker.
        peer: HostPort,
        /// The request.
        api: ApiKey,
        /// Its error, by name.
        error: String,
    },
    /// Every broker that was tried, each with its own reason.
    #[error("{}", each(.0))]
    Every(Vec<CallError>),
}

/// Errors of so many brokers are shown.
const SHOWN: usize = 5;

fn each(errors: &[CallError]) -> String {
    let mut texts: Vec<String> = errors.iter().take(SHOWN).map(ToString::to_string).collect();
    if let Some(more @ 1..) = errors.len().checked_sub(SHOWN) {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

impl CallError {
    /// A fixed word for logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Io { .. } => "io",
            Self::Closed { .. } => "closed",
            Self::Timeout { .. } => "timeout",
            Self::Malformed { .. } => "malformed",
            Self::Unsupported { .. } => "unsupported",
            Self::Authentication { .. } => "authentication",
            Self::Refused { .. } => "refused",
            Self::Every(errors) => errors.first().map_or("connect", Self::label),
        }
    }

    /// A connection kept over a pause ends like this when the broker closed it meanwhile: a new one may do.
    pub(super) const fn may_be_stale(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Closed { .. })
    }

    /// More came, or was announced, than is taken.
    pub(super) const fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::Malformed {
                what: Malformed {
                    reason: Reason::TooLong,
                    ..
                },
                ..
            }
        )
    }
}
