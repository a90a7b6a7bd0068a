//! The replay tells each wait when the call comes, and parks no call of a continuous quota. These tests compare it with calls
//! that are parked: futures of `consume` that are polled by hand while a manual clock moves.

use proptest::prelude::*;
use size::event::Event;
use size::replay::{Candidate, Replay, Setting};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};
use tokio_test::task::{Spawn, spawn};
use tollgate::{ConsumeError, KeyedLimiter, Limiter, ManualClock, Quota};

/// A call whose future is not ready.
struct Parked<F> {
    call: usize,
    arrived: u64,
    future: Spawn<F>,
}

/// The waits of calls with futures that are polled at each instant of `instants`; at one instant, grants are made
/// before arrivals. A grant between two of these instants is seen at the later one.
fn parked_waits<G: Debug, F: Future<Output = Result<G, ConsumeError>>>(
    events: &[Event],
    instants: &BTreeSet<u64>,
    clock: &ManualClock,
    tick: impl Fn(),
    consume: impl Fn(&Event) -> F,
) -> Vec<Option<Duration>> {
    let mut waits = vec![None; events.len()];
    let mut parked: Vec<Parked<F>> = Vec::new();
    let mut arrivals = events.iter().enumerate().peekable();
    let mut now = events[0].at;
    for instant in instants {
        clock.advance(Duration::from_nanos(instant - now));
        now = *instant;
        tick();
        parked.retain_mut(|waiter| {
            let granted = waiter.future.is_woken() && waiter.future.poll().is_ready();
            if granted {
                waits[waiter.call] = Some(Duration::from_nanos(now - waiter.arrived));
            }
            !granted
        });
        while let Some((call, event)) = arrivals.next_if(|(_, event)| event.at == now) {
            let mut future = spawn(consume(event));
            match future.poll() {
                Poll::Ready(Ok(_)) => waits[call] = Some(Duration::ZERO),
                Poll::Ready(Err(error)) => {
                    assert!(matches!(error, ConsumeError::TooLate { .. } | ConsumeError::TooLarge { .. }), "{error}");
                }
                Poll::Pending => parked.push(Parked { call, arrived: now, future }),
            }
        }
    }
    assert!(parked.is_empty(), "{} calls were not granted when the replay says", parked.len());
    waits
}

/// The instants at which calls arrive, the instants at which the replay grants them, and the nanoseconds before these
/// grants. So the test notices a parked call that is granted earlier or later than in the replay.
fn instants(events: &[Event], waits: &[Option<Duration>]) -> BTreeSet<u64> {
    let granted =
        events.iter().zip(waits).filter_map(|(event, wait)| Some(event.at + wait.as_ref()?.as_nanos() as u64));
    let granted: Vec<_> = granted.collect();
    let before = granted.iter().map(|at| at.saturating_sub(1)).filter(|at| *at >= events[0].at);
    events.iter().map(|event| event.at).chain(before).chain(granted.iter().copied()).collect()
}

fn compare(events: &[Event], quota: Quota, setting: Setting) {
    let candidate = Candidate::new(quota).unwrap();
    let waits: Vec<_> = Replay::new(events, candidate, setting).unwrap().collect();
    let instants = instants(events, &waits);
    let (clock, within) = (ManualClock::new(), setting.max_wait.unwrap_or(Duration::MAX));
    clock.set_wall(UNIX_EPOCH + Duration::from_nanos(events[0].at));
    let parked = if setting.per_key {
        let keys = KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let consume = |event: &Event| keys.clone().consume_owned(event.key, event.cost).within(within);
        parked_waits(events, &instants, &clock, || keys.tick(), consume)
    } else {
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let consume = |event: &Event| limiter.clone().consume_owned(event.cost).within(within);
        parked_waits(events, &instants, &clock, || limiter.tick(), consume)
    };
    assert_eq!(waits, parked, "{quota}");
}

/// Continuous quotas: round ones and odd ones, with tokens that take a nanosecond, a second, or do not divide.
fn quotas() -> impl Strategy<Value = Quota> {
    let odd = Duration::from_nanos(999_999_937);
    let rates = prop_oneof![
        (1_u64..5_000).prop_map(Quota::per_second),
        (1_u64..100).prop_map(Quota::per_minute),
        (1_u64..1_000_000).prop_map(move |amount| Quota::new(amount, odd)),
        (1_u64..=1_000).prop_map(|amount| Quota::new(amount, Duration::from_nanos(1_000))),
    ];
    (rates, 1_u64..40, 0_u64..=40).prop_map(|(rate, burst, initial)| rate.burst(burst).initial(initial.min(burst)))
}

/// Steps, sliding windows, and periods counted from 1970.
fn other_quotas() -> impl Strategy<Value = Quota> {
    (1_u64..20, 1_u64..1_000, 0_u64..10, 0_u64..=20, 0_u8..3).prop_map(|(amount, period, more, initial, kind)| {
        let quota = Quota::new(amount, Duration::from_nanos(period * 20)).initial(initial.min(amount));
        match kind {
            0 => quota.stepped().burst(amount + more),
            1 => quota.sliding(),
            _ => quota.stepped().from_epoch(),
        }
    })
}

/// Calls whose gaps are measured in tokens of the quota: the queue comes and goes.
fn calls(quota: Quota) -> impl Strategy<Value = Vec<Event>> {
    let token = (quota.period().as_nanos() / u128::from(quota.amount())).max(1) as u64;
    let gap = prop_oneof![Just(0), 0..=token, 0..=4 * token, 0..=60 * token];
    let call = (gap, 0_u32..3, prop_oneof![4 => 0_u64..4, 1 => 0..=2 * quota.capacity()]);
    prop::collection::vec(call, 1..60).prop_map(|calls| {
        let mut at = 0;
        let event = |(gap, key, cost)| {
            at += gap;
            Event { at, key, cost }
        };
        calls.into_iter().map(event).collect()
    })
}

fn deadlines(quota: Quota) -> impl Strategy<Value = Option<Duration>> {
    let token = (quota.period() / u32::try_from(quota.amount()).unwrap()).max(Duration::from_nanos(1));
    prop_oneof![Just(None), (0_u32..30).prop_map(move |tokens| Some(token * tokens))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_gives_the_waits_of_parked_calls(
        (quota, events, max_wait, per_key) in prop_oneof![quotas(), other_quotas()]
            .prop_flat_map(|quota| (Just(quota), calls(quota), deadlines(quota), any::<bool>()))
    ) {
        // A bucket per key starts full.
        let quota = if per_key { quota.initial(quota.capacity()) } else { quota };
        compare(&events, quota, Setting { per_key, max_wait });
    }
}

#[test]
fn quotas_whose_replay_would_not_be_exact_are_refused() {
    let error = Candidate::new(Quota::manual(4)).unwrap_err().to_string();
    assert_eq!(error, "`manual 4` has no rate: write one, such as `100/s, burst 20`");
    assert!(Candidate::new(Quota::new(2, Duration::from_nanos(1))).unwrap_err().to_string().contains("1000000000/s"));
}
