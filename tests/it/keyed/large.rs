//! The largest claims: a key gives the same answers as a limiter of its quota, however it is stored.

use crate::fixture::*;

const MOST: u64 = 1 << 48;
const BURST: u64 = 1 << 50;

/// Its levels fit into 8 bytes, and its burst is larger than the largest claim.
fn quota() -> Quota {
    Quota::per_second(1_000_000_000).burst(BURST)
}

/// How a key is stored.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Not,
    Packed,
    OwnQuota,
    Wide,
    Waited,
}

fn keyed(kept: Kept, parent: Option<&Limiter>, clock: &ManualClock) -> KeyedLimiter<u8> {
    let builder = KeyedLimiter::builder().quota(quota()).clock(clock.clone());
    let keyed =
        parent.map_or(builder, |parent| KeyedLimiter::builder().quota(quota()).clock(clock.clone()).parent(parent));
    let keyed: KeyedLimiter<u8> = keyed.build().unwrap();
    match kept {
        Kept::Not => {}
        Kept::Packed => drop(keyed.try_acquire(&1, 5).unwrap()),
        Kept::OwnQuota => {
            keyed.set_quota_for(&1, quota()).unwrap();
            drop(keyed.try_acquire(&1, 5).unwrap());
        }
        Kept::Wide => {
            // A burst of a day's fractions, which does not fit into 8 bytes.
            keyed.set_quota_for(&1, Quota::per_day(1_000_003).burst(BURST)).unwrap();
            drop(keyed.try_acquire(&1, 5).unwrap());
        }
        Kept::Waited => {
            let costs = [MOST; 4];
            costs.iter().for_each(|cost| drop(keyed.try_acquire(&1, *cost).unwrap()));
            let waiting = pending(keyed.consume(&1, 1));
            drop(waiting);
        }
    }
    keyed
}

#[test]
fn a_too_large_claim_is_refused_however_the_key_is_stored() {
    for kept in [Kept::Not, Kept::Packed, Kept::OwnQuota, Kept::Wide, Kept::Waited] {
        for cost in [MOST + 1, BURST - 5, u64::MAX] {
            let clock = ManualClock::new();
            let parent = Limiter::builder().quota(Quota::manual(1 << 60)).clock(clock.clone()).build().unwrap();
            let plain = Limiter::builder().quota(quota()).clock(clock.clone()).build().unwrap();
            let expected = format!("{:?}", task::spawn(plain.consume(cost)).poll().map(|answer| answer.map(drop)));
            assert!(expected.contains(&format!("TooLarge {{ cost: {cost}, most: {MOST}, by: None")), "{expected}");
            for parent in [None, Some(&parent)] {
                let make = || keyed(kept, parent, &clock);
                let soon = Duration::from_secs(1);
                let observed = [
                    format!("{:?}", task::spawn(make().consume(&1, cost)).poll().map(|answer| answer.map(drop))),
                    format!(
                        "{:?}",
                        task::spawn(make().consume(&1, cost).within(soon)).poll().map(|answer| answer.map(drop))
                    ),
                    format!("{:?}", task::spawn(make().consume_owned(1, cost)).poll().map(|answer| answer.map(drop))),
                    format!("Ready({:?})", make().blocking_consume(&1, cost).map(drop)),
                ];
                for answer in observed {
                    assert_eq!(answer, expected, "{kept:?}, {cost}, parent: {}", parent.is_some());
                }
                assert_eq!(make().estimate(&1, cost), plain.estimate(cost), "{kept:?}, {cost}");
            }
        }
        let keyed = keyed(kept, None, &ManualClock::new());
        let largest = task::spawn(keyed.consume(&1, MOST)).poll().map(|answer| answer.map(drop));
        assert!(matches!(largest, std::task::Poll::Ready(Ok(())) | std::task::Poll::Pending), "{kept:?}: {largest:?}");
    }
}

/// A try never waits, so only the burst limits it, as in a plain limiter; also under a parent that has the tokens.
#[test]
fn a_try_can_take_the_whole_burst_however_the_key_is_stored() {
    for kept in [Kept::Not, Kept::Packed, Kept::OwnQuota, Kept::Wide, Kept::Waited] {
        for has_parent in [false, true] {
            let clock = ManualClock::new();
            let parent = Limiter::builder().quota(Quota::manual(1 << 60)).clock(clock.clone()).build().unwrap();
            let keyed = keyed(kept, has_parent.then_some(&parent), &clock);
            let cost = BURST - 5;
            let when = format!("{kept:?}, below a limiter: {has_parent}");
            match keyed.try_acquire(&1, cost).map(drop) {
                Err(TryAcquireError::Denied(Denied { remaining: 0, .. })) => {
                    assert!(matches!(kept, Kept::Waited), "{when}")
                }
                answer => assert_eq!(answer, Ok(()), "{when}"),
            }
            let too_large =
                TryAcquireError::TooLarge { cost: BURST + 1, most: BURST, by: Bound::Quota(0), quota_name: None };
            assert_eq!(keyed.try_acquire(&1, BURST + 1).map(drop), Err(too_large), "{when}");
        }
    }
}

/// A token in 584 years: the units of the largest cost do not fit in 128 bits.
#[test]
fn no_cost_is_granted_because_its_units_do_not_fit() {
    let keyed = KeyedLimiter::new(Quota::new(1, Duration::from_nanos(u64::MAX)).burst(5)).unwrap();
    for cost in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1, 1 << 62, 6] {
        let too_large = TryAcquireError::TooLarge { cost, most: 5, by: Bound::Quota(0), quota_name: None };
        assert_eq!(keyed.try_acquire(&1, cost).map(drop), Err(too_large));
    }
    assert_eq!(keyed.available(&1), 5);
}

#[test]
fn keys_may_have_more_tokens_in_flight_together_than_a_number_holds() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1_000_000_000).burst(1 << 60));
    let keyed = builder.max_in_flight(1 << 60).clock(ManualClock::new()).build().unwrap();
    let held: Vec<_> = (0..16_u8).map(|key| keyed.clone().try_acquire_owned(key, 1 << 60).unwrap()).collect();
    assert_eq!(keyed.snapshot().in_flight, Some(u64::MAX));
    drop(held);
    assert_eq!(keyed.snapshot().in_flight, Some(0));
}
