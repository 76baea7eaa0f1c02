//! What a running sizegate takes of the machine's memory at its peak, bombs and lies included: twice the budget at most.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::thread;
use std::time::Duration;

use crate::inspect::make::{batch_of, value};
use crate::support::programs::repo;
use crate::support::scripted::Broker;
use crate::support::sizegate::Builder;
use crate::support::{Connection, ErrorKind, Part, Sizegate, eventually};
use sizegate::policy::Codec;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(120);

fn topics() -> [(&'static str, i32, u64); 1] {
    [("orders", 4, 200_000_000)]
}

fn part(broker: &Broker, batch: Vec<u8>) -> Part {
    Part::new(&broker.topic("orders"), batch.into())
}

/// In front of this broker, with the allocator's setting that the image and the systemd unit come with.
fn before(broker: &Broker) -> Builder {
    let shipped = |file: &str, line: &str| {
        let text = std::fs::read_to_string(repo().join(file)).unwrap();
        let mut values = text.lines().filter_map(|found| found.strip_prefix(line));
        let value = values.next().map(str::to_owned);
        value.unwrap_or_else(|| panic!("no {line} in {file}"))
    };
    let [image, unit] = [
        shipped("Dockerfile", "ENV MALLOC_MMAP_THRESHOLD_="),
        shipped(
            "deploy/systemd/sizegate.service",
            "Environment=MALLOC_MMAP_THRESHOLD_=",
        ),
    ];
    assert_eq!(image, unit);
    Sizegate::before(&broker.bootstrap()).env("MALLOC_MMAP_THRESHOLD_", &image)
}

/// Waits until the proxy holds nothing, and demands that its process never took more than twice this budget.
fn assert_took_twice_at_most(sizegate: &mut Sizegate, budget: u64) {
    eventually(PATIENCE, "nothing is held", || {
        (sizegate.metrics().sum("held_bytes", &[]) == 0.0).then_some(())
    });
    let peak = sizegate.process().peak_rss_bytes();
    println!(
        "{} MiB at the peak, of a budget of {}",
        peak >> 20,
        budget >> 20
    );
    assert!(
        peak <= 2 * budget,
        "{} MiB with a budget of {} MiB",
        peak >> 20,
        budget >> 20
    );
}

#[test]
fn sixty_four_bombs_at_once_take_twice_the_budget_at_most() {
    // What docs/operations.md gives a sidecar, which is then to do with 256 MiB in all.
    const BUDGET: u64 = 128 << 20;
    let broker = Broker::sound(&topics());
    let mut sizegate = before(&broker)
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
        let answer = connection.produce(9, -1, &sent).remove(0);
        let text = answer.text.unwrap_or_default();
        assert_eq!(answer.code, 10, "{codec}: {text}");
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
    const BUDGET: u64 = 32 << 20;
    let broker = Broker::sound(&topics());
    let mut sizegate = before(&broker)
        .listener("frame_bytes: 32MiB")
        .yaml("memory: {budget: 32MiB}")
        .start();
    // Partitions without records, six bytes each; topics without partitions, three bytes each.
    let partition: &[u8] = &[0, 0, 0, 1, 0, 0];
    let topic: &[u8] = &[1, 1, 0];
    for (entry, is_partition) in [(partition, true), (topic, false)] {
        let count = (31usize << 20) / entry.len();
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
    let batch = crate::inspect::make::batch(Codec::None, &[value("small")]);
    let sent = [part(&broker, batch)];
    let answers = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(answers[0].code, 0, "{answers:?}");
    assert_took_twice_at_most(&mut sizegate, BUDGET);
}
