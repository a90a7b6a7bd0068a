use super::*;
use crate::{KeyedLimiter, Quota};
use std::time::Duration;
use tokio_test::task::spawn;

#[test]
fn a_turn_takes_up_no_more_due_timers_than_it_looks_at_entries() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let keys = KeyedLimiter::new(Quota::per_hour(1)).unwrap();
    let mut driver = spawn(keys.replenisher());
    assert!(driver.poll().is_pending());
    let wait = |key: u32| {
        _ = keys.try_acquire(&key, 1).unwrap();
        let mut claim = spawn(keys.clone().consume_owned(key, 1));
        assert!(claim.poll().is_pending());
        claim
    };
    let _waiting: Vec<_> = (0..2_000).map(wait).collect();
    while driver.is_woken() {
        assert!(driver.poll().is_pending());
    }
    runtime.block_on(tokio::time::sleep(Duration::from_secs(3_600)));
    steps::take();
    assert!(driver.poll().is_pending());
    let steps = steps::take();
    assert!((1..=2 * ENTRIES_PER_TURN as u64).contains(&steps), "{steps}");
}
