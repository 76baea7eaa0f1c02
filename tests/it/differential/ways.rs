//! The two ways to the broker, what is heard on each, and how the two are compared.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ProduceResponse, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use super::raw::{RawProduce, any_frame};
use crate::support::client::answers;
use crate::support::{Answer, Connection, ErrorKind, Kafka, Sizegate, Topic};

/// How long a silence must last to be one, where one is expected.
pub const SILENCE: Duration = Duration::from_millis(700);
/// Elsewhere a silence is a hang; this only keeps a failing test from hanging too.
const PATIENCE: Duration = Duration::from_secs(30);
/// The correlation id of the probe behind each case.
const PROBE: i32 = 0x7072_6f62;

/// A broker and the proxy in front of it.
pub struct Ways {
    pub kafka: &'static Kafka,
    pub sizegate: Sizegate,
}

/// How a connection stood after a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The probe was answered.
    Alive,
    /// The peer closed.
    Closed,
    /// Neither.
    Silent,
}

/// What came back: frames without their length prefix, the probe's left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub frames: Vec<Vec<u8>>,
    pub end: End,
}

/// A difference that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intended {
    /// None but our text in `error_message`.
    TextOnly,
    /// The broker neither answers nor closes; we answer 87.
    AnsweredInsteadOfSilence,
}

/// The two ways to the shared broker of this release.
pub fn ways(version: &str) -> &'static Ways {
    static SHARED: Mutex<Option<HashMap<String, &'static Ways>>> = Mutex::new(None);
    let mut shared = SHARED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let shared = shared.get_or_insert_default();
    if let Some(ways) = shared.get(version) {
        return ways;
    }
    let kafka = Kafka::shared(version);
    let ways = Box::leak(Box::new(Ways {
        kafka,
        sizegate: Sizegate::start(kafka, ""),
    }));
    shared.insert(version.to_string(), ways);
    ways
}

impl Ways {
    /// Topics for each way, made from the same descriptions: partitions and configuration.
    pub fn mirrored(&self, descriptions: &[(i32, &[(&str, &str)])]) -> [Vec<Topic>; 2] {
        let make = |side: &str| {
            let topic = |(partitions, configs): &(i32, &[(&str, &str)])| {
                // The records are older than the default retention.
                let configs = [&[("retention.ms", "-1")], *configs].concat();
                self.kafka.topic(side, *partitions, &configs)
            };
            descriptions.iter().map(topic).collect()
        };
        let topics: [Vec<Topic>; 2] = [make("a"), make("b")];
        for (topic, (partitions, _)) in topics.iter().flat_map(|side| side.iter().zip(descriptions))
        {
            (0..*partitions).for_each(|partition| self.wait_for_leader(topic, partition));
        }
        topics
    }

    /// Right after a topic is created its broker may say that it leads nothing; a batch of no bytes tells.
    fn wait_for_leader(&self, topic: &Topic, partition: i32) {
        let nothing = RawProduce::one(9, -1, topic, partition, Bytes::new()).frame();
        crate::support::eventually(PATIENCE, "the partition is led", || {
            let heard = talk(
                &self.kafka.bootstrap(),
                std::slice::from_ref(&nothing),
                PATIENCE,
            );
            let answers = produce_answers(&heard, 9, std::slice::from_ref(topic), "leader");
            (answers.first()?.code == 87).then_some(())
        });
    }

    /// Waits until both ways have stored as much, in topics of so many partitions. Without acks the proxy closes for a
    /// refusal while the broker may still store what stood beside it.
    pub fn stored_the_same(&self, topics: &[Vec<Topic>; 2], partitions: &[i32]) {
        for (place, partition) in partitions
            .iter()
            .enumerate()
            .flat_map(|(place, count)| (0..*count).map(move |partition| (place, partition)))
        {
            let stored = |side: &Vec<Topic>| self.kafka.latest_offset(&side[place].name, partition);
            let what = format!("as much in partition {partition} of topic {place} both ways");
            crate::support::eventually(PATIENCE, &what, || {
                let [direct, proxied] = topics.each_ref().map(stored);
                (direct == proxied).then_some(())
            });
        }
    }

