//! Refusals: they are typed, name the limiter, and take nothing.

use super::{MS, costs, done, empty, full, limiter, on_a_clock, pass, spent};
use crate::fixture::*;
use std::error::Error;

fn refusal<const N: usize>(claims: [(&Limiter, u64); N]) -> JoinError {
    done(&mut spawn(join(claims))).unwrap_err()
}

fn by(limiter: usize, error: ConsumeError) -> JoinError {
    JoinError::Refused { limiter, error }
}

fn denied<const N: usize>(claims: [(&Limiter, u64); N]) -> (usize, Denied) {
    match try_join(claims) {
        Err(JoinError::Refused { limiter, error: TryAcquireError::Denied(denied) }) => (limiter, denied),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_limiter_twice_is_an_error_that_says_what_to_do() {
    let (_clock, [a, b]) = on_a_clock([full(5), full(5)]);
    let twin = a.clone();
    let error = refusal([(&a, 1), (&b, 1), (&twin, 1)]);
    assert_eq!(error, JoinError::Repeated { limiter: 2 });
    assert_eq!(
        error.to_string(),
        "limiter 2 of the joint claim is in it twice, or its parent is: name each once, for the sum of its costs"
    );
    assert!(matches!(try_join([(&a, 1), (&twin, 1)]), Err(JoinError::Repeated { limiter: 1 })));
    assert_eq!((a.available(), b.available()), (5, 5));
}

#[test]
fn a_full_queue_is_named() {
    let (clock, [a]) = on_a_clock([empty(5)]);
    let b = Limiter::builder().quota(Quota::manual(5).initial(0)).max_waiting(1).clock(clock.clone()).build().unwrap();
    let _ahead = pending(b.consume(1));
    assert_eq!(refusal([(&a, 1), (&b, 1)]), by(1, ConsumeError::QueueFull { waiting: 1 }));
    assert_eq!(refusal([(&b, 1), (&a, 1)]), by(0, ConsumeError::QueueFull { waiting: 1 }));
    assert_eq!(a.snapshot().waiting_tasks, 0);
}

#[test]
fn a_joint_claim_counts_in_a_bounded_queue_until_it_leaves() {
    let (clock, [a]) = on_a_clock([empty(5)]);
    let b = Limiter::builder().quota(Quota::manual(5).initial(0)).max_waiting(1).clock(clock.clone()).build().unwrap();
    let ahead = pending(join([(&a, 1), (&b, 1)]));
    assert_eq!(done(&mut spawn(b.consume(1))).unwrap_err(), ConsumeError::QueueFull { waiting: 1 });
    drop(ahead);
    assert_pending!(spawn(b.consume(1)).poll());
}

#[test]
fn a_member_of_cost_zero_is_not_refused_by_a_full_queue() {
    let (clock, [a]) = on_a_clock([empty(5)]);
    let nobody_waits =
        Limiter::builder().quota(Quota::manual(5).initial(0)).max_waiting(0).clock(clock.clone()).build().unwrap();
    let mut claim = pending(join([(&a, 1), (&nobody_waits, 0)]));
    pass(1, &clock, &[&a]);
    assert_eq!(costs(&mut claim), [1, 0]);
}

#[test]
fn a_cost_that_can_never_be_granted_is_named() {
    let (clock, [a]) = on_a_clock([full(5)]);
    let b = Limiter::builder().quota(Quota::per_second(9)).max_in_flight(4).clock(clock.clone()).build().unwrap();
    assert_eq!(refusal([(&a, 1), (&b, 5)]), by(1, too_large(5, 4, Bound::InFlight)));
    let beyond = (1 << 48) + 1;
    assert_eq!(refusal([(&a, beyond), (&b, 4)]), by(0, too_large(beyond, 1 << 48, None)));
    let too_large = TryAcquireError::TooLarge { cost: 6, most: 5, by: Bound::Quota(0), quota_name: None };
    assert_eq!(try_join([(&b, 1), (&a, 6)]).unwrap_err(), JoinError::Refused { limiter: 1, error: too_large });
    assert_eq!((a.available(), b.available()), (5, 4));
}

#[test]
fn without_a_runtime_the_limiter_that_would_have_to_wait_is_named() {
    let (_clock, [by_hand]) = on_a_clock([empty(5)]);
    let by_tokio = Limiter::new(Quota::per_second(1).initial(0)).unwrap();
    assert_eq!(refusal([(&by_hand, 1), (&by_tokio, 1)]), by(1, ConsumeError::NoRuntime));
    assert_eq!(by_hand.snapshot().waiting_tasks, 0);
    let full = Limiter::new(Quota::per_hour(1)).unwrap();
    assert_eq!(costs(&mut spawn(join([(&full, 1)]))), [1], "a claim that need not wait needs no runtime");
}

#[test]
fn errors_name_the_limiter_in_their_text_and_have_a_source() {
    let (_clock, [a, b]) = on_a_clock([full(5), full(5)]);
    b.close();
    let error = refusal([(&a, 1), (&b, 1)]);
    let source = ConsumeError::Closed.to_string();
    assert_eq!(error.to_string(), format!("limiter 1 of the joint claim: {source}"));
    assert_eq!(error.source().unwrap().to_string(), source);
    let error = try_join([(&a, 1), (&b, 1)]).unwrap_err();
    assert!(error.source().unwrap().downcast_ref::<TryAcquireError>().is_some());
}

#[test]
fn of_two_that_refuse_alike_the_first_in_the_array_is_named() {
    let clock = ManualClock::new();
    let [a, b] = [0, 0].map(|initial| limiter(&clock, Quota::manual(5).initial(initial)));
    for claims in [[(&a, 1), (&b, 1)], [(&b, 1), (&a, 1)]] {
        assert_eq!(denied(claims).0, 0, "no clock can tell when either has tokens");
    }
    a.close();
    b.close();
    for claims in [[(&a, 1), (&b, 1)], [(&b, 1), (&a, 1)]] {
        assert_eq!(refusal(claims), by(0, ConsumeError::Closed));
    }
}

#[test]
fn try_join_takes_all_or_nothing() {
    let (clock, [a, b]) = on_a_clock([full(5), full(5)]);
    assert_eq!(try_join([(&a, 5), (&b, 4), (&limiter(&clock, Quota::manual(1)), 0)]).unwrap()[1].cost(), 4);
    clock.advance(2 * MS);
    let (limiter, refused) = denied([(&b, 1), (&a, 3)]);
    assert_eq!((limiter, refused.by, refused.remaining), (1, Bound::Quota(0), 2));
    assert_eq!(refused.retry_after, Some(MS));
    assert_eq!((a.available(), b.available()), (2, 3));
    clock.advance(MS);
    assert!(try_join([(&b, 1), (&a, 3)]).is_ok(), "after exactly that long it is granted");
}

#[test]
fn try_join_names_the_longest_wait() {
    let (clock, [second]) = on_a_clock([Quota::per_second(1).initial(0).into()]);
    let hour = limiter(&clock, Quota::per_hour(1).initial(0));
    let by_hand = limiter(&clock, Quota::manual(1).initial(0));
    let shut = limiter(&clock, full(1));
    shut.close();
    let (limiter, refused) = denied([(&second, 1), (&hour, 1)]);
    assert_eq!((limiter, refused.retry_after), (1, Some(Duration::from_secs(3_600))));
    assert_eq!(denied([(&hour, 1), (&second, 1)]).0, 0);
    let (limiter, refused) = denied([(&hour, 1), (&by_hand, 1), (&second, 1)]);
    assert_eq!((limiter, refused.retry_after), (1, None));
    let ended = try_join([(&by_hand, 1), (&hour, 1), (&shut, 1)]).unwrap_err();
    assert_eq!(ended, JoinError::Refused { limiter: 2, error: TryAcquireError::Closed });
    let refused: u64 = [&second, &hour, &by_hand].iter().map(|limiter| spent(limiter)).sum();
    assert_eq!(refused, 0);
}

#[test]
fn try_join_never_overtakes_waiters() {
    let (_clock, [a, b, c]) = on_a_clock([full(5), empty(5), full(5)]);
    let _held = pending(join([(&a, 1), (&b, 1)]));
    let (limiter, refused) = denied([(&a, 1)]);
    assert_eq!((limiter, refused.by, refused.retry_after, refused.remaining), (0, Bound::Queue, None, 0));
    assert_eq!(denied([(&c, 1), (&a, 1)]).0, 1);
    assert_eq!(c.available(), 5);
}

#[test]
fn no_wait_is_estimated_while_a_joint_claim_waits() {
    let (clock, [a, b]) = on_a_clock([empty(5), Quota::manual(5).initial(0).into()]);
    let plain = pending(a.consume(1));
    assert_eq!(a.estimate(1), Some(2 * MS));
    let joint = pending(join([(&b, 1), (&a, 1)]));
    assert_eq!(a.estimate(1), None);
    assert_eq!(denied([(&a, 1)]).1.retry_after, None);
    let with_deadline = pending(a.consume(1).within(MS)); // no schedule says that it would be too late
    drop((with_deadline, joint));
    assert_eq!(a.estimate(1), Some(2 * MS));
    pass(1, &clock, &[&a]);
    assert!(plain.is_woken());
}

#[test]
fn refusals_are_counted_where_they_happened() {
    let (_clock, [a, b]) = on_a_clock([full(5), empty(5)]);
    assert!(try_join([(&a, 1), (&b, 1)]).is_err());
    assert_eq!((a.snapshot().refused, b.snapshot().refused), (0, 0), "denials of try_join are not counted");
    b.close();
    refusal([(&a, 1), (&b, 1)]);
    assert_eq!((a.snapshot().refused, b.snapshot().refused), (0, 1));
}

#[test]
fn within_refuses_at_once_what_one_schedule_says_is_too_late() {
    let (clock, [a, b]) = on_a_clock([full(5), empty(5)]);
    let error = done(&mut spawn(join([(&a, 1), (&b, 3)]).within(2 * MS))).unwrap_err();
    assert_eq!(error, by(1, too_late(3 * MS, 2 * MS)));
    assert_eq!((a.available(), a.snapshot().waiting_tasks, b.snapshot().waiting_tasks), (5, 0, 0));
    let mut claim = pending(join([(&a, 1), (&b, 3)]).within(3 * MS));
    pass(3, &clock, &[&a, &b]);
    assert_eq!(costs(&mut claim), [1, 3]);
}

#[test]
fn within_ends_a_joint_claim_at_its_time_and_names_the_limiter_that_was_not_ready() {
    let (clock, [a]) = on_a_clock([full(5)]);
    let capped = Limiter::builder().quota(Quota::per_second(9)).max_in_flight(4).clock(clock.clone()).build().unwrap();
    let held = capped.try_acquire(4).unwrap();
    let mut claim = pending(join([(&a, 1), (&capped, 1)]).within(5 * MS));
    pass(4, &clock, &[&a, &capped]);
    assert_pending!(claim.poll());
    pass(1, &clock, &[&a, &capped]);
    let error = done(&mut claim).unwrap_err();
    assert_eq!(error, by(1, ConsumeError::TimedOut { waited: 5 * MS, by: Bound::InFlight, quota_name: None }));
    drop(held);
    assert_eq!((a.available(), capped.available()), (5, 4));
    assert_eq!((a.snapshot().waiting_tasks, capped.snapshot().waiting_tasks), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_joint_claim_times_out_by_its_own_timer() {
    let a = Limiter::new(Quota::per_second(1_000)).unwrap();
    let b = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap();
    let _held = b.consume(1).await.unwrap();
    let start = tokio::time::Instant::now();
    let error = join([(&a, 1), (&b, 1)]).within(20 * MS).await.unwrap_err();
    assert_eq!(error, by(1, ConsumeError::TimedOut { waited: 20 * MS, by: Bound::InFlight, quota_name: None }));
    assert_eq!(start.elapsed(), 20 * MS);
}
