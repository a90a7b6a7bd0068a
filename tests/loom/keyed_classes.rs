//! Keys as classes of their parent: a parent that waits to learn the next claim of a key, against everything else.

use crate::{SECOND, ends, explore_bounded};
use std::hash::{BuildHasherDefault, DefaultHasher};
use tokio_test::task::{self, Spawn};
use tollgate::{KeyedConsumeOwned, KeyedLimiter, Limiter, ManualClock, Quota};

type Hasher = BuildHasherDefault<DefaultHasher>;
type Keyed = KeyedLimiter<u64, Hasher>;

/// A token per second for all keys together. The first key has six times the weight of the others.
fn under_classes() -> (Keyed, Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1).burst(1).initial(0);
    let parent = Limiter::builder().quota(quota).classes().clock(clock.clone()).build().expect("valid");
    let builder = KeyedLimiter::builder().clock(clock.clone()).shards(1).parent(&parent);
    let builder = builder.weight_by(|key: &u64| if *key == 1 { 6 } else { 1 });
    (builder.hasher(Hasher::default()).build().expect("valid"), parent, clock)
}

fn waiting(keyed: &Keyed, key: u64) -> Spawn<KeyedConsumeOwned<u64, Hasher>> {
    let mut waiting = task::spawn(keyed.clone().consume_owned(key, 1));
    assert!(waiting.poll().is_pending());
    waiting
}

/// Two callers serve at once, and each may find that the parent waits for a key: the tokens go to the same claims in any
/// case.
///
/// Plant `parent_goes_on_before_the_child_answers`: the caller that finds the parent waiting picks another key.
#[test]
fn a_key_is_served_twice_in_a_row_by_two_callers() {
    explore_bounded(Some(2), |race| {
        let (keyed, parent, clock) = under_classes();
        // By their weights the heavy key comes first twice.
        let (heavy, light) = ([(); 2].map(|()| waiting(&keyed, 1)), waiting(&keyed, 2));
        clock.advance(2 * SECOND);
        let serve = [(); 2].map(|()| {
            let parent = parent.clone();
            race.actor(move || parent.tick())
        });
        serve.into_iter().for_each(|serve| serve.join().unwrap());
        assert_eq!((heavy.each_ref().map(|claim| claim.is_woken()), light.is_woken()), ([true; 2], false));
    });
}

/// The front claim of a key is dropped while the parent grants its proxy: the claim behind it has its token, or the
/// token is still there.
///
/// Plant `waiting_parent_asks_no_child`: the caller that serves the proxy does not ask.
#[test]
fn a_claim_of_a_key_leaves_while_its_class_is_served() {
    explore_bounded(Some(2), |race| {
        let (keyed, parent, clock) = under_classes();
        let (leaving, behind) = (waiting(&keyed, 1), waiting(&keyed, 1));
        clock.advance(SECOND);
        let serve = race.on(&parent, Limiter::tick);
        let leave = race.actor(move || drop(leaving));
        ends(serve, leave);
        assert!(behind.is_woken(), "its token is there");
        assert_eq!((parent.available(), parent.snapshot().waiting_tasks), (0, 0));
    });
}

/// The only claim of a key is dropped, and with it the key, while the parent waits to learn its next claim: another key
/// is served all the same.
///
/// Plants `child_gives_no_answer`: a child with no further claim does not say so, and the parent asks for ever;
/// `proxy_is_granted_without_asking`: the child does not look whether the claim is still there.
#[test]
fn a_key_ends_while_its_parent_waits_for_it() {
    explore_bounded(Some(2), |race| {
        let (keyed, parent, clock) = under_classes();
        let (leaving, behind) = (waiting(&keyed, 1), waiting(&keyed, 2));
        clock.advance(2 * SECOND);
        let serve = race.on(&parent, Limiter::tick);
        let leave = race.on(&keyed, move |keyed| {
            drop(leaving);
            keyed.tick();
        });
        ends(serve, leave);
        assert!(behind.is_woken(), "two tokens for one claim");
        assert_eq!(parent.available(), 1, "the second one is there");
    });
}
