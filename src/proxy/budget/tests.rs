use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64 * 1024;

fn budget() -> Arc<Budget> {
    Budget::new(LIMIT, IntCounter::new("waits", "waits").unwrap())
}

fn poll(admission: &mut Admission) -> Poll<Lease> {
    Pin::new(admission).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_large_frame_waits_for_another_and_a_small_one_passes_both() {
    let budget = budget();
    let first = budget.try_admit(LIMIT * 3 / 4).unwrap();
    assert!(budget.try_admit(LIMIT / 2).is_none());
    let mut second = budget.admit(LIMIT / 2);
    assert!(budget.has_waiters());
    assert!(poll(&mut second).is_pending());
    let small = budget
        .try_admit(LIMIT / SMALL)
        .expect("large frames leave an eighth");
    drop(first);
    assert!(!budget.has_waiters());
    let Poll::Ready(second) = poll(&mut second) else {
        panic!("nobody is before it")
    };
    assert_eq!(budget.held_bytes(), LIMIT / 2 + LIMIT / SMALL);
    drop((small, second));
    assert_eq!(budget.held_bytes(), 0);
}

#[test]
fn a_frame_of_the_whole_budget_is_let_in_alone_and_a_second_one_is_not() {
    let budget = budget();
    let backlog = budget.charge(LIMIT);
    let first = budget
        .try_admit(LIMIT)
        .expect("nobody else could ever give anything back");
    assert!(budget.try_admit(LIMIT).is_none());
    drop((backlog, first));
    assert_eq!(budget.held_bytes(), 0);
}

#[test]
fn a_waiter_that_gives_up_lets_the_next_one_in() {
    let budget = budget();
    let _held = budget.try_admit(LIMIT / 2).unwrap();
    let given_up = budget.admit(LIMIT);
    let mut next = budget.admit(LIMIT / 4);
    assert!(poll(&mut next).is_pending());
    drop(given_up);
    assert!(poll(&mut next).is_ready());
    assert!(!budget.has_waiters());
}

#[test]
fn an_admission_that_nobody_collects_gives_its_bytes_back() {
    let budget = budget();
    let held = budget.try_admit(LIMIT).unwrap();
    let admission = budget.admit(LIMIT);
    drop(held);
    assert_eq!(budget.held_bytes(), LIMIT);
    drop(admission);
    assert_eq!(budget.held_bytes(), 0);
}

/// A quadratic step takes minutes here.
#[test]
fn a_hundred_thousand_waiters_leave_one_by_one() {
    const WAITERS: usize = 100_000;
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let budget = budget();
        let held = budget.try_admit(LIMIT).unwrap();
        let mut waiting: Vec<_> = (0..WAITERS).map(|_| budget.admit(LIMIT / 2)).collect();
        // Those who came last give up first, then one of each two; the rest are served in turn.
        for _ in 0..WAITERS / 2 {
            waiting.pop();
        }
        let mut nth = 0;
        waiting.retain(|_| {
            nth += 1;
            nth % 2 == 0
        });
        assert!(budget.has_waiters());
        drop(held);
        for mut admission in waiting {
            assert!(poll(&mut admission).is_ready(), "not in turn");
        }
        assert!(!budget.has_waiters());
        assert_eq!(budget.held_bytes(), 0);
        told.send(()).unwrap();
    });
    let guard = Duration::from_secs(120);
    ended.recv_timeout(guard).expect("everybody has left");
}

