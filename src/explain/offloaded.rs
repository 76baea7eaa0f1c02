//! A batch as it travels after values were offloaded: a ticket in a value's place, and one more header. Of records that are
//! alike as few as it takes: all where a record by itself is too large, else until the batch fits.

use std::sync::Arc;

use super::limits::GateLimit;
use super::{EstimatedRecord, Facts, Question};
use crate::claim::{Issuer, MARK_HEADER, Namespace, ObjectForm, ticket_bytes};
use crate::policy::TopicPolicy;
use crate::vocabulary::{Action, Gate};

/// A cluster's id is a UUID in base64: as long as every other.
const ANY_CLUSTER: &str = "0123456789012345678901";

/// What travels then.
pub(super) struct Travels {
    /// The same question of that.
    pub question: Question,
    pub record: EstimatedRecord,
    /// Records of the batch whose values are offloaded.
    pub offloaded: u32,
}

/// `None`: nothing is offloaded.
pub(super) fn travels(
    question: &Question,
    ground: &Facts<'_>,
    policy: &TopicPolicy,
    limits: &[GateLimit],
    record: &EstimatedRecord,
) -> Option<Travels> {
    let with_ticket = with_ticket(question, ground, policy, limits, record)?;
    let ticket = EstimatedRecord::of(&with_ticket);
    let above_bytes = policy.offload.as_ref()?.above_bytes;
    let over = limits.iter().filter(|limit| {
        let size = record.at(limit.gate);
        limit.gate.is_mended_by_a_ticket() && limit.limit_bytes.is_some_and(|most| size > most)
    });
    let is_of_the_batch = |gate: Gate| matches!(gate, Gate::Batch | Gate::Uncompressed);
    let is_any = record.value_bytes.is_some_and(|bytes| bytes > above_bytes)
        // What a batch is compressed to with some tickets in it is not known.
        || record.is_compressed
        || over.clone().any(|limit| !is_of_the_batch(limit.gate));
    let most = over.filter_map(|limit| limit.limit_bytes).min();
    let few = most
        .filter(|_| !is_any)
        .and_then(|most| record.fitting(&ticket, most));
    Some(match few {
        Some((offloaded, mixed)) if offloaded < record.records => Travels {
            question: question.clone(),
            record: mixed,
            offloaded,
        },
        _ => Travels {
            question: with_ticket,
            record: ticket,
            offloaded: record.records,
        },
    })
}

/// The same question with tickets in the place of all values; `None`: nothing is offloaded.
fn with_ticket(
    question: &Question,
    ground: &Facts<'_>,
    policy: &TopicPolicy,
    limits: &[GateLimit],
    record: &EstimatedRecord,
) -> Option<Question> {
    let offload = policy
        .offload
        .as_ref()
        .filter(|_| policy.action == Action::Offload)?;
    let value_bytes = record.value_bytes?;
    let is_over = |limit: &GateLimit| {
        let size = record.at(limit.gate);
        limit.gate.is_mended_by_a_ticket() && limit.limit_bytes.is_some_and(|most| size > most)
    };
    if value_bytes <= offload.above_bytes && !limits.iter().any(is_over) {
        return None;
    }
    let store = ground.config.claim_check.as_ref()?.store.to_string();
    let issuer = Issuer {
        topic: question.topic.as_str().into(),
        namespace: Arc::new(Namespace::new(&store, ANY_CLUSTER)),
        keys: Arc::clone(&offload.claims.keys),
        layout: offload.claims.layout,
    };
    let form = if record.is_compressed {
        ObjectForm::Zstd
    } else {
        ObjectForm::Plain
    };
    let (ticket, mark) = ticket_bytes(&issuer, form, value_bytes);
    (ticket < value_bytes).then(|| Question {
        value_bytes: Some(ticket),
        headers: Some(record.headers.saturating_add(1)),
        headers_bytes: Some(
            record
                .headers_bytes
                .saturating_add(MARK_HEADER.len() as u64)
                .saturating_add(mark),
        ),
        // What it compresses to is not known; tickets hardly do.
        compressed_bytes: None,
        ..question.clone()
    })
}
