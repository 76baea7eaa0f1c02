//! Refusals told to everybody who is not on the connection: the log, the metrics, `/api/v1/refusals`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::topics::TopicHandle;
use super::verdict::Sent;
use super::{ClientInfo, Shared};
use crate::count::Count as _;
use crate::error_code::INVALID_RECORD;
use crate::policy::{
    BatchFacts, Blame, Client, ClientRules, Framework, Library, Place, Policy, Refusal, Size,
    Suspect, Violation,
};
use crate::telemetry::{
    BrokerRefusal, FetchSetting, Lingering, OVERSIZED_NOTE, OversizedFetch, Peer, RefusalRecord,
    Stuck, stuck_note,
};
use crate::text::printable;
use crate::vocabulary::{Action, Codec, Gate, Source};
use crate::wire::api_versions::ClientSoftware;
use crate::wire::fetch::PartitionRequest;
use crate::wire::produce_response::PartitionResult;

impl Shared {
    /// A refusal of a measured batch.
    pub(super) fn refusal(
        &self,
        topic: &TopicHandle,
        facts: BatchFacts,
        violation: Violation,
        partition: i32,
        blame: Blame,
        client: &ClientInfo,
    ) -> Refusal {
        let place = Place {
            topic: Arc::clone(&topic.name),
            partition,
        };
        let to_compress = self.remedy_for_uncompressed(&topic.name, &facts, &violation);
        Refusal::new(
            self.next_refusal_id(),
            blame,
            place,
            violation,
            Some(facts),
            topic.policy.remedy.as_deref().or(to_compress.as_deref()),
            (client.library(), client.framework()),
        )
    }

    /// For a dead letter that grew because it is written without its main topic's compression.
    fn remedy_for_uncompressed(
        &self,
        topic: &str,
        facts: &BatchFacts,
        violation: &Violation,
    ) -> Option<String> {
        if violation.limit.gate != Gate::Batch || facts.codec != Some(Codec::None) {
            return None;
        }
        let policy = self.policy.load();
        let mut mains = policy.families().of_member(topic);
        let (main, codec) = mains.find_map(|family| {
            let metrics = self.metrics.known_topic(&family.main)?;
            Some((&family.main, metrics.usual_compression()?))
        })?;
        Some(format!(
            "Batches on its main topic \"{main}\" come with {codec}: write here with that compression.type too, or raise this topic's max.message.bytes."
        ))
    }

    /// Six hexadecimal digits, different for each refusal of a day: a counter that starts anywhere.
    pub(super) fn next_refusal_id(&self) -> String {
        format!(
            "{:06x}",
            self.refusal_ids.fetch_add(1, Ordering::Relaxed) & 0xff_ffff
        )
    }

    /// Logs a refusal and keeps it for the API. `error_code` is 0 where it was only observed.
    pub(super) fn report(
        &self,
        refusal: &Refusal,
        error_code: i16,
        is_loop: bool,
        record_key: Option<String>,
        client: &ClientInfo,
    ) {
        let record = RefusalRecord {
            record_key,
            ..record(refusal, error_code, is_loop, client)
        };
        self.refusal_log.log_refusal(&record);
        self.keep(record);
    }

    /// Likewise what a batch that is only observed is over beside another gate.
    pub(super) fn report_beside(
        &self,
        refusal: &Refusal,
        record_key: Option<String>,
        client: &ClientInfo,
    ) {
        let record = RefusalRecord {
            record_key,
            ..record(refusal, 0, false, client)
        };
        self.refusal_log.log_beside(&record);
        self.keep(record);
    }

    fn keep(&self, record: RefusalRecord) {
        if let Some(topic) = &self.refusal_topic {
            topic.tell(&record);
        }
        self.refusals.record(Arc::new(record));
    }
}

fn record(refusal: &Refusal, error_code: i16, is_loop: bool, client: &ClientInfo) -> RefusalRecord {
    let facts = refusal.facts;
    let limit = &refusal.violation.limit;
    let name = limit.name.as_deref().map(str::to_owned);
    RefusalRecord {
        id: refusal.id.clone(),
        at: SystemTime::now(),
        text: refusal.text.clone(),
        topic: refusal.place.topic.to_string(),
        partition: refusal.place.partition,
        gate: limit.gate,
        size_bytes: refusal.violation.size.bytes(),
        at_least: matches!(refusal.violation.size, Size::AtLeast(_)),
        limit_bytes: limit.value,
        source: limit.source,
        rule: name.clone().filter(|_| limit.source == Source::Rule),
        member: name.filter(|_| limit.source == Source::Family),
        action: if error_code == 0 {
            Action::Observe
        } else {
            Action::Reject
        },
        error_code,
        is_loop,
        client_id: client.client_id.clone().unwrap_or_default(),
        software: client.software_text(),
        address: client.address.to_string(),
        principal: client.principal.as_deref().map(str::to_owned),
        batch_bytes: facts.map(|facts| facts.wire_bytes),
        uncompressed_bytes: match facts.and_then(|facts| facts.uncompressed) {
            Some(Size::Exact(bytes)) => Some(bytes),
            Some(Size::AtLeast(_)) | None => None,
        },
        codec: facts.and_then(|facts| facts.codec),
        records: facts.map(|facts| facts.records.max(0).unsigned_abs()),
        record: refusal
            .violation
            .record
            .map(|record| record.index.saturating_add(1)),
        record_key: None,
    }
}

