//! Entering and being granted: the order, no overtaking, every size of cost, the ceiling, closing.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_test::{assert_ready, assert_ready_err};
use tollgate::{Bound, Clock, ConsumeError, TryAcquireError};

fn denial(limiter: &Limiter, cost: u64) -> (Bound, u64) {
    match limiter.try_acquire(cost) {
        Err(TryAcquireError::Denied(denied)) => (denied.by, denied.remaining),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_order_is_that_of_the_first_polls_not_that_of_the_calls() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut late = spawn(fixture.limiter.consume(1));
    let mut first = fixture.enter(1);
    let mut second = fixture.enter(1);
    assert_pending!(late.poll());
    for waiting in [&mut first, &mut second, &mut late] {
        fixture.pass(MILLI);
        let _grant = served(waiting);
    }
}

#[test]
fn each_passes_in_the_nanosecond_in_which_its_last_token_is_minted() {
    let fixture = Fixture::new(one_per_milli(5));
    let costs = [3, 1, 4, 2];
    let mut waiters = costs.map(|cost| fixture.enter(cost));
    for (waiting, cost) in waiters.iter_mut().zip(costs) {
        fixture.pass(MILLI * cost as u32 - NANO);
        waits(waiting);
        fixture.pass(NANO);
        assert_eq!(served(waiting).cost(), cost);
    }
    assert_eq!(fixture.limiter.available(), 0);
}

#[test]
fn a_late_tick_serves_all_due_claims_and_no_others() {
    let fixture = Fixture::new(one_per_milli(2));
    let mut waiters: Vec<_> = (0..6).map(|_| fixture.enter(1)).collect();
    fixture.pass(4 * MILLI);
    for waiting in &mut waiters[..4] {
        let _grant = served(waiting);
    }
    for waiting in &mut waiters[4..] {
        waits(waiting);
    }
}

#[test]
fn small_claims_wait_behind_a_large_one_though_their_tokens_are_available() {
    let fixture = Fixture::new(one_per_milli(10));
    let mut large = fixture.enter(10);
    fixture.pass(9 * MILLI);
    let mut small = fixture.enter(1);
    waits(&mut large);
    fixture.pass(MILLI);
    let _grant = served(&mut large);
    waits(&mut small);
    fixture.pass(MILLI);
    let _grant = served(&mut small);
}

#[test]
fn try_acquire_never_overtakes_a_waiter_though_tokens_are_available() {
    let fixture = Fixture::new(one_per_milli(10));
    let mut large = fixture.enter(10);
    fixture.pass(9 * MILLI);
    for cost in [1, 9, 10] {
        assert_eq!(denial(&fixture.limiter, cost), (Bound::Queue, 0));
    }
    fixture.pass(MILLI);
    let _grant = served(&mut large);
    assert_eq!(denial(&fixture.limiter, 1), (Bound::Quota(0), 0));
    fixture.pass(MILLI);
    assert!(fixture.limiter.try_acquire(1).is_ok(), "no claim waits any more");
}

#[test]
fn an_unread_grant_delays_no_claim() {
    let fixture = Fixture::new(one_per_milli(10));
    let mut waiting = fixture.enter(2);
    fixture.pass(5 * MILLI);
    assert_eq!(fixture.limiter.available(), 3);
    let _theirs = fixture.limiter.try_acquire(3).unwrap();
    let _grant = served(&mut waiting);
}

#[test]
fn cost_zero_never_waits_in_a_queue() {
    let fixture = Fixture::new(one_per_milli(10));
    let _front = fixture.enter(10);
    let before = fixture.limiter.snapshot();
    assert_eq!(fixture.take(0).cost(), 0);
    assert_eq!(fixture.limiter.try_acquire(0).unwrap().cost(), 0);
    assert_eq!(fixture.limiter.snapshot(), before);
}

#[test]
fn a_cost_of_the_whole_burst_passes_at_once_if_the_bucket_is_full_and_else_when_it_is() {
    let fixture = Fixture::new(one_per_milli(7).initial(7));
    let _first = fixture.take(7);
    let mut second = fixture.enter(7);
    fixture.pass(7 * MILLI - NANO);
    waits(&mut second);
    fixture.pass(NANO);
    let _grant = served(&mut second);
}

#[test]
fn a_cost_above_the_burst_waits_as_long_as_minting_takes_and_leaves_no_tokens() {
    let fixture = Fixture::new(one_per_milli(3).initial(3));
    let mut giant = fixture.enter(1_000);
    let mut next = fixture.enter(1);
    fixture.pass(997 * MILLI - NANO);
    waits(&mut giant);
    fixture.pass(NANO);
    let _grant = served(&mut giant);
    waits(&mut next);
    fixture.pass(MILLI);
    let _grant = served(&mut next);
}

#[test]
fn a_giant_is_not_starved_by_any_number_of_small_ones_behind_it() {
    let fixture = Fixture::new(one_per_milli(3));
    let mut giant = fixture.enter(50);
    let _waiters: Vec<_> = (0..100).map(|_| fixture.enter(1)).collect();
    fixture.pass(50 * MILLI);
    let _grant = served(&mut giant);
}

#[test]
fn an_impossible_cost_is_refused_and_takes_no_place() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100)).max_in_flight(10));
    for cost in [11, 1 << 48, u64::MAX] {
        let error = assert_ready_err!(spawn(fixture.limiter.consume(cost)).poll());
        assert_eq!(error, ConsumeError::TooLarge { cost, most: 10, by: Some(Bound::InFlight), quota_name: None });
    }
    assert_eq!(fixture.limiter.snapshot().waiting_tasks, 0);
    let mut most = fixture.enter(10);
    fixture.pass(10 * MILLI);
    let _grant = served(&mut most);
}

