//! The work of one call: it does not grow with the size of a claim, and it is bounded while the lock is held.

use super::pending;
use crate::core::classes::floor::Rate;
use crate::core::classes::limits::Limits;
use crate::core::classes::retained::MOST_RETAINED;
use crate::core::classes::simulation::{MAX_STEPS, MOST_SIMULATED};
use crate::core::classes::tree::Tree;
use crate::core::classes::{KeyName, Pick, ROOT, tags};
use crate::core::state::Served;
use crate::core::steps;
use crate::core::wakes::Wakes;
use crate::handle::Handle;
use crate::{Class, Limiter, ManualClock, Quota, Share};
use std::time::Duration;
use tokio_test::task::spawn;

fn limiter(quota: Quota) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().quota(quota).classes().clock(clock.clone()).build().expect("valid"), clock)
}

pub(super) fn hundred() -> Quota {
    Quota::per_second(100).burst(10).initial(0)
}

pub(super) fn classes(limiter: &Limiter, count: usize) -> Vec<Class> {
    (0..count).map(|name| limiter.class(name.to_string(), Share::weight(1)).expect("free")).collect()
}

fn steps_of<R>(act: impl FnOnce() -> R) -> u64 {
    steps::take();
    drop(act());
    steps::take()
}

/// Steps of the call itself, beside those of an estimate.
pub(super) const FEW: u64 = 8;

#[test]
fn an_estimate_takes_a_bounded_number_of_steps() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 2);
    let _ahead: Vec<_> = (0..2_000).map(|index| pending(classes[index % 2].consume(35))).collect();
    let most = MAX_STEPS as u64 + FEW;
    assert!(steps_of(|| classes[0].estimate(1 << 20)) <= most);
    assert!(steps_of(|| classes[0].estimate(1)) <= most);
    assert!(steps_of(|| spawn(classes[1].consume(1 << 20).within(Duration::from_secs(1))).poll().is_ready()) <= most);
}

#[test]
fn a_denial_takes_no_simulation() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 2);
    assert!(steps_of(|| classes[0].try_acquire(1).is_err()) <= FEW);
    let _ahead: Vec<_> = (0..100).map(|index| pending(classes[index % 2].consume(1_000))).collect();
    assert!(steps_of(|| classes[0].try_acquire(1).is_err()) <= FEW);
}

#[test]
fn an_estimate_beside_many_classes_takes_no_simulation() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, MOST_SIMULATED as usize);
    let _ahead = pending(classes[1].consume(1_000));
    assert!(steps_of(|| classes[0].estimate(1_000)) <= FEW);
}

#[test]
fn a_serving_pass_releases_the_lock_although_it_wakes_no_waiter() {
    let (limiter, clock) = limiter(Quota::per_second(1_000).burst(1).initial(0));
    let classes = classes(&limiter, 2);
    let giant = pending(classes[0].consume(10_000));
    clock.advance(Duration::from_secs(10));
    let core = limiter.core();
    let mut wakes = Wakes::default();
    let sample = core.sample();
    let mut passes = 0;
    let mut most = 0;
    loop {
        steps::take();
        let result = core.state.lock().finish(&core.rovers, sample.now, &mut wakes);
        most = most.max(steps::take());
        passes += 1;
        if result == Served::All {
            break;
        }
        wakes.wake_all();
    }
    wakes.run();
    assert!(most <= 64, "{most} steps while the lock was held");
    assert!(giant.is_woken() && passes > 100);
}

#[test]
fn a_limiter_that_was_closed_does_not_look_at_its_classes_again() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 1_000);
    let mut waiting: Vec<_> = (0..2_000).map(|index| pending(classes[index % 1_000].consume(1))).collect();
    assert!(steps_of(|| limiter.close()) < 3_100, "each class and each waiter once");
    assert!(waiting.iter_mut().all(|claim| claim.poll().is_ready()));
    assert!(steps_of(|| limiter.available()) <= FEW);
}