impl Shared {
    /// The broker refused what passed here: kept for the API. `said`: what the client was told.
    pub(super) fn report_broker_refusal(
        &self,
        sent: &Sent,
        error_code: i16,
        said: Option<&String>,
        client: &ClientInfo,
    ) {
        let limit = sent.topic.own();
        let refusal = BrokerRefusal {
            id: self.next_refusal_id(),
            at: SystemTime::now(),
            text: said.cloned().unwrap_or_default(),
            topic: sent.topic.name.to_string(),
            partition: sent.partition,
            // INVALID_RECORD says many things.
            gate: (error_code != INVALID_RECORD).then_some(Gate::Batch),
            size_bytes: sent.wire_bytes,
            limit_bytes: limit.map(|limit| limit.value),
            source: limit.map(|limit| limit.source),
            error_code,
            client_id: client.client_id.clone().unwrap_or_default(),
            software: client.software_text(),
            address: client.address.to_string(),
            principal: client.principal.as_deref().map(str::to_owned),
            batch_bytes: sent.wire_bytes,
            codec: sent.codec,
            records: sent.records.max(0).unsigned_abs(),
        };
        if let Some(topic) = &self.refusal_topic {
            topic.tell_broker(&refusal);
        }
        self.refusals.record_broker(refusal);
    }
}

impl Shared {
    /// A record that lingered in its producer, told to everybody.
    pub(super) fn report_linger(&self, suspect: Suspect<Arc<TopicHandle>>, client: &ClientInfo) {
        let Suspect {
            of: topic,
            lingered,
            wire_bytes,
        } = suspect;
        topic.metrics.linger_suspects.inc();
        topic.metrics.linger_seconds.observe(lingered);
        self.observed.lingering.record(Lingering::new(
            &topic.name,
            client.peer(),
            lingered,
            wire_bytes,
        ));
    }
}

impl Shared {
    /// A batch larger than its consumer asked for.
    pub(super) fn report_oversized(
        &self,
        topic: &TopicHandle,
        at: PartitionRequest,
        batch_bytes: u64,
        (setting, setting_bytes): (FetchSetting, u64),
        client: &ClientInfo,
    ) {
        topic.metrics.fetch_oversized.inc();
        self.observed.oversized.record(OversizedFetch {
            topic: topic.name.to_string(),
            partition: at.partition,
            offset: at.offset,
            consumer: client.peer(),
            batch_bytes,
            largest_bytes: batch_bytes,
            setting,
            setting_bytes,
            note: OVERSIZED_NOTE,
        });
    }

    /// A consumer came back to a large batch once too often; `behind`: to smaller ones before it.
    pub(super) fn report_stuck(
        &self,
        topic: &TopicHandle,
        at: PartitionRequest,
        (batch_bytes, behind): (u64, Option<i64>),
        served: u64,
        client: &ClientInfo,
    ) {
        topic.metrics.fetch_stuck.inc();
        self.observed.stuck.record(Stuck {
            topic: topic.name.to_string(),
            partition: at.partition,
            offset: at.offset,
            batch_offset: behind.unwrap_or(at.offset),
            consumer: client.peer(),
            batch_bytes,
            served,
            note: stuck_note(behind.is_some()),
        });
    }
}

impl ClientInfo {
    /// Its `client_id`; empty if it does not say.
    pub(super) fn client_id_text(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }

    /// Who it is, for what is kept of it.
    pub(super) fn peer(&self) -> Peer {
        Peer::new(
            self.client_id_text(),
            &self.software_text(),
            &self.address.to_string(),
        )
    }

    /// The library that it is known to be.
    pub(super) fn library(&self) -> Option<Library> {
        let software = self.software.as_ref();
        let software = software.map(|software| (&*software.name, &*software.version));
        Library::of(software, self.client_id.as_deref())
    }

    /// What configures its producer, where its client id tells.
    pub(super) fn framework(&self) -> Option<Framework> {
        Framework::of(self.client_id_text())
    }

    /// A response as this client can bear it: to some a text does harm.
    pub(super) fn fit(&self, result: &mut PartitionResult) {
        if !self.library().is_none_or(Library::bears_texts) {
            result.error_message = None;
        }
    }

    /// `name/version`; empty if it does not say.
    fn software_text(&self) -> String {
        let software = self.software.as_ref();
        software
            .map(|s| format!("{}/{}", s.name, s.version))
            .unwrap_or_default()
    }

    /// The client id of the request in hand.
    pub(super) fn learn_client_id(&mut self, client_id: Option<&[u8]>) {
        let known = self.client_id.as_deref().map(str::as_bytes);
        if known != client_id {
            let client_id = client_id.map(printable);
            // What is not printable is not as it was sent, but that is no change.
            if self.client_id != client_id {
                self.client_id = client_id;
                self.revision.increment();
            }
        }
    }

    /// The rules that are for this client, as far as their `clients` say.
    pub(super) fn rules(&self, policy: &Policy) -> ClientRules {
        let software = self
            .software
            .as_ref()
            .map(|software| format!("{}/{}", software.name, software.version));
        policy.client_rules(Client {
            client_id: self.client_id.as_deref(),
            principal: self.principal.as_deref(),
            software: software.as_deref(),
        })
    }

    /// What the client says it is.
    pub(super) fn learn_software(&mut self, software: ClientSoftware) {
        self.software = Some(software);
        self.revision.increment();
    }

    /// The broker said that this is who the client is.
    pub(super) fn learn_principal(&mut self, principal: Arc<str>) {
        self.principal = Some(principal);
        self.revision.increment();
    }
}
