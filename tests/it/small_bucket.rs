//! Seed 001, the 120-line bucket: its five tests, made exact by a manual clock, and the edge cases that its authors ran
//! into.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Limiter, ManualClock, Quota};

const NANO: Duration = Duration::from_nanos(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn limiter(quota: Quota) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

fn takes(limiter: &Limiter, tokens: u64) -> bool {
    limiter.try_acquire(tokens).is_ok()
}

fn drain(limiter: &Limiter) {
    assert!(limiter.available() == 0 || takes(limiter, limiter.available()));
    assert_eq!(limiter.available(), 0);
}

// ---- rate enforcement -----------------------------------------------------------------------------------------------

#[test]
fn at_twice_the_rate_exactly_half_is_denied() {
    let (limiter, clock) = limiter(Quota::per_second(100).burst(1).initial(0));
    let mut granted = 0;
    for request in 1..=2_000 {
        clock.advance(ms(5));
        let taken = takes(&limiter, 1);
        assert_eq!(taken, request % 2 == 0, "request {request}: every other one finds its token");
        granted += u64::from(taken);
    }
    assert_eq!(granted, 1_000);
}

#[test]
fn at_twice_the_rate_a_full_bucket_adds_its_burst_and_no_more() {
    let (limiter, clock) = limiter(Quota::per_second(100));
    let mut granted = 0;
    for request in 0..2_000_u64 {
        granted += u64::from(takes(&limiter, 1));
        // Half a token comes for each one taken: the burst lasts for twice as many requests.
        assert_eq!(granted, (request + 1).min(100 + request / 2), "after request {request}");
        clock.advance(ms(5));
    }
}

#[test]
fn at_any_multiple_of_the_rate_the_rate_is_granted() {
    for every in [1, 3, 7, 9, 11, 19] {
        let (limiter, clock) = limiter(Quota::per_second(50).burst(2).initial(0));
        let mut granted = 0;
        let requests = 60_000 / every;
        for _ in 0..requests {
            clock.advance(ms(every));
            granted += u64::from(takes(&limiter, 1));
        }
        // A token each 20 ms. Requests are closer together than that, so the bucket is never full.
        assert_eq!(granted, requests * every / 20, "a request each {every} ms");
    }
}

// ---- burst capacity -------------------------------------------------------------------------------------------------

#[test]
fn a_fresh_bucket_allows_its_capacity_back_to_back_and_then_one_less() {
    for capacity in [1, 2, 5, 63, 64, 65, 1_000, 4_096] {
        let (limiter, _clock) = limiter(Quota::per_second(1).burst(capacity));
        assert!((0..capacity).all(|_| takes(&limiter, 1)), "capacity {capacity}");
        assert!(!takes(&limiter, 1), "one more than {capacity}");
    }
}

#[test]
fn a_bucket_that_starts_empty_grants_nothing_in_its_first_moment() {
    let (limiter, clock) = limiter(Quota::per_second(100).initial(0));
    assert!((0..1_000).all(|_| !takes(&limiter, 1)));
    clock.advance(ms(10) - NANO);
    assert!(!takes(&limiter, 1));
    clock.advance(NANO);
    assert!(takes(&limiter, 1) && !takes(&limiter, 1));
    clock.advance(secs(3_600));
    assert_eq!(limiter.available(), 100, "from then on it fills like any other bucket");
}

// ---- refill correctness ---------------------------------------------------------------------------------------------

#[test]
fn after_n_over_rate_exactly_n_tokens_are_there() {
    for rate in [1_u64, 3, 7, 10, 64, 999, 1_000_000] {
        for tokens in [1_u64, 2, 3, 10, 50, 100] {
            let (limiter, clock) = limiter(Quota::per_second(rate).burst(100));
            drain(&limiter);
            // Rounded up to the nanosecond: one nanosecond less is too early.
            let wait = Duration::from_nanos((tokens * 1_000_000_000).div_ceil(rate));
            clock.advance(wait - NANO);
            assert_eq!(limiter.available(), tokens - 1, "{tokens} at {rate}/s");
            clock.advance(NANO);
            assert_eq!(limiter.available(), tokens, "{tokens} at {rate}/s");
            assert!(takes(&limiter, tokens) && !takes(&limiter, 1));
        }
    }
}

#[test]
fn a_token_a_minute_polled_each_100_ms_comes_to_the_minute() {
    // An implementation that rounds the elapsed time down to whole tokens at each call would never refill this bucket.
    let (limiter, clock) = limiter(Quota::new(1, secs(60)).initial(0));
    for tick in 1..=36_000 {
        clock.advance(ms(100));
        assert_eq!(takes(&limiter, 1), tick % 600 == 0, "at tick {tick}");
    }
}

#[test]
fn fractions_of_any_rate_are_never_lost() {
    for (amount, period, poll) in [
        (7, secs(60), ms(100)),
        (1, secs(86_400), secs(61)),
        (3, Duration::from_nanos(10), NANO),
        (1_000_003, secs(1), Duration::from_nanos(77)),
        (1_000_000_000, secs(1), NANO),
    ] {
        let (limiter, clock) = limiter(Quota::new(amount, period).burst(1_000_000).initial(0));
        let mut granted = 0;
        for polls in 1..=20_000_u128 {
            clock.advance(poll);
            granted += u128::from(limiter.available());
            drain(&limiter);
            let due = polls * poll.as_nanos() * u128::from(amount) / period.as_nanos();
            assert_eq!(granted, due, "{amount} per {period:?}, after {polls} polls of {poll:?}");
        }
    }
}

// ---- concurrent access ----------------------------------------------------------------------------------------------

const THREADS: usize = 100;
const CALLS: usize = 10_000;

/// The results of one thread's calls.
#[derive(Clone, Copy, Default)]
struct Seen {
    granted: u64,
    /// Grants between which another thread was granted a token.
    met: u64,
}

/// Many threads, each with many calls. After each call, `between` gets the number of the call.
fn hammer(limiter: &Limiter, between: impl Fn(usize) + Sync) -> Vec<Seen> {
    let start = Barrier::new(THREADS);
    let caller = || {
        start.wait();
        let (mut seen, mut left) = (Seen::default(), None);
        for call in 0..CALLS {
            if let Ok(grant) = limiter.try_acquire(1) {
                let remaining = grant.remaining();
                seen.granted += 1;
                seen.met += u64::from(left.is_some_and(|left| remaining + 1 < left));
                left = Some(remaining);
            }
            between(call);
        }
        seen
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    })
}