#[test]
fn a_limiter_that_was_closed_looks_at_its_classes_in_steps_up_to_the_last_one() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 3_000);
    let mut last = pending(classes[2_999].consume(1));
    let core = limiter.core();
    let mut wakes = Wakes::default();
    let mut holds = 0;
    core.state.lock().close(&core.rovers);
    while core.state.lock().finish(&core.rovers, 0, &mut wakes) == Served::Again {
        holds += 1;
    }
    wakes.run();
    assert!(last.poll().is_ready() && holds == 2, "{holds} more holds of the lock");
}

#[test]
fn a_change_of_a_class_does_not_look_at_the_others() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 1_000);
    let _waiting: Vec<_> = classes.iter().map(|class| pending(class.consume(100))).collect();
    let floor = Share::weight(2).floor(Quota::per_second(1));
    let ceiling = Quota::per_second(50).burst(10);
    for share in [floor, floor.ceiling(ceiling), Share::weight(1).ceiling(ceiling), Share::weight(1)] {
        assert!(steps_of(|| classes[7].set_share(share).expect("valid")) <= FEW);
    }
    assert!(steps_of(|| limiter.class("one more", floor).expect("free")) <= 2 * FEW, "made and dropped");
    assert!(steps_of(|| classes[8].remove()) <= FEW);
    limiter.set_quota(0, Quota::per_second(200).burst(10)).expect("valid");
    assert!(steps_of(|| limiter.set_quota(0, Quota::per_second(100).burst(10)).expect("valid")) <= FEW);
}

#[test]
fn a_removed_class_turns_its_waiters_away_in_batches() {
    let (limiter, _) = limiter(hundred());
    let classes = classes(&limiter, 2);
    let mut waiting: Vec<_> = (0..1_000).map(|_| pending(classes[0].consume(1))).collect();
    let core = limiter.core();
    let mut wakes = Wakes::default();
    let now = core.sample().now;
    // The first class; number 1 is the leaf for claims on the limiter itself.
    core.state.lock().remove_class(2);
    assert_eq!(core.state.lock().finish(&core.rovers, now, &mut wakes), Served::Again);
    let left = classes[0].snapshot().waiting_tasks;
    assert_eq!(left, 0, "the next caller turns the others away");
    wakes.run();
    assert!(waiting.iter_mut().all(|claim| claim.poll().is_ready()));
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}

#[test]
fn what_removed_classes_leave_does_not_pile_up() {
    let (limiter, clock) = limiter(Quota::per_second(1_000));
    let share = Share::weight(1).ceiling(Quota::per_second(20).burst(1));
    let retained = || limiter.core().state.lock().classes().map(|classes| classes.retained.known.len());
    for name in 0..1_000 {
        let class = limiter.class(name.to_string(), share).expect("free");
        assert!(class.try_acquire(1).is_ok());
        drop(class);
        assert!(retained() > Some(0), "its ceiling is not full");
        clock.advance(Duration::from_millis(10));
    }
    assert!(retained() < Some(30), "{:?}, although after 50 ms a ceiling is full again", retained());
}

#[test]
fn debts_of_classes_that_come_and_go_are_not_listed_again_and_again() {
    let (limiter, clock) = limiter(Quota::per_second(10).burst(1).initial(0));
    let _ahead = pending(limiter.consume(1_000_000));
    for name in 0..100 {
        let class = limiter.class(name.to_string(), Share::weight(1_000)).expect("free");
        let core = limiter.core();
        core.with(|state, rovers, _| state.charge(rovers, class.scope().id, 1));
        clock.advance(Duration::from_secs(1));
    }
    let mut state = limiter.core().state.lock();
    let listed = state.classes_mut().expect("built with classes").scheduler.debtors.len();
    assert!(listed <= 4, "{listed}");
}

