//! What a claim check does, and what goes wrong with it: values that come back, values that are lost, and a fallback topic
//! that is not there.

use std::fs;
use std::path::{Path, PathBuf};

use super::process::new_dir;
use super::{Connection, Kafka, Part, Record, Sizegate, Topic, admin, batch};

/// Produce by name, with texts.
const PRODUCE: i16 = 9;

/// All of it comes back.
pub const LOANS: &str = "loans";
/// Its objects are deleted, and its tickets go to the fallback topic.
pub const RETURNS: &str = "returns";
/// The same, and it has no fallback topic.
pub const DEPOSITS: &str = "deposits";

/// Three topics whose values go to a folder.
pub struct Claims {
    store: PathBuf,
    topics: [Topic; 3],
}

impl Drop for Claims {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.store);
    }
}

impl Claims {
    /// Creates the topics.
    pub fn new(kafka: &Kafka) -> Self {
        kafka.create_topic(&format!("{RETURNS}.claim.missing"), 1, 1, &[]);
        Self {
            store: new_dir("claims"),
            topics: [LOANS, RETURNS, DEPOSITS].map(|name| kafka.create_topic(name, 1, 1, &[])),
        }
    }

    /// The configuration's section.
    pub fn section(&self) -> String {
        format!(
            "claim_check:\n  store: file://{}\n  keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]\n  grace: 0s\n",
            self.store.display()
        )
    }

    /// An entry of `rules`.
    pub fn rule(&self) -> String {
        format!(
            "  - name: loans\n    topics: [{LOANS}, {RETURNS}, {DEPOSITS}]\n    limits: {{record_bytes: 64KiB}}\n    action: offload\n"
        )
    }

    /// One round of it.
    pub fn make(&self, sizegate: &Sizegate, round: u64) {
        let mut connection = Connection::open(sizegate.node(1).as_str());
        for topic in &self.topics {
            let large = Record::of_random(100_000, round);
            let part = Part::new(topic, batch([large]).base_timestamp(-1).build());
            let responses = connection.produce(PRODUCE, 1, &[part]);
            assert_eq!(responses[0].code, 0, "{:?}", responses[0].text);
        }
        let forged = Record::value("{}").header("x-claim-check", "k1 AAAA");
        let records = batch([forged, Record::of_random(100_000, round)]);
        let part = Part::new(&self.topics[0], records.base_timestamp(-1).build());
        let responses = connection.produce(PRODUCE, 1, &[part]);
        assert_eq!(responses[0].code, 87, "{:?}", responses[0].text);
        // A batch that the broker refuses when its object is written: sequence numbers are left out.
        let (id, epoch) = admin::init_producer_id(&sizegate.bootstrap());
        for (sequence, code) in [(0, 0), (3, 45)] {
            let large = Record::of_random(100_000, 1_000_000 + 10 * round + sequence as u64);
            let records = batch([large]).producer(id, epoch, sequence);
            let part = Part::new(&self.topics[0], records.base_timestamp(-1).build());
            let responses = connection.produce(PRODUCE, -1, &[part]);
            assert_eq!(responses[0].code, code, "{:?}", responses[0].text);
        }
        for lost in [RETURNS, DEPOSITS] {
            forget(&self.store, lost);
        }
        let read = |topic: &str| {
            admin::fetch_stored(&sizegate.bootstrap(), topic, 0, 1 << 20);
        };
        read(LOANS);
        read(RETURNS);
        if round % 3 == 1 {
            // Nothing comes, after a while.
            read(DEPOSITS);
        }
    }
}

/// Deletes the objects of a topic.
fn forget(folder: &Path, topic: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            forget(&path, topic);
        } else if path.components().any(|part| part.as_os_str() == topic) {
            fs::remove_file(path).unwrap();
        }
    }
}
