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
    // Its places are in boxes of their own, so it may move.
    Join<'static, 2>:    yes yes yes;
    Join<'static, 2, Reservation<'static, 2>>: yes yes yes;
    Join<'static, 2, [Grant<'static, AnyLimiter>; 2], AnyLimiter>: yes yes yes;
    // It contains a timer.
    Replenisher:         yes yes no;

    Bound:               yes yes yes;
    ConfigError:         yes yes yes;
    ConsumeError:        yes yes yes;
    Denied:              yes yes yes;
    JoinError:           yes yes yes;
    ParseQuotaError:     yes yes yes;
    ReleaseError:        yes yes yes;
    TryAcquireError:     yes yes yes;
    JoinError<TryAcquireError>: yes yes yes;
}

#[cfg(all(feature = "stream", feature = "io"))]
mod around {
    use crate::assert_traits::assert_traits;
    use futures::channel::mpsc::{Receiver, Sender};
    use tollgate::{io::*, stream::*};

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
    }
}

#[cfg(all(feature = "metrics", feature = "keyed"))]
mod meters {
    use crate::assert_traits::assert_traits;
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
