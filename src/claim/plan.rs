//! Chooses the records of a batch that are offloaded. Pure.
//!
//! Every value above the threshold, and every record that breaks a gate by itself; then the largest first, until the
//! batch holds the gates that look at all of it. Null values, values that a ticket would not be shorter than, and
//! records that bear a valid ticket already are left alone.

use std::cmp::Reverse;
use std::ops::Range;

use super::issue::{Issuer, SignedTicket, TicketLength};
use super::keys::Refuted;
use super::open::OpenBatch;
use super::rewrite::{judge, offload};
use super::ticket::{ContentType, ObjectForm};
use crate::batch::{BATCH_HEADER_BYTES, Headers, RecordParts, varint_bytes};
use crate::codec::Encoding;
use crate::wire::splice::chain_bytes;

/// The header that says what a value is (CloudEvents, and most others who say it at all).
const CONTENT_TYPE_HEADER: &[u8] = b"content-type";

/// What true tickets may compress to above their stand-ins, of so many. A ticket has its digest twice, and an encoder that
/// skips over what does not shrink (snappy, lz4) finds the second one or does not; all other digits are of the same
/// alphabets. A test holds it over codecs, layouts and numbers of tickets. A batch that exceeds it all the same is judged
/// again with its true tickets, and refused: nothing is forwarded on the strength of this.
pub fn allowance(tickets: usize) -> u64 {
    ALLOWED_BYTES.saturating_add((tickets as u64).saturating_mul(DIGEST_DIGITS))
}

/// By so much an encoder's tables differ.
const ALLOWED_BYTES: u64 = 16;
/// SHA-256 as text.
const DIGEST_DIGITS: u64 = 64;

/// Limits that a ticket can mend; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fit {
    /// One value.
    pub value_bytes: Option<u64>,
    /// One record as encoded.
    pub record_bytes: Option<u64>,
    /// One record's estimate.
    pub estimate_bytes: Option<u64>,
    /// 61 + the records uncompressed.
    pub uncompressed_bytes: Option<u64>,
    /// The batch as it travels.
    pub batch_bytes: Option<u64>,
}

/// A record that is to be offloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its index in the batch.
    pub record: u32,
    /// Its value, as a range of [`OpenBatch::records`].
    pub value: Range<usize>,
    /// What the value is.
    pub content_type: ContentType,
}

/// What is to be offloaded, by ascending record; and how the objects are to lie in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One at least.
    pub claims: Vec<Claim>,
    /// Compressed, where the batch was; a value that does not shrink lies plain.
    pub form: ObjectForm,
}

impl Plan {
    /// Bytes of the values.
    pub fn value_bytes(&self) -> u64 {
        self.claims
            .iter()
            .fold(0, |sum, claim| sum.saturating_add(claim.value.len() as u64))
    }

    /// Tickets as long as the true ones can be: to judge the batch by before anything is written.
    pub fn stand_ins(&self, issuer: &Issuer) -> Vec<SignedTicket> {
        let stand_in = |claim: &Claim| {
            let size = claim.value.len() as u64;
            issuer.stand_in(claim.record, size, &claim.content_type, self.form)
        };
        self.claims.iter().map(stand_in).collect()
    }
}

/// What was planned for a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// It goes as it is.
    Nothing,
    /// These records are offloaded.
    Offload(Plan),
    /// This record bears the mark, but not a ticket of ours.
    Forged {
        /// Its index.
        record: u32,
        /// What is wrong.
        why: Refuted,
    },
}

/// Plans for one batch: values above `above_bytes`, then what `fit` needs.
pub fn plan_offload(batch: &OpenBatch, above_bytes: u64, fit: &Fit, issuer: &Issuer) -> Planned {
    let form = match batch.encoding() {
        Encoding::None => ObjectForm::Plain,
        _ => ObjectForm::Zstd,
    };
    let planner = Planner {
        batch,
        above_bytes,
        fit,
        issuer,
        form,
        length: TicketLength::of(issuer, form),
    };
    match planner.plan() {
        Err((record, why)) => Planned::Forged { record, why },
        Ok(claims) if claims.is_empty() => Planned::Nothing,
        Ok(mut claims) => {
            claims.sort_unstable_by_key(|claim| claim.record);
            Planned::Offload(Plan { claims, form })
        }
    }
}

struct Planner<'a> {
    batch: &'a OpenBatch,
    above_bytes: u64,
    fit: &'a Fit,
    issuer: &'a Issuer,
    form: ObjectForm,
    length: TicketLength,
}

/// A claim, and by how much the records would shrink.
struct Candidate {
    claim: Claim,
    gain: u64,
}

