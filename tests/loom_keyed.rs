//! Every interleaving of the races on one key of a keyed limiter: coming, being forgotten, taking, waiting.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --features keyed --test loom_keyed` runs them. As in
//! `tests/loom.rs`, the main thread only sets up and judges, every actor begins with a read-modify-write, and the planted
//! bug named above each model turns it red: `scripts/plants` proves that it does.
//!
//! How many hold a seat is counted by std's `Arc`, which loom does not see: it counts as if in one order with everything
//! else. What must be seen besides goes through the room's lock.
#![cfg(all(tollgate_loom, feature = "keyed"))]

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;
use tokio_test::task;
use tollgate::{KeyedLimiter, ManualClock, Quota};

const SECOND: Duration = Duration::from_secs(1);

/// The same in every execution.
type Keyed = KeyedLimiter<u8, BuildHasherDefault<DefaultHasher>>;

/// A token per second, one at once; at most so many keys, in so many rooms.
fn keyed(max_keys: u64, rooms: usize) -> (Keyed, ManualClock) {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(1)).max_keys(max_keys);
    let builder = builder.clock(clock.clone()).rooms(rooms).hasher(BuildHasherDefault::default());
    (builder.build().expect("valid"), clock)
}

fn takes(keyed: &Keyed, key: u8) -> bool {
    keyed.try_acquire(&key, 1).is_ok()
}

/// Spawns an actor. The order of these first steps orders nothing else.
fn actor<T: 'static>(race: &Arc<AtomicU64>, act: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let start = race.clone();
    thread::spawn(move || {
        start.fetch_add(1, Relaxed);
        act()
    })
}

fn explore(model: impl Fn(&Arc<AtomicU64>) + Send + Sync + 'static) {
    loom::model(move || model(&Arc::default()));
}

/// Two calls bring the same new key: one of them finds what the other left.
///
/// Plant `a_newcomer_is_looked_for_and_then_kept`: whether the key is new is asked under one lock, and it is kept under the
/// next.
#[test]
fn two_calls_insert_the_same_key() {
    explore(|race| {
        let (keyed, _clock) = keyed(5, 1);
        let calls = [keyed.clone(), keyed.clone()].map(|keyed| actor(race, move || takes(&keyed, 1)));
        let granted = calls.map(|call| call.join().unwrap());
        assert!(granted[0] != granted[1], "one token, granted {granted:?}");
        assert_eq!(keyed.snapshot().keys, 1);
    });
}

/// A key that has become full is forgotten while its token is taken: it does not come back full.
///
/// Plant `the_full_are_noted_and_then_forgotten`: who is full is found out under one lock, and forgotten under the next.
#[test]
fn a_key_is_forgotten_while_its_token_is_taken() {
    explore(|race| {
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        clock.advance(SECOND);
        let (taker, sweeper) = (keyed.clone(), keyed.clone());
        let take = actor(race, move || takes(&taker, 1));
        let sweep = actor(race, move || sweeper.tick());
        assert!(take.join().unwrap(), "it was full");
        sweep.join().unwrap();
        assert!(!takes(&keyed, 1), "the token was granted twice");
    });
}

/// Two newcomers, one place, and a lock for each.
///
/// Plant `places_are_counted_then_taken`: the count is read, then stored.
#[test]
fn two_newcomers_on_the_last_place() {
    explore(|race| {
        let (keyed, _clock) = keyed(1, 8);
        let calls = [1, 2].map(|key| {
            let keyed = keyed.clone();
            actor(race, move || takes(&keyed, key))
        });
        let granted = calls.map(|call| call.join().unwrap());
        assert!(granted[0] != granted[1], "one place, granted {granted:?}");
    });
}

/// A seat that nobody needs is given up while somebody comes to wait in it: who waits is served.
///
/// Plant `a_seat_is_given_up_by_its_line_alone`: who holds it and has not entered yet does not count.
#[test]
fn a_seat_is_given_up_while_somebody_comes() {
    explore(|race| {
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        let mut left = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(left.poll().is_pending());
        drop(left);
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        let come = actor(race, move || {
            assert!(waiting.poll().is_pending());
            waiting
        });
        let sweeper = keyed.clone();
        let sweep = actor(race, move || sweeper.tick());
        let mut waiting = come.join().unwrap();
        sweep.join().unwrap();
        clock.advance(SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "it stands in a line that nobody serves");
        assert!(!takes(&keyed, 1), "the token was granted twice");
    });
}
