//! A program that names each public type of the default features compiles without a warning.

#![deny(warnings, clippy::all)]

use std::error::Error;
use std::time::{Duration, Instant};
use tollgate::adaptive::{
    Adaptive, AdaptiveBuilder, AdaptiveConsume, AdaptiveError, AdaptiveGrant, AdaptiveSnapshot, Attempt, ChangeReason,
    RateChange, Target,
};
use tollgate::{
    AnyLimiter, AsLimiter, BadQuota, Bound, Bucket, Builder, Capped, Class, ClassSnapshot, Clock, ConfigError, Consume,
    ConsumeError, ConsumeOwned, Denied, DryRunSnapshot, Grant, GrowWithin, Join, JoinError, Limiter, ManualClock,
    OwnedGrant, ParseQuotaError, Quota, QuotaConflict, QuotaSnapshot, Refused, ReleaseError, Replenisher, Reservation,
    Share, Snapshot, Ticket, TryAcquireError, Uncapped, Wait, Which, join, reserve, try_join,
};

type Failure = Box<dyn Error>;

/// A clock of the program's own.
#[derive(Debug)]
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

async fn claims(limiter: &Limiter) -> Result<(), Failure> {
    let wait: Wait<Consume<'_>> = limiter.wait(1);
    wait.await?;
    let claim: Consume<'_> = limiter.consume(1);
    let mut grant: Grant<'_> = claim.await?;
    let more: GrowWithin<'_> = grant.grow_within(1);
    more.await?;
    let claim: ConsumeOwned = limiter.clone().consume_owned(1);
    let _owned: OwnedGrant = claim.await?;
    let joint: Join<'_, 1> = join([(limiter, 1)]);
    let [_grant] = joint.await?;
    let claim: Join<'_, 1, Reservation<'_, 1>> = reserve([(limiter, 1)]);
    let mut reservation: Reservation<'_, 1> = claim.await?;
    reservation.count(0, 2);
    Ok(())
}

