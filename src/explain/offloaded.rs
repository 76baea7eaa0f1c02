//! A record as it travels after its value was offloaded: a ticket in the value's place, and one more header.

use std::sync::Arc;

use super::limits::GateLimit;
use super::{EstimatedRecord, Facts, Question};
use crate::claim::{Issuer, MARK_HEADER, Namespace, ObjectForm, ticket_bytes};
use crate::policy::TopicPolicy;
use crate::vocabulary::Action;

/// A cluster's id is a UUID in base64: as long as every other.
const ANY_CLUSTER: &str = "0123456789012345678901";

/// The same question of what travels then; `None`: nothing is offloaded.
pub(super) fn question(
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
