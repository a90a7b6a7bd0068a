//! Every interleaving of the races on one key of a keyed limiter: insertion, removal, taking, waiting.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --features keyed --test loom keyed::` runs them.
//!
//! The references to a live entry are counted by std's `Arc`, which loom does not see: for loom the counts are
//! sequentially consistent. Everything else goes through the shard's lock.

use crate::join::Joint;
use crate::{Race, SECOND, ends, explore, explore_bounded, on_clock, sorted};
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::task::Poll;
use tokio_test::task::{self, Spawn};
use tollgate::{KeyedBuilder, KeyedConsumeOwned, KeyedLimiter, Limiter, ManualClock, Quota, join};

/// A hasher that is the same in every execution.
type Hasher = BuildHasherDefault<DefaultHasher>;
type Keyed = KeyedLimiter<u8, Hasher>;
type Claim = Spawn<KeyedConsumeOwned<u8, Hasher>>;

/// A token per second with a burst of one, for at most `max_keys` keys, in `shards` shards.
fn keyed(max_keys: u64, shards: usize) -> (Keyed, ManualClock) {
    built(|builder| builder.quota(Quota::per_second(1).burst(1)).max_keys(max_keys).shards(shards))
}

/// The same in one shard, and key 1 has no token.
fn empty() -> (Keyed, ManualClock) {
    let (keyed, clock) = keyed(5, 1);
    assert!(takes(&keyed, 1));
    (keyed, clock)
}

fn built(change: impl FnOnce(KeyedBuilder<u8>) -> KeyedBuilder<u8>) -> (Keyed, ManualClock) {
    let clock = ManualClock::new();
    let builder = change(KeyedLimiter::builder().clock(clock.clone()));
    (builder.hasher(BuildHasherDefault::default()).build().expect("valid"), clock)
}

/// A claim that waits for key 1.
fn waiting(keyed: &Keyed) -> Claim {
    let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
    assert!(waiting.poll().is_pending());
    waiting
}

/// Such a claim, which comes while another thread calls `act`.
fn comes_to_wait_while(race: &Race, keyed: &Keyed, act: impl FnOnce(&Keyed) + 'static) -> Claim {
    let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
    let come = race.actor(move || {
        assert!(waiting.poll().is_pending());
        waiting
    });
    let act = race.on(keyed, act);
    let (waiting, ()) = ends(come, act);
    waiting
}

fn takes(keyed: &Keyed, key: u8) -> bool {
    keyed.try_acquire(&key, 1).is_ok()
}

/// Two threads take a token, each of one of these keys.
fn take_at_once(race: &Race, keyed: &Keyed, keys: [u8; 2]) -> [bool; 2] {
    let calls = keys.map(|key| {
        let keyed = keyed.clone();
        race.actor(move || takes(&keyed, key))
    });
    calls.map(|call| call.join().unwrap())
}

/// Two calls insert the same new key: one of them finds what the other left.
///
/// Plant `new_key_is_checked_then_inserted`: the check whether the key is new uses one lock, and the insertion the
/// next.
#[test]
fn two_calls_insert_the_same_key() {
    explore(|race| {
        let (keyed, _clock) = keyed(5, 1);
        let granted = take_at_once(race, &keyed, [1, 1]);
        assert!(granted[0] != granted[1], "one token, granted {granted:?}");
        assert_eq!(keyed.snapshot().keys, 1);
    });
}

/// A key with a full bucket is removed while its token is taken: it does not return full.
///
/// Plant `full_keys_are_listed_then_removed`: full keys are found under one lock, and removed under the next.
#[test]
fn a_key_is_forgotten_while_its_token_is_taken() {
    explore(|race| {
        let (keyed, clock) = empty();
        clock.advance(SECOND);
        let take = race.on(&keyed, |keyed| takes(keyed, 1));
        let sweep = race.on(&keyed, Keyed::tick);
        assert!(take.join().unwrap(), "the bucket was full");
        sweep.join().unwrap();
        assert!(!takes(&keyed, 1), "the token was granted twice");
    });
}

