//! Coming to the line, and being served.

use crate::{SECOND, build, empty, explore, is_served, taken, try_keep, waiting};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio_test::task;
use tollgate::{ConsumeError, ConsumeOwned, Limiter, ManualClock, Quota};

/// A claim enters the line while the token it needs is added.
///
/// Plant `claim_enters_after_the_check`: it enters under a lock of its own, after it was found that it must wait.
#[test]
fn consume_against_replenish() {
    explore(|race| {
        let limiter = empty(1);
        let mut claim = task::spawn(limiter.clone().consume_owned(1));
        let enter = race.actor(move || {
            let answered = claim.poll().map(|answer| answer.is_ok());
            (answered, claim)
        });
        let other = limiter.clone();
        let replenish = race.actor(move || other.replenish(1));
        let (answered, mut claim) = enter.join().unwrap();
        replenish.join().unwrap();
        assert!(answered == Poll::Ready(true) || is_served(&mut claim), "the token is there, and nobody said so");
        assert_eq!(limiter.available(), 0);
    });
}

/// A claim enters the line, with whichever time it reads, while the clock moves on and somebody ticks.
///
/// Plant `tick_skips_a_held_lock`: a tick gives up if somebody holds the lock.
#[test]
fn consume_against_tick() {
    explore(|race| {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let mut claim = task::spawn(limiter.clone().consume_owned(1));
        let enter = race.actor(move || {
            let answered = claim.poll().map(|answer| answer.is_ok());
            (answered, claim)
        });
        let other = limiter.clone();
        let tick = race.actor(move || {
            clock.advance(SECOND);
            other.tick();
        });
        let (answered, mut claim) = enter.join().unwrap();
        tick.join().unwrap();
        assert!(answered == Poll::Ready(true) || is_served(&mut claim), "it was due at that tick");
        assert_eq!(limiter.available(), 0);
    });
}

/// Somebody asks for more than there can be, having read the tail before a giant entered the line, and the time after it:
/// what is minted for the giant above the burst is not burned.
///
/// Plant `fast_path_overtakes_waiters`: who finds nothing claimed beyond what is published mints as if nobody waited.
#[test]
fn a_giant_against_an_old_tail() {
    explore(|race| {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).burst(1);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let other = limiter.clone();
        let enter = race.actor(move || {
            let giant = waiting(&other, 2);
            clock.advance(SECOND);
            giant
        });
        let other = limiter.clone();
        let ask = race.actor(move || assert!(!try_keep(&other, 2)));
        let mut giant = enter.join().unwrap();
        ask.join().unwrap();
        limiter.tick();
        assert!(is_served(&mut giant), "a token was there, and a second has gone by");
    });
}

/// One token is published. A claim of two enters the line while somebody takes that one without the lock: before it, or
/// not at all.
///
/// Plant `waiting_claim_overwrites_the_tail`: the tail is read, then stored, and a claim made in between is forgotten.
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
        let other = limiter.clone();
        let claim = race.actor(move || try_keep(&other, 1));
        let mut waiter = enter.join().unwrap();
        let taken = claim.join().unwrap();
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

/// A waiter is polled with another waker while its token is added: it sees the grant, or that waker is woken.
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
        let other = limiter.clone();
        let grant = race.actor(move || other.replenish(1));
        let (answered, mut claim) = poll.join().unwrap();
        grant.join().unwrap();
        if answered.is_pending() {
            assert_eq!(count.0.load(Relaxed), 1, "it left this waker and was granted");
            assert!(poll_with(&mut claim, Waker::noop()).is_ready());
        }
    });
}

fn poll_with(claim: &mut Pin<Box<ConsumeOwned>>, waker: &Waker) -> Poll<Result<tollgate::OwnedGrant, ConsumeError>> {
    claim.as_mut().poll(&mut Context::from_waker(waker))
}

/// Three are served at once, in two batches, while a fourth enters: it waits for its own token.
///
/// Plant `serving_stops_after_one_batch`: after a full batch the caller does not go on, although no driver does.
#[test]
fn a_full_batch_against_enqueue() {
    explore(|race| {
        let limiter = empty(4);
        let mut waiters = [1, 1, 1].map(|cost| waiting(&limiter, cost));
        let other = limiter.clone();
        let grant = race.actor(move || other.replenish(3));
        let other = limiter.clone();
        let enter = race.actor(move || waiting(&other, 1));
        grant.join().unwrap();
        let mut fourth = enter.join().unwrap();
        assert!(waiters.iter_mut().all(is_served), "three tokens, three grants, three wakes");
        assert!(!is_served(&mut fourth));
        limiter.replenish(1);
        assert!(is_served(&mut fourth));
    });
}

/// A claim enters the line while somebody settles for less: what comes back is what it needs.
///
/// Plant `refund_checks_for_waiters_before_it_locks`: whether anybody waits is asked first, and nobody is served if not.
#[test]
fn consume_against_refund() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2)));
        let mut grant = taken(&limiter, 2);
        let mut claim = task::spawn(limiter.clone().consume_owned(1));
        let enter = race.actor(move || {
            let answered = claim.poll().map(|answer| answer.is_ok());
            (answered, claim)
        });
        let refund = race.actor(move || grant.settle(1));
        let (answered, mut claim) = enter.join().unwrap();
        refund.join().unwrap();
        assert!(answered == Poll::Ready(true) || is_served(&mut claim), "the refund was enough");
        assert_eq!((limiter.available(), limiter.deficiency()), (0, 0));
    });
}

/// A claim enters the line while somebody settles for more: the debt delays it only if it came first.
///
/// Plant `debt_is_charged_to_waiters`: the heads are lowered by it, for those in line too.
#[test]
fn consume_against_settling_for_more() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2)));
        let mut grant = taken(&limiter, 1);
        let other = limiter.clone();
        let enter = race.actor(move || waiting(&other, 2));
        let other = limiter.clone();
        let charge = race.actor(move || {
            let behind = other.snapshot().waiting_tasks == 1;
            grant.settle(2);
            behind
        });
        let mut waiter = enter.join().unwrap();
        let behind = charge.join().unwrap();
        assert_eq!(limiter.deficiency(), 2, "two waited for and one owed, less the one that is there");
        limiter.replenish(1);
        let served = is_served(&mut waiter);
        assert!(served || !behind, "the debt came after it");
        limiter.replenish(1);
        assert!(served || is_served(&mut waiter), "the debt is paid");
        assert_eq!((limiter.available(), limiter.deficiency()), (0, 0));
    });
}
