//! One line for each public type and future: may it be sent, shared, moved? A change here is a change of the contract.

use tollgate::*;

/// What a type must be, asked of the compiler.
macro_rules! assert_traits {
    ($($type:ty: $send:ident $sync:ident $unpin:ident;)*) => {
        #[test]
        fn every_public_type_is_what_its_line_says() {
            $(
                assert_traits!(@ $type, Send, $send);
                assert_traits!(@ $type, Sync, $sync);
                assert_traits!(@ $type, Unpin, $unpin);
            )*
        }
    };
    (@ $type:ty, $trait:ident, yes) => {{
        fn is<T: $trait + ?Sized>() {}
        is::<$type>();
    }};
    // Two ways to be `Ambiguous` if the type has the trait, and then the compiler cannot choose.
    (@ $type:ty, $trait:ident, no) => {{
        trait Ambiguous<A> {
            fn some() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        struct HasIt;
        impl<T: $trait + ?Sized> Ambiguous<HasIt> for T {}
        <$type as Ambiguous<_>>::some();
    }};
}

#[rustfmt::skip]
assert_traits! {
    //                  Send Sync Unpin
    Limiter:             yes yes yes;
    Builder:             yes yes yes;
    Quota:               yes yes yes;
    Bucket:              yes yes yes;
    CappedBucket:        yes yes yes;
    Ticket:              yes yes yes;
    Uncapped:            yes yes yes;
    Capped:              yes yes yes;
    Grant<'static>:      yes yes yes;
    OwnedGrant:          yes yes yes;
    ManualClock:         yes yes yes;
    dyn Clock:           yes yes no;
    Snapshot:            yes yes yes;
    QuotaSnapshot:       yes yes yes;
    Which<'static>:      yes yes yes;

    // A waiter's place in the line lives inside its future: these stay where they are once polled.
    Consume<'static>:    yes yes no;
    ConsumeOwned:        yes yes no;
    // Its places are in boxes of their own.
    Join<'static, 2>:    yes yes yes;
    // It holds a timer.
    Replenisher:         yes yes no;

    Bound:               yes yes yes;
    ConfigError:         yes yes yes;
    ConsumeError:        yes yes yes;
    Denied:              yes yes yes;
    JoinError:           yes yes yes;
    ParseQuotaError:     yes yes yes;
    ReleaseError:        yes yes yes;
    TryAcquireError:     yes yes yes;
    TryJoinError:        yes yes yes;
}

#[cfg(all(feature = "stream", feature = "io", feature = "tower"))]
mod around {
    use futures::channel::mpsc::{Receiver, Sender};
    use tollgate::{Limiter, OwnedGrant, io::*, stream::*, tower::*};

    type Service = tower::util::BoxCloneService<(), (), ()>;

    #[rustfmt::skip]
    assert_traits! {
        //                                                  Send Sync Unpin
        // Their claims are in boxes of their own: they move if what they wrap does.
        PacedStream<Receiver<u8>>:                           yes yes yes;
        WithGrants<Receiver<u8>>:                            yes yes yes;
        PacedSink<Sender<u8>, u8>:                           yes yes yes;
        PacedIo<::tokio::net::TcpStream>:                    yes yes yes;
        RefusedItem<u8>:                                     yes yes yes;
        PacedSinkError<u8>:                                  yes yes yes;

        LimitLayer:                                          yes yes yes;
        Limit<u8>:                                           yes yes yes;
        HeldBody<u8, OwnedGrant>:                            yes yes yes;
        Admission:                                           yes yes no;
        LimitFuture<(), Service, Limiter, ToHead, AsError>:  yes no no;
        LimitError<u8>:                                      yes yes yes;
    }
}

#[cfg(feature = "http")]
mod http {
    use tollgate::{Limiter, http::*, tower::*};

    #[rustfmt::skip]
    assert_traits! {
        //                                        Send Sync Unpin
        HttpLimitLayer:                            yes yes yes;
        HttpLimit<u8>:                             yes yes yes;
        LimitBody<u8>:                             yes yes yes;
        HeedLayer:                                 yes yes yes;
        Heeded<u8>:                                yes yes yes;
        HeedFuture<u8>:                            yes yes yes;
        RateLimits:                                yes yes yes;
        Refusal:                                   yes yes yes;
        Partitioned<Limiter, fn(&()) -> Vec<u8>>:  yes yes yes;
        Chosen<fn(&()) -> (Limiter, u64)>:         yes yes yes;
    }

    #[cfg(feature = "keyed")]
    mod keyed {
        use std::hash::RandomState;
        use tollgate::{http::*, tower::*};

        #[rustfmt::skip]
        assert_traits! {
            KeyView<u8, RandomState>:                  yes yes yes;
            Keyed<u8, RandomState, fn(&()) -> (u8, u64)>:  yes yes yes;
            KeyedAdmission<u8, RandomState>:           yes yes no;
        }
    }
}

#[cfg(all(feature = "metrics", feature = "keyed"))]
mod told {
    use tollgate::KeyedLimiter;
    use tollgate::metrics::{AlreadyMetered, Meter};

    #[rustfmt::skip]
    assert_traits! {
        //                   Send Sync Unpin
        Meter:                yes yes yes;
        Meter<KeyedLimiter<String>>: yes yes yes;
        AlreadyMetered:       yes yes yes;
    }
}

#[test]
fn what_spawned_tasks_need_is_static() {
    fn is_static<T: Send + 'static>() {}
    is_static::<Limiter>();
    is_static::<ConsumeOwned>();
    is_static::<OwnedGrant>();
    is_static::<Replenisher>();
}

#[test]
fn what_may_cross_a_panic_may_cross_a_panic() {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_unwind_safe::<Quota>();
    is_unwind_safe::<Ticket>();
    is_unwind_safe::<Bucket>();
    is_unwind_safe::<CappedBucket>();
    is_unwind_safe::<ConsumeError>();
    is_unwind_safe::<TryAcquireError>();
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
