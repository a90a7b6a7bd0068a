//! Joint claims on their way into the lines; what happens to them there is in `join.rs`.

use crate::{explore, explore_bounded, is_served, try_keep};
use std::pin::Pin;
use std::task::Poll;
use tokio_test::task::{self, Spawn};
use tollgate::{JoinError, Limiter, ManualClock, Quota, join};

type Joint = Spawn<Pin<Box<dyn Future<Output = Result<(), JoinError>>>>>;

/// Two limiters of a token each, of which `initial` are there.
///
/// Joint claims lock in the order of addresses. Loom replays executions, so that order must not change from one to the
/// next: the first of the two is always the lower one.
fn pair(initial: [u64; 2]) -> [Limiter; 2] {
    let build = || {
        let builder = Limiter::builder().quota(Quota::manual(1)).clock(ManualClock::new());
        builder.build().unwrap()
    };
    let mut pair = [build(), build()];
    pair.sort_by_key(address);
    for (limiter, initial) in pair.iter().zip(initial) {
        if initial == 0 {
            limiter.try_acquire(1).map(std::mem::forget).unwrap();
        }
    }
    pair
}

fn address(limiter: &Limiter) -> usize {
    const { assert!(size_of::<Limiter>() == size_of::<usize>()) };
    // SAFETY: a limiter is as large as a `usize`, and one pointer, which has no padding.
    unsafe { std::mem::transmute_copy(limiter) }
}

/// A claim of a token from each, not polled yet; its grants are kept for good.
fn joint([one, other]: [&Limiter; 2]) -> Joint {
    let (one, other) = (one.clone(), other.clone());
    task::spawn(Box::pin(async move { join([(&one, 1), (&other, 1)]).await.map(std::mem::forget) }))
}

/// The same, standing in both lines.
fn waiting([one, other]: &[Limiter; 2]) -> Joint {
    let mut claim = joint([one, other]);
    assert!(claim.poll().is_pending(), "set up to wait");
    claim
}

/// Two joint claims enter the same lines, each naming them in its own order, and there is enough for one: the other
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
        assert!(one.0 != other.0, "there was enough for one of them");
        let (_, mut waiting) = if one.0 { other } else { one };
        pair[0].replenish(1);
        assert!(waiting.poll().is_pending());
        pair[1].replenish(1);
        assert!(waiting.is_woken() && waiting.poll().is_ready());
    });
}

/// A plain claim stands behind a joint one, which its other line closes: it moves up.
///
/// Bounded: each of the two actors crosses two locks, and may be stopped before each. Without a bound it is green as well
/// and takes 140,000 executions.
///
/// Plants `commit_does_not_serve_the_other_queues` and `refused_joint_claim_leaves_no_gap`.
#[test]
fn a_claim_behind_a_joint_one_that_is_turned_away() {
    explore_bounded(Some(4), |race| {
        let pair = pair([1, 0]);
        let _claim = waiting(&pair);
        let (first, last) = (pair[0].clone(), pair[1].clone());
        let mut behind = task::spawn(first.consume_owned(1));
        let enter = race.actor(move || {
            let answered = behind.poll().map(|answer| answer.is_ok());
            (answered, behind)
        });
        let close = race.actor(move || last.close());
        let (answered, mut behind) = enter.join().unwrap();
        close.join().unwrap();
        assert!(answered == Poll::Ready(true) || is_served(&mut behind), "the token is there, and nobody said so");
    });
}

/// A denial is made behind the joint claim, which the other line commits before the lock of this one is left. Who sees
/// the joint claim granted is not answered as of before.
///
/// Plant `denial_is_published_after_the_queue_moved`: the line moves on, and what was denied before is published.
#[test]
fn a_denial_against_a_commit() {
    explore_bounded(Some(2), |race| {
        let build = || Limiter::builder().quota(Quota::manual(5)).clock(ManualClock::new()).build().unwrap();
        let mut pair = [build(), build()];
        pair.sort_by_key(address);
        pair[1].try_acquire(5).map(std::mem::forget).unwrap();
        let mut claim = waiting(&pair);
        let (held, asked, lacking) = (pair[0].clone(), pair[0].clone(), pair[1].clone());
        let denier = race.actor(move || try_keep(&held, 1));
        let feeder = race.actor(move || lacking.replenish(1));
        let third = race.actor(move || {
            let is_granted = claim.poll().is_ready();
            assert!(!is_granted || try_keep(&asked, 1), "the line is empty, and a token is there");
            claim
        });
        denier.join().unwrap();
        feeder.join().unwrap();
        let _claim = third.join().unwrap();
    });
}
