//! Joint claims over classes of two limiters: a part that is ready against a cancellation, a commit and a removal.

use crate::classes::{class, divided, is_served, waiting};
use crate::join::Joint;
use crate::{drain, ends, explore_bounded, sorted};
use std::task::Poll;
use tokio_test::task;
use tollgate::{Class, Limiter, join};

/// Two limiters with classes, without tokens, in the order of their locks.
fn pair() -> [Limiter; 2] {
    sorted(|| divided(2))
}

/// A claim of one token from each class, which waits in both. Its grants are kept for good.
fn joint(one: &Class, other: &Class) -> Joint {
    let (one, other) = (one.clone(), other.clone());
    let claim = Box::pin(async move { join([(&one, 1), (&other, 1)]).await.map(std::mem::forget) });
    let mut claim: Joint = task::spawn(claim);
    assert!(claim.poll().is_pending(), "the claim must have to wait");
    claim
}

/// A joint claim that is ready in one limiter is dropped while the other one gets its token: the joint claim behind it in
/// the same classes has its turn and both tokens.
///
/// Bounded: each of the two actors passes the locks of both limiters several times. With a bound of 3 the model passes too,
/// which takes minutes.
///
/// Plant `cancelled_joint_claim_keeps_its_class`.
#[test]
fn cancel_of_a_ready_part_against_its_commit() {
    explore_bounded(Some(2), |race| {
        let [one, other] = pair();
        let (a, b) = (class(&one, "a"), class(&other, "b"));
        let (first, mut second) = (joint(&a, &b), joint(&a, &b));
        one.replenish(1);
        let cancel = race.actor(move || drop(first));
        let feed = race.on(&other, |other| other.replenish(1));
        ends(cancel, feed);
        assert!(second.is_woken() && second.poll().is_ready(), "its tokens are there");
        assert_eq!((drain(&one), drain(&other)), (0, 0));
    });
}

/// A class is removed while a joint claim that is ready there gets its last token in the other limiter: the claim is granted
/// in both, or turned away in both, and no token is lost.
///
/// Plant `review_is_left_out`.
#[test]
fn removal_against_a_commit() {
    explore_bounded(Some(3), |race| {
        let [one, other] = pair();
        let (a, b) = (class(&one, "a"), class(&other, "b"));
        let mut claim = joint(&a, &b);
        let mut beside = waiting(&class(&one, "beside"), 1);
        one.replenish(1);
        let remove = race.actor(move || a.remove());
        let feed = race.on(&other, |other| other.replenish(1));
        ends(remove, feed);
        assert!(claim.is_woken(), "granted or turned away");
        let Poll::Ready(answer) = claim.poll() else { panic!("it waits for nothing") };
        if answer.is_ok() {
            assert!(!is_served(&mut beside), "there was one token");
            one.replenish(1);
        }
        assert!(is_served(&mut beside), "its token is there");
        assert_eq!((drain(&one), drain(&other)), (0, u64::from(answer.is_err())));
    });
}

/// A class is removed while its limiter gets the token that makes its part of a joint claim ready. The other limiter has
/// none: the claim is turned away, and the class beside it has the token.
///
/// Plant `removed_class_keeps_its_joint_claim`.
#[test]
fn removal_against_a_part_that_becomes_ready() {
    explore_bounded(Some(3), |race| {
        let [one, other] = pair();
        let (a, b) = (class(&one, "a"), class(&other, "b"));
        let mut claim = joint(&a, &b);
        let mut beside = waiting(&class(&one, "beside"), 1);
        let remove = race.actor(move || a.remove());
        let feed = race.on(&one, |one| one.replenish(1));
        ends(remove, feed);
        assert!(claim.is_woken() && matches!(claim.poll(), Poll::Ready(Err(_))), "turned away");
        assert!(is_served(&mut beside), "its token is there");
        assert_eq!((drain(&one), drain(&other)), (0, 0));
    });
}
