use super::*;
use crate::{KeyedLimiter, Quota};
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};

/// A waiting claim of each of so many keys.
fn waiting(keys: &KeyedLimiter<u32>, count: u32) -> Vec<Spawn<impl Future>> {
    let wait = |key| {
        _ = keys.try_acquire(&key, 1);
        let mut claim = spawn(keys.clone().consume_owned(key, 1));
        assert!(claim.poll().is_pending());
        claim
    };
    (0..count).map(wait).collect()
}

#[test]
fn a_turn_takes_up_no_more_due_timers_than_it_looks_at_entries() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let keys = KeyedLimiter::new(Quota::per_hour(1)).unwrap();
    let mut driver = spawn(keys.replenisher());
    assert!(driver.poll().is_pending());
    let _waiting = waiting(&keys, 2_000);
    while driver.is_woken() {
        assert!(driver.poll().is_pending());
    }
    runtime.block_on(tokio::time::sleep(Duration::from_secs(3_600)));
    steps::take();
    assert!(driver.poll().is_pending());
    let steps = steps::take();
    assert!((1..=2 * ENTRIES_PER_TURN as u64).contains(&steps), "{steps}");
}

/// Also by a driver that is polled so seldom that its mailbox has forgotten most of them.
#[test]
fn timers_of_live_entries_that_are_gone_are_removed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let keys = KeyedLimiter::new(Quota::per_hour(1)).unwrap();
    let mut driver = Box::pin(keys.replenisher());
    let mut turn = || {
        assert!(driver.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        driver.jobs.timers.len()
    };
    for _ in 0..3 {
        assert_eq!(turn(), 0);
        let waiting = waiting(&keys, 100);
        assert_eq!(turn(), 100);
        let of_live = |live: InUse| (&raw const *live, live.key_hash().unwrap());
        let live_entries: Vec<_> = keys.map.live_entries().into_iter().map(of_live).collect();
        for claim in waiting {
            drop(claim);
            live_entries.iter().for_each(|(live, hash)| _ = EntryOwner::retire(&*keys.map, *live, *hash, 0));
        }
        assert_eq!(keys.map.live_entries().len(), 0);
    }
}