fn refusals(limiter: &Limiter) -> Option<Denied> {
    let refused: Result<[Grant<'_>; 2], JoinError<TryAcquireError>> = try_join([(limiter, 1), (limiter, 1)]);
    assert!(matches!(refused, Err(JoinError::Repeated { limiter: 1 })));
    assert_eq!(limiter.release(1), Err(ReleaseError::NotCapped));
    match limiter.try_acquire(3_600) {
        Err(TryAcquireError::Denied(denied)) => Some(denied),
        _ => None,
    }
}

fn texts() -> Result<(), Failure> {
    let error: ParseQuotaError = "10/fortnight".parse::<Quota>().unwrap_err();
    assert_eq!(error.span(), 3..12);
    let error: ConfigError = Limiter::new(Quota::per_second(0)).unwrap_err();
    assert_eq!(error, ConfigError::ZeroAmount { quota: 0, quota_name: None });
    let error: AdaptiveError = Adaptive::between("2/s", "1/s").build().unwrap_err();
    assert!(matches!(error, AdaptiveError::Crossed { .. }));
    Ok(())
}

fn state(limiter: &Limiter) -> Result<(), Failure> {
    limiter.set_quota(Which::Name("hour"), Quota::per_hour(3_600))?;
    let snapshot: Snapshot = limiter.snapshot();
    let quota: &QuotaSnapshot = &snapshot.quotas[0];
    assert_eq!((quota.quota, snapshot.closed), (Quota::per_hour(3_600), false));
    Ok(())
}

fn buckets() -> Result<(), ConfigError> {
    let bucket: Bucket<Uncapped> = Bucket::new(Quota::per_second(10), Duration::ZERO)?;
    let capped: Bucket<Capped> = Bucket::capped(Quota::per_second(10), 5, Duration::ZERO)?;
    let ticket: Ticket = capped.grab(5);
    assert_eq!((bucket.deficiency(bucket.grab(11)), capped.deficiency(ticket)), (1, 0));
    capped.release(5);
    Ok(())
}

async fn send<L: AsLimiter>(limiter: &L) -> Result<(), ConsumeError> {
    let _grant = limiter.clone().consume_owned(1).await?;
    Ok(())
}

async fn classes() -> Result<(), Failure> {
    let limiter = Limiter::builder().quota(Quota::per_second(100)).classes().build()?;
    let share: Share = Share::weight(3);
    let pages: Class = limiter.class("pages", share)?;
    send(&pages).await?;
    send(&limiter).await?;
    let requests = Limiter::new(Quota::per_second(10))?;
    let [requests, tokens]: [AnyLimiter; 2] = [AnyLimiter::from(requests), pages.clone().into()];
    let grants: [Grant<'_, AnyLimiter>; 2] = join([(&requests, 1), (&tokens, 20)]).await?;
    assert_eq!(grants.map(|grant| grant.cost()), [1, 20]);
    let _both: Reservation<'_, 1, Class> = reserve([(&pages, 20)]).await?;
    let snapshot: ClassSnapshot = pages.snapshot();
    assert_eq!(snapshot.weight, 3);
    Ok(())
}

fn dry_run() -> Result<(), Failure> {
    let builder = Limiter::builder().quota(Quota::per_hour(1)).dry_run();
    let limiter = builder.clock(ManualClock::new()).build()?;
    drop(limiter.try_acquire(1)?);
    drop(limiter.try_acquire(1)?);
    let simulated: Option<DryRunSnapshot> = limiter.snapshot().dry_run;
    assert_eq!(simulated.map(|simulated| simulated.would_refuse), Some(1));
    Ok(())
}

fn conflict(error: ConsumeError) -> Option<QuotaConflict> {
    match error {
        ConsumeError::QuotaConflict(conflict) => Some(conflict),
        _ => None,
    }
}

fn bad_quota(error: TryAcquireError) -> Option<BadQuota> {
    match error {
        TryAcquireError::BadQuota(bad) => Some(bad),
        _ => None,
    }
}

fn cost<T: Target>(grant: &AdaptiveGrant<T>) -> u64 {
    grant.cost()
}

async fn adaptive() -> Result<(), Failure> {
    let builder: AdaptiveBuilder = Adaptive::between("1/s", "1000/s");
    let adaptive: Adaptive = builder.start("500/s").build()?;
    let claim: AdaptiveConsume = adaptive.consume(1);
    let grant: AdaptiveGrant = claim.await?;
    assert_eq!(cost(&grant), 1);
    grant.succeeded();
    let attempt: Attempt = adaptive.attempt(1, false);
    attempt.throttled(None);
    let snapshot: AdaptiveSnapshot = adaptive.snapshot();
    let change: Option<RateChange> = snapshot.last_change;
    assert!(change.is_some_and(|change| change.reason != ChangeReason::Accepted));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let builder: Builder = Limiter::builder().quota_named("hour", Quota::per_hour(3_600));
    let limiter = builder.clock(SystemClock(Instant::now())).build()?;
    let replenisher: Replenisher = limiter.replenisher();
    let serving = tokio::spawn(replenisher);
    claims(&limiter).await?;
    let denied = refusals(&limiter).ok_or("not denied")?;
    assert_eq!((denied.by, Refused::from(denied).retry_after()), (Bound::Quota(0), denied.retry_after));
    let refused = join([(&limiter, 1), (&limiter, 1)]).await.unwrap_err();
    assert_eq!(refused, JoinError::Repeated { limiter: 1 });
    state(&limiter)?;
    limiter.close();
    assert_eq!(limiter.wait(1).await, Err(ConsumeError::Closed));
    serving.abort();
    let by_hand = Limiter::builder().max_in_flight(1).clock(ManualClock::new()).build()?;
    assert_eq!(by_hand.available(), 1);
    texts()?;
    buckets()?;
    classes().await?;
    dry_run()?;
    assert_eq!((conflict(ConsumeError::Closed), bad_quota(TryAcquireError::Closed)), (None, None));
    adaptive().await
}
