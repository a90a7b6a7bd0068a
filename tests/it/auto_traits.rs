//! One line for each public type and future: is it `Send`, `Sync`, `Unpin`? A change here is a change of the contract.

use crate::assert_traits::assert_traits;
use tollgate::*;

#[rustfmt::skip]
assert_traits! {
    //                  Send Sync Unpin
    Limiter:             yes yes yes;
    Builder:             yes yes yes;
    Quota:               yes yes yes;
    Bucket:              yes yes yes;
    Bucket<Capped>:      yes yes yes;
    Ticket:              yes yes yes;
    Uncapped:            yes yes yes;
    Capped:              yes yes yes;
    Grant<'static>:      yes yes yes;
    OwnedGrant:          yes yes yes;
    ManualClock:         yes yes yes;
    dyn Clock:           yes yes no;
    Snapshot:            yes yes yes;
    QuotaSnapshot:       yes yes yes;
    DryRunSnapshot:      yes yes yes;
    Which<'static>:      yes yes yes;

    // A waiter's place in the queue is inside its future: these must not move once they are polled.
    AnyLimiter:          yes yes yes;
    Class:               yes yes yes;
    ClassSnapshot:       yes yes yes;
    Share:               yes yes yes;
    Grant<'static, Class>: yes yes yes;
    OwnedGrant<Class>:   yes yes yes;
    Consume<'static, Class>: yes yes no;

    Consume<'static>:    yes yes no;
    ConsumeOwned:        yes yes no;
    Wait<Consume<'static>>: yes yes no;
    GrowWithin<'static>: yes yes no;
    // Its places are in boxes of their own, so it may move.
    Join<'static, 2>:    yes yes yes;
    Join<'static, 2, Reservation<'static, 2>>: yes yes yes;
    Join<'static, 2, [Grant<'static, AnyLimiter>; 2], AnyLimiter>: yes yes yes;
    // It contains a timer.
    Replenisher:         yes yes no;

    BadQuota:            yes yes yes;
    Bound:               yes yes yes;
    ConfigError:         yes yes yes;
    ConsumeError:        yes yes yes;
    Denied:              yes yes yes;
    JoinError:           yes yes yes;
    ParseQuotaError:     yes yes yes;
    QuotaConflict:       yes yes yes;
    Refused:             yes yes yes;
    ReleaseError:        yes yes yes;
    TryAcquireError:     yes yes yes;
    JoinError<TryAcquireError>: yes yes yes;
}

mod learned {
    use crate::assert_traits::assert_traits;
    use tollgate::{AsLimiter, Limiter, adaptive::*};

    fn is_target<T: Target>() {}
    fn is_limiter<L: AsLimiter>() {}

    #[test]
    fn limiters_are_targets() {
        is_target::<Limiter>();
        is_limiter::<Limiter>();
    }

    #[rustfmt::skip]
    assert_traits! {
        //                 Send Sync Unpin
        Adaptive:           yes yes yes;
        AdaptiveBuilder:    yes yes yes;
        AdaptiveConsume:    yes yes no;
        AdaptiveError:      yes yes yes;
        AdaptiveGrant:      yes yes yes;
        AdaptiveSnapshot:   yes yes yes;
        Attempt:            yes yes yes;
        ChangeReason:       yes yes yes;
        RateChange:         yes yes yes;
    }
}

#[cfg(all(feature = "distributed", feature = "fine-timer", feature = "io", feature = "keyed", feature = "metrics"))]
#[cfg(all(feature = "quanta", feature = "state", feature = "stream"))]
mod features {
    use crate::assert_traits::assert_traits;
    use futures::channel::mpsc::{Receiver, Sender};
    use std::hash::RandomState;
    use tollgate::adaptive::{Adaptive, KeyOf};
    use tollgate::{distributed::*, io::*, metrics::*, state::*, stream::*, *};

    /// The names of traits are in scope, and each type can be named from outside of the crate.
    #[test]
    fn traits_are_implemented() {
        fn paces_bytes<T: PaceIoExt>() {}
        fn paces_items<T: PaceStreamExt>() {}
        fn paces_sends<T: PaceSinkExt<u8>>() {}
        paces_bytes::<::tokio::io::Empty>();
        paces_items::<Receiver<u8>>();
        paces_sends::<Sender<u8>>();
        assert!(INSTRUMENTS.iter().any(|instrument: &Instrument| instrument.kind == InstrumentKind::Gauge));
    }

