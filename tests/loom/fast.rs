//! Claims with and without the lock, and the readings of the clock they rest on.

use crate::{Race, SECOND, build, drain, explore, taken, try_keep};
use tollgate::{Limiter, ManualClock, Quota};

/// One token, nothing published: both ask under the lock.
///
/// Plant `check_then_claim`: availability is asked under one lock, the claim made under the next.
#[test]
fn two_claims_on_the_last_token() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(1)));
        assert_eq!(two_claims(race, &limiter), 1);
    });
}

/// One token, published: both go for it without the lock.
///
/// Plant `claim_stores_the_tail`: the tail is stored, not swapped.
#[test]
fn two_claims_on_the_last_published_token() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(1)).stride(1));
        limiter.tick();
        assert_eq!(two_claims(race, &limiter), 1);
    });
}

/// How many of two claims of a token are granted.
fn two_claims(race: &Race, limiter: &Limiter) -> u64 {
    let claim = || {
        let limiter = limiter.clone();
        race.actor(move || try_keep(&limiter, 1))
    };
    let claims = [claim(), claim()];
    claims.map(|claim| u64::from(claim.join().unwrap())).iter().sum()
}

/// One of three tokens is published: who wants one does not ask, who wants all three asks under the lock.
///
/// Plant `admit_checks_the_tail_then_adds`: who holds the lock looks at the tail, then adds to it.
#[test]
fn a_claim_without_the_lock_against_one_under_it() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(3)).stride(1));
        limiter.tick();
        let [one, three] = [1, 3].map(|cost| {
            let limiter = limiter.clone();
            race.actor(move || try_keep(&limiter, cost))
        });
        let (one, three) = (one.join().unwrap(), three.join().unwrap());
        assert!(one != three, "either of them, not both: one {one}, three {three}");
    });
}

/// Two of three tokens are out; one of them comes back while somebody takes the third.
///
/// Plant `refund_rolls_the_tail_back`: the tail is set back by what is refunded.
#[test]
fn a_refund_against_a_claim() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(3)).stride(3));
        let mut grant = taken(&limiter, 2);
        let refund = race.actor(move || grant.settle(1));
        let other = limiter.clone();
        let claim = race.actor(move || try_keep(&other, 1));
        refund.join().unwrap();
        assert!(claim.join().unwrap(), "the third token was there all the time");
        assert_eq!(drain(&limiter), 1, "the one that came back, and no other");
    });
}

/// One thread moves the clock on and claims; the other claims with whichever time it reads. The head is minted once.
///
/// Plants `elapsed_wraps`: an old reading after a new one counts as a very long time (better-bucket 1.0 had that);
/// `mint_does_not_advance_its_stamp`: who looks next mints the same time again.
#[test]
fn an_old_reading_of_the_clock_against_a_new_one() {
    explore(|race| {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).burst(3).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let (one, other) = (limiter.clone(), limiter.clone());
        let mover = race.actor(move || {
            clock.advance(SECOND);
            try_keep(&one, 1)
        });
        let claim = race.actor(move || try_keep(&other, 1));
        let granted = u64::from(mover.join().unwrap()) + u64::from(claim.join().unwrap());
        assert_eq!(granted + drain(&limiter), 1, "one second, one token");
    });
}

/// One thread moves the clock on and then claims without reading it; the other samples tail and time. If the sample
/// has that claim but the old time, the claim counts as made before the bucket was full, and a token is minted twice.
///
/// Plants `claim_is_relaxed` and `tail_is_read_relaxed`: tail and time are read independently of each other;
/// `time_is_read_before_the_tail`: the time is read first.
#[test]
fn a_claim_after_the_clock_moved_is_not_counted_before_it() {
    explore(|race| {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).burst(2);
        let limiter = Limiter::builder().quota(quota).stride(2).clock(clock.clone()).build().unwrap();
        limiter.tick();
        let (one, other) = (limiter.clone(), limiter.clone());
        let mover = race.actor(move || {
            clock.advance(SECOND);
            try_keep(&one, 1)
        });
        let sampler = race.actor(move || other.tick());
        let granted = u64::from(mover.join().unwrap());
        sampler.join().unwrap();
        assert_eq!(granted + drain(&limiter), 2, "all of it after the clock had moved, from a burst of 2");
    });
}