/// A key is gone while another one still waits below the class that was removed: no class takes over what it leaves.
#[test]
fn what_a_key_of_a_removed_class_leaves_is_not_kept() {
    let (limiter, _) = limiter(hundred());
    let _outer = limiter.class("outer", Share::weight(1)).expect("free");
    let mut state = limiter.core().state.lock();
    let classes = state.classes_mut().expect("built with classes");
    let keys = [1, 2].map(|hash| classes.join_key(2, KeyName { limiter: 0, hash }, 1, 0));
    keys.iter().for_each(|key| classes.scheduler.tree.set_front(*key, 5, 0));
    let pick = classes.scheduler.tree.pick().expect("two wait");
    classes.scheduler.tree.pay_claim(pick, 0, 0);
    classes.unlist(2, 0);
    let kept = classes.retained.known.len();
    classes.remove_user(pick.leaf, 0);
    assert_eq!(classes.retained.known.len(), kept);
}

#[test]
fn a_ceiling_holds_however_many_classes_are_removed() {
    const NAMES: u64 = 20_000;
    let (limiter, clock) = limiter(Quota::per_second(10_000_000).burst(10_000_000));
    let share = Share::weight(1).ceiling(Quota::per_hour(3_600).burst(100));
    let class = |name: u64| limiter.class(format!("tenant {name}"), share).expect("free");
    let retained = || limiter.core().state.lock().classes().map_or(0, |classes| classes.retained.known.len());
    (0..NAMES).for_each(|name| assert!(class(name).try_acquire(2).is_ok(), "{name}"));
    for name in (0..NAMES).step_by(200) {
        assert!(class(name).try_acquire(99).is_err() && class(name).try_acquire(98).is_ok(), "{name}");
    }
    clock.advance(Duration::from_secs(200));
    (0..NAMES).for_each(|name| assert!(class(name).try_acquire(100).is_ok(), "{name}: it is full again"));
    clock.advance(Duration::from_secs(200));
    // Those that are full again make room for others.
    (0..NAMES).for_each(|name| assert!(class(NAMES + name).try_acquire(1).is_ok(), "{name}"));
    assert!(retained() < NAMES as usize * 5 / 4, "{}", retained());
}

#[test]
fn what_keys_leave_is_bounded() {
    let (limiter, _) = limiter(hundred());
    let _waits = limiter.class("waits", Share::weight(1)).expect("free");
    let mut state = limiter.core().state.lock();
    let classes = state.classes_mut().expect("built with classes");
    classes.scheduler.tree.set_front(1, 5, 0);
    let keys = 0..2 * MOST_RETAINED as u64;
    let keys: Vec<_> = keys.map(|hash| classes.join_key(ROOT, KeyName { limiter: 0, hash }, 1, 0)).collect();
    keys.iter().for_each(|key| classes.scheduler.tree.set_front(*key, 5, 0));
    for key in keys {
        classes.scheduler.tree.pay_claim(Pick { leaf: key, tokens: 5, by_floor: false }, 0, 0);
        classes.remove_user(key, 0);
    }
    let retained = classes.retained.known.len();
    assert!((MOST_RETAINED / 2..=MOST_RETAINED + 1).contains(&retained), "{retained}");
}

/// Tags are set back before they overflow, and the shares stay.
#[test]
fn tags_do_not_overflow() {
    const TOKENS: u64 = 1 << 60;
    let quota = Quota::per_second(1 << 60).burst(TOKENS);
    let mut tree = Tree::new(Limits::of(std::iter::once(quota)));
    let [a, b] = [3, 1].map(|weight| tree.add(ROOT, weight));
    let idle = tree.add(ROOT, 1);
    let mut served = [0, 0];
    let mut set_back = 0;
    for round in 0..20_000_u64 {
        let tag = tree.rare(ROOT).virtual_time;
        for leaf in [a, b] {
            tree.set_front(leaf, TOKENS, round);
        }
        let pick = tree.pick().expect("two leaves wait");
        served[usize::from(pick.leaf == b)] += 1;
        tree.charge(pick.leaf, pick, round);
        tree.set_front(pick.leaf, 0, round);
        tree.set_front(pick.leaf, TOKENS, round);
        assert!(tree.rare(ROOT).largest <= tags::MAX_TAG);
        set_back += u64::from(tree.rare(ROOT).virtual_time < tag);
    }
    assert!(set_back > 2, "{set_back}");
    assert_eq!(served, [15_000, 5_000]);
    // A class that was idle all the time has neither credit nor a charge.
    for leaf in [a, b] {
        tree.set_front(leaf, 0, 20_000);
    }
    for leaf in [idle, b] {
        tree.set_front(leaf, TOKENS, 20_000);
    }
    let mut picked = Vec::new();
    for round in 20_000..20_006 {
        let pick = tree.pick().expect("two leaves wait");
        picked.push(pick.leaf);
        tree.charge(pick.leaf, pick, round);
        tree.set_front(pick.leaf, TOKENS - round, round);
    }
    assert_eq!(picked.iter().filter(|leaf| **leaf == idle).count(), 3, "{picked:?}");
}