#[test]
fn one_claim_of_two_to_the_48_may_wait_and_one_more_token_may_not() {
    let most = 1 << 48;
    let fixture = Fixture::new(one_per_milli(1));
    let _waiting = fixture.enter(most);
    let error = assert_ready_err!(spawn(fixture.limiter.consume(most + 1)).poll());
    assert_eq!(error, ConsumeError::TooLarge { cost: most + 1, most, by: None, quota_name: None });
}

#[test]
fn a_full_queue_refuses_claims_until_one_is_granted_or_cancelled() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5)).max_waiting(2));
    let full = |fixture: &Fixture| match spawn(fixture.limiter.consume(1)).poll() {
        std::task::Poll::Ready(answer) => assert_eq!(answer.unwrap_err(), ConsumeError::QueueFull { waiting: 2 }),
        std::task::Poll::Pending => panic!("the queue should be full"),
    };
    let mut first = fixture.enter(1);
    let second = fixture.enter(1);
    full(&fixture);
    fixture.pass(MILLI);
    let third = fixture.enter(1);
    full(&fixture);
    drop(second);
    let _fourth = fixture.enter(1);
    full(&fixture);
    let _grant = served(&mut first);
    drop(third);
}

// ---- the ceiling ----------------------------------------------------------------------------------------------------

#[test]
fn a_release_wakes_as_many_as_fit_below_the_ceiling_in_their_order() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(4));
    let large = fixture.take(3);
    let small = fixture.take(1);
    let mut waiters = [2, 1, 2].map(|cost| fixture.enter(cost));
    drop(small);
    waits(&mut waiters[0]);
    drop(large);
    let [first, second] = [served(&mut waiters[0]), served(&mut waiters[1])];
    waits(&mut waiters[2]);
    drop(second);
    let _grant = served(&mut waiters[2]);
    drop(first);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(2));
}

#[test]
fn a_manual_release_wakes_the_next() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(4));
    fixture.take(4).forget();
    let mut next = fixture.enter(2);
    fixture.limiter.release(1).unwrap();
    waits(&mut next);
    fixture.limiter.release(1).unwrap();
    let _grant = served(&mut next);
}