#[test]
fn what_a_session_remembers_is_charged_in_steps_and_given_back() {
    let budget = budget();
    let mut account = Account::default();
    for (bytes, held) in [
        (0, 0),
        (Account::FREE_BYTES, 0),
        (Account::FREE_BYTES + 1, Account::STEP_BYTES),
        (Account::STEP_BYTES, Account::STEP_BYTES),
        (Account::STEP_BYTES + 1, 2 * Account::STEP_BYTES),
        // Not for every byte less, but when half of it is gone.
        (Account::STEP_BYTES, 2 * Account::STEP_BYTES),
        (Account::STEP_BYTES - 1, Account::STEP_BYTES),
        (10 * Account::STEP_BYTES, 10 * Account::STEP_BYTES),
        (3 * Account::STEP_BYTES, 3 * Account::STEP_BYTES),
        (Account::FREE_BYTES, 0),
    ] {
        account.cover(&budget, bytes);
        assert_eq!(budget.held_bytes(), held, "{bytes}");
    }
    account.cover(&budget, 1 << 20);
    drop(account);
    assert_eq!(budget.held_bytes(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Try(usize),
    Wait(usize),
    Charge(usize),
    Collect(usize),
    Drop(usize),
    GiveUp(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![1usize..LIMIT / SMALL, 1usize..=LIMIT];
    let step = prop_oneof![
        bytes().prop_map(Step::Try),
        bytes().prop_map(Step::Wait),
        (1usize..5000).prop_map(Step::Charge),
        any::<usize>().prop_map(Step::Collect),
        any::<usize>().prop_map(Step::Drop),
        any::<usize>().prop_map(Step::GiveUp),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn the_budget_is_kept_and_everything_comes_back(steps in steps()) {
        let budget = budget();
        let (mut leases, mut waiting) = (Vec::new(), Vec::new());
        let mut charged = 0;
        for step in steps {
            match step {
                Step::Try(bytes) => leases.extend(budget.try_admit(bytes)),
                Step::Wait(bytes) => waiting.push(budget.admit(bytes)),
                Step::Charge(bytes) => {
                    charged += bytes;
                    leases.push(budget.charge(bytes));
                }
                Step::Collect(at) if !waiting.is_empty() => {
                    let at = at % waiting.len();
                    if let Poll::Ready(lease) = poll(&mut waiting[at]) {
                        prop_assert!(!lease.is_empty());
                        leases.push(lease);
                        waiting.remove(at);
                    }
                }
                Step::Drop(at) if !leases.is_empty() => drop(leases.swap_remove(at % leases.len())),
                Step::GiveUp(at) if !waiting.is_empty() => drop(waiting.swap_remove(at % waiting.len())),
                Step::Collect(_) | Step::Drop(_) | Step::GiveUp(_) => {}
            }
            // One frame of each kind over the budget at most.
            prop_assert!(budget.held_bytes() <= LIMIT + charged + LIMIT + LIMIT / SMALL);
        }
        // Everything that is held is given back: then everybody who waits is served.
        while !waiting.is_empty() {
            leases.clear();
            let before = waiting.len();
            let mut still = Vec::new();
            for mut admission in waiting {
                match poll(&mut admission) {
                    Poll::Ready(lease) => leases.push(lease),
                    Poll::Pending => still.push(admission),
                }
            }
            waiting = still;
            prop_assert!(waiting.len() < before, "waiters, and nobody to wait for");
        }
        leases.clear();
        prop_assert_eq!(budget.held_bytes(), 0);
        prop_assert!(!budget.has_waiters());
    }
}

#[test]
fn threads_never_hold_more_than_one_frame_of_each_kind_over_the_budget_and_all_are_served() {
    const THREADS: usize = 8;
    let budget = budget();
    let (peak, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (budget, peak, served) = (&budget, &peak, &served);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    for round in 0..2000usize {
                        let bytes = match (thread + round) % 3 {
                            0 => 1 + round % (LIMIT / SMALL),
                            1 => LIMIT / 2 + round,
                            _ => LIMIT,
                        };
                        let lease = match budget.try_admit(bytes) {
                            Some(lease) => lease,
                            // Some give up while they wait.
                            None if round % 7 == 0 => {
                                let admission = tokio::time::timeout(
                                    Duration::from_micros(50),
                                    budget.admit(bytes),
                                );
                                match admission.await {
                                    Ok(lease) => lease,
                                    Err(_) => continue,
                                }
                            }
                            None => {
                                tokio::time::timeout(Duration::from_secs(60), budget.admit(bytes))
                                    .await
                                    .expect("a wake-up was lost")
                            }
                        };
                        peak.fetch_max(budget.held_bytes(), Ordering::SeqCst);
                        if round % 5 == 0 {
                            tokio::task::yield_now().await;
                        }
                        served.fetch_add(1, Ordering::SeqCst);
                        drop(lease);
                    }
                });
            });
        }
    });
    assert_eq!(budget.held_bytes(), 0);
    assert!(!budget.has_waiters());
    assert!(served.load(Ordering::SeqCst) > THREADS * 1500);
    let peak = peak.load(Ordering::SeqCst);
    assert!(peak <= LIMIT + LIMIT + LIMIT / SMALL, "{peak}");
}
