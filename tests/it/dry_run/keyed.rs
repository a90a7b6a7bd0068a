//! Keys in dry run: each key is a limiter of its own in dry run, in bounded memory.

use crate::fixture::*;

use crate::oracle::ops::{Dice, Scale, config};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    wait: Option<Duration>,
    refused: Option<Bound>,
    remaining: u64,
}

macro_rules! seen {
    ($grant:expr) => {
        Seen {
            wait: $grant.would_have_waited(),
            refused: $grant.would_have_been_refused(),
            remaining: $grant.remaining(),
        }
    };
}

/// A quota with a rate, as keys have it.
fn quota(scale: Scale, dice: Dice) -> Quota {
    let stepped = dice.0.is_multiple_of(4);
    let (amount, burst) = (1 + u64::from(dice.1 % 12), 1 + u64::from(dice.3 % 20));
    let quota = Quota::new(amount, Duration::from_nanos((1 + u64::from(dice.2 % 90)) * scale.nanoseconds as u64));
    if stepped { quota.stepped().burst(burst + amount) } else { quota.burst(burst) }
}

/// Plays these steps on a keyed limiter and on one limiter per key, and compares.
fn compare(quotas: &[Quota], max_waiting: u64, steps: &[Dice], scale: Scale) {
    const KEYS: usize = 3;
    const NAMES: &[usize; KEYS] = &[0, 1, 2];
    let clock = ManualClock::new();
    let all: Quotas = quotas.iter().copied().collect();
    let keyed = KeyedLimiter::builder().quotas(all).max_waiting(max_waiting).clock(clock.clone());
    let keyed = keyed.shards(1).dry_run().build().expect("valid");
    let single = || {
        let builder = Limiter::builder().max_waiting(max_waiting).clock(clock.clone()).dry_run();
        quotas.iter().fold(builder, |builder, quota| builder.quota(*quota)).build().expect("valid")
    };
    let singles: [Limiter; KEYS] = std::array::from_fn(|_| single());
    let mut grants = Vec::new();
    let mut is_dry = true;
    for (number, &(kind, a, b, c)) in steps.iter().enumerate() {
        let key = &NAMES[usize::from(b) % KEYS];
        let single = &singles[*key];
        let cost = 1 + u64::from(a % 24);
        match kind % 16 {
            0..=6 if is_dry => {
                let (own, other) = (spawn(keyed.consume(key, cost)).poll(), spawn(single.consume(cost)).poll());
                let (own, other) = (assert_ready_ok!(own), assert_ready_ok!(other));
                assert_eq!(seen!(own), seen!(other), "{number}");
                grants.push((*key, own, other));
            }
            7..=8 if is_dry => {
                let allowed = Duration::from_nanos(u64::from(c) * scale.nanoseconds as u64);
                let own = assert_ready_ok!(spawn(keyed.consume(key, cost).within(allowed)).poll());
                let other = assert_ready_ok!(spawn(single.consume(cost).within(allowed)).poll());
                assert_eq!(seen!(own), seen!(other), "{number}");
                grants.push((*key, own, other));
            }
            0..=10 => match (keyed.try_acquire(key, cost), single.try_acquire(cost)) {
                (Ok(own), Ok(other)) => {
                    assert_eq!(seen!(own).refused, seen!(other).refused, "{number}");
                    grants.push((*key, own, other));
                }
                (own, other) => assert!(!is_dry && own.is_err() && other.is_err(), "{number}: {own:?}, {other:?}"),
            },
            11 if !grants.is_empty() => {
                let place = usize::from(b) % grants.len();
                let (of, own, other) = &mut grants[place];
                // A key knows that it took nothing; a limiter may have quotas that were enforced beside the others.
                if !is_dry && own.would_have_been_refused().is_some() {
                    continue;
                }
                own.settle(of, u64::from(c % 30));
                other.settle(u64::from(c % 30));
                assert_eq!(own.cost(), other.cost(), "{number}");
            }
            12 => {
                is_dry = !is_dry;
                keyed.set_dry_run(is_dry).expect("supported");
                for single in &singles {
                    (0..quotas.len()).for_each(|index| single.set_dry_run(index, is_dry).expect("supported"));
                }
            }
            _ => clock.advance(Duration::from_nanos(u64::from(c % 128) * scale.nanoseconds as u64)),
        }
        if kind & 64 == 0 {
            keyed.tick();
        }
        for (key, single) in singles.iter().enumerate() {
            assert_eq!(keyed.available(&key), single.available(), "{number}, key {key}");
            assert_eq!(keyed.estimate(&key, cost), single.estimate(cost), "{number}, key {key}");
        }
    }
    // Nothing is kept of keys that are full.
    tick_after(&clock, &keyed, Duration::from_secs(86_400 * 365));
    keyed.tick();
    assert_eq!(keyed.snapshot().keys, 0);
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn each_key_is_a_limiter_in_dry_run(
        quotas in prop::collection::vec(any::<Dice>(), 1..4),
        max_waiting in prop_oneof![Just(1_000), 0_u64..4],
        steps in prop::collection::vec(any::<Dice>(), 1..60),
    ) {
        let scale = Scale { tokens: 1, nanoseconds: 1_000 };
        let quotas: Vec<Quota> = quotas.into_iter().map(|dice| quota(scale, dice)).collect();
        compare(&quotas, max_waiting, &steps, scale);
    }
}

fn keys(clock: &ManualClock, quota: Quota) -> tollgate::KeyedBuilder<u64> {
    KeyedLimiter::builder().quota(quota).clock(clock.clone())
}