    /// Sends a case both ways and demands the same Produce answers and the same end.
    pub fn compare(
        &self,
        topics: &[Vec<Topic>; 2],
        case: &str,
        intended: Intended,
        frame: impl Fn(&[Topic]) -> Vec<u8>,
    ) -> Vec<Answer> {
        let patience = if intended == Intended::AnsweredInsteadOfSilence {
            SILENCE
        } else {
            PATIENCE
        };
        let direct = talk(&self.kafka.bootstrap(), &[frame(&topics[0])], patience);
        let proxied = talk(&self.sizegate.bootstrap(), &[frame(&topics[1])], PATIENCE);
        let version = i16::from_be_bytes(frame(&topics[0])[6..8].try_into().unwrap());
        let direct = (
            produce_answers(&direct, version, &topics[0], case),
            direct.end,
        );
        let proxied = (
            produce_answers(&proxied, version, &topics[1], case),
            proxied.end,
        );
        match intended {
            Intended::TextOnly => assert_same(
                case,
                &direct,
                &(without_our_text(&proxied.0, version, case), proxied.1),
            ),
            Intended::AnsweredInsteadOfSilence => {
                assert_eq!(
                    (direct.0.len(), direct.1),
                    (0, End::Silent),
                    "{case}: the broker"
                );
                let codes: Vec<i16> = proxied.0.iter().map(|answer| answer.code).collect();
                assert_eq!(
                    (codes, proxied.1),
                    (vec![87], End::Alive),
                    "{case}: sizegate"
                );
            }
        }
        proxied.0
    }
}

/// Demands equality and shows both sides.
pub fn assert_same<T: PartialEq + Debug>(case: &str, direct: &T, proxied: &T) {
    assert!(
        direct == proxied,
        "{case}\n  broker:   {direct:?}\n  sizegate: {proxied:?}"
    );
}

/// Sends frames and a probe on a new connection, and hears what comes back.
pub fn talk(address: &str, frames: &[Vec<u8>], patience: Duration) -> Heard {
    let mut connection = Connection::open(address);
    for frame in frames {
        connection.send_bytes(frame);
    }
    connection.send_bytes(&any_frame(18, 0, PROBE, &[]));
    let mut heard = Heard {
        frames: Vec::new(),
        end: End::Alive,
    };
    loop {
        match connection.read_frame_within(patience) {
            Ok(frame) if frame[..4] == PROBE.to_be_bytes() => return heard,
            Ok(frame) => heard.frames.push(frame),
            Err(ErrorKind::Closed) => heard.end = End::Closed,
            Err(ErrorKind::Silent) => heard.end = End::Silent,
        }
        if heard.end != End::Alive {
            return heard;
        }
    }
}

/// All partitions' answers; topics are named by their place among `topics`.
fn produce_answers(heard: &Heard, version: i16, topics: &[Topic], case: &str) -> Vec<Answer> {
    let mut found = Vec::new();
    for frame in &heard.frames {
        let mut body = Bytes::from(frame.clone());
        ResponseHeader::decode(&mut body, ProduceResponse::header_version(version)).unwrap();
        let response = ProduceResponse::decode(&mut body, version)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(
            body.is_empty(),
            "{case}: {} bytes behind the answer",
            body.len()
        );
        assert_eq!(response.throttle_time_ms, 0, "{case}");
        found.extend(answers(&response, version));
    }
    for answer in &mut found {
        let is = |topic: &Topic| answer.topic == topic.name || answer.topic == topic.id.to_string();
        if let Some(at) = topics.iter().position(is) {
            answer.topic = format!("topic {at}");
        }
    }
    found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    found
}

/// Answers as the broker would have given them: every refusal for size bears our text, which is taken away.
fn without_our_text(answers: &[Answer], version: i16, case: &str) -> Vec<Answer> {
    let mut answers = answers.to_vec();
    for answer in &mut answers {
        let is_ours = |text: &String| text.starts_with("sizegate: ");
        if answer.code == 3 && answer.text.as_ref().is_some_and(is_ours) {
            answer.text = None;
        }
        if answer.code == 10 && version >= 8 {
            let text = answer.text.take().unwrap_or_default();
            assert!(
                text.starts_with("sizegate refused ") || text.starts_with("sizegate let "),
                "{case}: {answer:?}: {text}"
            );
        }
    }
    answers
}
