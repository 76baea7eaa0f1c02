//! The last refusals, for `/api/v1/refusals` and the page. Many clients show no text of ours, so this and the log
//! are where people find out.
//!
//! Invariant: at most 1,000 records of bounded size, whatever clients call themselves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Serialize, Serializer};

use super::recent::{Recent, RecentGroup};
use crate::text::as_rfc3339;
use crate::text::first_bytes;
use crate::vocabulary::{Action, Codec, Gate, Source};

/// How many refusals are kept.
const KEPT: usize = 1_000;
/// The longest refusal text; interface.md's bound.
const TEXT_BYTES: usize = 1_024;
/// The longest of every other word. A client id may be 32,767 bytes long.
const WORD_BYTES: usize = 256;

/// One batch that was refused, or would have been. The same fields as the refusal's tail, and who sent it. Holds no
/// part of any record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalRecord {
    /// The id in the client's text, in the log and here.
    pub id: String,
    /// When.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: SystemTime,
    /// The whole text as the client got it.
    pub text: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The gate that refused.
    pub gate: Gate,
    /// What was measured.
    pub size_bytes: u64,
    /// `size_bytes` is a lower bound: measuring stopped once it was enough.
    pub at_least: bool,
    /// The limit it was compared with.
    pub limit_bytes: u64,
    /// Where the limit comes from.
    pub source: Source,
    /// The rule that set it.
    pub rule: Option<String>,
    /// The family member that it is kept for.
    pub member: Option<String>,
    /// `reject`, or `observe`: forwarded all the same.
    pub action: Action,
    /// The Kafka error code of the response; 0 when only observed.
    pub error_code: i16,
    /// The client keeps sending the same batch; answered so that it stops.
    pub is_loop: bool,
    /// The client's name for itself.
    pub client_id: String,
    /// The client library, `name/version`.
    pub software: String,
    /// The client's address.
    pub address: String,
    /// Who the client authenticated as, where that is known.
    pub principal: Option<String>,
    /// Wire bytes of the batch; `None` where no single batch was read (frame gate), as for the fields below.
    pub batch_bytes: Option<u64>,
    /// 61 + records after decompression, where that is known exactly.
    pub uncompressed_bytes: Option<u64>,
    /// Compression.
    pub codec: Option<Codec>,
    /// Records in the batch, as declared.
    pub records: Option<u32>,
    /// The guilty record's number in its batch, from 1, if one record is guilty.
    pub record: Option<u32>,
    /// What `refusals.record_key` lets be told of its key.
    pub record_key: Option<String>,
}

impl RefusalRecord {
    /// The sentence and the remedy without the tail in brackets, whose fields stand beside it in logs.
    pub fn sentence(&self) -> &str {
        let tail = self.text.rsplit_once(" [gate=");
        tail.map_or(&self.text, |(sentence, _)| sentence)
    }

    fn words(&mut self) -> [&mut String; 5] {
        [
            &mut self.id,
            &mut self.topic,
            &mut self.client_id,
            &mut self.software,
            &mut self.address,
        ]
    }

    fn is_bounded(&self) -> bool {
        let words = [
            &self.id,
            &self.topic,
            &self.client_id,
            &self.software,
            &self.address,
        ];
        let optional = [&self.rule, &self.member, &self.principal, &self.record_key]
            .into_iter()
            .flatten();
        self.text.len() <= TEXT_BYTES
            && words
                .into_iter()
                .chain(optional)
                .all(|word| word.len() <= WORD_BYTES)
    }

    fn bounded(mut self) -> Self {
        cut(&mut self.text, TEXT_BYTES);
        for word in self.words() {
            cut(word, WORD_BYTES);
        }
        for word in [
            &mut self.rule,
            &mut self.member,
            &mut self.principal,
            &mut self.record_key,
        ]
        .into_iter()
        .flatten()
        {
            cut(word, WORD_BYTES);
        }
        self
    }
}

/// Cuts at a character boundary and gives the rest of the allocation back.
fn cut(text: &mut String, bytes: usize) {
    text.truncate(first_bytes(text, bytes).len());
    text.shrink_to_fit();
}

/// One batch that passed here and was refused by the broker for its size. The same names as in [`RefusalRecord`] for
/// what is the same; what a broker does not say is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokerRefusal {
    /// The id here.
    pub id: String,
    /// When.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: SystemTime,
    /// What the client was told: the broker's own words, or ours; empty where there are none.
    pub text: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// `batch` where the code says so.
    pub gate: Option<Gate>,
    /// Wire bytes of the batch.
    pub size_bytes: u64,
    /// The topic's own limit, as far as it is known here.
    pub limit_bytes: Option<u64>,
    /// Where that comes from.
    pub source: Option<Source>,
    /// The Kafka error code.
    pub error_code: i16,
    /// The client's name for itself.
    pub client_id: String,
    /// The client library, `name/version`.
    pub software: String,
    /// The client's address.
    pub address: String,
    /// Who the client authenticated as, where that is known.
    pub principal: Option<String>,
    /// Wire bytes of the batch.
    pub batch_bytes: u64,
    /// Compression.
    pub codec: Option<Codec>,
    /// Records in the batch, as declared.
    pub records: u32,
}

