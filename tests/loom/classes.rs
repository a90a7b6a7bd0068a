//! Classes: claims of several queues against one service, and changes against claims.

use crate::{build, drain, ends, explore};
use std::task::Poll;
use tokio_test::task::{self, Spawn};
use tollgate::{Class, ConsumeOwned, Limiter, Quota, Share};

pub(crate) fn divided(capacity: u64) -> Limiter {
    build(Limiter::builder().quota(Quota::manual(capacity).initial(0)).classes())
}

pub(crate) fn class(limiter: &Limiter, name: &str) -> Class {
    limiter.class(name, Share::weight(1)).unwrap()
}

pub(crate) fn waiting(class: &Class, cost: u64) -> Spawn<ConsumeOwned<Class>> {
    let mut waiting = task::spawn(class.clone().consume_owned(cost));
    assert!(waiting.poll().is_pending());
    waiting
}

/// Granted by now, whether the caller knows or was woken for it.
pub(crate) fn is_served(waiting: &mut Spawn<ConsumeOwned<Class>>) -> bool {
    waiting.is_woken() && matches!(waiting.poll(), Poll::Ready(Ok(_)))
}

/// A claim arrives in one class while the tokens come for it and for those that wait in the other: whichever is first,
/// all of them are served.
///
/// Plant `classes_are_served_one_batch_only`: what did not fit into one batch of wakers is left.
#[test]
fn arrival_in_two_classes_against_service() {
    explore(|race| {
        let limiter = divided(3);
        let (a, b) = (class(&limiter, "a"), class(&limiter, "b"));
        let mut first = [1, 1].map(|cost| waiting(&a, cost));
        let mut second = task::spawn(b.consume_owned(1));
        let arrive = race.actor(move || {
            let granted = matches!(second.poll(), Poll::Ready(Ok(_)));
            (granted, second)
        });
        let serve = race.on(&limiter, |limiter| limiter.replenish(3));
        let ((granted, mut second), ()) = ends(arrive, serve);
        assert!(first.iter_mut().all(is_served), "their tokens are there");
        assert!(granted || is_served(&mut second), "its token is there");
        assert_eq!(drain(&limiter), 0);
    });
}

/// The claim in service is dropped while a token comes that is too few for it, and enough for the claim of the other
/// class.
///
/// Plant `cancelled_claim_of_a_class_keeps_its_positions`.
#[test]
fn cancel_of_the_claim_in_service_against_service() {
    explore(|race| {
        let limiter = divided(2);
        let (a, b) = (class(&limiter, "a"), class(&limiter, "b"));
        let (in_service, mut behind) = (waiting(&a, 2), waiting(&b, 1));
        let cancel = race.actor(move || drop(in_service));
        let serve = race.on(&limiter, |limiter| limiter.replenish(1));
        ends(cancel, serve);
        assert!(is_served(&mut behind), "its token is there");
        assert_eq!(drain(&limiter), 0);
    });
}

/// A class is removed while a token comes for the claim that waits in it: the claim is granted or turned away, the other
/// class gets what it leaves, and no token is lost.
///
/// Plant `removed_class_keeps_its_positions`.
#[test]
fn removal_with_waiters_against_service() {
    explore(|race| {
        let limiter = divided(2);
        let (a, b) = (class(&limiter, "a"), class(&limiter, "b"));
        let (mut removed, mut behind) = (waiting(&a, 1), waiting(&b, 2));
        let remove = race.actor(move || a.remove());
        let serve = race.on(&limiter, |limiter| limiter.replenish(2));
        ends(remove, serve);
        assert!(removed.is_woken(), "granted or turned away");
        if matches!(removed.poll(), Poll::Ready(Ok(_))) {
            assert!(!is_served(&mut behind));
            limiter.replenish(1);
        }
        assert!(is_served(&mut behind), "its tokens are there");
        assert_eq!(drain(&limiter), 0);
    });
}

/// A class with a class in it is removed while another class is made in it and a claim arrives there: either none is made,
/// or it is removed too. All claims are turned away.
///
/// Plant `class_made_meanwhile_stays`.
#[test]
fn removal_in_steps_against_a_new_class() {
    explore(|race| {
        let limiter = divided(1);
        let outer = class(&limiter, "outer");
        let inner = outer.class("inner", Share::weight(1)).unwrap();
        let mut removed = waiting(&inner, 1);
        let remove = race.on(&outer, Class::remove);
        let add = race.actor(move || {
            let added = outer.class("added", Share::weight(1)).ok()?;
            let mut claim = task::spawn(added.consume_owned(1));
            claim.poll().is_pending().then_some(claim)
        });
        let ((), mut entered) = ends(remove, add);
        for claim in [&mut removed].into_iter().chain(entered.as_mut()) {
            assert!(claim.is_woken() && matches!(claim.poll(), Poll::Ready(Err(_))), "turned away");
        }
        limiter.replenish(1);
        assert_eq!(drain(&limiter), 1);
        assert!(limiter.class("outer", Share::weight(1)).is_ok(), "its name is free");
    });
}

/// A ceiling is lifted while its class claims: the claim is granted at once or waits, and is served when the ceiling is
/// gone.
///
/// Plant `lifted_ceiling_leaves_its_class_held`.
#[test]
fn ceiling_lifted_against_arrival() {
    explore(|race| {
        let limiter = divided(1);
        let a = limiter.class("a", Share::weight(1).ceiling(Quota::per_second(1).initial(0))).unwrap();
        limiter.replenish(1);
        let mut claim = task::spawn(a.clone().consume_owned(1));
        let arrive = race.actor(move || {
            let granted = matches!(claim.poll(), Poll::Ready(Ok(_)));
            (granted, claim)
        });
        let lift = race.actor(move || a.set_share(Share::weight(1)).unwrap());
        let ((granted, mut claim), ()) = ends(arrive, lift);
        assert!(granted || is_served(&mut claim), "nothing holds it back");
        assert_eq!(drain(&limiter), 0);
    });
}
