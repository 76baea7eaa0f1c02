//! Consumers as they ask and are served, request by request.

use super::*;

/// A process that reads one partition over one connection at a time.
struct Connection<'a> {
    watch: &'a StuckWatch,
    consumer: Consumer,
    pass: Pass,
    visits: Option<Visits>,
    is_reset: bool,
    now: Instant,
    found: Vec<u64>,
}

impl<'a> Connection<'a> {
    fn open(watch: &'a StuckWatch, now: Instant) -> Self {
        Self::of(watch, "importer", now)
    }

    fn of(watch: &'a StuckWatch, client_id: &str, now: Instant) -> Self {
        Self {
            watch,
            consumer: watch.consumer(client_id, [127, 0, 0, 1].into()),
            pass: Pass::default(),
            visits: None,
            is_reset: false,
            now,
            found: Vec::new(),
        }
    }

    /// ListOffsets for the beginning.
    fn at_beginning(mut self) -> Self {
        self.is_reset = true;
        self
    }

    fn in_group(self, name: &str) -> Self {
        let group = self.watch.group(name.as_bytes());
        self.watch.groups.is_of(self.consumer, group);
        self
    }

    fn asks(&mut self, offset: i64) -> &mut Self {
        if let Some(visits) = &mut self.visits {
            visits.asked(offset);
        }
        self
    }

    /// Asks, and is served a large batch.
    fn reads(&mut self, offset: i64) -> &mut Self {
        self.is_served(offset, None)
    }

    /// Asks, and is served a small batch and a large one behind it.
    fn reads_behind(&mut self, offset: i64, base_offset: i64) -> &mut Self {
        self.is_served(offset, Some(base_offset))
    }

    fn is_served(&mut self, offset: i64, behind: Option<i64>) -> &mut Self {
        self.asks(offset);
        let joins = self.watch.groups.joins_of(self.consumer);
        let is_reset = &mut self.is_reset;
        let begins = self.pass.served(offset, joins, || std::mem::take(is_reset));
        if behind.is_some() && !begins {
            return self;
        }
        let (watch, now) = (self.watch, self.now);
        let reader = watch.reader(self.consumer, "orders", 0);
        let group = watch.groups.group_of(self.consumer);
        let visits = self
            .visits
            .get_or_insert_with(|| Visits::new(watch, reader, group, now));
        let batch = LargeServed {
            offset,
            behind,
            begins,
            now,
        };
        self.found.extend(visits.served(&batch, &mut self.pass));
        self
    }

    fn ends(&mut self) -> Vec<u64> {
        if let Some(visits) = self.visits.take() {
            visits.leave(self.watch, self.now);
        }
        std::mem::take(&mut self.found)
    }
}

fn watch() -> (StuckWatch, Instant) {
    (StuckWatch::default(), Instant::now())
}

#[test]
fn a_handler_that_seeks_back_is_found_at_the_third_time_whatever_was_fetched_ahead() {
    // Nothing, one batch, or as much as librdkafka's queue holds.
    for ahead in [0, 1, 3, 64, 1_000] {
        let (watch, now) = watch();
        let mut connection = Connection::open(&watch, now);
        connection.reads(5);
        for _ in 0..5 {
            for offset in 0..ahead {
                connection.reads(10 + offset * 10);
            }
            connection.asks(10 + ahead * 10).reads(5);
        }
        assert_eq!(connection.found, [3, 4, 5, 6], "{ahead} ahead");
    }
    // In the middle of what it read before.
    let (watch, now) = watch();
    let mut connection = Connection::open(&watch, now);
    connection.reads(0);
    for _ in 0..3 {
        for offset in [100, 200, 300] {
            connection.reads(offset);
        }
        connection.reads(15);
    }
    assert_eq!(connection.found, [3], "0 … 300 was read ahead each time");
}