/// One refusal, whoever refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "refused_by", rename_all = "lowercase")]
pub enum Refused {
    /// Here, or only observed.
    Sizegate(#[serde(serialize_with = "as_is")] Arc<RefusalRecord>),
    /// By the broker.
    Broker(#[serde(serialize_with = "as_is")] Arc<BrokerRefusal>),
}

fn as_is<T: Serialize, S: Serializer>(shared: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    (**shared).serialize(serializer)
}

impl Refused {
    fn topic(&self) -> &str {
        match self {
            Self::Sizegate(refusal) => &refusal.topic,
            Self::Broker(refusal) => &refusal.topic,
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Sizegate(refusal) => &refusal.id,
            Self::Broker(refusal) => &refusal.id,
        }
    }

    fn gate(&self) -> Option<Gate> {
        match self {
            Self::Sizegate(refusal) => Some(refusal.gate),
            Self::Broker(refusal) => refusal.gate,
        }
    }
}

/// Which refusals: every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalQuery {
    /// The topic's exact name.
    pub topic: Option<String>,
    /// The gate.
    pub gate: Option<Gate>,
    /// The id in the client's text.
    pub id: Option<String>,
    /// At most so many; all that are kept otherwise.
    pub limit: Option<usize>,
}

/// The last 1,000 refusals, and the last hour's by group.
#[derive(Debug, Default)]
pub struct Refusals {
    ring: Mutex<VecDeque<Refused>>,
    recent: Recent,
}

impl Refusals {
    /// Keeps a refusal; the oldest goes. Words longer than this product shows are cut in what is kept.
    pub fn record(&self, refusal: Arc<RefusalRecord>) {
        let refusal = if refusal.is_bounded() {
            refusal
        } else {
            Arc::new(Arc::unwrap_or_clone(refusal).bounded())
        };
        self.keep(Refused::Sizegate(refusal));
    }

    /// Keeps a refusal by the broker likewise.
    pub fn record_broker(&self, mut refusal: BrokerRefusal) {
        cut(&mut refusal.text, TEXT_BYTES);
        let principal = refusal.principal.iter_mut();
        for word in principal.chain([
            &mut refusal.id,
            &mut refusal.topic,
            &mut refusal.client_id,
            &mut refusal.software,
            &mut refusal.address,
        ]) {
            cut(word, WORD_BYTES);
        }
        self.keep(Refused::Broker(Arc::new(refusal)));
    }

    /// The last hour by topic, gate and client.
    pub fn recent(&self) -> Vec<RecentGroup> {
        self.recent.groups(SystemTime::now())
    }

    fn keep(&self, refused: Refused) {
        self.recent.add(&refused);
        let mut ring = self.lock();
        if ring.len() >= KEPT {
            ring.pop_front();
        }
        ring.push_back(refused);
    }

