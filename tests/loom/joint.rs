//! Joint claims while they enter the queues; `join.rs` has the races after that.

use crate::join::Joint;
use crate::{empty, ends, enters, explore, explore_bounded, is_granted, sorted};
use tokio_test::task;
use tollgate::{Limiter, join};

/// Two limiters of one token each, with `initial` tokens, in the order of their locks.
fn pair(initial: [u64; 2]) -> [Limiter; 2] {
    let pair = sorted(|| empty(1));
    pair.iter().zip(initial).for_each(|(limiter, initial)| limiter.replenish(initial));
    pair
}

/// A claim of one token from each, not polled yet. Its grants are kept for good.
fn joint([one, other]: [&Limiter; 2]) -> Joint {
    let (one, other) = (one.clone(), other.clone());
    task::spawn(Box::pin(async move { join([(&one, 1), (&other, 1)]).await.map(std::mem::forget) }))
}

/// A claim of one token from each that waits in both queues.
fn waiting([one, other]: &[Limiter; 2]) -> Joint {
    let mut claim = joint([one, other]);
    assert!(claim.poll().is_pending(), "the claim must have to wait");
    claim
}

/// Two joint claims enter the same queues, each naming them in another order, and there are tokens for one: the other
/// waits for the next tokens, in both.
///
/// Plant `joint_claim_locks_in_the_order_named`: they wait for each other's lock.
#[test]
fn two_joint_claims_in_opposite_orders() {
    explore(|race| {
        let pair = pair([1, 1]);
        let claims = [joint([&pair[0], &pair[1]]), joint([&pair[1], &pair[0]])];
        let enters = claims.map(|mut claim| {
            race.actor(move || {
                let granted = claim.poll().is_ready();
                (granted, claim)
            })
        });
        let [one, other] = enters.map(|enter| enter.join().unwrap());
        assert!(one.0 != other.0, "there were tokens for exactly one of them");
        let (_, mut waiting) = if one.0 { other } else { one };
        pair[0].replenish(1);
        assert!(waiting.poll().is_pending());
        pair[1].replenish(1);
        assert!(waiting.is_woken() && waiting.poll().is_ready());
    });
}

/// A plain claim waits behind a joint one, whose other queue closes: the plain claim moves up.
///
/// Bounded: each of the two actors passes two locks, and may be interrupted before each. Without a bound the model
/// passes as well, in 140,000 executions.
///
/// Plant `review_is_left_out`.
#[test]
fn a_claim_behind_a_joint_one_that_is_refused() {
    explore_bounded(Some(4), |race| {
        let pair = pair([1, 0]);
        let _claim = waiting(&pair);
        let enter = enters(race, &pair[0], 1);
        let close = race.on(&pair[1], Limiter::close);
        let (mut behind, ()) = ends(enter, close);
        assert!(is_granted(&mut behind), "the token is available, and the claim was not served");
    });
}
