//! What each setting and each call does beside a quota in dry run.

use crate::fixture::*;

use crate::fixture::{self, MILLI, pending};

/// One token per millisecond, at most two at once, in dry run.
fn built(change: impl FnOnce(Builder) -> Builder) -> (Limiter, ManualClock) {
    fixture::built(change(Limiter::builder().quota(Quota::new(1, MILLI).burst(2))))
}

fn dry() -> (Limiter, ManualClock) {
    built(Builder::dry_run)
}

fn simulated(limiter: &Limiter) -> tollgate::DryRunSnapshot {
    limiter.snapshot().dry_run.unwrap()
}

/// The claim passes at its first poll.
macro_rules! passes {
    ($claim:expr) => {
        assert_ready_ok!(spawn($claim).poll())
    };
}

#[test]
fn a_limiter_without_dry_run_says_nothing() {
    let (limiter, clock) = built(|builder| builder);
    let grant = limiter.try_acquire(1).unwrap();
    assert_eq!((grant.would_have_waited(), grant.would_have_been_refused()), (None, None));
    let seen = limiter.snapshot();
    assert!(seen.dry_run.is_none() && !seen.quotas[0].dry_run);
    let mut waiting = pending(limiter.consume(2));
    tick_after(&clock, &limiter, MILLI);
    assert_eq!(assert_ready_ok!(waiting.poll()).would_have_waited(), None);
}

#[test]
fn each_refusal_names_its_bound_and_takes_nothing() {
    let (limiter, clock) = built(|builder| builder.max_waiting(1).dry_run());
    let refused = |grant: tollgate::Grant<'_>| (grant.would_have_waited(), grant.would_have_been_refused());
    assert_eq!(refused(limiter.try_acquire(3).unwrap()), (None, Some(Bound::Quota(0))), "above the burst");
    let _all = limiter.try_acquire(2).unwrap();
    assert_eq!(refused(limiter.try_acquire(1).unwrap()), (None, Some(Bound::Quota(0))), "no tokens");
    assert_eq!(refused(passes!(limiter.consume(2).within(MILLI))), (None, Some(Bound::Quota(0))), "too late");
    assert_eq!(refused(passes!(limiter.consume(2).within(2 * MILLI))), (Some(2 * MILLI), None));
    assert_eq!(refused(limiter.try_acquire(1).unwrap()), (None, Some(Bound::Queue)), "it would overtake");
    assert_eq!(refused(passes!(limiter.consume(1))), (None, Some(Bound::Queue)), "the queue is full");
    let seen = simulated(&limiter);
    assert_eq!((seen.waiting_tasks, seen.waiting_tokens, seen.would_wait, seen.would_refuse), (1, 2, 1, 5));
    assert_eq!((seen.longest_wait, limiter.snapshot().quotas[0].would_refuse), (2 * MILLI, 3));
    assert_eq!(limiter.snapshot().refused, 0, "no call was refused");
    clock.advance(2 * MILLI);
    assert_eq!((simulated(&limiter).waiting_tasks, limiter.available()), (0, 0));
}

#[test]
fn the_queue_of_the_simulation_is_bounded() {
    let (limiter, clock) = dry();
    for _ in 0..2 + 65_536 {
        assert_eq!(passes!(limiter.consume(1)).would_have_been_refused(), None);
    }
    assert_eq!(passes!(limiter.consume(1)).would_have_been_refused(), Some(Bound::Queue));
    clock.advance(MILLI);
    assert_eq!(passes!(limiter.consume(1)).would_have_waited(), Some(65_536 * MILLI));
}

#[test]
fn the_cap_stays_enforced_and_is_left_out_of_the_simulation() {
    let (limiter, clock) = built(|builder| builder.max_in_flight(3).dry_run());
    let first = passes!(limiter.consume(2));
    let second = passes!(limiter.consume(1));
    assert_eq!(second.would_have_waited(), Some(MILLI));
    let mut third = pending(limiter.consume(2));
    assert!(limiter.try_acquire(1).is_err());
    assert_eq!(assert_ready_err!(spawn(limiter.consume(4)).poll()), too_large(4, 3, Bound::InFlight));
    clock.advance(10 * MILLI);
    drop(first);
    let third = assert_ready_ok!(third.poll());
    assert_eq!(third.would_have_waited(), Some(3 * MILLI), "by the quota alone");
}