/// A quota is set for all keys while a token is taken. Whichever comes first, later tokens come at the new rate,
/// although no key is visited by the change.
///
/// Plant `quota_for_all_leaves_the_fast_path_open`: a key on the fast path continues with the old quota.
#[test]
fn a_quota_is_set_for_all_while_a_token_is_taken() {
    explore(|race| {
        let (keyed, clock) = built(|builder| builder.quota(Quota::per_second(2).burst(2)).shards(1));
        assert!(takes(&keyed, 1) && takes(&keyed, 1));
        clock.advance(SECOND / 2);
        // The key has one token again.
        let take = race.on(&keyed, |keyed| takes(keyed, 1));
        let set = race.on(&keyed, |keyed| keyed.set_quota(Quota::per_hour(1).burst(2)).expect("valid"));
        assert!(take.join().unwrap(), "the token of the old quota exists under both");
        set.join().unwrap();
        clock.advance(SECOND);
        assert!(!takes(&keyed, 1), "two tokens came by the old quota");
        clock.advance(3_600 * SECOND);
        assert!(takes(&keyed, 1) && !takes(&keyed, 1), "one token in an hour");
    });
}

/// Two new keys, space for one, and a shard for each.
///
/// Plant `key_count_is_read_then_stored`: the count is read, then stored.
#[test]
fn two_new_keys_on_the_last_place() {
    explore(|race| {
        let (keyed, _clock) = keyed(1, 8);
        let granted = take_at_once(race, &keyed, [1, 2]);
        assert!(granted[0] != granted[1], "space for one key, granted {granted:?}");
    });
}

/// A live entry without users is removed while a claim comes to wait in it: the claim is served.
///
/// Plant `key_in_use_counts_as_idle`: a user that has not entered the queue yet does not count.
#[test]
fn a_live_entry_is_removed_while_a_claim_enters() {
    explore(|race| {
        let (keyed, clock) = empty();
        drop(waiting(&keyed));
        let mut waiting = comes_to_wait_while(race, &keyed, Keyed::tick);
        clock.advance(SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "the claim waits in a queue that is not served");
        assert!(!takes(&keyed, 1), "the token was granted twice");
    });
}

/// A token per second with a burst of one, for each key and for their parent.
fn under_a_limiter(shards: usize) -> (Keyed, Limiter, ManualClock) {
    let (keyed, [global, _], clock) = beside_another(shards);
    (keyed, global, clock)
}

/// The same, and another limiter like the parent.
fn beside_another(shards: usize) -> (Keyed, [Limiter; 2], ManualClock) {
    let (clock, second) = (ManualClock::new(), Quota::per_second(1).burst(1));
    let pair: [Limiter; 2] = sorted(|| on_clock(&clock, Limiter::builder().quota(second)));
    let builder = KeyedLimiter::builder().clock(clock.clone()).parent(&pair[0]).quota(second).shards(shards);
    (builder.hasher(BuildHasherDefault::default()).build().expect("valid"), pair, clock)
}

/// The parent grants the proxy of a claim that is dropped: whichever comes first, no tokens are lost in either.
///
/// Plants `parent_grants_a_proxy_alone`, `proxy_is_granted_without_asking`: the claim that was dropped is granted by the
/// parent only.
#[test]
fn a_claim_leaves_while_its_proxy_is_granted() {
    explore_bounded(Some(3), |race| {
        let (keyed, global, clock) = under_a_limiter(1);
        drop(global.try_acquire(1));
        let leaving = waiting(&keyed);
        clock.advance(SECOND);
        let grant = race.on(&global, Limiter::tick);
        let leave = race.actor(move || drop(leaving));
        ends(grant, leave);
        assert_eq!((keyed.available(&1), global.available()), (1, 1), "granted by the parent, and lost");
    });
}

/// The keyed limiter closes while the parent grants: the claim is granted by both, or by neither.
///
/// Plant `parent_grants_a_proxy_alone`: closing refuses a claim that the parent has granted.
///
/// Bounded: each of the two actors takes both locks several times, and all interleavings are more than a million.
#[test]
fn keys_close_while_the_parent_grants() {
    explore_bounded(Some(3), |race| {
        let (keyed, global, clock) = under_a_limiter(1);
        drop(global.try_acquire(1));
        let mut waiting = waiting(&keyed);
        clock.advance(SECOND);
        let grant = race.on(&global, Limiter::tick);
        let close = race.on(&keyed, Keyed::close);
        ends(grant, close);
        let Poll::Ready(answer) = waiting.poll() else { panic!("the claim is still pending") };
        assert_eq!(global.available(), u64::from(answer.is_err()), "answered {:?}", answer.map(drop));
    });
}

