//! Calendar quotas of keys.

use super::clocks::at;
use crate::fixture::*;

fn day() -> Quota {
    Quota::per_calendar_day(10).in_time_zone("America/Los_Angeles").expect("known")
}

/// A clock at 22:00 in Los Angeles, on a day that ends in two hours.
fn evening() -> ManualClock {
    let clock = ManualClock::new();
    clock.set_wall(at("2026-11-29T06:00:00Z"));
    clock
}

#[test]
fn keys_begin_their_periods_together_and_refunds_count_in_their_own() {
    let minute = Quota::per_minute(600);
    let all: [Quotas; 3] =
        [day().into(), [day(), minute].into_iter().collect(), [minute, day(), minute].into_iter().collect()];
    for quotas in all {
        let clock = evening();
        let keyed = KeyedLimiter::<u8>::builder().quotas(quotas).clock(clock.clone()).build().unwrap();
        let mut old = keyed.try_acquire(&1, 6).unwrap();
        let (mut waiting, _other) = (spawn(keyed.consume(&2, 9)), keyed.try_acquire(&3, 10).unwrap());
        assert!(waiting.poll().is_ready());
        old.settle(&1, 5);
        assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [5, 1, 0]);
        assert_eq!(keyed.estimate(&3, 1), Some(2 * HOUR));
        let mut waiting = pending(keyed.consume(&3, 4));
        clock.advance(2 * HOUR);
        keyed.tick();
        assert!(waiting.poll().is_ready());
        assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [10, 10, 6]);
        let mut new = keyed.try_acquire(&1, 9).unwrap();
        old.settle(&1, 0);
        assert_eq!((new.remaining(), keyed.available(&1)), (1, 1), "yesterday's tokens");
        new.settle(&1, 2);
        assert_eq!(keyed.available(&1), 8);
        drop(keyed.try_acquire(&1, 8).unwrap());
        // Midnight comes a second time, and the machine is suspended for three days.
        clock.set_wall(clock.wall() - HOUR);
        clock.advance(HOUR);
        assert_eq!(keyed.available(&1), 0);
        clock.set_wall(clock.wall() + 72 * HOUR);
        clock.advance(HOUR);
        assert_eq!(keyed.available(&1), 10);
    }
}

#[test]
fn each_key_can_have_a_calendar_of_its_own() {
    let clock = evening();
    let keyed = KeyedLimiter::<u8>::builder()
        .quota_by(|key: &u8| if *key == 1 { day() } else { Quota::per_calendar_hour(3) })
        .clock(clock.clone())
        .build()
        .unwrap();
    // A key keeps its tokens when its quota changes.
    keyed.set_quota_for(&3, day()).unwrap();
    for (key, amount) in [(1, 10), (2, 3), (3, 3)] {
        drop(keyed.try_acquire(&key, amount).unwrap());
    }
    clock.advance(HOUR);
    assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [0, 3, 0]);
    keyed.set_quota_for(&2, day()).unwrap();
    drop(keyed.try_acquire(&2, 3).unwrap());
    clock.advance(HOUR);
    assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [10; 3]);
}

/// The wall clock is set over midnight, and a key that waits finds that first.
#[tokio::test(start_paused = true)]
async fn a_period_that_one_key_finds_begins_after_the_grants_of_the_others() {
    let minute = Quota::per_minute(60_000);
    let all: [Quotas; 2] = [day().into(), [minute, day(), minute].into_iter().collect()];
    for quotas in all {
        let clock = evening();
        let keyed = KeyedLimiter::<u8>::builder().quotas(quotas).clock(clock.clone()).shards(1).build().unwrap();
        let (mut driver, _all) = (spawn(keyed.replenisher()), keyed.try_acquire(&2, 10).unwrap());
        let mut waiting = spawn(keyed.consume(&2, 4));
        assert!(driver.poll().is_pending() && waiting.poll().is_pending());
        clock.advance(HOUR / 120);
        let mut old = keyed.try_acquire(&1, 10).unwrap();
        clock.set_wall(clock.wall() + 24 * HOUR);
        clock.advance(HOUR / 100);
        assert!(driver.poll().is_pending() && waiting.poll().is_ready());
        drop(waiting);
        // The driver forgets the live entry before any call reads the wall clock.
        for _ in 0..2 {
            clock.advance(HOUR / 3_600);
            assert!(driver.poll().is_pending());
        }
        assert_eq!([1, 2].map(|key| keyed.available(&key)), [10, 6]);
        drop(keyed.try_acquire(&1, 6).unwrap());
        old.settle(&1, 0);
        assert_eq!(keyed.available(&1), 4, "yesterday's tokens");
    }
}

/// Each row: the wall clock is set at 12:20 by so many minutes; so many minutes later, so many periods have begun.
#[test]
fn each_period_pays_a_debt_once_when_the_wall_clock_is_set() {
    let minute = Quota::per_minute(60_000);
    for (set, passes, begun) in [(0, [1, 40], 1), (-30, [10, 60], 1), (300, [10, 60], 2), (0, [60, 60], 2)] {
        for others in [&[][..], &[minute, minute]] {
            let clock = ManualClock::new();
            clock.set_wall(at("2026-11-29T12:20:00Z"));
            let quotas: Quotas = others.iter().copied().chain([Quota::per_calendar_hour(10)]).collect();
            let keyed = KeyedLimiter::<u8>::builder().quotas(quotas).clock(clock.clone()).build().unwrap();
            keyed.try_acquire(&1, 10).unwrap().settle(&1, 35);
            let by = HOUR / 60 * i32::unsigned_abs(set);
            clock.set_wall(if set < 0 { clock.wall() - by } else { clock.wall() + by });
            for minutes in passes {
                clock.advance(HOUR / 60 * minutes);
                let _read = keyed.deficiency(&1);
            }
            assert_eq!(keyed.deficiency(&1), 25 - 10 * begun, "set by {set} minutes, {} quotas", 1 + others.len());
        }
    }
}
