//! `estimate`, and the full queue.

use super::*;
use tokio_test::assert_ready_err;
use tollgate::ConsumeError;

#[test]
fn estimate_is_what_a_consume_would_wait() {
    let fixture = Fixture::new(one_per_milli(9).initial(4));
    assert_eq!(fixture.limiter.estimate(0), Some(Duration::ZERO));
    assert_eq!(fixture.limiter.estimate(4), Some(Duration::ZERO));
    assert_eq!(fixture.limiter.estimate(6), Some(2 * MILLI));
    // Also above the burst, because `consume` waits for that.
    assert_eq!(fixture.limiter.estimate(50), Some(46 * MILLI));
    let _waiters = fixture.enter(10);
    assert_eq!(fixture.limiter.estimate(1), Some(7 * MILLI));
    assert_eq!(fixture.limiter.estimate(0), Some(Duration::ZERO), "cost 0 never waits in the queue");
}

#[test]
fn estimate_comes_true_to_the_nanosecond() {
    let stepped = Quota::new(4, 10 * MILLI).burst(8).stepped().initial(5);
    let fixture = Fixture::built(Limiter::builder().quota(Quota::per_second(700).burst(6).initial(1)).quota(stepped));
    fixture.limiter.pause_for(3 * MILLI);
    let _waiters = [4, 7, 1].map(|cost| fixture.enter(cost));
    let estimate = fixture.limiter.estimate(3).unwrap();
    let mut last = fixture.enter(3);
    fixture.clock.advance(estimate - NANO);
    fixture.limiter.tick();
    assert!(!last.is_woken());
    fixture.clock.advance(NANO);
    fixture.limiter.tick();
    let _grant = assert_ready_ok!(last.poll());
}

#[test]
fn estimate_leaves_the_ceiling_out() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(5)).max_in_flight(5));
    let _held = fixture.take(5);
    assert_eq!(fixture.limiter.estimate(2), Some(2 * MILLI));
}

#[test]
fn estimate_is_none_where_no_wait_can_be_known() {
    let capped = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(5));
    assert_eq!(capped.limiter.estimate(6), None, "it can never be granted");
    assert_eq!(Fixture::new(one_per_milli(9)).limiter.estimate((1 << 48) + 1), None);
    let manual = Fixture::new(Quota::manual(9).initial(2));
    assert_eq!((manual.limiter.estimate(2), manual.limiter.estimate(3)), (Some(Duration::ZERO), None));
    let closed = Fixture::new(one_per_milli(9));
    closed.limiter.close();
    assert_eq!(closed.limiter.estimate(1), None);
}

#[test]
fn queue_full_reports_the_waiters_and_does_not_stop_immediate_grants() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(2)).max_waiting(1));
    let _at_once = fixture.take(2);
    let _waiting = fixture.enter(1);
    let error = assert_ready_err!(spawn(fixture.limiter.consume(1)).poll());
    assert_eq!(error, ConsumeError::QueueFull { waiting: 1 });
    let error = assert_ready_err!(spawn(fixture.limiter.consume(1).within(MILLI)).poll());
    assert_eq!(error, ConsumeError::QueueFull { waiting: 1 }, "a full queue is reported before a late schedule");
}

#[test]
fn a_queue_of_length_zero_lets_no_claim_wait() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(2)).max_waiting(0));
    let error = assert_ready_err!(spawn(fixture.limiter.consume(3)).poll());
    assert_eq!(error, ConsumeError::QueueFull { waiting: 0 });
    let _grant = fixture.take(2);
}

#[test]
fn estimate_is_known_of_the_largest_claim_that_the_ceiling_lets_pass() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(5));
    assert_eq!((fixture.limiter.estimate(5), fixture.limiter.estimate(6)), (Some(5 * MILLI), None));
}

#[test]
fn estimate_counts_tokens_lost_while_another_quota_delays_the_queue() {
    let steps = Quota::new(10, 5 * MILLI).stepped().burst(10).initial(0);
    let fixture = Fixture::built(Limiter::builder().quota(steps).quota(one_per_milli(1)));
    let _front = fixture.enter(2);
    // Its two tokens are available after 2 ms, the step after 5 ms. Three more tokens take 3 ms from then on.
    assert_eq!(fixture.limiter.estimate(3), Some(8 * MILLI));
}
