//! Another quota, pauses, quotas without a burst, closing.

use super::*;

/// The speed at which the larger bucket was emptied must not cost the smaller one tokens: with so few tokens every call
/// reads the clock.
#[test]
fn set_quota_to_a_smaller_burst_is_exact_however_fast_callers_were() {
    let fixture = Fixture::new(Quota::new(1, 100 * NANO).burst(64_000));
    for _ in 0..5_000 {
        drop(fixture.limiter.try_acquire(1).unwrap());
        fixture.clock.advance(100 * NANO);
    }
    fixture.limiter.set_quota(0, Quota::new(1, MILLI).burst(63)).unwrap();
    drop(fixture.limiter.try_acquire(1).unwrap());
    fixture.clock.advance(MILLI);
    assert_eq!(fixture.limiter.available(), 63);
}

/// Otherwise every claim would take the lock, and no result would show it.
#[test]
fn the_fast_path_is_open_as_far_as_the_stride_and_shut_by_a_pause() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100).initial(100)).stride(30));
    let ahead = |limiter: &Limiter| {
        let snapshot = limiter.snapshot();
        snapshot.published.wrapping_sub(snapshot.tail)
    };
    let _grant = fixture.limiter.try_acquire(1).unwrap();
    assert_eq!(ahead(&fixture.limiter), 30);
    fixture.limiter.pause_for(MILLI);
    assert_eq!(ahead(&fixture.limiter), 0);
    fixture.pass(MILLI);
    assert_eq!(ahead(&fixture.limiter), 30);
}

/// The fast path was allowed 30 more tokens: each change takes them back, and none is lost.
#[test]
fn changes_lose_no_token_published_ahead() {
    let quota = one_per_milli(100).initial(100);
    let fixture = Fixture::built(Limiter::builder().quota(quota).max_in_flight(100).stride(30));
    let _grant = fixture.limiter.try_acquire(1).unwrap();
    for left in (0..99).rev() {
        match left % 3 {
            0 => fixture.limiter.set_quota(0, quota).unwrap(),
            1 => fixture.limiter.set_max_in_flight(100).unwrap(),
            _ => fixture.limiter.pause_for(Duration::ZERO),
        }
        fixture.limiter.try_acquire(1).unwrap().forget();
        assert_eq!((fixture.limiter.available(), fixture.level()), (left, left as i64));
    }
}

/// An operator reloads the configuration every 30 s: the minute's tokens still arrive at the end of each minute.
#[test]
fn set_quota_with_the_same_period_leaves_the_boundaries_of_a_stepped_quota_where_they_were() {
    let stepped = |amount| Quota::per_minute(amount).burst(20).stepped().initial(0);
    let fixture = Fixture::new(stepped(10));
    let mut waiting = fixture.enter(12);
    for (half_minute, level) in [(1, 0), (2, 10), (3, 10)] {
        fixture.pass(30 * SECOND);
        fixture.limiter.set_quota(0, stepped(10)).unwrap();
        assert_eq!(fixture.level(), level, "after {half_minute} half minutes");
    }
    fixture.pass(30 * SECOND - NANO);
    waits(&mut waiting);
    fixture.pass(NANO);
    assert_eq!(served(&mut waiting).remaining(), 8);
    // A new amount counts from the end of the period in which it was set.
    fixture.pass(59 * SECOND);
    fixture.limiter.set_quota(0, stepped(3)).unwrap();
    fixture.pass(SECOND);
    assert_eq!(fixture.level(), 11);
    fixture.pass(60 * SECOND);
    assert_eq!(fixture.level(), 14);
}

#[tokio::test(start_paused = true)]
async fn pause_until_an_instant_ends_at_it() {
    let limiter = Limiter::new(Quota::per_second(1_000).burst(5)).unwrap();
    let end = Instant::now() + 50 * MILLI;
    limiter.pause_until(end);
    limiter.pause_until(end - 20 * MILLI);
    limiter.pause_until(Instant::now() - MILLI);
    for expected in [0, 0, 0, 0, 0, 1, 2] {
        let _grant = limiter.consume(1).await.unwrap();
        assert_eq!(Instant::now(), end + expected * MILLI);
    }
}

#[test]
fn close_refuses_every_waiter_and_every_later_caller() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut waiters = [1, 2].map(|cost| fixture.enter(cost));
    assert!(!fixture.limiter.is_closed());
    fixture.limiter.close();
    for waiting in &mut waiters {
        assert!(waiting.is_woken());
        assert_eq!(assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    }
    for cost in [0, 1, 99] {
        assert_eq!(fixture.limiter.try_acquire(cost).unwrap_err(), TryAcquireError::Closed);
        assert_eq!(assert_ready_err!(spawn(fixture.limiter.consume(cost)).poll()), ConsumeError::Closed);
        assert_eq!(fixture.limiter.blocking_consume(cost).unwrap_err(), ConsumeError::Closed);
    }
    assert_eq!(
        (fixture.limiter.is_closed(), fixture.limiter.available(), fixture.limiter.estimate(1)),
        (true, 0, None)
    );
}

fn take_each(limiter: &Limiter, times: u64) {
    (0..times).for_each(|_| drop(limiter.try_acquire(1).unwrap()));
}

/// The clock advances by 10 ns at each reading.
#[test]
fn the_fast_path_reads_the_clock_once_in_a_64th_of_the_burst() {
    let read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&read);
    let clock = ClockFn::manual(move || Duration::from_nanos(10 * counted.fetch_add(1, Relaxed)));
    let limiter = Limiter::builder().quota(Quota::per_second(1).burst(19_200)).clock(clock).build().unwrap();
    let readings = |act: &dyn Fn()| {
        let before = read.load(Relaxed);
        act();
        read.load(Relaxed) - before
    };
    take_each(&limiter, 1_000);
    let within = || drop(assert_ready_ok!(spawn(limiter.consume(1).within(MILLI)).poll()));
    let takes: [&dyn Fn(); 2] = [&|| take_each(&limiter, 6_000), &|| (0..6_000).for_each(|_| within())];
    for (place, take) in takes.into_iter().enumerate() {
        let readings = readings(take);
        assert!(
            (15..=20).contains(&readings),
            "{place}: {readings} readings for 6,000 tokens in strides of 300 and one"
        );
    }
    // A smaller burst shortens the stride at once.
    limiter.set_quota(0, Quota::per_second(1).burst(1_280)).unwrap();
    assert_eq!(readings(&|| take_each(&limiter, 20)), 0);
    assert!(readings(&|| take_each(&limiter, 1)) > 0, "a 64th of the burst was taken");
}

/// Two fifths of the period have passed, and so have two fifths of the new one.
#[test]
fn a_stepped_quota_keeps_the_share_of_its_period_that_has_passed() {
    let fixture = Fixture::new(Quota::new(1, 10 * SECOND).stepped().initial(0));
    fixture.pass(4 * SECOND);
    fixture.limiter.set_quota(0, Quota::new(1, 20 * SECOND).stepped()).unwrap();
    fixture.pass(12 * SECOND - NANO);
    assert_eq!(fixture.limiter.available(), 0);
    fixture.pass(NANO);
    assert_eq!(fixture.limiter.available(), 1);
}
