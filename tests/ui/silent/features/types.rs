//! A program that names each public type of the features `keyed`, `distributed`, `stream`, `io`,
//! `metrics`, `quanta`, `fine-timer` and `state` compiles without a warning.

#![deny(warnings, clippy::all)]

use futures::{SinkExt, StreamExt, channel::mpsc, stream};
use std::error::Error;
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tollgate::adaptive::{Adaptive, KeyOf};
use tollgate::distributed::{
    Breaker, BreakerSnapshot, Circuit, ClassDemand, ClassReport, LeaseGrant, LeaseRequest, MemoryStore, Missing,
    Outage, QuotaTerms, ReplyKind, Reporting, SharedBucket, SharedDemand, Store, StoreCounters, StoreError,
    StoreSnapshot, Stores,
};
use tollgate::io::{PaceIoExt, PacedIo};
use tollgate::metrics::{AdaptiveMeter, AlreadyMetered, INSTRUMENTS, Instrument, InstrumentKind, Meter, describe};
use tollgate::state::{KeyedState, LimiterState, StateError};
use tollgate::stream::{PaceSinkExt, PaceStreamExt, PacedSink, PacedSinkError, PacedStream, RefusedItem, WithGrants};
use tollgate::{
    KeyedBuilder, KeyedConsume, KeyedConsumeOwned, KeyedEntries, KeyedEntry, KeyedGrant, KeyedLimiter,
    KeyedReplenisher, KeyedSnapshot, KeyedTop, Limiter, OwnedKeyedGrant, QuantaClock, Quota, Quotas, TopKey, Wait,
};

type Failure = Box<dyn Error>;
type Users = KeyedLimiter<&'static str>;

async fn keyed() -> Result<(), Failure> {
    let quotas = Quotas::from([Quota::per_second(1_000), Quota::per_day(10_000)]);
    let builder: KeyedBuilder<&str> = KeyedLimiter::builder().quotas(quotas);
    let users: Users = builder.build()?;
    let replenisher: KeyedReplenisher = users.replenisher();
    let serving = tokio::spawn(replenisher);
    let wait: Wait<KeyedConsume<'_, _, _>> = users.wait(&"ann", 1);
    wait.await?;
    let claim: KeyedConsume<'_, _, RandomState> = users.consume(&"ann", 1);
    let _grant: KeyedGrant<'_, _, _> = claim.await?;
    let claim: KeyedConsumeOwned<_, RandomState> = users.clone().consume_owned("ann", 1);
    let _grant: OwnedKeyedGrant<_, _> = claim.await?;
    let mut entries: KeyedEntries<'_, _, _> = users.entries();
    let entry: Option<KeyedEntry<&str>> = entries.next();
    assert_eq!(entry.map(|entry| entry.key), Some("ann"));
    let snapshot: KeyedSnapshot<&str> = users.snapshot();
    assert_eq!((snapshot.keys, snapshot.granted), (1, 3));
    let adaptive: Adaptive<KeyOf<&str>> = Adaptive::between("1/s", "5/s").drive_key(&users, "host")?;
    assert_eq!(adaptive.target().key(), &"host");
    serving.abort();
    Ok(())
}

/// A store of the program's own, which passes requests on while its server answers.
#[derive(Debug)]
struct Counting(MemoryStore, Arc<Breaker>);

impl Counting {
    fn is_well(&self) -> bool {
        let BreakerSnapshot { circuit, .. } = self.1.snapshot();
        circuit == Circuit::Closed
    }
}

impl Store for Counting {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let _permit = self.1.admit(Duration::from_secs(1)).await?;
            self.0.ask(ask).await
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.0.tally()
    }

    fn outage(&self) -> Outage {
        Outage::Fail
    }

    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(LeaseRequest::backoff(failures)))
    }
}

impl Stores for Counting {
    fn named(&self, name: &str) -> Arc<dyn Store> {
        self.0.named(name)
    }
}

fn missing(error: &StoreError) -> Option<Missing> {
    match error {
        StoreError::Setup { missing, .. } => Some(*missing),
        _ => None,
    }
}

