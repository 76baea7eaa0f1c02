//! What a running sizegate takes of the machine's memory at its peak, bombs and lies included: twice the budget at most.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::inspect::make::{batch, batch_of, value};
use crate::support::client::{frame, produce_request};
use crate::support::scripted::{self, Broker, Step};
use crate::support::sizegate::Builder;
use crate::support::{Connection, ErrorKind, Inside, Part, Sizegate, Topic, eventually};
use kafka_protocol::messages::ApiKey;
use sizegate::vocabulary::Codec;
use tokio_util::sync::CancellationToken;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(120);

fn topics() -> [(&'static str, i32, u64); 1] {
    [("orders", 4, 200_000_000)]
}

fn part(broker: &Broker, batch: Vec<u8>) -> Part {
    Part::new(&broker.topic("orders"), batch.into())
}

/// Waits until the proxy holds nothing, and demands that its process never took more than twice this budget.
fn assert_took_twice_at_most(sizegate: &mut Sizegate, budget: u64) {
    eventually(PATIENCE, "nothing is held", || {
        (sizegate.metrics().sum("held_bytes", &[]) == 0.0).then_some(())
    });
    let peak = sizegate.process().peak_rss_bytes();
    println!(
        "{} KiB at the peak, of a budget of {} MiB",
        peak >> 10,
        budget >> 20
    );
    assert!(
        peak <= 2 * budget,
        "{} KiB with a budget of {} MiB",
        peak >> 10,
        budget >> 20
    );
}

#[test]
fn sixty_four_bombs_at_once_take_twice_the_budget_at_most() {
    // What docs/operations.md gives a sidecar, which is then to do with 256 MiB in all.
    const BUDGET: u64 = 128 << 20;
    let broker = Broker::sound(&topics());
    let mut sizegate = Sizegate::before(&broker.bootstrap())
        .listener("frame_bytes: 60MiB")
        .yaml(
            "memory: {budget: 128MiB}\nrules: [{name: r, topics: [orders], limits: {uncompressed_bytes: 16MiB}}]",
        )
        .start();
    let bombs = crate::inspect::bomb::small_bombs()
        .map(|(codec, payload)| (codec, batch_of(codec, &payload, 1)));
    let explode = |codec: Codec, bomb: &[u8]| {
        let mut connection = Connection::open(sizegate.bootstrap());
        let sent = [part(&broker, bomb.to_vec())];
        let response = connection.produce(9, -1, &sent).remove(0);
        let text = response.text.unwrap_or_default();
        assert_eq!(response.code, 10, "{codec}: {text}");
        let words = "[gate=uncompressed at_least_bytes=";
        assert!(text.contains(words), "{codec}: {text}");
    };
    // All kinds at once, then the largest on the wire: together they are more than the budget.
    let largest = bombs.iter().max_by_key(|(_, bomb)| bomb.len()).unwrap();
    assert!(64 * largest.1.len() as u64 > 2 * BUDGET);
    for round in 0..2 {
        thread::scope(|scope| {
            for n in 0..64 {
                let (codec, bomb) = if round == 0 { &bombs[n % 3] } else { largest };
                scope.spawn(move || explode(*codec, bomb));
            }
        });
    }
    assert_took_twice_at_most(&mut sizegate, BUDGET);
}

#[test]
fn millions_of_empty_entries_in_a_request_take_twice_the_budget_at_most() {
    // A third of which are the pages of a program without optimisation.
    const BUDGET: u64 = 48 << 20;
    let broker = Broker::sound(&topics());
    let mut sizegate = Sizegate::before(&broker.bootstrap())
        .listener("frame_bytes: 48MiB")
        .yaml("memory: {budget: 48MiB}")
        .start();
    // Partitions without records, six bytes each; topics without partitions, three bytes each.
    let partition: &[u8] = &[0, 0, 0, 1, 0, 0];
    let topic: &[u8] = &[1, 1, 0];
    for (entry, is_partition) in [(partition, true), (topic, false)] {
        let count = (47usize << 20) / entry.len();
        // Produce 9 without a client id and a transactional id, acks −1.
        let mut body = vec![
            0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 1,
        ];
        let varint = |body: &mut Vec<u8>, mut n: usize| {
            while n > 0x7f {
                body.push((n & 0x7f) as u8 | 0x80);
                n >>= 7;
            }
            body.push(n as u8);
        };
        if is_partition {
            body.push(2);
            body.extend(b"\x07orders");
        }
        varint(&mut body, count + 1);
        body.extend(entry.repeat(count));
        body.extend([0, 0]);
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.send_bytes(&[&(body.len() as i32).to_be_bytes()[..], &body].concat());
        assert_eq!(connection.read_frame().err(), Some(ErrorKind::Closed));
        let client = format!("client={}", connection.stream().local_addr().unwrap());
        sizegate.log_line(&["connection closed", "too_long", &client]);
    }
    let sent = [part(&broker, batch(Codec::None, &[value("small")]))];
    let responses = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(responses[0].code, 0, "{responses:?}");
    assert_took_twice_at_most(&mut sizegate, BUDGET);
}

/// A decode cannot be stopped, so whoever began it pays for it to its end, even if the session is gone by then: else a
/// bomb behind a request that makes its broker close would cost its client nothing.
#[test]
fn a_decode_whose_session_is_gone_keeps_its_turn_and_its_memory_until_its_end() {
    let close = CancellationToken::new();
    let until = Arc::new(Mutex::new(close));
    let told = Arc::clone(&until);
    let broker = Broker::start(&topics(), move |request, _| {
        let until = told.lock().unwrap().clone();
        (request.api_key == 0).then(|| vec![Step::Until(until), Step::Close])
    });
    let rules = "rules: [{name: r, topics: [orders], limits: {uncompressed_bytes: 1GB}}]";
    let proxy = Inside::start(&broker, &[], rules);
    let (codec, payload) = crate::inspect::bomb::small_bombs()
        .into_iter()
        .next()
        .unwrap();
    let bomb = batch_of(codec, &payload, 1);
    let turns = proxy.shared.decoding.available_permits();
    let is_decoding = || proxy.shared.decoding.available_permits() < turns;
    let has_ended = || !is_decoding() && proxy.shared.budget.held_bytes() == 0;
    // A machine that is slow here and fast there may have decoded all of it before the session was gone.
    let was_kept = (0..10).any(|_| {
        let close = CancellationToken::new();
        *until.lock().unwrap() = close.clone();
        let mut connection = proxy.connect();
        connection.send_produce(9, -1, &[part(&broker, batch(Codec::None, &[value("a")]))]);
        connection.send_produce(9, -1, &[part(&broker, bomb.clone())]);
        eventually(PATIENCE, "the decode begins", || {
            is_decoding().then_some(())
        });
        close.cancel();
        assert_eq!(connection.read_frame().err(), Some(ErrorKind::Closed));
        let held = proxy.shared.budget.held_bytes();
        let was_kept = is_decoding() && held >= bomb.len();
        eventually(PATIENCE, "the decode ends", || has_ended().then_some(()));
        was_kept
    });
    assert!(was_kept, "turn and memory came back with the session");
}

/// Topics that do not exist cost nothing but to invent.
#[test]
fn sessions_that_name_eight_thousand_unknown_topics_are_charged_for_them() {
    const BUDGET: u64 = 64 << 20;
    const SESSIONS: usize = 12;
    let (go_on, until) = pair();
    // All ask the same, and get the same response.
    let response: OnceLock<Vec<u8>> = OnceLock::new();
    let broker = Broker::start(&topics(), move |request, cluster| {
        let is_large = request.api_key == 0 && request.body.len() > 100_000;
        is_large.then(|| {
            let response = response.get_or_init(|| scripted::sound(request, cluster).unwrap());
            vec![Step::Until(until.clone()), Step::Send(response.clone())]
        })
    });
    let rules =
        "rules: [{name: r, topics: ['*'], limits: {batch_bytes: 1MiB, record_bytes: 64KiB}}]";
    let mut sizegate = Sizegate::before(&broker.bootstrap())
        .listener("frame_bytes: 8MiB")
        .yaml(&format!("memory: {{budget: 64MiB}}\n{rules}"))
        .arg("--workers=2")
        .start();
    let records = batch(Codec::None, &[value("a")]);
    let parts: Vec<Part> = (0..8000)
        .map(|n| {
            let topic = Topic {
                name: format!("a-topic-that-does-not-exist-{n}"),
                id: uuid::Uuid::nil(),
            };
            Part::new(&topic, records.clone().into())
        })
        .collect();
    let request = frame(&produce_request(None, -1, &parts), 9, 1, None);
    let mut sessions: Vec<Connection> = (0..SESSIONS)
        .map(|_| Connection::open(sizegate.bootstrap()))
        .collect();
    for connection in &mut sessions {
        connection.send_bytes(&request);
    }
    let held = |sizegate: &Sizegate| sizegate.metrics().sum("held_bytes", &[]);
    eventually(PATIENCE, "all are forwarded", || {
        (broker.received_of(ApiKey::Produce).len() == SESSIONS).then_some(())
    });
    // What is remembered of forwarded topics until the broker has answered is charged, and is not all of them.
    let remembered = held(&sizegate);
    let range = SESSIONS as f64 * 256.0 * 400.0..BUDGET as f64 / 2.0;
    assert!(range.contains(&remembered), "{remembered} bytes held");
    go_on.cancel();
    for connection in &mut sessions {
        let response = connection.read_frame().unwrap();
        assert!(response.len() > 8000 * 50, "{} bytes", response.len());
    }
    // The sessions stay, and hold nothing of it.
    eventually(PATIENCE, "all of it is given back", || {
        (held(&sizegate) == 0.0).then_some(())
    });
    for connection in &mut sessions {
        let sent = [part(&broker, records.clone())];
        assert_eq!(connection.produce(9, -1, &sent)[0].code, 0);
    }
    assert_took_twice_at_most(&mut sizegate, BUDGET);
}

fn pair() -> (CancellationToken, CancellationToken) {
    let token = CancellationToken::new();
    (token.clone(), token)
}

#[test]
fn glibc_is_told_what_to_give_back_unless_somebody_told_it_already() {
    let broker = Broker::sound(&topics());
    let before = || Sizegate::before(&broker.bootstrap());
    let assert_told = |builder: Builder, expected: [&str; 2]| {
        let mut sizegate = builder.start();
        let path = format!("/proc/{}/environ", sizegate.process().pid());
        let environment = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
        let mut told: Vec<&str> = environment.split('\0').collect();
        told.retain(|setting| setting.starts_with("MALLOC_"));
        told.sort_unstable();
        assert_eq!(told, expected);
    };
    let trim = "MALLOC_TRIM_THRESHOLD_=8388608";
    assert_told(before(), ["MALLOC_MMAP_THRESHOLD_=2097152", trim]);
    let told = before().env("MALLOC_MMAP_THRESHOLD_", "1048576");
    assert_told(told, ["MALLOC_MMAP_THRESHOLD_=1048576", trim]);
}
