//! Tickets that cannot be redeemed: which record falls once and which is held, whoever comes upon it, and how often the
//! store is asked meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchRequest;
use tokio_util::sync::CancellationToken;

use crate::claim_consume::{
    Ask, Folder, SOON, batches, consume, consume_at, fallen, open, sha256, value, with_fallback,
};
use crate::claim_store::{Fault, S3};
use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, Topic, batch, command, eventually,
};

const PATIENCE: Duration = Duration::from_secs(120);

/// Each value in a batch of its own.
fn produce(sizegate: &Sizegate, topic: &Topic, values: &[Vec<u8>]) {
    let mut connection = Connection::open(sizegate.bootstrap());
    for (value, n) in values.iter().zip(0..) {
        let sent = batch([Record::value(value.clone()).key(format!("k{n}"))]).build();
        eventually(PATIENCE, "it is stored", || {
            let response = connection.produce(9, -1, &[Part::new(topic, sent.clone())]);
            (response[0].code == 0).then_some(())
        });
    }
}

/// Reads a topic to `end`, by its id: the values, by offset.
fn read(sizegate: &Sizegate, topic: &Topic, end: i64) -> BTreeMap<i64, String> {
    let mut connection = Connection::open(sizegate.bootstrap());
    let (mut next, mut seen) = (0, BTreeMap::new());
    eventually(PATIENCE, "it is read to its end", || {
        next = consume_at(16, &mut connection, topic, next, 1, &mut seen)?;
        (next == end).then_some(())
    });
    seen
}

fn sum(sizegate: &Sizegate, topic: &Topic, name: &str) -> f64 {
    sizegate
        .metrics()
        .sum(name, &[("topic", topic.name.as_str())])
}

#[test]
fn a_record_falls_once_whichever_process_comes_upon_it_and_again_in_another_life_of_its_topic() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let topic = with_fallback(kafka, &[]);
    let values: Vec<Vec<u8>> = (1..=3).map(|n| value(100_000, 400 + n)).collect();
    let first = folder.start(kafka, SOON);
    let second = folder.start(kafka, SOON);
    produce(&first, &topic, &values);
    fs::remove_file(folder.object_of(&values[1])).unwrap();
    for replica in [&first, &second] {
        assert_eq!(read(replica, &topic, 3).len(), 2);
        assert_eq!(fallen(kafka, &topic).len(), 1);
    }
    assert_eq!(sum(&first, &topic, "claim_fallback_records_total"), 1.0);
    assert_eq!(sum(&second, &topic, "claim_fallback_records_total"), 0.0);
    // The one that comes after them, too.
    drop(first);
    let third = folder.start(kafka, SOON);
    assert_eq!(read(&third, &topic, 3).len(), 2);
    assert_eq!(fallen(kafka, &topic).len(), 1);
    // Made again under its name, with the same record at the same offset.
    kafka.delete_topic(&topic.name);
    let again = kafka.create_topic(&topic.name, 1, 1, &[]);
    produce(&third, &again, &values);
    fs::remove_file(folder.object_of(&values[1])).unwrap();
    assert_eq!(read(&third, &again, 3).len(), 2);
    assert_eq!(fallen(kafka, &again).len(), 2);
}

#[test]
fn however_many_groups_come_upon_it_at_a_time_each_process_writes_a_record_once() {
    const VALUES: usize = 9;
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let topic = with_fallback(kafka, &[]);
    let values: Vec<Vec<u8>> = (0..VALUES)
        .map(|n| value(100_000, 410 + n as u64))
        .collect();
    let replicas = [folder.start(kafka, SOON), folder.start(kafka, SOON)];
    produce(&replicas[0], &topic, &values);
    let is_lost = |offset: usize| offset % 3 == 1;
    for lost in (0..VALUES).filter(|offset| is_lost(*offset)) {
        fs::remove_file(folder.object_of(&values[lost])).unwrap();
    }
    let expected: BTreeMap<i64, String> = (0..VALUES)
        .filter(|offset| !is_lost(*offset))
        .map(|offset| (offset as i64, sha256(&values[offset])))
        .collect();
    std::thread::scope(|scope| {
        for replica in replicas.iter().cycle().take(6) {
            let (topic, expected) = (&topic, &expected);
            scope.spawn(move || assert_eq!(read(replica, topic, VALUES as i64), *expected));
        }
    });
    let mut fell: BTreeMap<i64, usize> = BTreeMap::new();
    for record in fallen(kafka, &topic) {
        *fell.entry(record.at.2).or_default() += 1;
    }
    assert_eq!(fell.keys().copied().collect::<Vec<_>>(), [1, 4, 7]);
    assert!(
        fell.values().all(|times| *times <= replicas.len()),
        "{fell:?}"
    );
    let written = replicas
        .each_ref()
        .map(|replica| sum(replica, &topic, "claim_fallback_records_total"));
    assert_eq!(
        written.iter().sum::<f64>(),
        fell.values().sum::<usize>() as f64
    );
    assert!(written.iter().all(|written| *written <= 3.0), "{written:?}");
}