    #[rustfmt::skip]
    assert_traits! {
        //                                                  Send Sync Unpin
        KeyedLimiter<String>:                                yes yes yes;
        KeyedBuilder<String>:                                yes yes yes;
        KeyedSnapshot<String>:                               yes yes yes;
        KeyedEntry<String>:                                  yes yes yes;
        KeyedEntries<'static, String, RandomState>:          yes yes yes;
        KeyedTop<String>:                                    yes yes yes;
        TopKey<String>:                                      yes yes yes;
        Quotas:                                              yes yes yes;
        KeyedGrant<'static, String, RandomState>:            yes yes yes;
        OwnedKeyedGrant<String, RandomState>:                yes yes yes;
        KeyedConsume<'static, String, RandomState>:          yes yes no;
        KeyedConsumeOwned<String, RandomState>:              yes yes no;
        KeyedReplenisher:                                    yes yes no;
        Adaptive<KeyOf<String>>:                             yes yes yes;
        QuantaClock:                                         yes yes yes;

        dyn Store:                                           yes yes no;
        dyn Stores:                                          yes yes no;
        MemoryStore:                                         yes yes yes;
        SharedBucket:                                        yes yes yes;
        SharedDemand:                                        yes yes yes;
        QuotaTerms:                                          yes yes yes;
        LeaseRequest:                                        yes yes yes;
        LeaseGrant:                                          yes yes yes;
        ClassDemand:                                         yes yes yes;
        ClassReport:                                         yes yes yes;
        Reporting<'static>:                                  yes no yes;
        Outage:                                              yes yes yes;
        StoreCounters:                                       yes yes yes;
        StoreSnapshot:                                       yes yes yes;
        StoreError:                                          yes yes yes;
        Missing:                                             yes yes yes;
        ReplyKind:                                           yes yes yes;
        Breaker:                                             yes yes yes;
        BreakerSnapshot:                                     yes yes yes;
        Circuit:                                             yes yes yes;

        // Their claims are in boxes of their own: they move if what they wrap does.
        PacedStream<Receiver<u8>>:                           yes yes yes;
        WithGrants<Receiver<u8>>:                            yes yes yes;
        PacedSink<Sender<u8>, u8>:                           yes yes yes;
        PacedIo<::tokio::net::TcpStream>:                    yes yes yes;
        RefusedItem<u8>:                                     yes yes yes;
        PacedSinkError<u8>:                                  yes yes yes;

        Meter:                                               yes yes yes;
        Meter<KeyedLimiter<String>>:                         yes yes yes;
        AdaptiveMeter:                                       yes yes yes;
        AlreadyMetered:                                      yes yes yes;

        LimiterState:                                        yes yes yes;
        KeyedState<String>:                                  yes yes yes;
        StateError:                                          yes yes yes;
    }

    #[cfg(target_os = "linux")]
    mod linux {
        use crate::assert_traits::assert_traits;
        assert_traits! { tollgate::BootClock: yes yes yes; }
    }
}

#[test]
fn each_public_type_is_listed() {
    crate::assert_traits::assert_each_is_named(env!("CARGO_MANIFEST_DIR"), include_str!("auto_traits.rs"));
}

#[test]
fn types_for_spawned_tasks_are_static() {
    fn is_static<T: Send + 'static>() {}
    is_static::<Limiter>();
    is_static::<ConsumeOwned>();
    is_static::<OwnedGrant>();
    is_static::<Replenisher>();
}

#[test]
fn unwind_safe_types_are_unwind_safe() {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_unwind_safe::<Quota>();
    is_unwind_safe::<Ticket>();
    is_unwind_safe::<Bucket>();
    is_unwind_safe::<Bucket<Capped>>();
    is_unwind_safe::<ConsumeError>();
    is_unwind_safe::<TryAcquireError>();
    is_unwind_safe::<Limiter>();
    is_unwind_safe::<Class>();
    is_unwind_safe::<Grant<'static>>();
    is_unwind_safe::<OwnedGrant>();
    is_unwind_safe::<OwnedGrant<Class>>();
    #[cfg(feature = "keyed")]
    is_unwind_safe::<KeyedLimiter<String>>();
}

#[test]
fn async_code_that_holds_grants_and_waits_can_be_spawned() {
    fn can_be_spawned<F: Future<Output = ()> + Send>(_: F) {}
    let limiter = Limiter::new(Quota::manual(1)).unwrap();
    can_be_spawned(async {
        let grant = limiter.consume(1).await.unwrap();
        let _second = limiter.consume(1).within(std::time::Duration::ZERO).await;
        let _third = limiter.clone().consume_owned(1).await;
        let _joint = join([(&limiter, 1)]).await;
        limiter.replenisher().await;
        drop(grant);
    });
}