#[test]
fn a_process_that_ends_and_begins_at_what_is_committed_is_found_at_its_third_start() {
    for ahead in [0, 1, 64] {
        let (watch, now) = watch();
        let starts = (0..4).map(|_| {
            let mut connection = Connection::open(&watch, now);
            connection.reads(5);
            for offset in 0..ahead {
                connection.reads(10 + offset * 10);
            }
            connection.asks(10 + ahead * 10);
            connection.ends()
        });
        let found: Vec<_> = starts.collect();
        assert_eq!(found, [vec![], vec![], vec![3], vec![4]], "{ahead} ahead");
    }
}

#[test]
fn what_is_committed_may_be_a_small_batch_before_the_large_one() {
    let (watch, now) = watch();
    let found: Vec<_> = (0..3)
        .map(|_| {
            Connection::open(&watch, now)
                .reads_behind(4, 5)
                .asks(6)
                .ends()
        })
        .collect();
    assert_eq!(found, [vec![], vec![], vec![3]]);
    // A handler of batches goes back to the first of them.
    let mut connection = Connection::of(&watch, "batches", now);
    for _ in 0..3 {
        connection.reads_behind(4, 5).asks(6);
    }
    assert_eq!(connection.found, [3]);
    // What was not handed on is asked for again for another reason.
    let mut connection = Connection::of(&watch, "other", now);
    for _ in 0..9 {
        connection.reads_behind(4, 5);
    }
    assert!(connection.found.is_empty());
}

#[test]
fn handlers_that_fail_a_little_further_each_time_are_getting_on() {
    let (watch, now) = watch();
    let mut connection = Connection::open(&watch, now);
    for offset in 0..1_000 {
        connection
            .reads(offset)
            .asks(2_000)
            .reads(offset)
            .asks(2_000);
    }
    assert!(connection.found.is_empty());
}

#[test]
fn groups_that_start_together_are_many_consumers() {
    let (watch, now) = watch();
    for _round in 0..2 {
        let mut groups: Vec<_> = (0..20).map(|_| Connection::open(&watch, now)).collect();
        for offset in [0, 10, 20] {
            for group in &mut groups {
                group.reads(offset);
            }
        }
        for mut group in groups {
            group.asks(30);
            assert!(group.ends().is_empty());
        }
    }
}

#[test]
fn a_tool_that_reads_from_the_beginning_again_and_again_is_no_loop_and_a_group_that_does_is() {
    let (watch, now) = watch();
    for n in 0..5 {
        let name = format!("console-consumer-{n}");
        let mut console = Connection::open(&watch, now).in_group(&name).at_beginning();
        console.reads(0).reads(10).asks(20);
        assert!(console.ends().is_empty());
        // Without a group.
        let mut kcat = Connection::of(&watch, "rdkafka", now).at_beginning();
        kcat.reads(0).reads(10).asks(20);
        assert!(kcat.ends().is_empty());
    }
    // A group that has committed nothing yet and fails at its first batch.
    let found = (0..3).flat_map(|_| {
        let first = Connection::of(&watch, "fresh", now).in_group("fresh");
        first.at_beginning().reads(0).asks(10).ends()
    });
    assert_eq!(found.collect::<Vec<_>>(), [3]);
    // Without a group, and it never gets any further.
    let found = (0..3).flat_map(|_| {
        let first = Connection::of(&watch, "heap", now);
        first.at_beginning().reads(0).ends()
    });
    assert_eq!(found.collect::<Vec<_>>(), [3]);
}

#[test]
fn seek_to_beginning_is_no_return() {
    let (watch, now) = watch();
    let mut connection = Connection::open(&watch, now);
    for _ in 0..9 {
        connection.is_reset = true;
        connection.reads(0).reads(10).reads(20).asks(30);
    }
    assert!(connection.found.is_empty());
}