/// The key that a joint claim over the key and another limiter waits for, and that claim, not polled yet.
fn joined(keyed: &Keyed, other: &Limiter) -> (Limiter, Joint) {
    let (key, other) = (keyed.limiter(&1).expect("valid"), other.clone());
    let member = key.clone();
    (key, task::spawn(Box::pin(async move { join([(&member, 1), (&other, 1)]).await.map(std::mem::forget) })))
}

/// A joint claim over a key enters while the parent of the key has the key answer for its first claim.
///
/// Plant `joint_claim_over_a_key_leaves_its_parent_out`: it takes nothing there.
#[test]
fn a_joint_claim_over_a_key_enters_while_the_parent_asks_the_key() {
    explore_bounded(Some(2), |race| {
        let (keyed, [global, other], clock) = beside_another(1);
        drop(global.try_acquire(1));
        let mut first = waiting(&keyed);
        let (key, mut joint) = joined(&keyed, &other);
        clock.advance(SECOND);
        let grant = race.on(&global, Limiter::tick);
        let enter = race.actor(move || {
            assert!(joint.poll().is_pending(), "the first claim has the token of both");
            joint
        });
        let ((), mut joint) = ends(grant, enter);
        assert!(first.poll().is_ready());
        clock.advance(SECOND);
        key.tick();
        assert!(joint.is_woken() && joint.poll().is_ready());
        assert_eq!(global.snapshot().granted, 3);
    });
}

/// A joint claim over a key becomes due in another limiter, and is reviewed, while the parent of the key has the key answer.
///
/// Plant `child_answers_after_its_reviews`: the review waits for the parent, which waits for the key.
#[test]
fn a_joint_claim_over_a_key_is_reviewed_while_the_parent_asks_the_key() {
    explore_bounded(Some(2), |race| {
        let (keyed, [global, other], clock) = beside_another(1);
        [&global, &other].iter().for_each(|limiter| drop(limiter.try_acquire(1)));
        let mut first = waiting(&keyed);
        let (key, mut joint) = joined(&keyed, &other);
        assert!(joint.poll().is_pending());
        other.pause_for(2 * SECOND);
        clock.advance(SECOND);
        let grant = race.on(&global, Limiter::tick);
        let review = race.on(&other, Limiter::resume);
        ends(grant, review);
        assert!(first.poll().is_ready());
        clock.advance(SECOND);
        key.tick();
        assert!(joint.is_woken() && joint.poll().is_ready());
    });
}

/// Two keys, and one token in the parent: one of them is granted, and the other one has lost nothing.
///
/// Plant `parent_is_checked_then_claimed`: between the check and the claim, the other key does the same.
#[test]
fn two_keys_on_the_last_token_of_the_parent() {
    explore(|race| {
        let (keyed, global, _clock) = under_a_limiter(8);
        let granted = take_at_once(race, &keyed, [1, 2]);
        assert!(granted[0] != granted[1], "one token in the parent, granted {granted:?}");
        assert_eq!(keyed.snapshot().keys, 1);
        assert_eq!(global.snapshot().granted, 1);
    });
}

/// A claim begins to wait for a key while a quota is set for all keys: whichever comes first, it waits by the new one.
///
/// Plant `waiters_are_not_told_of_a_quota_for_all`: the keys with waiters continue with the old quota.
#[test]
fn a_quota_is_set_for_all_while_a_caller_comes_to_wait() {
    explore(|race| {
        let (keyed, clock) = empty();
        let mut waiting =
            comes_to_wait_while(race, &keyed, |keyed| keyed.set_quota(Quota::per_hour(1).burst(1)).expect("valid"));
        clock.advance(SECOND);
        keyed.tick();
        assert!(!waiting.is_woken(), "its token came by the old quota");
        clock.advance(3_600 * SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "a token in an hour");
    });
}

