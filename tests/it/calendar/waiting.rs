//! Callers that wait for a period, under paused time; and restarts.

use super::clocks::at;
use crate::fixture::*;
use std::time::SystemTime;
use tollgate::clock::TokioClock;

/// tokio's clock, with a wall clock that can be set.
#[derive(Debug)]
struct Settable(TokioClock, &'static Mutex<i64>);

impl Clock for Settable {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> SystemTime {
        let hours = *self.1.lock().unwrap();
        let by = hours.unsigned_abs() as u32 * HOUR;
        if hours < 0 { self.0.wall() - by } else { self.0.wall() + by }
    }
}

/// Each row: the wall clock is set by so many hours 90 minutes before midnight, and the caller is granted after so long.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_is_noticed_within_a_minute() {
    for (hours, granted) in [(0, 90 * 60), (2, 60), (-1, 150 * 60)] {
        let set: &'static Mutex<i64> = Box::leak(Box::default());
        let clock = Settable(TokioClock::at(at("2026-05-01T22:30:00Z")), set);
        let limiter = Limiter::builder().quota(Quota::per_calendar_day(5)).clock(clock).build().unwrap();
        limiter.wait(5).await.unwrap();
        let began = Instant::now();
        let (waited, ()) = tokio::join!(
            async {
                limiter.wait(2).await.unwrap();
                began.elapsed().as_secs()
            },
            async {
                sleep(Duration::from_secs(1)).await;
                *set.lock().unwrap() = hours;
            }
        );
        assert!((granted..granted + 2).contains(&waited), "set by {hours} h: {waited} s");
        assert_eq!(limiter.available(), 3);
    }
}

/// By default the wall clock is the system's, and moves with the paused clock.
#[tokio::test(start_paused = true)]
async fn paused_time_moves_the_wall_clock() {
    let limiter = Limiter::new(Quota::per_calendar_hour(5)).unwrap();
    for _ in 0..5 {
        limiter.wait(5).await.unwrap();
    }
    let began = Instant::now();
    limiter.wait(1).await.unwrap();
    assert!(began.elapsed() > HOUR - Duration::from_secs(1), "it is granted in the next hour");
    assert_eq!(limiter.available(), 4);
}

/// A clock whose wall time panics: calls go on, and once it shows the time, so do the periods.
#[test]
fn a_wall_clock_that_panics_holds_back_periods_only() {
    #[derive(Debug)]
    struct Broken(tollgate::ManualClock, &'static Mutex<bool>);
    impl Clock for Broken {
        fn now(&self) -> Duration {
            self.0.now()
        }
        fn is_manual(&self) -> bool {
            true
        }
        fn wall(&self) -> SystemTime {
            if *self.1.lock().unwrap() { std::panic::resume_unwind(Box::new(())) } else { self.0.wall() }
        }
    }
    let (manual, broken): (_, &'static Mutex<bool>) =
        (tollgate::ManualClock::new(), Box::leak(Box::new(Mutex::new(true))));
    let clock = Broken(manual.clone(), broken);
    let limiter = Limiter::builder().quota(Quota::per_calendar_hour(5)).clock(clock).build().unwrap();
    drop(limiter.try_acquire(5).unwrap());
    manual.advance(2 * HOUR);
    assert!(limiter.try_acquire(1).is_err());
    *broken.lock().unwrap() = false;
    assert_eq!(limiter.available(), 0, "the period that goes on is the first one");
    manual.advance(HOUR);
    assert_eq!(limiter.available(), 5);
}

/// Each case: another reading of the clock panics while a quota is replaced by one with a calendar.
#[test]
fn a_clock_that_panics_during_a_change_leaves_no_half_of_it() {
    for call in 1..5 {
        let left: &'static AtomicU64 = Box::leak(Box::default());
        let read = move || match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
            Ok(1) => resume_unwind(Box::new(())),
            _ => Duration::ZERO,
        };
        let limiter = Limiter::builder().quota(Quota::per_hour(5)).clock(ClockFn::manual(read)).build().unwrap();
        left.store(call, SeqCst);
        let changed = catch_unwind(AssertUnwindSafe(|| limiter.set_quota(0, Quota::per_calendar_hour(7)).unwrap()));
        left.store(0, SeqCst);
        let quota = limiter.snapshot().quotas[0].quota;
        assert_eq!(quota == Quota::per_hour(5), changed.is_err(), "reading {call} panics");
    }
}

#[test]
fn a_restart_continues_the_period() {
    use tollgate::{KeyedLimiter, ManualClock, state::KeyedState, state::LimiterState};
    let quota = Quota::per_calendar_day(10).in_time_zone("Europe/Berlin").unwrap();
    let clock_at = |wall| {
        let clock = ManualClock::new();
        clock.set_wall(wall);
        clock
    };
    let saved_at = at("2026-05-01T20:00:00Z");
    let clock = clock_at(saved_at);
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let keyed = KeyedLimiter::<u8>::builder().quota(quota).clock(clock).build().unwrap();
    drop((limiter.try_acquire(8).unwrap(), keyed.try_acquire(&1, 8).unwrap()));
    let state = serde_json::to_string(&limiter.state_at(saved_at).unwrap()).unwrap();
    let keys = serde_json::to_string(&keyed.state_at(saved_at)).unwrap();
    // Midnight in Berlin is at 22:00 UTC. Each row: restored after so many minutes, so many tokens are there, and so many
    // after another hour.
    for (minutes, tokens, later) in [(0, 2, 2), (61, 2, 10), (119, 2, 10), (120, 10, 10), (3_000, 10, 10)] {
        let wall = saved_at + Duration::from_secs(60 * minutes);
        let (limiter, keyed): (LimiterState, KeyedState<u8>) =
            (serde_json::from_str(&state).unwrap(), serde_json::from_str(&keys).unwrap());
        let clock = clock_at(wall);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).restore(limiter, wall).build().unwrap();
        let keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).restore(keyed, wall).build().unwrap();
        assert_eq!((limiter.available(), keyed.available(&1)), (tokens, tokens), "after {minutes} minutes");
        clock.advance(HOUR);
        assert_eq!((limiter.available(), keyed.available(&1)), (later, later), "an hour after {minutes} minutes");
    }
}