#[test]
fn of_a_compacted_topic_no_record_is_left_out_and_check_says_so() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, SOON);
    let topic = kafka.topic("claims", 1, &[("cleanup.policy", "compact")]);
    kafka.create_topic(&format!("{}.claim.missing", topic.name), 1, 1, &[]);
    let bare = kafka.topic("claims", 1, &[]);
    let values: Vec<Vec<u8>> = (1..=2).map(|n| value(100_000, 420 + n)).collect();
    produce(&sizegate, &topic, &values);
    let object = folder.object_of(&values[1]);
    let kept = fs::read(&object).unwrap();
    fs::remove_file(&object).unwrap();
    let mut connection = Connection::open(sizegate.bootstrap());
    let (mut next, mut seen) = (0, BTreeMap::new());
    eventually(PATIENCE, "it is held", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        assert!(next <= 1);
        (sum(&sizegate, &topic, "claim_held_partitions") == 1.0).then_some(())
    });
    eventually(PATIENCE, "it is said why", || {
        assert!(consume(&mut connection, &topic, next, 1, &mut seen) <= Some(1));
        let log = sizegate.log();
        let mut lines = log.lines();
        lines
            .any(|line| line.contains("the topic is compacted") && line.contains(&topic.name))
            .then_some(())
    });
    assert_eq!(fallen(kafka, &topic), []);
    fs::write(&object, kept).unwrap();
    eventually(PATIENCE, "it goes on by itself", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        (next == 2).then_some(())
    });
    assert_eq!(seen[&1], sha256(&values[1]));

    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n{}",
        kafka.bootstrap(),
        folder.yaml("")
    );
    let check = command::sizegate(&["check", "--cluster", "--output", "json"], &yaml).json();
    let of = |rule: &str, topic: &Topic| {
        let findings = check["findings"].as_array().unwrap();
        let about = findings.iter().filter(|finding| {
            finding["rule"] == rule && finding["topics"][0] == topic.name.as_str()
        });
        about
            .map(|finding| finding["fix"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let fix = of("claim_compacted_fallback", &topic);
    assert!(
        fix[0].contains("on_missing: hold, on_corrupt: hold"),
        "{fix:?}"
    );
    assert_eq!(of("claim_fallback_missing", &topic).len(), 0);
    assert!(of("claim_fallback_missing", &bare)[0].contains(".claim.missing"));
    assert_eq!(of("claim_compacted_fallback", &bare).len(), 0);
}

#[test]
fn what_is_to_pass_goes_out_as_a_ticket_and_what_is_to_be_held_waits() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let claim = "  grace: 1s\n  fallback: {on_missing: pass, on_corrupt: hold}\n";
    let mut sizegate = folder.start(kafka, claim);
    let topic = kafka.topic("claims", 1, &[]);
    let values: Vec<Vec<u8>> = (1..=4).map(|n| value(100_000, 440 + n)).collect();
    produce(&sizegate, &topic, &values);
    fs::remove_file(folder.object_of(&values[1])).unwrap();
    let tampered = folder.object_of(&values[3]);
    let kept = fs::read(&tampered).unwrap();
    fs::write(&tampered, "{\"tampered\":true}").unwrap();
    let mut connection = Connection::open(sizegate.bootstrap());
    let (mut next, mut seen) = (0, BTreeMap::new());
    eventually(PATIENCE, "the last is held", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        assert!(next <= 3);
        (next == 3 && sum(&sizegate, &topic, "claim_held_partitions") == 1.0).then_some(())
    });
    assert_eq!(seen[&2], sha256(&values[2]));
    // The ticket, with its mark and why.
    let fetched = Ask::at(12, 1).send(&mut connection, &topic);
    let passed = open(&batches(&fetched)[0]);
    let (_, parts) = passed.parts().next().unwrap();
    let records = passed.records();
    assert!(records[parts.value.clone().unwrap()].starts_with(b"{\"claimUri\":\""));
    let has = |name: &[u8]| records.windows(name.len()).any(|part| part == name);
    assert!(has(b"x-claim-check") && has(b"x-claim-error\x0emissing"));
    assert_eq!(seen[&1], sha256(&records[parts.value.unwrap()]));
    assert_eq!(sum(&sizegate, &topic, "claim_fallback_records_total"), 0.0);
    // A process remembers for a minute what is held; one that begins looks.
    fs::write(&tampered, kept).unwrap();
    sizegate.process().signal("KILL");
    let sizegate = folder.start(kafka, claim);
    assert_eq!(read(&sizegate, &topic, 4)[&3], sha256(&values[3]));
}

