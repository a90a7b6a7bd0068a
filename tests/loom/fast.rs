//! Claims with and without the lock, and the clock readings they use.

use crate::{Race, SECOND, build, drain, ends, explore, taken, timed, try_keep};
use tollgate::{Limiter, Quota};

/// One token, none published: both claim under the lock.
///
/// Plant `check_then_claim`: availability is checked under one lock, and the claim is made under the next.
#[test]
fn two_claims_on_the_last_token() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(1)));
        assert_eq!(two_claims(race, &limiter), 1);
    });
}

/// One token, published: both claim it without the lock.
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

/// One of three tokens is published: the claim of one is made without the lock, the claim of all three under it.
///
/// Plant `admit_checks_the_tail_then_adds`: the thread with the lock reads the tail, then adds to it.
#[test]
fn a_claim_without_the_lock_against_one_under_it() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(3)).stride(1));
        limiter.tick();
        let [one, three] = [1, 3].map(|cost| {
            let limiter = limiter.clone();
            race.actor(move || try_keep(&limiter, cost))
        });
        let (one, three) = ends(one, three);
        assert!(one != three, "exactly one of them is granted: one {one}, three {three}");
    });
}

/// Two of three tokens are taken. One of them is refunded while another thread takes the third.
///
/// Plant `refund_rolls_the_tail_back`: the tail is moved back by the refund.
#[test]
fn a_refund_against_a_claim() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(3)).stride(3));
        let mut grant = taken(&limiter, 2);
        let refund = race.actor(move || grant.settle(1));
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        refund.join().unwrap();
        assert!(claim.join().unwrap(), "the third token was available all the time");
        assert_eq!(drain(&limiter), 1, "the refunded token, and no other");
    });
}

/// One thread advances the clock and claims; the other claims with either reading of the time. The head is minted once.
///
/// Plants `elapsed_wraps`: an old reading after a new one counts as a very long time, as in better-bucket 1.0;
/// `mint_does_not_advance_its_stamp`: the next mint counts the same time again.
#[test]
fn an_old_reading_of_the_clock_against_a_new_one() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).burst(3).initial(0)));
        let mover = race.on(&limiter, move |limiter| {
            clock.advance(SECOND);
            try_keep(limiter, 1)
        });
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let granted = u64::from(mover.join().unwrap()) + u64::from(claim.join().unwrap());
        assert_eq!(granted + drain(&limiter), 1, "one second, one token");
    });
}

/// One thread advances the clock and then claims without reading it; the other samples tail and time. If the sample had
/// that claim but the old time, the claim would count as made before the bucket was full, and a token would be minted
/// twice.
///
/// Plants `claim_is_relaxed` and `tail_is_read_relaxed`: tail and time are read independently of each other;
/// `time_is_read_before_the_tail`: the time is read first.
#[test]
fn a_claim_after_the_clock_moved_is_not_counted_before_it() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).burst(2)).stride(2));
        limiter.tick();
        let mover = race.on(&limiter, move |limiter| {
            clock.advance(SECOND);
            try_keep(limiter, 1)
        });
        let sampler = race.on(&limiter, Limiter::tick);
        let granted = u64::from(mover.join().unwrap());
        sampler.join().unwrap();
        assert_eq!(granted + drain(&limiter), 2, "all granted after the clock had moved, from a burst of 2");
    });
}