#[test]
fn a_claim_that_leaves_the_queue_of_an_enforced_quota_leaves_the_simulation() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::new(1, 10 * MILLI)).quota_named("tried", Quota::new(1, 20 * MILLI));
    let limiter = builder.clock(clock.clone()).dry_run_quota("tried").build().unwrap();
    let _first = limiter.try_acquire(1).unwrap();
    let mut claims: Vec<_> = (0..3).map(|_| pending(limiter.consume(1))).collect();
    assert_eq!((simulated(&limiter).waiting_tasks, limiter.estimate(1)), (3, Some(80 * MILLI)));
    drop(claims.remove(1));
    assert_eq!((simulated(&limiter).waiting_tasks, limiter.estimate(1)), (2, Some(60 * MILLI)));
    drop(claims.remove(0));
    assert_eq!((simulated(&limiter).waiting_tasks, limiter.estimate(1)), (1, Some(40 * MILLI)));
    // This one has been granted here, and not there: it is refunded here only when it was granted there too.
    tick_after(&clock, &limiter, 10 * MILLI);
    let _granted = assert_ready_ok!(claims[0].poll());
    assert_eq!(simulated(&limiter).waiting_tasks, 1);
}

#[test]
fn a_grant_that_its_caller_has_not_seen_is_refunded_in_the_simulation() {
    let (limiter, clock) = dry();
    limiter.pause_for(MILLI);
    let claim = pending(limiter.consume(2));
    tick_after(&clock, &limiter, MILLI);
    assert_eq!(limiter.available(), 0);
    drop(claim);
    assert_eq!(limiter.available(), 2);
}

#[test]
fn replenish_is_for_a_manual_quota_in_dry_run_too() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::manual(10).initial(0)).quota(Quota::per_hour(10).initial(0));
    let limiter = builder.clock(clock).dry_run_quota(0).build().unwrap();
    limiter.replenish(5);
    let levels: Vec<_> = limiter.snapshot().quotas.iter().map(|quota| quota.level).collect();
    assert_eq!(levels, [5, 0], "the enforced quota got none of it");
    assert!(limiter.try_acquire(1).is_err());
}

#[test]
fn a_closed_limiter_refuses() {
    let (limiter, _clock) = dry();
    let _grants: Vec<_> = (0..4).map(|_| passes!(limiter.consume(1))).collect();
    limiter.close();
    assert_eq!(assert_ready_err!(spawn(limiter.consume(1)).poll()), ConsumeError::Closed);
    assert!(limiter.try_acquire(1).is_err());
    assert_eq!((simulated(&limiter).waiting_tasks, limiter.available(), limiter.estimate(1)), (0, 0, None));
}

#[test]
fn a_cost_of_zero_passes_and_takes_nothing() {
    let (limiter, _clock) = dry();
    let _all = limiter.try_acquire(2).unwrap();
    let grant = passes!(limiter.consume(0));
    assert_eq!((grant.would_have_waited(), grant.would_have_been_refused()), (Some(Duration::ZERO), None));
    assert_eq!(limiter.try_acquire(0).unwrap().would_have_waited(), Some(Duration::ZERO));
}

#[test]
fn a_waiting_thread_has_a_verdict() {
    let (limiter, _clock) = dry();
    let _all = limiter.blocking_consume(2).unwrap();
    assert_eq!(limiter.blocking_consume(3).unwrap().would_have_waited(), Some(3 * MILLI));
    let owned = limiter.clone().try_acquire_owned(1).unwrap();
    assert_eq!(owned.would_have_been_refused(), Some(Bound::Queue));
}

#[test]
fn joint_claims_refuse_a_limiter_in_dry_run() {
    let ((first, _), (second, _)) = (built(|builder| builder), dry());
    let error = try_join([(&first, 1), (&second, 1)]).unwrap_err();
    assert_eq!(error, JoinError::InDryRun { limiter: 1 });
    let error = assert_ready_err!(spawn(join([(&second, 1), (&first, 1)])).poll());
    assert_eq!(error, JoinError::InDryRun { limiter: 0 });
    second.set_dry_run(0, false).unwrap();
    assert!(try_join([(&first, 1), (&second, 1)]).is_ok());
    let joint = pending(join([(&first, 2), (&second, 2)]));
    assert_eq!(first.set_dry_run(0, true), Err(ConfigError::DryRunUnsupported { setting: "join" }));
    drop(joint);
    first.set_dry_run(0, true).unwrap();
}