fn before_scripted(kafka: &Kafka, s3: &S3, more: &str) -> Sizegate {
    let secret = "a secret of thirty-two bytes, yes";
    let yaml = format!(
        "claim_check:\n{}  keys: [{{id: k1, secret: '{secret}'}}]\n{more}\
         rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n",
        s3.yaml()
    );
    Sizegate::start(kafka, &yaml)
}

#[test]
fn a_missing_object_is_looked_for_with_growing_pauses_of_which_no_two_are_alike() {
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let sizegate = before_scripted(kafka, &s3, "  grace: 2s\n");
    let topic = with_fallback(kafka, &[]);
    // One after the other: who waits for one has those behind it looked for, too, and forgotten meanwhile.
    for (n, end) in [(461, 1), (462, 2), (463, 3)] {
        produce(&sizegate, &topic, &[value(100_000, n)]);
        s3.forget();
        assert_eq!(read(&sizegate, &topic, end).len(), 0);
        assert_eq!(fallen(kafka, &topic).len(), end as usize);
    }
    let pauses: Vec<Vec<Duration>> = s3
        .looks()
        .values()
        .map(|looks| looks.windows(2).map(|pair| pair[1] - pair[0]).collect())
        .collect();
    assert_eq!(pauses.len(), 3);
    for pauses in &pauses {
        // From 0.1 s, each twice the one before at most: five of them until two seconds are over.
        assert!((1..=8).contains(&pauses.len()), "{pauses:?}");
        assert!(
            pauses.last() > pauses.first() || pauses.len() == 1,
            "{pauses:?}"
        );
    }
    assert!(pauses[0] != pauses[1] && pauses[1] != pauses[2]);
}

/// Three consumers ask, and none of their responses waits as long as the store takes.
#[test]
fn a_value_that_takes_longer_than_a_response_waits_is_asked_for_once_and_serves_the_next() {
    // A request to the store is given eight seconds, and a response waits for five of them.
    const IN_TIME: Duration = Duration::from_secs(7);
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let sizegate = before_scripted(kafka, &s3, "");
    let topic = kafka.topic("claims", 1, &[]);
    let mut offset = 0;
    eventually(PATIENCE, "nobody was too busy", || {
        let content = value(100_000, 470 + offset as u64);
        produce(&sizegate, &topic, std::slice::from_ref(&content));
        let go_on = CancellationToken::new();
        let before = s3.seen("GET");
        s3.script("GET", [Fault::Held(go_on.clone())]);
        let began = Instant::now();
        let mut consumers = [(); 3].map(|()| Connection::open(sizegate.bootstrap()));
        let ask = Ask::at(12, offset);
        std::thread::scope(|scope| {
            for connection in &mut consumers {
                let topic = &topic;
                scope.spawn(move || assert!(ask.send(connection, topic).is_empty()));
            }
        });
        let was_in_time = began.elapsed() < IN_TIME;
        go_on.cancel();
        for connection in &mut consumers {
            let fetched = eventually(PATIENCE, "it is here", || {
                let fetched = ask.send(connection, &topic);
                (!fetched.is_empty()).then_some(fetched)
            });
            let batch = open(&fetched);
            let (_, parts) = batch.parts().next().unwrap();
            assert!(batch.records()[parts.value.unwrap()] == content);
        }
        offset += 1;
        let asked = s3.seen("GET") - before;
        was_in_time.then(|| assert_eq!(asked, 1))
    });
}

/// A second record with the same ticket, a moment after the first one fell.
#[test]
fn an_object_that_is_put_back_is_found_by_the_next_record_at_once() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let topic = with_fallback(kafka, &[]);
    let sizegate = folder.start(kafka, SOON);
    let values = [value(100_000, 480)];
    produce(&sizegate, &topic, &values);
    let object = folder.object_of(&values[0]);
    let kept = fs::read(&object).unwrap();
    fs::remove_file(&object).unwrap();
    assert_eq!(read(&sizegate, &topic, 1).len(), 0);
    fs::write(&object, kept).unwrap();
    produce(&sizegate, &topic, &values);
    assert_eq!(read(&sizegate, &topic, 2)[&1], sha256(&values[0]));
    assert_eq!(fallen(kafka, &topic).len(), 1);
}