/// A class of a large weight is backlogged: the virtual time stands nearly still, and keys that were served are ahead of it.
#[cfg(feature = "keyed")]
#[test]
fn keys_that_leave_without_a_grant_leave_nothing() {
    let (limiter, clock) = limiter(Quota::per_second(1_000).burst(10).initial(0));
    let heavy = limiter.class("heavy", Share::weight(1_000_000)).expect("free");
    let light = limiter.class("light", Share::weight(1)).expect("free");
    let mut waiting: Vec<_> = (0..100).map(|_| spawn(heavy.consume(1))).collect();
    waiting.extend((0..2).map(|_| spawn(light.consume(10))));
    waiting.iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
    clock.advance(Duration::from_millis(50));
    limiter.tick();
    assert!(waiting[100].is_woken() && !waiting[101].is_woken());
    let keyed: crate::KeyedLimiter<usize> =
        crate::KeyedLimiter::builder().clock(clock).max_keys(10).parent(&limiter).build().expect("valid");
    for key in 0..1_000 {
        drop(pending(keyed.consume(&key, 1)));
        assert!(keyed.try_acquire(&key, 1).is_err());
    }
    drop(keyed);
    let state = limiter.core().state.lock();
    let classes = state.classes().expect("it has classes");
    assert_eq!(classes.retained.known.len(), 0);
    assert!(classes.len() < 100, "a key takes the number of one that has left, but {} are taken", classes.len());
}

/// Each sum of rates with large terms is rounded down.
#[test]
fn the_sum_of_all_floors_does_not_shrink_with_each_change() {
    let mut tree = Tree::new(Limits::of(std::iter::once(Quota::per_second(1))));
    let [a, b] = [1, 1].map(|weight| tree.add(ROOT, weight));
    let odd = |by: u64| Quota::new(1, Duration::from_secs(86_400) + Duration::from_nanos(7 + 2 * by));
    tree.set_floor(a, Some(odd(0)), 0);
    for change in 0..40_000 {
        tree.set_floor(b, Some(odd(1 + change % 97)), 0);
    }
    let sum = tree.floors.as_f64() * 86_400e9;
    assert!((1.99..2.01).contains(&sum), "{sum} instead of 2");
    [a, b].into_iter().for_each(|leaf| tree.set_floor(leaf, None, 0));
    assert_eq!(tree.floors, Rate::ZERO);
}

/// Until then no grant is made without the lock.
#[test]
fn nothing_stays_set_aside_for_a_joint_claim_that_was_granted_or_has_left() {
    for leaves in [false, true] {
        let (tokens, clock) = limiter(hundred());
        let requests = Quota::per_second(1).burst(1).initial(0);
        let requests = Limiter::builder().quota(requests).clock(clock.clone()).build().expect("valid");
        let members: [crate::AnyLimiter; 2] = [requests.clone().into(), classes(&tokens, 1).remove(0).into()];
        let mut giant = spawn(crate::join([(&members[0], 1), (&members[1], 25)]));
        let is_set_aside = || tokens.core().state.lock().supply.aside() > 0;
        assert!(giant.poll().is_pending());
        clock.advance(Duration::from_millis(400));
        [&requests, &tokens].iter().for_each(|limiter| limiter.tick());
        assert!(is_set_aside());
        if !leaves {
            clock.advance(Duration::from_secs(1));
            [&requests, &tokens].iter().for_each(|limiter| limiter.tick());
            assert!(giant.poll().is_ready());
        }
        drop(giant);
        assert!(!is_set_aside());
    }
}