/// The clock was set back by two hours, and the process is started anew again and again.
#[test]
fn a_restart_begins_no_period() {
    use tollgate::{KeyedLimiter, ManualClock};
    let quota = Quota::per_calendar_hour(10);
    let clock = ManualClock::new();
    clock.set_wall(at("2026-05-01T20:30:00Z"));
    let mut limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let mut keyed = KeyedLimiter::<u8>::builder().quota(quota).clock(clock.clone()).build().unwrap();
    drop((limiter.try_acquire(10).unwrap(), keyed.try_acquire(&1, 10).unwrap()));
    clock.set_wall(at("2026-05-01T18:30:00Z"));
    clock.advance(HOUR / 60);
    drop((limiter.try_acquire(10).unwrap(), keyed.try_acquire(&1, 10).unwrap()));
    for _ in 0..3 {
        let wall = clock.wall();
        let (state, keys) = (limiter.state_at(wall).unwrap(), keyed.state_at(wall));
        limiter = Limiter::builder().quota(quota).clock(clock.clone()).restore(state, wall).build().unwrap();
        keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).restore(keys, wall).build().unwrap();
        assert_eq!((limiter.available(), keyed.available(&1)), (0, 0));
    }
    clock.advance(5 * HOUR / 2);
    assert_eq!((limiter.available(), keyed.available(&1)), (10, 10));
}

/// The clock is set back over the beginning of the period while the process is started anew.
#[test]
fn a_period_that_had_begun_before_a_restart_does_not_begin_again() {
    use tollgate::{KeyedLimiter, ManualClock};
    let (quota, clock) = (Quota::per_calendar_hour(10), ManualClock::new());
    clock.set_wall(at("2026-05-01T20:00:10Z"));
    let mut keyed = KeyedLimiter::<u8>::builder().quota(quota).clock(clock.clone()).build().unwrap();
    drop(keyed.try_acquire(&1, 10).unwrap());
    for _ in 0..2 {
        let state = keyed.state_at(clock.wall());
        clock.set_wall(at("2026-05-01T19:59:00Z"));
        keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).restore(state, clock.wall()).build().unwrap();
        clock.advance(HOUR / 60);
        assert_eq!(keyed.available(&1), 0);
    }
    clock.advance(HOUR);
    assert_eq!(keyed.available(&1), 10);
}
