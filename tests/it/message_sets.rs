//! Produce before version 3, in front of the last broker that takes it: what its messages are measured as, what is
//! refused, and that the broker stores the rest.

use crate::support::batch::compress;
use crate::support::{
    Connection, ErrorKind, KAFKA_VERSIONS, Kafka, Record, Sizegate, admin, batch, batch_of_bytes,
};
use sizegate::inspect::{DeepLimits, Effort, Judgement, Scratch, inspect_message_set};
use sizegate::vocabulary::{Codec, Gate};

const KAFKA: &str = "3.9.1";

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// One message with its offset and size.
fn message(magic: u8, codec: Codec, key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
    let mut body = vec![magic, attributes(codec)];
    if magic == 1 {
        body.extend(1_700_000_000_000i64.to_be_bytes());
    }
    match key {
        None => body.extend((-1i32).to_be_bytes()),
        Some(key) => {
            body.extend((key.len() as i32).to_be_bytes());
            body.extend(key);
        }
    }
    body.extend((value.len() as i32).to_be_bytes());
    body.extend(value);
    let mut out = vec![0; 8];
    out.extend((4 + body.len() as i32).to_be_bytes());
    out.extend(crc32(&body).to_be_bytes());
    out.extend(body);
    out
}

fn attributes(codec: Codec) -> u8 {
    match codec {
        Codec::None => 0,
        Codec::Gzip => 1,
        Codec::Snappy => 2,
        Codec::Lz4 => 3,
        Codec::Zstd => 4,
    }
}

/// A message of so many bytes in all, not compressed.
fn message_of_bytes(magic: u8, bytes: usize) -> Vec<u8> {
    let around = message(magic, Codec::None, None, &[]).len();
    message(magic, Codec::None, None, &vec![b'A'; bytes - around])
}

/// A message that wraps others, their offsets counted from 0 as magic 1 has them.
fn wrapper(magic: u8, codec: Codec, inner: &[Vec<u8>]) -> Vec<u8> {
    let mut set = Vec::new();
    for (offset, message) in inner.iter().enumerate() {
        set.extend((offset as i64).to_be_bytes());
        set.extend(&message[8..]);
    }
    let mut out = message(magic, codec, None, &compress(codec, &set));
    // Of the last one inside.
    out[..8].copy_from_slice(&(inner.len() as i64 - 1).to_be_bytes());
    out
}

/// A Produce for partitions 0, 1 … of one topic.
fn request(version: i16, topic: &str, sets: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0i16.to_be_bytes());
    body.extend(version.to_be_bytes());
    body.extend(7i32.to_be_bytes());
    body.extend([0, 3]);
    body.extend(b"old");
    body.extend((-1i16).to_be_bytes());
    body.extend(30_000i32.to_be_bytes());
    body.extend(1i32.to_be_bytes());
    body.extend((topic.len() as i16).to_be_bytes());
    body.extend(topic.as_bytes());
    body.extend((sets.len() as i32).to_be_bytes());
    for (partition, set) in sets.iter().enumerate() {
        body.extend((partition as i32).to_be_bytes());
        body.extend((set.len() as i32).to_be_bytes());
        body.extend(set);
    }
    [&(body.len() as i32).to_be_bytes()[..], &body].concat()
}

/// Sends one; the codes by partition.
fn produce(connection: &mut Connection, version: i16, topic: &str, sets: &[Vec<u8>]) -> Vec<i16> {
    connection.send_bytes(&request(version, topic, sets));
    let response = connection.read_frame().expect("a response");
    codes(&response, version, topic, sets.len())
}

/// Reads a response to its last byte.
fn codes(response: &[u8], version: i16, topic: &str, partitions: usize) -> Vec<i16> {
    let mut rest = response
        .strip_prefix(&7i32.to_be_bytes())
        .expect("our correlation id");
    let mut take = |n: usize| {
        let (taken, behind) = rest.split_at(n);
        rest = behind;
        taken
    };
    assert_eq!(take(4), 1i32.to_be_bytes());
    assert_eq!(take(2), (topic.len() as i16).to_be_bytes());
    assert_eq!(take(topic.len()), topic.as_bytes());
    assert_eq!(take(4), (partitions as i32).to_be_bytes());
    let mut codes = vec![i16::MIN; partitions];
    for _ in 0..partitions {
        let partition = i32::from_be_bytes(take(4).try_into().unwrap());
        let code = i16::from_be_bytes(take(2).try_into().unwrap());
        codes[partition as usize] = code;
        let base_offset = i64::from_be_bytes(take(8).try_into().unwrap());
        assert!(code == 0 || base_offset == -1, "{code} {base_offset}");
        if version >= 2 {
            take(8);
        }
    }
    if version >= 1 {
        take(4);
    }
    assert!(rest.is_empty(), "{rest:?}");
    codes
}

