//! Entering the queue, and being served.

use crate::{SECOND, build, empty, ends, enters, explore, is_granted, is_served, taken, timed, try_keep, waiting};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio_test::task;
use tollgate::{ConsumeError, ConsumeOwned, Limiter, Quota};

/// A claim enters the queue while its token is added.
///
/// Plant `claim_enters_after_the_check`: it enters under another lock than the check that it must wait.
#[test]
fn consume_against_replenish() {
    explore(|race| {
        let limiter = empty(1);
        let enter = enters(race, &limiter, 1);
        let replenish = race.on(&limiter, |limiter| limiter.replenish(1));
        let (mut claim, ()) = ends(enter, replenish);
        assert!(is_granted(&mut claim), "the token is available, and the claim was not served");
        assert_eq!(limiter.available(), 0);
    });
}

/// A claim enters the queue with either reading of the time, while the clock advances and another thread ticks.
///
/// Plant `tick_skips_a_held_lock`: a tick gives up if another thread has the lock.
#[test]
fn consume_against_tick() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).initial(0)));
        let enter = enters(race, &limiter, 1);
        let tick = race.on(&limiter, move |limiter| {
            clock.advance(SECOND);
            limiter.tick();
        });
        let (mut claim, ()) = ends(enter, tick);
        assert!(is_granted(&mut claim), "the claim was due at that tick");
        assert_eq!(limiter.available(), 0);
    });
}

/// A thread claims more tokens than there can be. It read the tail before a giant entered the queue, and the time after
/// that: the tokens minted for the giant above the burst are not lost.
///
/// Plant `fast_path_overtakes_waiters`: a thread that finds no claims beyond the published tokens mints as if the queue
/// were empty.
#[test]
fn a_giant_against_an_old_tail() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).burst(1)));
        let enter = race.on(&limiter, move |limiter| {
            let giant = waiting(limiter, 2);
            clock.advance(SECOND);
            giant
        });
        let ask = race.on(&limiter, |limiter| assert!(!try_keep(limiter, 2)));
        let (mut giant, ()) = ends(enter, ask);
        limiter.tick();
        assert!(is_served(&mut giant), "a token was available, and a second has passed");
    });
}

/// One token is published. A claim of two enters the queue while another thread takes that token without the lock:
/// before the claim, or not at all.
///
/// Plant `waiting_claim_overwrites_the_tail`: the tail is read, then stored, and a claim made in between is lost.
#[test]
fn consume_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2).initial(1)).stride(1));
        limiter.tick();
        let mut waiter = task::spawn(limiter.clone().consume_owned(2));
        let enter = race.actor(move || {
            assert!(waiter.poll().is_pending());
            waiter
        });
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let (mut waiter, taken) = ends(enter, claim);
        limiter.replenish(1);
        assert_eq!(is_served(&mut waiter), !taken, "two tokens so far");
        limiter.replenish(1);
        assert!(!taken || is_served(&mut waiter), "three tokens so far");
    });
}

struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A waiter is polled with another waker while its token is added: it sees the grant, or the new waker is woken.
///
/// Plant `later_waker_is_ignored`.
#[test]
fn another_waker_against_grant() {
    explore(|race| {
        let limiter = empty(1);
        let mut claim = Box::pin(limiter.clone().consume_owned(1));
        assert!(poll_with(&mut claim, Waker::noop()).is_pending());
        let count = Arc::new(Count(AtomicU64::new(0)));
        let waker = Waker::from(count.clone());
        let poll = race.actor(move || {
            let answered = poll_with(&mut claim, &waker).map(|answer| answer.is_ok());
            (answered, claim)
        });
        let grant = race.on(&limiter, |limiter| limiter.replenish(1));
        let ((answered, mut claim), ()) = ends(poll, grant);
        if answered.is_pending() {
            assert_eq!(count.0.load(Relaxed), 1, "the claim stored this waker and was granted");
            assert!(poll_with(&mut claim, Waker::noop()).is_ready());
        }
    });
}

fn poll_with(claim: &mut Pin<Box<ConsumeOwned>>, waker: &Waker) -> Poll<Result<tollgate::OwnedGrant, ConsumeError>> {
    claim.as_mut().poll(&mut Context::from_waker(waker))
}

/// Three claims are served at once, in two batches, while a fourth enters: it waits for its own token.
///
/// Plant `serving_stops_after_one_batch`: after a full batch the caller stops, although no driver continues.
#[test]
fn a_full_batch_against_enqueue() {
    explore(|race| {
        let limiter = empty(4);
        let mut waiters = [1, 1, 1].map(|cost| waiting(&limiter, cost));
        let grant = race.on(&limiter, |limiter| limiter.replenish(3));
        let enter = race.on(&limiter, |limiter| waiting(limiter, 1));
        let ((), mut fourth) = ends(grant, enter);
        assert!(waiters.iter_mut().all(is_served), "three tokens, three grants, three wakes");
        assert!(!is_served(&mut fourth));
        limiter.replenish(1);
        assert!(is_served(&mut fourth));
    });
}

/// A claim enters the queue while another thread settles for less: the refund is what the claim needs.
///
/// Plant `refund_checks_for_waiters_before_it_locks`: the check for waiters comes first, and no claim is served if it
/// finds none.
#[test]
fn consume_against_refund() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2)));
        let mut grant = taken(&limiter, 2);
        let enter = enters(race, &limiter, 1);
        let refund = race.actor(move || grant.settle(1));
        let (mut claim, ()) = ends(enter, refund);
        assert!(is_granted(&mut claim), "the refund covers the claim");
        assert_eq!((limiter.available(), limiter.deficiency()), (0, 0));
    });
}

/// A claim enters the queue while another thread settles for more: the debt delays it only if the debt came first.
///
/// Plant `debt_is_charged_to_waiters`: the debt is charged at once, also to claims that wait already.
#[test]
fn consume_against_settling_for_more() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2)));
        let mut grant = taken(&limiter, 1);
        let enter = race.on(&limiter, |limiter| waiting(limiter, 2));
        let charge = race.on(&limiter, move |limiter| {
            let behind = limiter.snapshot().waiting_tasks == 1;
            grant.settle(2);
            behind
        });
        let (mut waiter, behind) = ends(enter, charge);
        assert_eq!(limiter.deficiency(), 2, "two waited for and one owed, less the one available");
        limiter.replenish(1);
        let served = is_served(&mut waiter);
        assert!(served || !behind, "the debt came after the claim");
        limiter.replenish(1);
        assert!(served || is_served(&mut waiter), "the debt is paid");
        assert_eq!((limiter.available(), limiter.deficiency()), (0, 0));
    });
}
