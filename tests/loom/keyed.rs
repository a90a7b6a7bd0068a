//! Every interleaving of the races on one key of a keyed limiter: insertion, removal, taking, waiting.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --features keyed --test loom keyed::` runs them. As in
//! `tests/loom/main.rs`, the main thread only sets up and checks, every actor begins with a read-modify-write, and the
//! plant named above each model makes it fail: `scripts/plants` proves that.
//!
//! The references to a live entry are counted by std's `Arc`, which loom does not see: for loom the counts are
//! sequentially consistent. Everything else goes through the shard's lock.

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task;
use tollgate::{KeyedLimiter, Limiter, ManualClock, Quota};

const SECOND: Duration = Duration::from_secs(1);

/// A hasher that is the same in every execution.
type Keyed = KeyedLimiter<u8, BuildHasherDefault<DefaultHasher>>;

/// A token per second with a burst of one, for at most `max_keys` keys, in `shards` shards.
fn keyed(max_keys: u64, shards: usize) -> (Keyed, ManualClock) {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(1)).max_keys(max_keys);
    let builder = builder.clock(clock.clone()).shards(shards).hasher(BuildHasherDefault::default());
    (builder.build().expect("valid"), clock)
}

fn takes(keyed: &Keyed, key: u8) -> bool {
    keyed.try_acquire(&key, 1).is_ok()
}

/// Spawns an actor. The order of these first steps orders nothing else.
fn actor<T: 'static>(race: &Arc<AtomicU64>, act: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let start = race.clone();
    thread::spawn(move || {
        start.fetch_add(1, Relaxed);
        act()
    })
}

fn explore(model: impl Fn(&Arc<AtomicU64>) + Send + Sync + 'static) {
    explore_bounded(None, model);
}

/// Runs `model` in every interleaving with at most this many preemptions: switches away from a thread that could
/// continue.
fn explore_bounded(preemptions: Option<usize>, model: impl Fn(&Arc<AtomicU64>) + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model(&Arc::default());
    });
    println!("{} executions", executions.load(Relaxed));
}

/// Two calls insert the same new key: one of them finds what the other left.
///
/// Plant `new_key_is_checked_then_inserted`: the check whether the key is new uses one lock, and the insertion the
/// next.
#[test]
fn two_calls_insert_the_same_key() {
    explore(|race| {
        let (keyed, _clock) = keyed(5, 1);
        let calls = [keyed.clone(), keyed.clone()].map(|keyed| actor(race, move || takes(&keyed, 1)));
        let granted = calls.map(|call| call.join().unwrap());
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
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        clock.advance(SECOND);
        let (taker, sweeper) = (keyed.clone(), keyed.clone());
        let take = actor(race, move || takes(&taker, 1));
        let sweep = actor(race, move || sweeper.tick());
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
        let clock = ManualClock::new();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(2).burst(2)).shards(1);
        let builder = builder.clock(clock.clone()).hasher(BuildHasherDefault::<DefaultHasher>::default());
        let keyed: Keyed = builder.build().expect("valid");
        assert!(takes(&keyed, 1) && takes(&keyed, 1));
        clock.advance(SECOND / 2);
        // The key has one token again.
        let (taker, setter) = (keyed.clone(), keyed.clone());
        let take = actor(race, move || takes(&taker, 1));
        let set = actor(race, move || setter.set_quota(Quota::per_hour(1).burst(2)).expect("valid"));
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
        let calls = [1, 2].map(|key| {
            let keyed = keyed.clone();
            actor(race, move || takes(&keyed, key))
        });
        let granted = calls.map(|call| call.join().unwrap());
        assert!(granted[0] != granted[1], "space for one key, granted {granted:?}");
    });
}

