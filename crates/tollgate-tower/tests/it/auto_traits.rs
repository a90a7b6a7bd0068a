//! One line for each public type and future: is it `Send`, `Sync`, `Unpin`? A change here is a change of the contract.

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
    //                                                   Send Sync Unpin
    LimitLayer:                                          yes yes yes;
    Limit<u8>:                                           yes yes yes;
    HeldBody<u8, OwnedGrant>:                            yes yes yes;
    Admission:                                           yes yes no;
    MaxWait:                                             yes yes yes;
    ToBody:                                              yes yes yes;
    AsBoxError:                                          yes yes yes;
    AsGrpc:                                              yes yes yes;
    AsResponse<u8>:                                      yes yes yes;
    LimitFuture<(), Service, Limiter, ToHead, AsError>:  yes no no;
    LimitError<u8>:                                      yes yes yes;
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
        //                                        Send Sync Unpin
        HttpLimitLayer:                            yes yes yes;
        HttpLimit<u8>:                             yes yes yes;
        LimitBody<u8>:                             yes yes yes;
        AsHttp<Limiter>:                           yes yes yes;
        HeedLayer:                                 yes yes yes;
        Heed:                                      yes yes yes;
        Heeded<u8>:                                yes yes yes;
        HeedFuture<u8>:                            yes yes yes;
        HeedKey<String, RandomState>:              yes yes yes;
        Advice:                                    yes yes yes;
        Format:                                    yes yes yes;
        RateLimits:                                yes yes yes;
        QuotaPolicy:                               yes yes yes;
        ServiceLimit:                              yes yes yes;
        ResourceLimit:                             yes yes yes;
        ResourceLimits:                            yes yes yes;
        Terms:                                     yes yes yes;
        Unit:                                      yes yes yes;
        AdaptiveGate:                              yes yes yes;
        AdaptiveAdmission:                         yes yes no;
        ReportStatus:                              yes yes yes;
        Unreported:                                yes yes yes;
        Refusal:                                   yes yes yes;
        ProblemType:                               yes yes yes;
        Partitioned<Limiter, fn(&()) -> Vec<u8>>:  yes yes yes;
        PartitionView<Limiter>:                    yes yes yes;
        By<AnyLimiter, fn(&()) -> (Limiter, u64)>: yes yes yes;
        KeyView<u8, RandomState>:                  yes yes yes;
        By<KeyedLimiter<u8>, fn(&()) -> (u8, u64)>:  yes yes yes;
        Admission<KeyedLimiter<u8>, (u8, u64)>:    yes yes no;
        ClientAddress:                             yes yes yes;
        Ipv6Prefix:                                yes yes yes;
        NoTrustedProxies:                          yes yes yes;
        PrefixTooLong:                             yes yes yes;
    }
}