impl Planner<'_> {
    fn plan(&self) -> Result<Vec<Claim>, (u32, Refuted)> {
        let mut claims = Vec::new();
        let mut records_bytes = self.batch.records().len() as u64;
        for (record, parts) in self.batch.parts() {
            let is_ticket = self.is_ticket(&parts).map_err(|why| (record, why))?;
            if is_ticket || !self.is_over(&parts) {
                continue;
            }
            if let Some(Candidate { claim, gain }) = self.candidate(record, &parts) {
                records_bytes = records_bytes.saturating_sub(gain);
                claims.push(claim);
            }
        }
        if self.holds(&claims, records_bytes) {
            return Ok(claims);
        }
        let candidates = self.candidates(&claims);
        let more = self.fewest(&claims, &candidates, records_bytes);
        claims.extend(candidates.into_iter().take(more).map(|c| c.claim));
        Ok(claims)
    }

    /// Above the threshold, or over a gate that looks at one record.
    fn is_over(&self, parts: &RecordParts) -> bool {
        let sizes = &parts.sizes;
        let over = |size: u64, limit: Option<u64>| limit.is_some_and(|limit| size > limit);
        sizes.value_bytes > self.above_bytes
            || over(sizes.value_bytes, self.fit.value_bytes)
            || over(sizes.record_bytes, self.fit.record_bytes)
            || over(sizes.estimate_bytes, self.fit.estimate_bytes)
    }

    fn is_ticket(&self, parts: &RecordParts) -> Result<bool, Refuted> {
        if parts.headers_count == 0 {
            return Ok(false);
        }
        let Issuer {
            topic,
            namespace,
            keys,
            ..
        } = self.issuer;
        let ticket = judge(self.batch.records(), parts, topic, namespace, keys)?;
        Ok(ticket.is_some())
    }

    /// The record with a ticket for its value, if that is shorter.
    fn candidate(&self, record: u32, parts: &RecordParts) -> Option<Candidate> {
        let value = parts.value.clone()?;
        let content_type = self.content_type(parts);
        let before = parts.record.len() as u64;
        let gain = before.checked_sub(self.record_bytes_after(parts, &content_type))?;
        let claim = Claim {
            record,
            value,
            content_type,
        };
        (gain > 0).then_some(Candidate { claim, gain })
    }

    fn content_type(&self, parts: &RecordParts) -> ContentType {
        let mut headers = Headers::of(parts, self.batch.records());
        let whole = headers.clone();
        let header = headers.find(|header| {
            whole
                .bytes(&header.name)
                .eq_ignore_ascii_case(CONTENT_TYPE_HEADER)
        });
        let value = header.and_then(|header| header.value);
        ContentType::of_header(value.map(|value| whole.bytes(&value)))
    }

    fn record_bytes_after(&self, parts: &RecordParts, content_type: &ContentType) -> u64 {
        let with_length = |bytes: u64| {
            let length = u32::try_from(bytes).unwrap_or(u32::MAX);
            bytes.saturating_add(varint_bytes(length))
        };
        let size = parts.value.as_ref().map_or(0, Range::len) as u64;
        let front = parts.value_field.start.saturating_sub(parts.head.start) as u64;
        let body = front
            .saturating_add(with_length(self.length.value_bytes(size, content_type)))
            .saturating_add(varint_bytes(parts.headers_count.saturating_add(1)))
            .saturating_add(parts.headers.len() as u64)
            .saturating_add(self.length.header_bytes);
        with_length(body)
    }

    /// All others that a ticket makes shorter, the largest value first.
    fn candidates(&self, claims: &[Claim]) -> Vec<Candidate> {
        let mut claimed = claims.iter().map(|claim| claim.record).peekable();
        let mut candidates = Vec::new();
        for (record, parts) in self.batch.parts() {
            if claimed.next_if_eq(&record).is_some() || !matches!(self.is_ticket(&parts), Ok(false))
            {
                continue;
            }
            candidates.extend(self.candidate(record, &parts));
        }
        candidates.sort_by_key(|c| (Reverse(c.claim.value.len()), c.claim.record));
        candidates
    }

    /// How many of the candidates it takes until all gates hold; all, if that is not enough.
    fn fewest(&self, claims: &[Claim], candidates: &[Candidate], records_bytes: u64) -> usize {
        let after = |more: usize| {
            let gain = |sum: u64, c: &Candidate| sum.saturating_add(c.gain);
            let gained = candidates.iter().take(more).fold(0, gain);
            let claims: Vec<Claim> = claims
                .iter()
                .chain(candidates.iter().take(more).map(|c| &c.claim))
                .cloned()
                .collect();
            self.holds(&claims, records_bytes.saturating_sub(gained))
        };
        // What does not hold with `low` of them may hold with `high`.
        let (mut low, mut high) = (0, candidates.len());
        while low < high {
            let middle = low.saturating_add(high.saturating_sub(low) / 2);
            if after(middle) {
                high = middle;
            } else {
                low = middle.saturating_add(1);
            }
        }
        high
    }

    /// Whether the batch with these claims holds the gates that look at all of it.
    fn holds(&self, claims: &[Claim], records_bytes: u64) -> bool {
        let uncompressed = records_bytes.saturating_add(BATCH_HEADER_BYTES as u64);
        let within = |size: u64, limit: Option<u64>| limit.is_none_or(|limit| size <= limit);
        within(uncompressed, self.fit.uncompressed_bytes) && self.holds_batch(claims, uncompressed)
    }

    fn holds_batch(&self, claims: &[Claim], uncompressed: u64) -> bool {
        let Some(limit) = self.fit.batch_bytes else {
            return true;
        };
        if self.batch.encoding() == Encoding::None {
            return uncompressed <= limit;
        }
        if claims.is_empty() {
            return self.batch.header().wire_bytes() <= limit;
        }
        let mut claims = claims.to_vec();
        claims.sort_unstable_by_key(|claim| claim.record);
        let allowed = allowance(claims.len());
        let plan = Plan {
            claims,
            form: self.form,
        };
        // There is no telling what it compresses to but to compress it.
        offload(self.batch, &plan, &plan.stand_ins(self.issuer))
            .is_ok_and(|chain| (chain_bytes(&chain) as u64).saturating_add(allowed) <= limit)
    }
}