/// A live entry without users is removed while a claim comes to wait in it: the claim is served.
///
/// Plant `key_in_use_counts_as_idle`: a user that has not entered the queue yet does not count.
#[test]
fn a_live_entry_is_removed_while_a_claim_enters() {
    explore(|race| {
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        let mut left = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(left.poll().is_pending());
        drop(left);
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        let come = actor(race, move || {
            assert!(waiting.poll().is_pending());
            waiting
        });
        let sweeper = keyed.clone();
        let sweep = actor(race, move || sweeper.tick());
        let mut waiting = come.join().unwrap();
        sweep.join().unwrap();
        clock.advance(SECOND);
        keyed.tick();
        assert!(waiting.is_woken() && waiting.poll().is_ready(), "the claim waits in a queue that is not served");
        assert!(!takes(&keyed, 1), "the token was granted twice");
    });
}

/// A token per second with a burst of one, for each key and for their parent.
fn under_a_limiter(shards: usize) -> (Keyed, Limiter, ManualClock) {
    let clock = ManualClock::new();
    let second = Quota::per_second(1).burst(1);
    let global = Limiter::builder().quota(second).clock(clock.clone()).build().expect("valid");
    let builder = KeyedLimiter::builder().quota(second).clock(clock.clone()).shards(shards).parent(&global);
    (builder.hasher(BuildHasherDefault::default()).build().expect("valid"), global, clock)
}

/// The parent grants the parent ticket of a claim that is dropped: whichever comes first, no tokens are lost in either.
///
/// Plant `cancel_forgets_a_grant_of_the_parent`: the claim does not check whether its parent ticket was granted.
#[test]
fn a_claim_leaves_while_its_parent_ticket_is_granted() {
    explore_bounded(Some(3), |race| {
        let (keyed, global, clock) = under_a_limiter(1);
        drop(global.try_acquire(1));
        let mut leaving = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(leaving.poll().is_pending());
        clock.advance(SECOND);
        let parent = global.clone();
        let grant = actor(race, move || parent.tick());
        let leave = actor(race, move || drop(leaving));
        grant.join().unwrap();
        leave.join().unwrap();
        assert_eq!((keyed.available(&1), global.available()), (1, 1), "granted by the parent, and lost");
    });
}

/// The keyed limiter closes while the parent grants: the claim is granted by both, or by neither.
///
/// Plant `close_discards_a_grant_of_the_parent`: closing refuses a claim that the parent has granted.
///
/// Bounded: each of the two actors takes both locks several times, and all interleavings are more than a million.
#[test]
fn keys_close_while_the_parent_grants() {
    explore_bounded(Some(3), |race| {
        let (keyed, global, clock) = under_a_limiter(1);
        drop(global.try_acquire(1));
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(waiting.poll().is_pending());
        clock.advance(SECOND);
        let (parent, closing) = (global.clone(), keyed.clone());
        let grant = actor(race, move || parent.tick());
        let close = actor(race, move || closing.close());
        grant.join().unwrap();
        close.join().unwrap();
        let Poll::Ready(answer) = waiting.poll() else { panic!("the claim is still pending") };
        assert_eq!(global.available(), u64::from(answer.is_err()), "answered {:?}", answer.map(drop));
    });
}

/// A debt uses the tokens in flight that a claim needs, while the claim's parent ticket is granted: both limiters grant
/// the claim, or neither.
///
/// Plant `parent_ticket_is_withdrawn_without_asking`: the parent ticket is withdrawn without a check whether it was
/// granted.
#[test]
fn a_parent_ticket_is_withdrawn_while_it_is_granted() {
    explore(|race| {
        let clock = ManualClock::new();
        let second = Quota::per_second(1).burst(1);
        let global = Limiter::builder().quota(second).clock(clock.clone()).build().expect("valid");
        let builder =
            KeyedLimiter::builder().quota(Quota::per_second(9)).max_in_flight(2).clock(clock.clone()).shards(1);
        let keyed: Keyed = builder.parent(&global).hasher(BuildHasherDefault::default()).build().expect("valid");
        let mut held = keyed.try_acquire(&1, 1).expect("the token is available");
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(waiting.poll().is_pending());
        clock.advance(SECOND);
        let parent = global.clone();
        let grant = actor(race, move || parent.tick());
        // One more token in flight. It is charged in the parent too, where it makes a debt.
        held.settle(2);
        grant.join().unwrap();
        let granted = waiting.poll().is_ready();
        let parent = global.snapshot();
        assert_eq!(parent.granted, 2 + u64::from(granted), "granted by one of them only");
        assert_eq!(parent.waiting_tasks, 0, "the claim waits in the parent, and its key is not ready");
    });
}