#[test]
fn without_its_bucket_the_store_is_asked_by_one_at_a_time() {
    const PARTITIONS: i32 = 20;
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let sizegate = before_scripted(kafka, &s3, "");
    let topic = kafka.topic("claims", PARTITIONS, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let parts = (0..PARTITIONS).map(|n| {
        let value = value(100_000, 480 + n as u64);
        Part::at(&topic, n, batch([Record::value(value)]).build())
    });
    let parts: Vec<Part> = parts.collect();
    assert!(
        connection
            .produce(9, -1, &parts)
            .iter()
            .all(|of| of.code == 0)
    );
    s3.always("GET", Some(Fault::Error(404, "NoSuchBucket")));
    let mut request: FetchRequest = Ask::at(12, 0).request(&topic);
    let whole = request.topics[0].partitions[0].clone();
    let partitions = (0..PARTITIONS).map(|n| whole.clone().with_partition(n));
    request.topics[0].partitions = partitions.collect();
    let mut arrived = |request: &FetchRequest| {
        let response = connection.ask(request, 12);
        let partitions = response.responses[0].partitions.clone();
        let bytes = partitions.into_iter().filter_map(|of| of.records);
        bytes.filter(|records| !records.is_empty()).count()
    };
    // Each response without a record takes a second.
    let held = |sizegate: &Sizegate| sum(sizegate, &topic, "claim_held_partitions");
    for _ in 0..6 {
        assert_eq!(arrived(&request), 0);
    }
    eventually(PATIENCE, "all are held", || {
        arrived(&request);
        (held(&sizegate) == f64::from(PARTITIONS)).then_some(())
    });
    // One each before anybody knew, and then about one for each pause; five rounds of all would be a hundred.
    let asked: usize = s3.looks().values().map(Vec::len).sum();
    assert!(asked <= 50, "{asked}");
    s3.always("GET", None);
    eventually(PATIENCE, "all go on by themselves", || {
        (arrived(&request) == PARTITIONS as usize).then_some(())
    });
}

/// A folder in whose place there is a file: nothing below it can be read, and nobody says that it is missing.
fn take_away(folder: &Folder) {
    fs::rename(&folder.0, folder.0.with_extension("aside")).unwrap();
    fs::write(&folder.0, "not a folder").unwrap();
}

fn bring_back(folder: &Folder) {
    fs::remove_file(&folder.0).unwrap();
    fs::rename(folder.0.with_extension("aside"), &folder.0).unwrap();
}

#[test]
fn of_ten_thousand_records_each_arrives_or_falls_while_the_store_comes_and_goes() {
    const RECORDS: usize = 10_000;
    const VALUES: usize = 500;
    const LOST: usize = 5;
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    // Tickets for small values: the store is asked for few, and every record is a ticket.
    let yaml = folder.yaml("  grace: 100ms\n");
    let yaml = yaml.replace(
        "action: offload\n",
        "action: offload\n  offload: {above: 1KiB}\n",
    );
    // Half of the values at most are kept: they are asked for again and again.
    let sizegate = Sizegate::before(&kafka.bootstrap())
        .listener("frame_bytes: 2MiB")
        .yaml(&format!("memory: {{budget: 2MiB}}\n{yaml}"))
        .start();
    let topic = with_fallback(kafka, &[]);
    let values: Vec<Vec<u8>> = (0..VALUES)
        .map(|n| value(2_000, 5_000 + n as u64))
        .collect();
    let mut connection = Connection::open(sizegate.bootstrap());
    for _ in 0..RECORDS / VALUES {
        let records = values
            .iter()
            .map(|value| Record::value(value.clone()).key("k"));
        let sent = batch(records).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    for lost in &values[..LOST] {
        fs::remove_file(folder.object_of(lost)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let mut seen = BTreeMap::new();
    let mut next = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(900));
                take_away(&folder);
                std::thread::sleep(Duration::from_millis(100));
                bring_back(&folder);
            }
        });
        let began = Instant::now();
        while next < RECORDS as i64 && began.elapsed() < PATIENCE {
            next = consume(&mut connection, &topic, next, 1, &mut seen).unwrap();
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!(next, RECORDS as i64);
    let fallen: Vec<i64> = fallen(kafka, &topic).iter().map(|of| of.at.2).collect();
    let fell: BTreeSet<i64> = fallen.iter().copied().collect();
    for offset in 0..RECORDS {
        let n = offset % VALUES;
        let right = (n >= LOST).then(|| sha256(&values[n]));
        assert_eq!(seen.get(&(offset as i64)), right.as_ref(), "{offset}");
        assert_eq!(fell.contains(&(offset as i64)), n < LOST, "{offset}");
    }
    assert_eq!(fell.len(), fallen.len(), "none twice");
}
