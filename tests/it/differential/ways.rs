//! The two ways to the broker, what is heard on each, and how the two are compared.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ProduceResponse, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use super::raw::{RawProduce, any_frame};
use crate::support::client::responses;
use crate::support::{Connection, ErrorKind, Kafka, Response, Sizegate, Topic, lock};

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
    let mut shared = lock(&SHARED);
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
            let responses = produce_responses(&heard, 9, std::slice::from_ref(topic), "leader");
            (responses.first()?.code == 87).then_some(())
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

    /// Sends a case both ways and demands the same Produce responses and the same end.
    pub fn compare(
        &self,
        topics: &[Vec<Topic>; 2],
        case: &str,
        intended: Intended,
        frame: impl Fn(&[Topic]) -> Vec<u8>,
    ) -> Vec<Response> {
        let patience = if intended == Intended::AnsweredInsteadOfSilence {
            SILENCE
        } else {
            PATIENCE
        };
        let direct = talk(&self.kafka.bootstrap(), &[frame(&topics[0])], patience);
        let proxied = talk(&self.sizegate.bootstrap(), &[frame(&topics[1])], PATIENCE);
        let version = i16::from_be_bytes(frame(&topics[0])[6..8].try_into().unwrap());
        let direct = produced(&direct, version, &topics[0], case);
        let proxied = produced(&proxied, version, &topics[1], case);
        match intended {
            Intended::TextOnly => assert_same_but_for_text(version, case, &direct, &proxied),
            Intended::AnsweredInsteadOfSilence => {
                assert_eq!(
                    (direct.0.len(), direct.1),
                    (0, End::Silent),
                    "{case}: the broker"
                );
                let codes: Vec<i16> = proxied.0.iter().map(|response| response.code).collect();
                assert_eq!(
                    (codes, proxied.1),
                    (vec![87], End::Alive),
                    "{case}: sizegate"
                );
            }
        }
        proxied.0
    }

    /// As [`Self::compare`] with a frame for each way; through sizegate it is sent in `pieces`.
    pub fn compare_in_pieces(
        &self,
        topics: &[Vec<Topic>; 2],
        case: &str,
        [direct, proxied]: [&[u8]; 2],
        pieces: &[Range<usize>],
    ) -> (Vec<Response>, End) {
        let version = i16::from_be_bytes(direct[6..8].try_into().unwrap());
        let mut connection = Connection::open(self.kafka.bootstrap());
        connection.send_bytes(direct);
        let direct = hear(connection, PATIENCE);
        let mut connection = Connection::open(self.sizegate.bootstrap());
        for piece in pieces {
            connection.send_bytes(&proxied[piece.clone()]);
            std::thread::sleep(Duration::from_micros(300));
        }
        let proxied = hear(connection, PATIENCE);
        let mut direct = produced(&direct, version, &topics[0], case);
        let mut proxied = produced(&proxied, version, &topics[1], case);
        // What a name becomes that is broken on the way differs.
        for response in direct.0.iter_mut().chain(&mut proxied.0) {
            if !response.topic.starts_with("topic ") {
                response.topic = "another".to_owned();
            }
        }
        assert_same_but_for_text(version, case, &direct, &proxied);
        proxied
    }
}

type Produced = (Vec<Response>, End);

fn produced(heard: &Heard, version: i16, topics: &[Topic], case: &str) -> Produced {
    let responses = produce_responses(heard, version, topics, case);
    (responses, heard.end)
}

fn assert_same_but_for_text(version: i16, case: &str, direct: &Produced, proxied: &Produced) {
    let (responses, end) = proxied;
    let proxied = (without_our_text(responses, version, case), *end);
    assert_same(case, direct, &proxied);
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
    hear(connection, patience)
}

/// Sends a probe, and hears what comes back.
fn hear(mut connection: Connection, patience: Duration) -> Heard {
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
fn produce_responses(heard: &Heard, version: i16, topics: &[Topic], case: &str) -> Vec<Response> {
    let mut found = Vec::new();
    for frame in &heard.frames {
        let mut body = Bytes::from(frame.clone());
        ResponseHeader::decode(&mut body, ProduceResponse::header_version(version)).unwrap();
        let response = ProduceResponse::decode(&mut body, version)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(
            body.is_empty(),
            "{case}: {} bytes behind the response",
            body.len()
        );
        assert_eq!(response.throttle_time_ms, 0, "{case}");
        found.extend(responses(&response, version));
    }
    for response in &mut found {
        let is =
            |topic: &Topic| response.topic == topic.name || response.topic == topic.id.to_string();
        if let Some(at) = topics.iter().position(is) {
            response.topic = format!("topic {at}");
        }
    }
    found.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    found
}

/// Answers as the broker would have given them: every refusal for size bears our text, which is taken away.
fn without_our_text(responses: &[Response], version: i16, case: &str) -> Vec<Response> {
    let mut responses = responses.to_vec();
    for response in &mut responses {
        let is_ours = |text: &String| text.starts_with("sizegate: ");
        if response.code == 3 && response.text.as_ref().is_some_and(is_ours) {
            response.text = None;
        }
        if response.code == 10 && version >= 8 {
            let text = response.text.take().unwrap_or_default();
            assert!(
                text.starts_with("sizegate refused ") || text.starts_with("sizegate let "),
                "{case}: {response:?}: {text}"
            );
        }
    }
    responses
}