/// Two keys, and one token in the parent: one of them is granted, and the other one has lost nothing.
///
/// Plant `parent_is_checked_then_claimed`: between the check and the claim, the other key does the same.
#[test]
fn two_keys_on_the_last_token_of_the_parent() {
    explore(|race| {
        let (keyed, global, _clock) = under_a_limiter(8);
        let calls = [1, 2].map(|key| {
            let keyed = keyed.clone();
            actor(race, move || takes(&keyed, key))
        });
        let granted = calls.map(|call| call.join().unwrap());
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
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        let come = actor(race, move || {
            assert!(waiting.poll().is_pending());
            waiting
        });
        let setter = keyed.clone();
        let set = actor(race, move || setter.set_quota(Quota::per_hour(1).burst(1)).expect("valid"));
        let mut waiting = come.join().unwrap();
        set.join().unwrap();
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
        let clock = ManualClock::new();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(3)).shards(1);
        let builder = builder.clock(clock.clone()).hasher(BuildHasherDefault::<DefaultHasher>::default());
        let keyed: Keyed = builder.build().expect("valid");
        assert!(takes(&keyed, 1));
        let (taker, operator) = (keyed.clone(), keyed.clone());
        let take = actor(race, move || takes(&taker, 1));
        let pause = actor(race, move || operator.pause_all_for(SECOND));
        let taken = take.join().unwrap();
        pause.join().unwrap();
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
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        let come = actor(race, move || {
            assert!(waiting.poll().is_pending());
            waiting
        });
        let operator = keyed.clone();
        let pause = actor(race, move || operator.pause_all_for(3 * SECOND));
        let mut waiting = come.join().unwrap();
        pause.join().unwrap();
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
        let (keyed, clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        keyed.pause_all_for(3 * SECOND);
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        let come = actor(race, move || {
            assert!(waiting.poll().is_pending());
            waiting
        });
        let operator = keyed.clone();
        let resume = actor(race, move || operator.resume_all());
        let mut waiting = come.join().unwrap();
        resume.join().unwrap();
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
        let (keyed, _clock) = keyed(5, 1);
        assert!(takes(&keyed, 1));
        let mut waiting = task::spawn(keyed.clone().consume_owned(1, 1));
        assert!(waiting.poll().is_pending());
        let (one, other) = (keyed.clone(), keyed.clone());
        let pause = actor(race, move || one.pause_all_for(9 * SECOND));
        let resume = actor(race, move || other.resume_all());
        pause.join().unwrap();
        resume.join().unwrap();
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
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(4)).max_in_flight(1).shards(1);
        let builder = builder.clock(ManualClock::new()).hasher(BuildHasherDefault::<DefaultHasher>::default());
        let keyed: Keyed = builder.build().expect("valid");
        let (taker, operator) = (keyed.clone(), keyed.clone());
        let take = actor(race, move || taker.try_acquire_owned(1, 1).expect("one token may be in flight"));
        let set = actor(race, move || operator.set_max_in_flight(2).expect("valid"));
        let _held = take.join().unwrap();
        set.join().unwrap();
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
            actor(race, move || keyed.set_quota(quota).expect("valid"))
        });
        for set in sets {
            set.join().unwrap();
        }
        clock.advance(SECOND);
        let granted = [1, 2].map(|key| takes(&keyed, key));
        assert!(granted[0] == granted[1], "one by each quota: {granted:?}");
    });
}
