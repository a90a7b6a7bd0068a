//! Changes of the quota, pauses and closing, against claims without the lock and against waiters.

use crate::{SECOND, build, drain, empty, ends, enters, explore, is_served, timed, try_keep, waiting};
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::Arc;
use std::task::Poll;
use tollgate::{ConsumeError, Limiter, Quota};

/// Four tokens, all published.
fn published() -> Limiter {
    let limiter = build(Limiter::builder().quota(Quota::per_second(4)).stride(4));
    limiter.tick();
    limiter
}

/// The rate changes while another thread claims without the lock: the level does not change.
///
/// Plant `retract_stores_the_tail`: the published tokens are taken back by a store, over a claim made meanwhile.
#[test]
fn set_quota_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = published();
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let change = race.on(&limiter, |limiter| limiter.set_quota(0, Quota::per_second(1).burst(4)).unwrap());
        assert!(claim.join().unwrap(), "there were enough tokens, before and after");
        change.join().unwrap();
        assert_eq!(drain(&limiter), 3);
    });
}

/// The burst is lowered to one while another thread claims without the lock: after the change, one token is granted.
///
/// Plant `set_quota_without_retract`: published tokens stay published.
#[test]
fn a_smaller_burst_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = published();
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let change = race.on(&limiter, move |limiter| {
            limiter.set_quota(0, Quota::per_second(1)).unwrap();
            drain(limiter)
        });
        let (claimed, after) = ends(claim, change);
        assert!(after <= 1, "{after} granted at once from a burst of 1");
        assert!(claimed || after == 1, "the one token was lost");
        assert_eq!(limiter.available(), 0);
    });
}

/// While one thread claims without the lock, another pauses, sets a flag, and tries. No claim passes after the flag was
/// seen.
///
/// Plants `retract_tries_once`: a claim made meanwhile leaves the rest published; `pause_without_retract`.
#[test]
fn a_pause_against_a_claim_without_the_lock() {
    no_claim_passes_after(|limiter| limiter.pause_for(SECOND));
}

/// While one thread claims without the lock, another closes the limiter. No claim passes after that was seen.
///
/// Plants `retract_tries_once` and `close_without_retract`.
#[test]
fn close_against_a_claim_without_the_lock() {
    no_claim_passes_after(Limiter::close);
}

fn no_claim_passes_after(stop: fn(&Limiter)) {
    explore(move |race| {
        let limiter = published();
        let done = Arc::new(AtomicU64::new(0));
        let (seen_done, other) = (done.clone(), limiter.clone());
        let claim = race.actor(move || {
            let done = seen_done.fetch_add(0, AcqRel) == 1;
            (done, try_keep(&other, 1))
        });
        let stopper = race.actor(move || {
            stop(&limiter);
            done.fetch_add(1, AcqRel);
            drain(&limiter)
        });
        assert_ne!(claim.join().unwrap(), (true, true), "passed after it saw the flag");
        assert_eq!(stopper.join().unwrap(), 0, "passed after it had stopped all claims");
    });
}

/// A claim enters the queue while it is closed: the claim is not left behind.
///
/// Plant `claim_enters_after_the_check`.
#[test]
fn close_against_enqueue() {
    explore(|race| {
        let limiter = empty(1);
        let enter = enters(race, &limiter, 1);
        let close = race.on(&limiter, Limiter::close);
        let ((answered, mut claim), ()) = ends(enter, close);
        let closed = match answered {
            Poll::Ready(granted) => !granted,
            Poll::Pending => claim.is_woken() && matches!(claim.poll(), Poll::Ready(Err(ConsumeError::Closed))),
        };
        assert!(closed, "left behind in a closed queue: {answered:?}");
    });
}

/// A waiter's token is added while the queue is closed: the waiter gets either its grant or `Closed`.
///
/// Plant `granted_waiter_hears_closed`: a waiter that was granted, and not polled since, gets `Closed`.
#[test]
fn close_against_grant() {
    explore(|race| {
        let limiter = empty(1);
        let mut waiter = waiting(&limiter, 1);
        let grant = race.on(&limiter, |limiter| limiter.replenish(1));
        let close = race.on(&limiter, Limiter::close);
        ends(grant, close);
        assert!(waiter.is_woken());
        let granted = is_served(&mut waiter);
        assert_eq!(limiter.snapshot().granted, u64::from(granted));
    });
}

/// A waiter's token is added while another thread pauses: the waiter passes before the pause or after it, and not
/// during it.
///
/// Plant `waiters_ignore_the_pause`.
#[test]
fn a_pause_against_grant() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::manual(1).initial(0)));
        let mut waiter = waiting(&limiter, 1);
        let grant = race.on(&limiter, |limiter| limiter.replenish(1));
        let pause = race.on(&limiter, move |limiter| {
            limiter.pause_for(SECOND);
            limiter.snapshot().granted == 1
        });
        let ((), before) = ends(grant, pause);
        assert_eq!(is_served(&mut waiter), before, "passed during the pause");
        clock.advance(SECOND);
        limiter.tick();
        assert!(before || is_served(&mut waiter), "the pause is over");
    });
}

/// A waiter's token is added while another thread ends the pause: whichever comes last serves the waiter.
///
/// Plant `pause_ends_after_the_last_service`.
#[test]
fn the_end_of_a_pause_against_grant() {
    explore(|race| {
        let limiter = empty(1);
        limiter.pause_for(SECOND);
        let mut waiter = waiting(&limiter, 1);
        let grant = race.on(&limiter, |limiter| limiter.replenish(1));
        let resume = race.on(&limiter, Limiter::resume);
        ends(grant, resume);
        assert!(is_served(&mut waiter), "the token is there, and no pause");
    });
}