    /// Those that match, newest first.
    pub fn query(&self, query: &RefusalQuery) -> Vec<Refused> {
        self.lock()
            .iter()
            .rev()
            .filter(|refused| {
                let topic = query.topic.as_ref();
                topic.is_none_or(|topic| *topic == refused.topic())
            })
            .filter(|refused| query.id.as_ref().is_none_or(|id| *id == refused.id()))
            .filter(|refused| query.gate.is_none_or(|gate| Some(gate) == refused.gate()))
            .take(query.limit.unwrap_or(KEPT))
            .cloned()
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Refused>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) fn example() -> RefusalRecord {
    RefusalRecord {
        id: "7f3a9c".into(),
        at: SystemTime::UNIX_EPOCH,
        text: "sizegate refused orders-0: record 3 of 12 is 70,112 bytes, more than the record limit of 65,536 set by \
               rule \"orders\". Smaller notes, please. [gate=record size_bytes=70112 limit_bytes=65536 id=7f3a9c]"
            .into(),
        topic: "orders".into(),
        partition: 0,
        gate: Gate::Record,
        size_bytes: 70_112,
        at_least: false,
        limit_bytes: 65_536,
        source: Source::Rule,
        rule: Some("orders".into()),
        member: None,
        action: Action::Reject,
        error_code: 10,
        is_loop: false,
        client_id: "checkout".into(),
        software: "apache-kafka-java/4.3.0".into(),
        address: "10.0.0.7:51234".into(),
        principal: None,
        batch_bytes: Some(71_240),
        uncompressed_bytes: Some(90_331),
        codec: Some(Codec::Lz4),
        records: Some(12),
        record: Some(3),
        record_key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(n: usize) -> RefusalRecord {
        RefusalRecord {
            id: n.to_string(),
            topic: if n.is_multiple_of(2) { "even" } else { "odd" }.into(),
            gate: if n.is_multiple_of(3) {
                Gate::Batch
            } else {
                Gate::Record
            },
            ..example()
        }
    }

    fn ours(refusals: &Refusals, query: RefusalQuery) -> Vec<Arc<RefusalRecord>> {
        let found = refusals.query(&query).into_iter();
        found
            .filter_map(|refused| match refused {
                Refused::Sizegate(refusal) => Some(refusal),
                Refused::Broker(_) => None,
            })
            .collect()
    }

    fn by_broker(gate: Option<Gate>, words: &str) -> BrokerRefusal {
        BrokerRefusal {
            id: "1".into(),
            at: SystemTime::UNIX_EPOCH,
            text: words.into(),
            topic: "orders".into(),
            partition: 0,
            gate,
            size_bytes: 2_000,
            limit_bytes: Some(1_000),
            source: Some(Source::Topic),
            error_code: 10,
            client_id: words.into(),
            software: words.into(),
            address: words.into(),
            principal: Some(words.into()),
            batch_bytes: 2_000,
            codec: Some(Codec::None),
            records: 1,
        }
    }

    #[test]
    fn what_the_broker_refused_is_among_them_and_says_so() {
        let refusals = Refusals::default();
        refusals.record(Arc::new(example()));
        refusals.record_broker(by_broker(Some(Gate::Batch), "x"));
        refusals.record_broker(by_broker(None, &"é".repeat(9_000)));
        let json = serde_json::to_value(refusals.query(&RefusalQuery::default())).unwrap();
        let by: Vec<_> = json.as_array().unwrap().iter().collect();
        assert_eq!(by[0]["refused_by"], "broker");
        assert_eq!(by[1]["refused_by"], "broker");
        assert_eq!(by[2]["refused_by"], "sizegate");
        assert_eq!(
            (&by[1]["gate"], &by[0]["gate"]),
            (&"batch".into(), &serde_json::Value::Null)
        );
        assert_eq!(by[0]["text"].as_str().unwrap().len(), 1_024);
        assert_eq!(by[0]["principal"].as_str().unwrap().len(), 256);
        let of_batch = RefusalQuery {
            gate: Some(Gate::Batch),
            ..RefusalQuery::default()
        };
        assert_eq!(refusals.query(&of_batch).len(), 1);
    }

    #[test]
    fn the_last_thousand_are_kept_and_come_newest_first() {
        let refusals = Refusals::default();
        for n in 0..2_500 {
            refusals.record(Arc::new(with_id(n)));
        }
        let all = ours(&refusals, RefusalQuery::default());
        assert_eq!(all.len(), 1_000);
        assert_eq!((all[0].id.as_str(), all[999].id.as_str()), ("2499", "1500"));
    }

    #[test]
    fn a_query_narrows_by_topic_gate_and_number() {
        let refusals = Refusals::default();
        for n in 0..12 {
            refusals.record(Arc::new(with_id(n)));
        }
        let ids = |query| {
            let found = ours(&refusals, query);
            found
                .iter()
                .map(|refusal| refusal.id.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let query = RefusalQuery {
            topic: Some("odd".into()),
            ..Default::default()
        };
        assert_eq!(ids(query.clone()), "11 9 7 5 3 1");
        assert_eq!(
            ids(RefusalQuery {
                gate: Some(Gate::Batch),
                ..query.clone()
            }),
            "9 3"
        );
        assert_eq!(
            ids(RefusalQuery {
                limit: Some(2),
                ..query
            }),
            "11 9"
        );
        assert_eq!(
            ids(RefusalQuery {
                topic: Some("od".into()),
                ..Default::default()
            }),
            ""
        );
    }

    #[test]
    fn what_is_kept_of_one_refusal_is_bounded() {
        let refusals = Refusals::default();
        let long = "é".repeat(16_000);
        refusals.record(Arc::new(RefusalRecord {
            id: long.clone(),
            text: long.clone(),
            topic: long.clone(),
            rule: Some(long.clone()),
            member: Some(long.clone()),
            client_id: long.clone(),
            software: long.clone(),
            address: long.clone(),
            principal: Some(long),
            ..example()
        }));
        let kept = &ours(&refusals, RefusalQuery::default())[0];
        assert!(kept.is_bounded());
        assert_eq!((kept.text.len(), kept.client_id.len()), (1_024, 256));
        let mut kept = RefusalRecord::clone(kept);
        assert!(kept.words().iter().all(|word| word.capacity() <= 256));
    }

    #[test]
    fn the_sentence_is_the_text_without_its_tail() {
        let mut refusal = example();
        assert!(refusal.sentence().ends_with("Smaller notes, please."));
        refusal.text = "no tail".into();
        assert_eq!(refusal.sentence(), "no tail");
    }

    #[test]
    fn a_refusal_is_serialised_with_the_words_of_the_tail() {
        let json = serde_json::to_value(example()).unwrap();
        assert_eq!(json["at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(
            (&json["gate"], &json["source"], &json["codec"]),
            (&"record".into(), &"rule".into(), &"lz4".into())
        );
        assert_eq!(json["principal"], serde_json::Value::Null);
    }
}
