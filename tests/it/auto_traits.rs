//! A place for each public type and future: is it `Send`, `Sync`, `Unpin`? A change here is a change of the contract.

use crate::assert_traits::assert_traits;
use tollgate::*;

#[rustfmt::skip]
assert_traits! {
    // Send Sync Unpin
    yes yes yes: Limiter, Builder, Quota, Bucket, Bucket<Capped>, Ticket, Uncapped, Capped, Grant<'static>, OwnedGrant,
        ManualClock, clock::TokioClock, Snapshot, QuotaSnapshot, DryRunSnapshot, Which<'static>, AnyLimiter, Class, ClassSnapshot, Share,
        Grant<'static, Class>, OwnedGrant<Class>, Join<'static, 2>, Join<'static, 2, Reservation<'static, 2>>,
        Join<'static, 2, [Grant<'static, AnyLimiter>; 2], AnyLimiter>, BadQuota, Bound, ConfigError, ConsumeError,
        Denied, JoinError, ParseQuotaError, QuotaConflict, QuotaError, Refused, ReleaseError, TryAcquireError,
        JoinError<TryAcquireError>;
    // A waiter's place in the queue is inside its future, and so is a timer: it must not move once it is polled.
    yes yes no: dyn Clock, Consume<'static, Class>, Consume<'static>, ConsumeOwned, Wait<Consume<'static>>,
        Replenisher;
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
        // Send Sync Unpin
        yes yes yes: Adaptive, AdaptiveBuilder, AdaptiveError, AdaptiveGrant, AdaptiveSnapshot, Attempt, ChangeReason,
            RateChange;
        yes yes no: AdaptiveConsume;
    }
}

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
        fn limits_keys<L: AsKeyedLimiter<String>>() {}
        fn names_strings<Q: ToKey<String> + ?Sized>() {}
        names_strings::<str>();
        // The types for which the others are names.
        let _: fn(KeyedGrant<'static, String>) -> GrantOfKey<_, ()> = |grant| grant;
        let _: fn(KeyedConsumeOwned<String>) -> KeyedClaim<_, String, String> = |claim| claim;
        limits_keys::<KeyedLimiter<String>>();
        limits_keys::<DistributedKeyedLimiter<String>>();
        paces_bytes::<::tokio::io::Empty>();
        paces_items::<Receiver<u8>>();
        paces_sends::<Sender<u8>>();
        assert!(INSTRUMENTS.iter().any(|instrument: &Instrument| instrument.kind == InstrumentKind::Gauge));
    }

    #[rustfmt::skip]
    assert_traits! {
        // Send Sync Unpin
        yes yes yes: KeyedLimiter<String>, KeyedBuilder<String>, KeyedSnapshot<String>, KeyedEntry<String>,
            KeyedTop<String>, TopKey<String>, Quotas,
            KeyedGrant<'static, String, RandomState>, OwnedKeyedGrant<String, RandomState>, Adaptive<KeyOf<String>>,
            DistributedKeyedLimiter<String>, DistributedKeyedBuilder<String>, DistributedKeyedGrant<String>,
            DistributedKeyedSnapshot,
            tollgate::clock::QuantaClock, MemoryStore, SharedBucket, QuotaTerms, LeaseRequest, LeaseGrant, ClassClaims,
            ClassGrant, Outage, StoreCounters, StoreSnapshot, StoreError, Missing, ReplyKind, Breaker, BreakerSnapshot,
            Circuit, PacedStream<Receiver<u8>>, WithGrants<Receiver<u8>>, PacedSink<Sender<u8>, u8>,
            PacedIo<::tokio::net::TcpStream>, RefusedItem<u8>, PacedSinkError<u8>, Meter, Meter<KeyedLimiter<String>>,
            AdaptiveMeter, AlreadyMetered, LimiterState, KeyedState<String>, StateError;
        yes yes no: KeyedConsume<'static, 'static, String, RandomState, str>, KeyedConsumeOwned<String, RandomState>,
            DistributedKeyedConsume<String>, KeyedReplenisher, dyn Store, dyn Stores;
    }

    #[cfg(target_os = "linux")]
    mod linux {
        use crate::assert_traits::assert_traits;
        assert_traits! { yes yes yes: tollgate::clock::BootClock; }
    }
}

#[test]
fn each_public_type_is_listed() {
    crate::assert_traits::assert_each_is_named(env!("CARGO_MANIFEST_DIR"), include_str!("auto_traits.rs"));
}

#[test]
fn types_for_spawned_tasks_are_static() {
    fn are_static<T: Send + 'static>() {}
    are_static::<(Limiter, ConsumeOwned, OwnedGrant, Replenisher)>();
}

#[test]
fn unwind_safe_types_are_unwind_safe() {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    fn are_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    are_unwind_safe::<(Quota, Ticket, Bucket, Bucket<Capped>, ConsumeError, TryAcquireError)>();
    are_unwind_safe::<(Limiter, Class, Grant<'static>, OwnedGrant, OwnedGrant<Class>)>();
    are_unwind_safe::<KeyedLimiter<String>>();
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