#[test]
fn a_grant_dropped_by_a_panic_wakes_the_next() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(1));
    let grant = fixture.take(1);
    let mut next = fixture.enter(1);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = grant;
        // Not `panic!`: the panic is intended, and its message would only clutter the output.
        std::panic::resume_unwind(Box::new("the work failed"));
    }));
    assert!(died.is_err());
    let _grant = served(&mut next);
}

#[test]
fn below_the_ceiling_the_rate_decides_and_below_the_rate_the_ceiling() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5)).max_in_flight(2));
    let mut waiters: Vec<_> = (0..5).map(|_| fixture.enter(1)).collect();
    fixture.pass(MILLI);
    let first = served(&mut waiters[0]);
    fixture.pass(MILLI);
    let second = served(&mut waiters[1]);
    fixture.pass(MILLI);
    waits(&mut waiters[2]);
    drop(first);
    let third = served(&mut waiters[2]);
    drop(second);
    waits(&mut waiters[3]);
    fixture.pass(MILLI);
    let _fourth = served(&mut waiters[3]);
    drop(third);
    waits(&mut waiters[4]);
}

/// A clock that stands still and counts its readings.
#[derive(Clone, Debug, Default)]
struct Read(Arc<AtomicU64>);

impl Clock for Read {
    fn now(&self) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// Its own refund counts from the reading that it makes afterwards. Only a refund by another thread meanwhile needs
/// another reading.
#[test]
fn a_release_to_waiters_reads_the_clock_once() {
    let clock = Read::default();
    let builder = Limiter::builder().quota(Quota::manual(100)).max_in_flight(8).clock(clock.clone());
    let limiter = builder.build().unwrap();
    let [first, second] = [5, 3].map(|cost| limiter.try_acquire(cost).unwrap());
    let mut waiters = [5, 3].map(|cost| spawn(limiter.consume(cost)));
    waiters.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    for (held, claim) in [first, second].into_iter().zip(&mut waiters) {
        let before = clock.0.load(Ordering::Relaxed);
        drop(held);
        assert_eq!(clock.0.load(Ordering::Relaxed) - before, 1);
        served(claim).forget();
    }
}

// ---- closing
// ---------------------------------------------------------------------------------------------------------

#[test]
fn close_refuses_all_waiters_and_all_later_claims() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut waiters = [3, 1, 9].map(|cost| fixture.enter(cost));
    let mut not_polled = spawn(fixture.limiter.consume(1));
    fixture.limiter.close();
    for waiting in &mut waiters {
        assert!(waiting.is_woken());
        assert_eq!(assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    }
    assert_eq!(assert_ready_err!(not_polled.poll()), ConsumeError::Closed);
    assert_eq!(fixture.limiter.try_acquire(1).unwrap_err(), TryAcquireError::Closed);
    assert_eq!(fixture.limiter.snapshot().waiting_tasks, 0);
}

#[test]
fn a_claim_granted_before_the_close_keeps_its_grant() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut due = fixture.enter(1);
    let mut not_due = fixture.enter(1);
    // No tick: claims that fell due before the close are granted before it.
    fixture.clock.advance(MILLI);
    fixture.limiter.close();
    assert_eq!(assert_ready!(due.poll()).unwrap().cost(), 1);
    assert_eq!(assert_ready_err!(not_due.poll()), ConsumeError::Closed);
}

#[test]
fn a_closed_queue_can_be_left_in_any_state() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5)).max_in_flight(5));
    let granted = fixture.enter(1);
    let turned_away = fixture.enter(1);
    fixture.pass(MILLI);
    fixture.limiter.close();
    drop(turned_away);
    drop(granted);
    let after = fixture.limiter.snapshot();
    assert_eq!((after.waiting_tasks, after.waiting_tokens, after.in_flight), (0, 0, Some(0)));
}