async fn distributed() -> Result<(), Failure> {
    let (store, quota) = (MemoryStore::new(), Quota::per_second(10_000));
    let terms: QuotaTerms = QuotaTerms::of(&quota, 0)?;
    assert_eq!(terms.burst(), 10_000);
    assert_eq!(missing(&StoreError::NotSent(String::new())), None);
    let bucket: SharedBucket = SharedBucket::new(terms, 0);
    let report: ClassReport = ClassReport::new(1, 1_000_000, vec![ClassDemand::from_numbers([7, 0, 1, 1, 0, 0])]);
    let sums: Vec<ClassDemand> = SharedDemand::new().report(&report, 0);
    assert_eq!(sums, report.classes);
    let reporting: Reporting<'_> = store.report(report);
    reporting.await?;
    assert!(!bucket.is_forgotten(bucket.ends()) && bucket.is_forgotten(bucket.ends() + 1));
    let counting = Counting(store.clone(), Arc::default());
    assert!(counting.is_well());
    let limiter = Limiter::builder().quota(quota).distributed(counting).build()?;
    limiter.wait(1).await?;
    store.tally().count_error_reply(ReplyKind::Busy);
    let snapshot: StoreSnapshot = store.tally().snapshot();
    assert_eq!((snapshot.is_out, snapshot.error_replies(ReplyKind::Busy)), (false, 1));
    let users: Users = KeyedLimiter::builder().quota(quota).distributed(Counting(store, Arc::default())).build()?;
    users.wait(&"ann", 1).await?;
    Ok(())
}

async fn paced(limiter: &Limiter) -> Result<(), Failure> {
    let mut numbers: PacedStream<_> = stream::iter(0..3).pace(limiter);
    assert_eq!(numbers.next().await, Some(Ok(0)));
    let mut numbers: WithGrants<_> = stream::iter(0..3).pace(limiter).with_grants();
    let (_number, _grant) = numbers.next().await.ok_or("empty")??;
    let (sender, mut receiver) = mpsc::channel(8);
    let mut sink: PacedSink<_, u8> = sender.pace_sends(limiter);
    sink.send(7).await?;
    assert_eq!(receiver.next().await, Some(7));
    let (here, _there) = tokio::io::duplex(64);
    let mut socket: PacedIo<_> = here.pace_bytes(limiter);
    socket.write_all(b"hello").await?;
    limiter.close();
    let refused: Option<Result<u8, RefusedItem<u8>>> = stream::iter([1]).pace(limiter).next().await;
    assert!(matches!(refused, Some(Err(RefusedItem { item: 1, .. }))));
    assert!(matches!(sink.send(8).await, Err(PacedSinkError::Refused(_))));
    Ok(())
}

/// A key of the program's own.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct User(u64);

fn saved(limiter: &Limiter) -> Result<(), Failure> {
    let state: LimiterState = limiter.state()?;
    assert!(state.saved_at().is_some());
    let error: StateError = StateError::Version { found: 2, expected: 1 };
    assert!(error.to_string().starts_with("the saved state has version 2"));
    let users = KeyedLimiter::builder().quota(Quota::per_hour(10)).top(Duration::from_secs(60)).build()?;
    drop(users.try_acquire(&User(7), 9)?);
    let top: KeyedTop<User> = users.top(1);
    let first: Option<&TopKey<User>> = top.granted.first();
    assert_eq!(first.map(|top| top.count), Some(9));
    let state: KeyedState<User> = users.state()?;
    assert_eq!(state.len(), 1);
    Ok(())
}

fn counters() -> usize {
    let counters = |instrument: &&Instrument| instrument.kind == InstrumentKind::Counter;
    INSTRUMENTS.iter().filter(counters).count()
}

fn metered(limiter: &Limiter, adaptive: &Adaptive) -> Result<(), AlreadyMetered> {
    describe();
    let meter: Meter = Meter::new("api", limiter)?;
    meter.publish();
    let learned: AdaptiveMeter = AdaptiveMeter::new("api", adaptive);
    learned.publish();
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let builder = Limiter::builder().quota(Quota::per_second(10_000)).fine_timer();
    #[cfg(target_os = "linux")]
    let builder = if std::env::args().len() > 1 { builder.clock(tollgate::BootClock::new()) } else { builder };
    let limiter = builder.clock(QuantaClock::new()).build()?;
    saved(&limiter)?;
    assert!(counters() > 0);
    metered(&limiter, &Adaptive::between("1/s", "5/s").build()?)?;
    limiter.wait(1).within(Duration::from_secs(1)).await?;
    paced(&limiter).await?;
    keyed().await?;
    distributed().await
}
