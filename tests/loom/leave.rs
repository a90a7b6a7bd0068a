//! Leaving the queue: by cancellation, or by a timeout.

use crate::{SECOND, drain, empty, ends, explore, is_served, taken, timed, waiting};
use std::task::Poll;
use tokio_test::task;
use tollgate::{ConsumeError, Limiter, Quota};

/// A giant leaves the queue with either reading of the time, while the clock advances and another thread ticks. The
/// tokens that the tick minted for the giant are enough for the claim behind it, which is served when the giant leaves.
///
/// Plant `queue_is_served_up_to_an_old_sample`: the queue is served up to the time of the sample, not up to the latest
/// one.
#[test]
fn cancel_with_an_old_sample_against_a_tick() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).initial(0)));
        let (giant, mut behind) = (waiting(&limiter, 2), waiting(&limiter, 1));
        let cancel = race.actor(move || drop(giant));
        let tick = race.on(&limiter, move |limiter| {
            clock.advance(SECOND);
            limiter.tick();
        });
        ends(cancel, tick);
        assert!(is_served(&mut behind), "its token is available");
        assert_eq!(limiter.available(), 0);
    });
}

/// A waiter is dropped while its token is added: it refunds the grant that it never saw.
///
/// Plant `cancel_looks_for_a_grant_before_it_leaves`: the check for a grant comes before the claim leaves.
#[test]
fn cancel_against_grant() {
    explore(|race| {
        let limiter = empty(1);
        let waiter = waiting(&limiter, 1);
        let cancel = race.actor(move || drop(waiter));
        let grant = race.on(&limiter, |limiter| limiter.replenish(1));
        ends(cancel, grant);
        assert_eq!(drain(&limiter), 1);
    });
}

/// The waiter in the middle is dropped while the one in front is granted: it leaves from the middle,
/// or from the front.
///
/// Plants `cancelled_front_claim_keeps_its_positions`, `cancelled_claim_keeps_its_positions` and
/// `cancelled_claim_is_passed_twice`.
#[test]
fn cancel_in_the_middle_against_a_grant_of_the_front() {
    explore(|race| {
        let limiter = empty(3);
        let [mut front, middle, mut back] = [1, 1, 1].map(|cost| waiting(&limiter, cost));
        let cancel = race.actor(move || drop(middle));
        let grant = race.on(&limiter, move |limiter| {
            assert_eq!(limiter.snapshot().granted, 0, "granted before the token was added");
            limiter.replenish(1);
        });
        ends(cancel, grant);
        assert!(is_served(&mut front) && !is_served(&mut back), "one token was added");
        limiter.replenish(1);
        assert!(is_served(&mut back), "a second one was added");
        limiter.replenish(3);
        assert_eq!(drain(&limiter), 3, "the cancelled claim is passed");
    });
}

/// Two neighbors in the middle are dropped at once: both claims are passed, whichever left first.
///
/// Plant `cancelled_claim_keeps_its_positions`.
#[test]
fn two_cancels_in_the_middle() {
    explore(|race| {
        let limiter = empty(4);
        let [mut front, one, other, mut back] = [1, 1, 1, 1].map(|cost| waiting(&limiter, cost));
        let cancels = [one, other].map(|waiter| race.actor(move || drop(waiter)));
        cancels.into_iter().for_each(|cancel| cancel.join().unwrap());
        limiter.replenish(1);
        assert!(is_served(&mut front) && !is_served(&mut back));
        limiter.replenish(1);
        assert!(is_served(&mut back));
        limiter.replenish(4);
        assert_eq!(drain(&limiter), 4);
    });
}

/// Of two waiters the front one is dropped while a third enters: the queue stays intact, and no token is lost.
///
/// Plant `cancelled_front_claim_keeps_its_positions`.
#[test]
fn cancel_of_the_front_against_enqueue() {
    explore(|race| {
        let limiter = empty(2);
        let (front, mut behind) = (waiting(&limiter, 1), waiting(&limiter, 1));
        let cancel = race.actor(move || drop(front));
        let enter = race.on(&limiter, |limiter| waiting(limiter, 1));
        let ((), mut last) = ends(cancel, enter);
        limiter.replenish(1);
        assert!(is_served(&mut behind) && !is_served(&mut last));
        limiter.replenish(1);
        assert!(is_served(&mut last));
        assert_eq!((limiter.available(), limiter.deficiency()), (0, 0));
    });
}

/// A waiter times out while its token is added: it gets the token, or the token stays available.
///
/// Plant `cancel_ignores_its_outcome`: a grant at this very moment is ignored.
#[test]
fn giving_up_against_grant() {
    explore(|race| {
        // The ceiling delays it, not the quota: no schedule foresees that, so the claim may wait.
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::manual(2)).max_in_flight(1));
        let first = taken(&limiter, 1);
        let mut claim = task::spawn(limiter.clone().consume_owned(1).within(SECOND));
        assert!(claim.poll().is_pending());
        clock.advance(SECOND);
        let cancelling = race.actor(move || match claim.poll() {
            Poll::Ready(Ok(grant)) => {
                std::mem::forget(grant);
                true
            }
            Poll::Ready(Err(ConsumeError::TimedOut { .. })) => false,
            other => panic!("the claim must have ended: {other:?}"),
        });
        let release = race.actor(move || drop(first));
        let granted = u64::from(cancelling.join().unwrap());
        release.join().unwrap();
        assert_eq!(limiter.snapshot().in_flight, Some(granted));
        assert_eq!(granted + drain(&limiter), 1, "the token that one in flight leaves");
    });
}

/// Three claims are served at once, which fills a batch of wakers, and the lock is released in between. The last of the
/// three is dropped meanwhile.
///
/// Plant `cancel_looks_for_a_grant_before_it_leaves`.
#[test]
fn a_full_batch_against_cancel() {
    explore(|race| {
        let limiter = empty(3);
        let [mut first, mut second, third] = [1, 1, 1].map(|cost| waiting(&limiter, cost));
        let grant = race.on(&limiter, |limiter| limiter.replenish(3));
        let cancel = race.actor(move || drop(third));
        ends(grant, cancel);
        assert!(is_served(&mut first) && is_served(&mut second));
        assert_eq!(drain(&limiter), 1, "the token that the third did not take");
    });
}