/// All keys are paused while a token is taken: whichever comes first, nothing is granted afterwards.
///
/// Plant `pause_of_all_leaves_the_fast_path_open`: a key on the fast path is granted tokens.
#[test]
fn all_keys_are_paused_while_a_token_is_taken() {
    explore(|race| {
        let (keyed, clock) = built(|builder| builder.quota(Quota::per_second(1).burst(3)).shards(1));
        assert!(takes(&keyed, 1));
        let take = race.on(&keyed, |keyed| takes(keyed, 1));
        let pause = race.on(&keyed, |keyed| keyed.pause_all_for(SECOND));
        let (taken, ()) = ends(take, pause);
        assert!(!takes(&keyed, 1) && !takes(&keyed, 2), "granted during the pause");
        clock.advance(SECOND);
        assert_eq!(keyed.available(&1), if taken { 2 } else { 3 });
    });
}

/// A claim begins to wait for a key while all keys are paused: whichever comes first, it waits to the end of the pause.
///
/// Plant `waiters_are_not_told_of_a_pause_of_all`: the keys with waiters are not paused.
#[test]
fn all_keys_are_paused_while_a_caller_comes_to_wait() {
    explore(|race| {
        let (keyed, clock) = empty();
        let mut waiting = comes_to_wait_while(race, &keyed, |keyed| keyed.pause_all_for(3 * SECOND));
        clock.advance(2 * SECOND);
        keyed.tick();
        assert!(!waiting.is_woken(), "granted during the pause");
        clock.advance(SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "its token has been available for two seconds");
    });
}

/// The pause of all keys ends while a claim begins to wait: whichever comes first, the claim is served when its token is
/// there.
///
/// Plant `waiters_are_not_told_of_the_end_of_a_pause_of_all`: the keys with waiters stay paused.
#[test]
fn all_keys_are_resumed_while_a_caller_comes_to_wait() {
    explore(|race| {
        let (keyed, clock) = empty();
        keyed.pause_all_for(3 * SECOND);
        let mut waiting = comes_to_wait_while(race, &keyed, Keyed::resume_all);
        clock.advance(SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "not paused, and its token is there");
    });
}

/// All keys are paused while another thread ends a pause: in the end a key with a waiter and one without are both paused, or
/// neither.
///
/// Plant `pause_of_all_is_read_before_the_lock`: a key with a waiter is paused, and the others are not.
#[test]
fn all_keys_are_paused_and_resumed_at_once() {
    explore(|race| {
        let (keyed, _clock) = empty();
        let _waiting = waiting(&keyed);
        let pause = race.on(&keyed, |keyed| keyed.pause_all_for(9 * SECOND));
        let resume = race.on(&keyed, Keyed::resume_all);
        ends(pause, resume);
        let is_paused = [1, 2].map(|key| keyed.estimate(&key, 1) >= Some(9 * SECOND));
        assert!(is_paused[0] == is_paused[1], "{is_paused:?}");
    });
}

/// The in-flight cap is changed while the first grant of a key is made: whichever comes first, the key has the new cap.
///
/// Plant `cap_is_changed_after_the_visit`: an entry that is created between the visit and the change keeps the old cap.
#[test]
fn a_cap_is_set_while_a_grant_is_made() {
    explore(|race| {
        let (keyed, _clock) = built(|builder| builder.quota(Quota::per_second(1).burst(4)).max_in_flight(1).shards(1));
        let take = race.on(&keyed, |keyed| keyed.clone().try_acquire_owned(1, 1).expect("one token may be in flight"));
        let set = race.on(&keyed, |keyed| keyed.set_max_in_flight(2).expect("valid"));
        let (_held, ()) = ends(take, set);
        assert_eq!(keyed.available(&1), 1, "two may be in flight");
    });
}

/// Two quotas are set for all keys at once: keys of different shards continue with the same one of them.
///
/// Bounded: each call takes the locks of eight shards.
///
/// Plant `quotas_for_all_are_set_in_the_order_of_arrival`: in each shard the last one to arrive applies.
#[test]
fn two_quotas_are_set_for_all() {
    explore_bounded(Some(3), |race| {
        let (keyed, clock) = keyed(5, 8);
        assert!(takes(&keyed, 1) && takes(&keyed, 2));
        let sets = [Quota::per_second(1).burst(1), Quota::per_hour(1).burst(1)].map(|quota| {
            let keyed = keyed.clone();
            race.actor(move || keyed.set_quota(quota).expect("valid"))
        });
        sets.into_iter().for_each(|set| set.join().unwrap());
        clock.advance(SECOND);
        let granted = [1, 2].map(|key| takes(&keyed, key));
        assert!(granted[0] == granted[1], "one by each quota: {granted:?}");
    });
}