fn a_hundred_threads_get_what_there_is(stride: Option<u64>) {
    const THERE: u64 = 500_000;
    // On a busy machine a thread can finish its calls before the next one begins: repeat until they contend.
    for _ in 0..50 {
        let builder = Limiter::builder().quota(Quota::per_second(1).burst(THERE)).clock(ManualClock::new());
        let limiter = stride.into_iter().fold(builder, |builder, stride| builder.stride(stride)).build().unwrap();
        let seen = hammer(&limiter, |_| {});
        assert_eq!(seen.iter().map(|seen| seen.granted).sum::<u64>(), THERE, "not within 1 %");
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.granted, snapshot.refused), (THERE, 0), "denials of try_acquire are not counted");
        if seen.iter().any(|seen| seen.met > 0) {
            return;
        }
    }
    panic!("the threads ran one after the other: there was no contention");
}

#[test]
fn a_hundred_threads_of_ten_thousand_calls_get_exactly_all_tokens() {
    a_hundred_threads_get_what_there_is(None);
}

#[test]
fn a_hundred_threads_get_exactly_all_tokens_when_most_calls_do_not_read_the_clock() {
    a_hundred_threads_get_what_there_is(Some(1_000));
}

#[test]
fn a_hundred_threads_that_move_the_clock_get_exactly_the_minted_tokens() {
    // The bucket holds all that time brings and is never full: each token must be granted or remain.
    let (limiter, clock) = limiter(Quota::new(3, Duration::from_nanos(100)).burst(1_000_000).initial(0));
    let moved_on = |call: usize| {
        if call.is_multiple_of(10) {
            clock.advance(Duration::from_nanos(97));
        }
    };
    let seen = hammer(&limiter, moved_on);
    let elapsed = (THREADS * CALLS) as u64 / 10 * 97;
    let granted = seen.iter().map(|seen| seen.granted).sum::<u64>();
    assert_eq!(granted + limiter.available(), elapsed * 3 / 100);
    assert!(granted > elapsed / 100, "most of it was there while they called");
    assert_eq!(limiter.snapshot().granted, granted);
}

// ---- clock wrap -----------------------------------------------------------------------------------------------------

/// A limiter on a clock of `nanos`, drained, 100 ms before the clock passes a critical value.
fn near(nanos: u64) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.step_back(Duration::MAX);
    clock.advance(Duration::from_nanos(nanos) - ms(100));
    let limiter = Limiter::builder().quota(Quota::per_second(10).burst(20)).clock(clock.clone()).build().unwrap();
    drain(&limiter);
    (limiter, clock)
}