#[test]
fn a_rebalance_is_no_return_and_being_thrown_out_is() {
    let (watch, now) = watch();
    let mut connection = Connection::open(&watch, now);
    // A member that begins joins twice.
    let begin = || {
        watch.groups.joins(connection.consumer, false);
        watch.groups.joins(connection.consumer, true);
    };
    begin();
    for _ in 0..9 {
        watch.groups.joins(connection.consumer, true);
        connection.reads(5).asks(10);
    }
    assert!(connection.found.is_empty());
    // With the newer protocol, a member whose partition went away and came back is in another epoch.
    let mut connection = Connection::of(&watch, "newer", now);
    let member = watch.member(b"a member");
    for epoch in 0..9 {
        for _heartbeat in 0..3 {
            watch.groups.is_in(connection.consumer, member, epoch);
        }
        connection.reads(5).asks(10);
    }
    assert!(connection.found.is_empty());
    // Heartbeats in one epoch say nothing, also where another group is in another.
    let other = watch.member(b"a member of another group");
    for _ in 0..2 {
        watch.groups.is_in(connection.consumer, member, 8);
        watch.groups.is_in(connection.consumer, other, 3);
        connection.reads(5).asks(10);
    }
    assert_eq!(connection.found, [3]);
    // It took so long over what it was served that it has to begin again.
    for asks_for_beginning in [false, true] {
        let client_id = format!("slow {asks_for_beginning}");
        let mut connection = Connection::of(&watch, &client_id, now);
        for _ in 0..3 {
            watch.groups.joins(connection.consumer, false);
            watch.groups.joins(connection.consumer, true);
            connection.is_reset = asks_for_beginning;
            connection.reads(5).asks(10);
        }
        assert_eq!(connection.found, [3]);
    }
}

#[test]
fn another_group_of_the_same_client_id_is_another_consumer() {
    let (watch, now) = watch();
    for n in 0..9 {
        let mut connection = Connection::open(&watch, now).in_group(&format!("group-{n}"));
        connection.reads(5).asks(10);
        assert!(connection.ends().is_empty());
    }
}

#[test]
fn once_an_hour_is_no_loop() {
    let (watch, mut now) = watch();
    let mut stays = Connection::of(&watch, "stays", now);
    for _ in 0..9 {
        now += Duration::from_secs(3_600);
        stays.now = now;
        stays.reads(5).asks(10);
        let mut restarts = Connection::open(&watch, now);
        assert!(restarts.reads(5).asks(10).ends().is_empty());
    }
    assert!(stays.found.is_empty());
}

#[test]
fn a_hundred_thousand_consumer_partitions_are_told_apart_in_bounded_memory() {
    const CONSUMERS: usize = 100_000;
    let (watch, now) = watch();
    let one = |n: usize| {
        let mut connection = Connection::of(&watch, &n.to_string(), now);
        connection.reads(5).asks(10);
        connection.ends()
    };
    // All of them start twice, one after the other; of the third time, as many as it takes to be sure.
    assert_eq!((0..CONSUMERS).flat_map(one).count(), 0);
    assert_eq!((0..CONSUMERS).flat_map(one).count(), 0);
    let third = CONSUMERS / 20;
    let found = (0..third).flat_map(one).count();
    assert!(found * 1_000 >= third * 999, "{found} of {third}");
    assert!(watch.left.len() <= LeftBehind::MOST);
}

#[test]
fn however_many_come_and_go_the_number_kept_is_bounded_and_who_returns_is_found() {
    let (mut watch, now) = watch();
    let (shards, buckets) = (4, 8);
    watch.left = LeftBehind::with(shards, buckets);
    let most = LeftBehind::most(shards, buckets);
    let one = |client_id: &str| {
        let mut connection = Connection::of(&watch, client_id, now);
        connection.reads(5).asks(10);
        connection.ends()
    };
    assert!(one("stuck").is_empty() && one("stuck").is_empty());
    for n in 0..20 * most {
        one(&n.to_string());
        assert!(watch.left.len() <= most);
    }
    assert_eq!(one("stuck"), [3], "it was seen twice, all others once");
}

#[test]
fn what_a_connection_is_served_takes_no_lock_once_it_has_begun() {
    let (watch, now) = watch();
    let mut connection = Connection::open(&watch, now);
    connection.reads(0);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let held = watch.left.hold();
        scope.spawn(move || {
            for offset in 1..1_000 {
                connection.reads(offset).asks(offset + 1).reads(offset);
            }
            let _ = done.send(connection.found.len());
        });
        let found = is_done.recv_timeout(Duration::from_secs(60));
        drop(held);
        assert_eq!(found, Ok(0));
    });
}