const LIMIT: usize = 3_000;
const COMPRESSED: [Codec; 3] = [Codec::Gzip, Codec::Snappy, Codec::Lz4];

/// What a broker stores of one message of so many bytes with a null key: a batch of magic 2.
fn stored_bytes(magic: u8, bytes: usize) -> usize {
    let value = bytes - [26, 34][usize::from(magic)];
    batch([Record::of_a(value)]).build().len()
}

/// The most bytes of one message of which a broker makes a batch of no more than [`LIMIT`].
fn most_bytes(magic: u8) -> usize {
    most_bytes_within(magic, LIMIT)
}

fn most_bytes_within(magic: u8, limit: usize) -> usize {
    let fits = |bytes: &usize| stored_bytes(magic, *bytes) <= limit;
    (100..limit).filter(fits).max().unwrap()
}

/// A set for every way in which a broker judges one.
fn sets(magic: u8) -> Vec<Vec<u8>> {
    let most = most_bytes(magic);
    let mut sets: Vec<Vec<u8>> = [200, most, most + 1, LIMIT, LIMIT + 1]
        .map(|bytes| message_of_bytes(magic, bytes))
        .into();
    let two = |a, b| [message_of_bytes(magic, a), message_of_bytes(magic, b)].concat();
    sets.extend([two(200, 300), two(1_700, 1_700), two(200, LIMIT + 1)]);
    let cut = |a, b: usize| [message_of_bytes(magic, a), two(b, 99)[..b - 50].to_vec()].concat();
    sets.extend([cut(200, 300), cut(LIMIT + 1, 300)]);
    for codec in COMPRESSED {
        sets.push(wrapper(
            magic,
            codec,
            &vec![message_of_bytes(magic, 500); 5],
        ));
        sets.push(wrapper(
            magic,
            codec,
            &vec![message_of_bytes(magic, 5_000); 5],
        ));
    }
    for at in [16, 25] {
        for bytes in [200, LIMIT + 1] {
            let mut damaged = message_of_bytes(magic, bytes);
            damaged[at] ^= 1;
            sets.push(damaged);
        }
    }
    sets.extend([
        Vec::new(),
        vec![0; 30],
        wrapper(magic, Codec::Zstd, &[message_of_bytes(magic, 50)]),
    ]);
    sets.push(batch_of_bytes(LIMIT).build().to_vec());
    sets.push(batch_of_bytes(LIMIT + 1).build().to_vec());
    sets
}

#[test]
fn where_no_rule_speaks_the_broker_judges_each_message_and_then_the_batch_it_makes_of_them() {
    let kafka = Kafka::shared(KAFKA);
    let sizegate = Sizegate::start(kafka, "");
    let limit = LIMIT.to_string();
    let topic = || kafka.topic("old", 1, &[("max.message.bytes", &limit)]);
    let mut direct = Connection::open(kafka.bootstrap());
    let mut through = Connection::open(sizegate.bootstrap());
    for magic in 0..=1 {
        let (direct_topic, through_topic) = (topic(), topic());
        for (at, set) in sets(magic).into_iter().enumerate() {
            let version = at as i16 % 3;
            let set = [set];
            let expected = produce(&mut direct, version, &direct_topic.name, &set);
            let found = produce(&mut through, version, &through_topic.name, &set);
            assert_eq!(found, expected, "magic {magic} set {at}");
            if at < 5 {
                let is_over = at > 1;
                assert_eq!(
                    expected,
                    [if is_over { 10 } else { 0 }],
                    "magic {magic} set {at}"
                );
            }
            assert_eq!(
                kafka.latest_offset(&through_topic.name, 0),
                kafka.latest_offset(&direct_topic.name, 0),
                "magic {magic} set {at}"
            );
        }
    }
}