#[test]
fn settings_that_a_dry_run_does_not_simulate_are_refused() {
    let unsupported = |setting| Some(ConfigError::DryRunUnsupported { setting });
    let quota = Quota::per_second(1);
    assert_eq!(Limiter::builder().quota(quota).classes().dry_run().build().err(), unsupported("classes"));
    let cap_alone = Limiter::builder().max_in_flight(1).dry_run().build();
    assert_eq!(cap_alone.err(), unsupported("max_in_flight without a quota"));
    let unknown = Limiter::builder().quota(quota).dry_run_quota("day").build().err();
    assert_eq!(
        unknown.map(|error| error.to_string()).as_deref(),
        Some("there is no quota `day`: this limiter has 1, counted from 0, or named by `quota_named`")
    );
    let classes = Limiter::builder().quota(quota).classes().build().unwrap();
    assert_eq!(classes.set_dry_run(0, true).err(), unsupported("classes"));
    let (limiter, _clock) = dry();
    assert!(limiter.set_dry_run(1, true).is_err());
    let text = ConfigError::DryRunUnsupported { setting: "classes" }.to_string();
    assert_eq!(text, "dry run is not supported together with `classes`: try the quota on a limiter without classes");
    {
        let parent = Limiter::new(quota).unwrap();
        let builder = || KeyedLimiter::<u64>::builder().quota(quota).parent(&parent);
        assert_eq!(builder().dry_run().build().err(), unsupported("parent"));
        let keyed = builder().build().unwrap();
        assert_eq!(keyed.set_dry_run(true).err(), unsupported("parent"));
        assert_eq!(parent.set_dry_run(0, true).err(), unsupported("parent"));
        drop(keyed);
        parent.set_dry_run(0, true).unwrap();
        assert_eq!(builder().build().err(), unsupported("parent"));
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_and_no_task_is_spawned_for_a_limiter_in_dry_run() {
    let limiter = Limiter::builder().quota(Quota::per_second(1)).dry_run().build().unwrap();
    let start = tokio::time::Instant::now();
    for second in 0..100 {
        let grant = limiter.consume(1).await.unwrap();
        assert_eq!(grant.would_have_waited(), Some(Duration::from_secs(second)));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive, 0);
}

#[test]
fn the_largest_claims_and_debts_do_not_overflow_the_simulation() {
    const LARGEST: u64 = 1 << 48;
    let (limiter, _clock) = dry();
    let mut refused = 0;
    for _ in 0..70_000 {
        refused += u64::from(passes!(limiter.consume(LARGEST)).would_have_been_refused() == Some(Bound::Queue));
    }
    assert!(refused > 50_000, "{refused}");
    let mut grant = limiter.try_acquire(0).unwrap();
    for _ in 0..30_000 {
        grant.grow(LARGEST);
    }
    assert!(limiter.deficiency() <= 1 << 62);
    limiter.set_dry_run(0, false).unwrap();
    assert!(limiter.try_acquire(1).is_err());
    limiter.set_dry_run(0, true).unwrap();
    assert!(limiter.try_acquire(1).is_ok());
}

/// A pause holds back a claim for which tokens above the burst are saved, with a debt behind it. When it leaves, the
/// debt takes its tokens before those above the burst are lost. Found by a random history.
#[test]
fn a_debt_behind_a_claim_that_leaves_is_paid_from_the_tokens_saved_for_it() {
    let level = |is_dry: bool| {
        let builder = Limiter::builder().quota(Quota::new(1, MILLI).burst(1));
        let (builder, clock) = (if is_dry { builder.dry_run() } else { builder }, ManualClock::new());
        let limiter = builder.clock(clock.clone()).build().unwrap();
        let mut first = limiter.try_acquire(1).unwrap();
        limiter.pause_for(10 * MILLI);
        let claim = pending(limiter.consume(4));
        first.settle(2);
        tick_after(&clock, &limiter, 8 * MILLI);
        drop(claim);
        limiter.snapshot().quotas[0].level
    };
    assert_eq!((level(true), level(false)), (1, 1));
}

/// A cost that comes from a header may be any number.
#[test]
fn a_cost_of_any_size_takes_nothing_from_the_simulation_unless_its_tokens_are_there() {
    let edges = [48, 61, 62, 63].map(|bit: u32| 1_u64 << bit);
    let near = |edge: u64| [edge - 11, edge - 1, edge, edge + 1, edge + 11];
    let costs = edges.into_iter().flat_map(near).chain([u64::MAX - 10, u64::MAX - 1, u64::MAX]);
    for cost in costs {
        let (limiter, _clock) = built(|builder| builder.max_in_flight(1 << 60).dry_run());
        drop(limiter.try_acquire(cost));
        drop(spawn(limiter.consume(cost)).poll());
        let level = limiter.snapshot().quotas[0].level;
        assert!(level == 2 || level == 2 - cost as i64, "{level} after a cost of {cost}");
        let mut grant = limiter.try_acquire(1).unwrap();
        grant.settle(2);
        limiter.set_dry_run(0, false).unwrap();
        let granted = (0..10).filter(|_| limiter.try_acquire(1).is_ok()).count();
        assert!(granted <= 1, "{granted} of a burst of 2 after two tokens, and a cost of {cost}");
    }
}

/// Nothing tells when so long a wait ends, but it ends too late.
#[test]
fn a_wait_beyond_the_end_of_time_would_have_been_too_late() {
    let (limiter, _clock) = built(|builder| builder.quota(Quota::per_day(1)).dry_run());
    let century = 100 * 365 * Duration::from_secs(86_400);
    let grant = passes!(limiter.consume(1_000_000).within(century));
    assert_eq!(grant.would_have_been_refused(), Some(Bound::Quota(1)));
}
