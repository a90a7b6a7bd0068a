//! A place for each public type and future: is it `Send`, `Sync`, `Unpin`? A change here is a change of the contract.

use crate::assert_traits::assert_traits;
use tollgate::{Limiter, OwnedGrant};
use tollgate_tower::*;

type Service = ::tower::util::BoxCloneService<(), (), ()>;

fn is_gate<G: Gate<()>>() {}
fn is_answer<A: Answer<(), ()>>() {}
fn holds<H: Hold<(), ()>>() {}

#[test]
fn traits_are_implemented() {
    is_gate::<Limiter>();
    is_answer::<AsError>();
    holds::<ToHead>();
}

#[rustfmt::skip]
assert_traits! {
    // Send Sync Unpin
    yes yes yes: LimitLayer, Limit<u8>, HeldBody<u8, OwnedGrant>, MaxWait, ToBody, AsBoxError, AsGrpc, AsResponse<u8>,
        LimitError<u8>;
    yes yes no: Admission;
    yes no no: LimitFuture<(), Service, Limiter, ToHead, AsError>;
}

#[cfg(all(feature = "http", feature = "axum"))]
mod http {
    use crate::assert_traits::assert_traits;
    use std::hash::RandomState;
    use tollgate::{KeyedLimiter, Limiter};
    use tollgate_tower::{Admission, AnyLimiter, By, http::*, key::*};

    fn advertises<G: Advertise<()>>() {}
    fn heeds<H: Heeding<()>>() {}
    fn is_target<T: HeedTarget>() {}
    fn is_view<V: View>() {}
    fn names_a_field<N: FieldName>() {}

    #[test]
    fn traits_are_implemented() {
        advertises::<Limiter>();
        heeds::<Limiter>();
        is_target::<Limiter>();
        is_view::<Limiter>();
        names_a_field::<&'static str>();
    }

    #[test]
    fn each_public_type_is_listed() {
        crate::assert_traits::assert_each_is_named(env!("CARGO_MANIFEST_DIR"), include_str!("auto_traits.rs"));
    }

    #[rustfmt::skip]
    assert_traits! {
        // Send Sync Unpin
        yes yes yes: HttpLimitLayer, HttpLimit<u8>, LimitBody<u8>, AsHttp<Limiter>, HeedLayer, Heed, Heeded<u8>,
            HeedFuture<u8>, HeedKey<String, RandomState>, Advice, Format, RateLimits, QuotaPolicy, ServiceLimit,
            ResourceLimit, ResourceLimits, Terms, Unit, AdaptiveGate, ReportStatus, Unreported, Refusal, ProblemType,
            Partitioned<Limiter, fn(&()) -> Vec<u8>>, PartitionView<Limiter>, By<AnyLimiter, fn(&()) -> (Limiter, u64)>,
            KeyView<u8, KeyedLimiter<u8>>, By<KeyedLimiter<u8>, fn(&()) -> (u8, u64)>, ClientAddress, Ipv6Prefix,
            NoTrustedProxies, PrefixTooLong;
        yes yes no: AdaptiveAdmission, Admission<KeyedLimiter<u8>, (u8, u64)>;
    }
}