#[test]
fn a_rules_batch_limit_is_compared_with_messages_and_the_batch_they_become_and_refuses_by_code_alone()
 {
    let kafka = Kafka::shared(KAFKA);
    let yaml =
        format!("rules: [{{name: small, topics: ['gate-*'], limits: {{batch_bytes: {LIMIT}}}}}]");
    let sizegate = Sizegate::start(kafka, &yaml);
    for version in 0..=2 {
        for magic in 0..=1 {
            let topic = kafka.topic("gate", 7, &[]);
            let of = |bytes| message_of_bytes(magic, bytes);
            let most = most_bytes(magic);
            let sets = [
                of(most),
                of(most + 1),
                [of(1_000), of(1_500)].concat(),
                // Each is within it, but they are stored as one batch.
                [of(2_000), of(2_000)].concat(),
                [of(200), of(LIMIT + 1)].concat(),
                // The broker would store what stands before what is cut off.
                [&of(LIMIT + 1), &of(200)[..100]].concat(),
                [&of(most), &of(LIMIT + 1)[..LIMIT]].concat(),
            ];
            let mut connection = Connection::open(sizegate.bootstrap());
            let codes = produce(&mut connection, version, &topic.name, &sets);
            assert_eq!(codes, [0, 10, 0, 10, 10, 10, 0], "v{version} magic {magic}");
            // The same connection goes on, and refuses a whole request.
            assert_eq!(
                produce(&mut connection, version, &topic.name, &sets[..1]),
                [0]
            );
            let large = [of(LIMIT + 2)];
            assert_eq!(produce(&mut connection, version, &topic.name, &large), [10]);
            let stored: Vec<i64> = (0..7)
                .map(|partition| kafka.latest_offset(&topic.name, partition))
                .collect();
            assert_eq!(stored, [2, 0, 2, 0, 0, 0, 1], "v{version} magic {magic}");
        }
    }
    sizegate.log_line(&[
        "gate=batch",
        "size_bytes=3001",
        "limit_bytes=3000",
        "rule=small",
    ]);
}

/// Sixty messages that are far from every limit, and what the broker stores of them.
#[test]
fn messages_are_judged_as_the_one_batch_that_the_broker_stores_of_them() {
    const MESSAGES: usize = 60;
    let kafka = Kafka::shared(KAFKA);
    let expected = batch((0..MESSAGES).map(|_| Record::of_a(200)))
        .build()
        .len();
    let gates = ["batch", "uncompressed"].map(|gate| [(gate, expected), (gate, expected - 1)]);
    let rules = gates
        .as_flattened()
        .iter()
        .enumerate()
        .map(|(n, (gate, limit))| {
            format!("{{name: r{n}, topics: ['sum{n}-*'], limits: {{{gate}_bytes: {limit}}}}}")
        });
    let rules: Vec<String> = rules.collect();
    let sizegate = Sizegate::start(kafka, &format!("rules: [{}]", rules.join(", ")));
    let mut connection = Connection::open(sizegate.bootstrap());
    for magic in 0..=1 {
        for n in 0..4 {
            let topic = kafka.topic(&format!("sum{n}"), 1, &[]);
            for version in 0..=2 {
                // Unlike the last: the third time would be a loop.
                let one = message(magic, Codec::None, None, &[b'A' + version as u8; 200]);
                let set = one.repeat(MESSAGES);
                let codes = produce(
                    &mut connection,
                    version,
                    &topic.name,
                    std::slice::from_ref(&set),
                );
                let code = if n % 2 == 0 { 0 } else { 10 };
                assert_eq!(codes, [code], "rule {n} v{version} magic {magic}");
            }
            if n % 2 == 0 {
                let stored = admin::fetch_stored(&kafka.bootstrap(), &topic.name, 0, 1 << 20);
                assert_eq!(stored.len(), 3 * expected, "magic {magic}");
            } else {
                assert_eq!(kafka.latest_offset(&topic.name, 0), 0);
            }
        }
    }
}