#[test]
fn past_where_clocks_of_32_bits_wrap_the_refill_is_right() {
    // Milliseconds wrap after 49.7 days, microseconds after 71 minutes, nanoseconds after 4.3 seconds.
    for unit in [1, 1_000, 1_000_000] {
        let (limiter, clock) = near((u32::MAX as u64 + 1) * unit);
        clock.advance(ms(99));
        assert_eq!(limiter.available(), 0, "before it");
        clock.advance(ms(1));
        assert_eq!(limiter.available(), 1, "at it");
        clock.advance(ms(950));
        assert_eq!(limiter.available(), 10, "past it");
        assert!(takes(&limiter, 10) && !takes(&limiter, 1));
        clock.advance(ms(50));
        assert!(takes(&limiter, 1), "the fraction was carried over");
    }
}

#[test]
fn a_limiter_of_32_bits_of_age_refills_as_a_young_one() {
    for unit in [1, 1_000, 1_000_000] {
        let (limiter, clock) = limiter(Quota::per_second(10).burst(20));
        clock.advance(Duration::from_nanos((u32::MAX as u64 + 1) * unit) - ms(100));
        assert_eq!(limiter.available(), 20);
        drain(&limiter);
        clock.advance(ms(1_050));
        assert_eq!(limiter.available(), 10);
    }
}

#[test]
fn at_the_end_of_time_the_clock_stands_still_and_mints_nothing() {
    let (limiter, clock) = near(u64::MAX);
    clock.advance(ms(100));
    assert_eq!(limiter.available(), 1, "the last token ever");
    for _ in 0..1_000 {
        clock.advance(secs(1));
        assert_eq!(limiter.available(), 1);
    }
    assert!(takes(&limiter, 1) && !takes(&limiter, 20));
    assert_eq!(limiter.estimate(1), Some(ms(100)), "the usual wait, if time continued");
}

#[test]
fn a_clock_beyond_64_bits_of_nanoseconds_stands_still_there() {
    #[derive(Debug)]
    struct Far(Mutex<Duration>);

    impl Clock for Far {
        fn now(&self) -> Duration {
            let mut now = self.0.lock().unwrap();
            std::mem::replace(&mut now, Duration::MAX)
        }

        fn is_manual(&self) -> bool {
            true
        }
    }

    let clock = Far(Mutex::new(Duration::ZERO));
    let limiter = Limiter::builder().quota(Quota::per_second(10)).clock(clock).build().unwrap();
    drain_and_stay_empty(&limiter);

    let clock = Far(Mutex::new(Duration::MAX));
    let limiter = Limiter::builder().quota(Quota::per_second(10)).clock(clock).build().unwrap();
    drain_and_stay_empty(&limiter);
}

fn drain_and_stay_empty(limiter: &Limiter) {
    assert!(takes(limiter, 10));
    assert!((0..100).all(|_| !takes(limiter, 1)));
}

#[test]
fn an_older_clock_reading_of_another_thread_neither_adds_nor_loses_time() {
    let (limiter, clock) = limiter(Quota::per_second(10));
    drain(&limiter);
    clock.advance(ms(250));
    assert_eq!(limiter.available(), 2);
    clock.step_back(ms(200));
    assert_eq!(limiter.available(), 2, "a step back counts as no time");
    clock.advance(ms(200));
    assert_eq!(limiter.available(), 2, "the time is not counted twice");
    clock.advance(ms(50));
    assert_eq!(limiter.available(), 3);
}

#[test]
fn wrapping_rovers_have_no_visible_effect() {
    for before in [0, 1, 7, 100, 1_000] {
        let clock = ManualClock::new();
        let builder = Limiter::builder().quota(Quota::per_second(10).burst(20)).clock(clock.clone());
        let limiter = builder.rovers_at(u64::MAX - before).build().unwrap();
        let mut granted = 20;
        assert!(takes(&limiter, 20) && !takes(&limiter, 1), "{before} before the end");
        for step in 1..=200_u64 {
            clock.advance(ms(970));
            let there = limiter.available();
            assert!(takes(&limiter, there) && !takes(&limiter, there + 1));
            granted += there;
            assert_eq!(granted, 20 + step * 970 / 100, "{before} before the end, step {step}");
        }
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.tail, snapshot.granted), (granted, granted), "positions count from the birth");
    }
}
