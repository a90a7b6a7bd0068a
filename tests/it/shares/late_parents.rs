//! Keys are served at a later instant than their parent, which is behind: that costs them nothing there.

use crate::fixture::*;
use tollgate::{KeyedConsumeOwned, OwnedKeyedGrant};

type Waiters = Vec<Spawn<KeyedConsumeOwned<usize>>>;

/// Two keys with a queue each, under a parent that is served once in ten grants. Just before that, each time, a caller does
/// something with the first key. Returns how many claims of each key were granted.
fn grants(
    quota: Option<Quota>,
    call: impl Fn(&KeyedLimiter<usize>, &mut Waiters, &mut OwnedKeyedGrant<usize>),
) -> [usize; 2] {
    let clock = ManualClock::new();
    let parent = Limiter::builder().quota(Quota::per_second(100).burst(10));
    let parent = parent.classes().clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().clock(clock.clone()).parent(&parent);
    let builder = quota.into_iter().fold(builder, |builder, quota| builder.quota(quota));
    let keyed: KeyedLimiter<usize> = builder.build().unwrap();
    let mut held = keyed.clone().try_acquire_owned(0, 10).unwrap();
    let mut queues: [Waiters; 2] =
        std::array::from_fn(|key| (0..200).map(|_| spawn(keyed.clone().consume_owned(key, 1))).collect());
    queues.iter_mut().flatten().for_each(|claim| assert_pending!(claim.poll()));
    for _ in 0..10 {
        clock.advance(Duration::from_millis(100));
        call(&keyed, &mut queues[0], &mut held);
        parent.tick();
    }
    queues.each_ref().map(|waiters| woken(waiters))
}

#[test]
fn a_key_that_is_served_before_its_parent_keeps_its_share() {
    for quota in [None, Some(Quota::per_second(1_000))] {
        let fair = |[first, second]: [usize; 2]| assert!(first.abs_diff(second) <= 2, "{first} {second}");
        fair(grants(quota, |_, _, _| ()));
        fair(grants(quota, |_, waiters, _| drop(waiters.pop())));
        fair(grants(quota, |keyed, _, _| keyed.pause_for(&0, Duration::ZERO)));
        let [first, second] = grants(quota, |_, _, held| held.settle(held.cost() - 1));
        assert!(
            first.abs_diff(second) <= 2 && first + second == 110,
            "{first} {second}, with ten tokens that came back"
        );
    }
}