#[test]
fn limits_inside_are_compared_with_messages_wrapped_or_not() {
    let kafka = Kafka::shared(KAFKA);
    let yaml = "rules:\n\
        - {name: r, topics: ['record-*'], limits: {record_bytes: 1000}}\n\
        - {name: k, topics: ['key-*'], limits: {key_bytes: 100}}\n\
        - {name: v, topics: ['value-*'], limits: {value_bytes: 500}}\n\
        - {name: u, topics: ['uncompressed-*'], limits: {uncompressed_bytes: 4000}}";
    let sizegate = Sizegate::start(kafka, yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    for magic in 0..=1 {
        let of = |bytes| message_of_bytes(magic, bytes);
        let with_value = |value: usize| message(magic, Codec::None, None, &vec![b'A'; value]);
        let with = |key: usize, value: usize| {
            message(
                magic,
                Codec::None,
                Some(&vec![b'k'; key]),
                &vec![b'v'; value],
            )
        };
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let set = |inner: &[Vec<u8>]| {
                if codec == Codec::None {
                    inner.concat()
                } else {
                    wrapper(magic, codec, inner)
                }
            };
            let mut check = |stem: &str, within: &[Vec<u8>], over: &[Vec<u8>]| {
                let topic = kafka.topic(stem, 2, &[]);
                let codes = produce(&mut connection, 2, &topic.name, &[set(within), set(over)]);
                assert_eq!(codes, [0, 10], "{stem} magic {magic} {codec}");
                let stored = [0, 1].map(|partition| kafka.latest_offset(&topic.name, partition));
                assert_eq!(
                    stored,
                    [within.len() as i64, 0],
                    "{stem} magic {magic} {codec}"
                );
            };
            check(
                "record",
                &[of(1_000), of(1_000)],
                &[of(1_000), of(1_001), of(50)],
            );
            check("key", &[with(100, 300)], &[with(0, 300), with(101, 300)]);
            check("value", &[with(400, 500)], &[with(0, 501)]);
            if codec == Codec::None {
                // What counts is the batch that the broker makes of them.
                let most = most_bytes_within(magic, 4_000);
                check("uncompressed", &[of(most)], &[of(most + 1)]);
                let of_two = |first: usize, second: usize| {
                    batch([Record::of_a(first), Record::of_a(second)])
                        .build()
                        .len()
                };
                let second = (1_000..3_000).find(|n| of_two(1_500, *n) == 4_000).unwrap();
                let two = |second| [with_value(1_500), with_value(second)];
                check("uncompressed", &two(second), &two(second + 1));
            } else {
                // The wrapper's own bytes count, but for its value: offset, size, checksum and so on. Or the batch that
                // is made of what is in it, if that is larger.
                let around = message(magic, Codec::None, None, &[]).len();
                let value = |bytes: usize| Record::of_a(bytes - around);
                let counted = |second: &usize| {
                    let stored = batch([value(2_000), value(*second)]).build().len();
                    stored.max(around + 2_000 + second)
                };
                let second = (1_900..2_000).find(|n| counted(n) == 4_000).unwrap();
                let two = |second| [of(2_000), of(second)];
                check("uncompressed", &two(second), &two(second + 1));
            }
        }
    }
    let line = sizegate.log_line(&["gate=record", "size_bytes=1001", "limit_bytes=1000"]);
    assert!(line.contains("record=2"), "{line}");
    // How many a wrapper holds is not known without reading all of it.
    let line = sizegate.log_line(&["gate=record", "codec=gzip"]);
    assert!(line.contains(": record 2 is 1,001 bytes"), "{line}");
}