#[test]
fn keys_are_forgotten_when_their_simulated_queue_has_drained_and_they_are_full() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::new(1, MILLI)).max_keys(2).shards(1).dry_run().build().unwrap();
    for _ in 0..5 {
        let _grant = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
        let _grant = assert_ready_ok!(spawn(keyed.consume(&2, 1)).poll());
    }
    // `max_keys` stays enforced: it bounds the memory.
    assert_ready_err!(spawn(keyed.consume(&3, 1)).poll());
    tick_after(&clock, &keyed, 4 * MILLI);
    assert_eq!((keyed.snapshot().keys, keyed.estimate(&1, 1)), (2, Some(MILLI)));
    clock.advance(2 * Duration::from_secs(1));
    // The call itself finds the place, without a tick.
    let third = assert_ready_ok!(spawn(keyed.consume(&3, 1)).poll());
    assert_eq!(third.would_have_waited(), Some(Duration::ZERO));
}

#[test]
fn a_quota_that_changes_in_dry_run_changes_the_simulation() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::new(1, MILLI)).dry_run().build().unwrap();
    for _ in 0..3 {
        let _grant = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
    }
    assert_eq!(keyed.estimate(&1, 1), Some(3 * MILLI));
    keyed.set_quota(Quota::new(1, 2 * MILLI)).unwrap();
    assert_eq!(keyed.estimate(&1, 1), Some(6 * MILLI));
    let grant = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
    assert_eq!(grant.would_have_waited(), Some(6 * MILLI));
    keyed.set_quota([Quota::new(1, 2 * MILLI), Quota::per_second(1)].into_iter().collect::<Quotas>()).unwrap();
    let _ = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
    assert_eq!(keyed.quota_snapshots(&1).len(), 2);
}

#[test]
fn a_pause_and_the_cap_stay_enforced() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::new(1, MILLI)).max_in_flight(2).dry_run().build().unwrap();
    let first = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
    let second = assert_ready_ok!(spawn(keyed.consume(&1, 1)).poll());
    assert_eq!(second.would_have_waited(), Some(MILLI));
    let mut third = pending(keyed.consume(&1, 1));
    drop(first);
    let third = assert_ready_ok!(third.poll());
    assert_eq!(third.would_have_waited(), Some(2 * MILLI));
    drop((second, third));
    keyed.pause_for(&2, MILLI);
    assert!(keyed.try_acquire(&2, 1).is_err());
    keyed.close();
    assert!(assert_ready!(spawn(keyed.consume(&1, 1)).poll()).is_err());
}

#[test]
fn the_snapshot_counts_calls_that_would_have_waited_or_been_refused() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::per_second(1)).dry_run().build().unwrap();
    for key in 0..3 {
        for _ in 0..2 {
            let _grant = assert_ready_ok!(spawn(keyed.consume(&key, 1)).poll());
        }
        let mut refused = keyed.try_acquire(&key, 1).unwrap();
        assert_eq!(refused.would_have_been_refused(), Some(Bound::Queue));
        refused.settle(&key, 0);
        assert_eq!(keyed.deficiency(&key), 1, "a refused call took nothing, so it gives nothing back");
    }
    let seen = keyed.snapshot();
    assert_eq!((seen.would_wait, seen.would_refuse, seen.refused), (3, 3, 0));
}

#[test]
fn what_is_charged_after_the_dry_run_is_not_free_for_a_call_that_would_have_been_refused() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::per_day(10)).max_cost(12).dry_run().build().unwrap();
    let _held = keyed.try_acquire(&1, 4).unwrap();
    let mut refused = [keyed.try_acquire(&1, 7).unwrap(), keyed.try_acquire(&1, 7).unwrap()];
    refused[0].settle(&1, 20);
    assert_eq!((keyed.available(&1), refused[0].cost()), (6, 12));
    keyed.set_dry_run(false).unwrap();
    refused[0].settle(&1, 0);
    refused[1].settle(&1, 9);
    assert_eq!((keyed.available(&1), refused[1].cost()), (4, 9));
}

#[test]
fn a_debt_leaves_the_window_of_a_sliding_quota_at_once() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::new(4, MILLI).sliding()).dry_run().build().unwrap();
    let mut grant = keyed.try_acquire(&1, 4).unwrap();
    tick_after(&clock, &keyed, MILLI);
    assert_eq!(keyed.snapshot().keys, 0);
    grant.settle(&1, 7);
    assert_eq!(keyed.available(&1), 1);
    tick_after(&clock, &keyed, MILLI);
    assert_eq!((keyed.available(&1), keyed.snapshot().keys), (4, 0));
}

#[test]
fn a_key_for_which_a_joint_claim_waits_stays_enforced_and_the_caller_is_told() {
    let clock = ManualClock::new();
    let keyed = keys(&clock, Quota::per_second(2)).build().unwrap();
    let handle = keyed.limiter(&1).unwrap();
    let joint = pending(join([(&handle, 3)]));
    assert_eq!(keyed.set_dry_run(true), Err(ConfigError::DryRunUnsupported { setting: "join" }));
    assert!(keyed.try_acquire(&1, 1).is_err() && keyed.try_acquire(&2, 3).is_ok());
    drop(joint);
    keyed.set_dry_run(true).unwrap();
    assert!(keyed.try_acquire(&1, 2).is_ok());
    keyed.set_dry_run(false).unwrap();
    assert!(keyed.try_acquire(&1, 1).is_err());
}