#[test]
fn what_cannot_be_read_is_refused_where_a_limit_needs_it_and_a_wrong_checksum_is_the_brokers() {
    let kafka = Kafka::shared(KAFKA);
    let sizegate = Sizegate::start(
        kafka,
        "rules: [{name: r, topics: ['deep-*'], limits: {record_bytes: 1000}}]",
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    let (deep, free) = (kafka.topic("deep", 4, &[]), kafka.topic("free", 4, &[]));
    let rubbish = message(1, Codec::Gzip, None, b"not gzip at all");
    let nested = wrapper(
        1,
        Codec::Gzip,
        &[wrapper(1, Codec::Gzip, &[message_of_bytes(1, 50)])],
    );
    let mut wrong = wrapper(1, Codec::Gzip, &[message_of_bytes(1, 5_000)]);
    wrong[12] ^= 1;
    // As old clients wrote it: the frame's header with a checksum of something else.
    let mut lz4 = message_of_bytes(0, 1_001)[8..].to_vec();
    lz4.splice(0..0, [0; 8]);
    let mut payload = compress(Codec::Lz4, &lz4);
    payload[6] ^= 0xff;
    let old_lz4 = message(0, Codec::Lz4, None, &payload);
    let sets = [rubbish, nested, wrong, old_lz4];
    let on_deep = produce(&mut connection, 1, &deep.name, &sets);
    let on_free = produce(&mut connection, 1, &free.name, &sets);
    assert_eq!(on_deep, [87, 87, 2, 10]);
    assert_eq!((on_free[2], on_free[3]), (2, 0));
    assert!(on_free[0] != 0 && on_free[1] != 0, "{on_free:?}");
}

/// Kafka 4 offers Produce from version 0 on, for old librdkafka to read, and takes none below 3.
#[test]
fn in_front_of_kafka_4_what_a_rule_forbids_is_refused_by_code_and_all_else_ends_as_at_the_broker() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let yaml = format!(
            "rules: [{{name: small, topics: ['gate-*'], limits: {{batch_bytes: {LIMIT}}}}}]"
        );
        let sizegate = Sizegate::start(kafka, &yaml);
        let topic = kafka.topic("gate", 2, &[]);
        for version in 0..=2 {
            for magic in 0..=1 {
                let case = format!("v{version} magic {magic}");
                let over = message_of_bytes(magic, most_bytes(magic) + 1);
                let mut connection = Connection::open(sizegate.bootstrap());
                // Again and again on one connection, which lives.
                for _ in 0..2 {
                    let sent = [over.clone(), over.clone()];
                    let codes = produce(&mut connection, version, &topic.name, &sent);
                    assert_eq!(codes, [10, 10], "{case}");
                }
                // What no rule forbids is the broker's, and so is what stands beside what one does.
                let fits = message_of_bytes(magic, most_bytes(magic));
                for sent in [vec![fits.clone()], vec![over.clone(), fits.clone()]] {
                    for address in [kafka.bootstrap(), sizegate.bootstrap()] {
                        let mut connection = Connection::open(&address);
                        connection.send_bytes(&request(version, &topic.name, &sent));
                        let end = connection.read_frame();
                        assert_eq!(end, Err(ErrorKind::Closed), "{case} at {address}");
                    }
                }
                connection.send_bytes(&request(version, &topic.name, &[fits]));
                assert_eq!(connection.read_frame(), Err(ErrorKind::Closed), "{case}");
            }
        }
        for partition in 0..2 {
            assert_eq!(kafka.latest_offset(&topic.name, partition), 0);
        }
        // The log has the words for which the response has no room.
        sizegate.log_line(&[
            &format!("sizegate refused {}-0: ", topic.name),
            "gate=batch",
            "size_bytes=3001",
            "rule=small",
        ]);
    }
}

#[test]
fn a_bomb_inside_a_message_is_not_decompressed() {
    let zeros = vec![0u8; 16 << 20];
    let limits = DeepLimits {
        record_bytes: Some(100_000),
        ..DeepLimits::NONE
    };
    for magic in 0..=1 {
        let bomb = [message(magic, Codec::None, None, &zeros)];
        for codec in COMPRESSED {
            let set = wrapper(magic, codec, &bomb);
            let found = inspect_message_set(&set, &limits, Effort::VERDICT, &mut Scratch::new());
            let Judgement::Over(over) = found.finding else {
                panic!("magic {magic} {codec}: {found:?}")
            };
            assert_eq!(over.gate, Gate::Record);
            assert!(
                found.decoded_bytes < 12 << 20,
                "magic {magic} {codec}: {found:?}"
            );
            let little = Effort::VERDICT.decode_at_most(1_000);
            let found = inspect_message_set(&set, &limits, little, &mut Scratch::new());
            assert_eq!(
                found.finding,
                Judgement::Unfinished,
                "magic {magic} {codec}"
            );
        }
    }
}
