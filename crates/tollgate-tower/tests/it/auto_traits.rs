//! One line for each public type and future: is it `Send`, `Sync`, `Unpin`? A change here is a change of the contract.

use crate::assert_traits::assert_traits;
use tollgate::{Limiter, OwnedGrant};
use tollgate_tower::*;

type Service = ::tower::util::BoxCloneService<(), (), ()>;

#[rustfmt::skip]
assert_traits! {
    //                                                   Send Sync Unpin
    LimitLayer:                                          yes yes yes;
    Limit<u8>:                                           yes yes yes;
    HeldBody<u8, OwnedGrant>:                            yes yes yes;
    Admission:                                           yes yes no;
    LimitFuture<(), Service, Limiter, ToHead, AsError>:  yes no no;
    LimitError<u8>:                                      yes yes yes;
}

#[cfg(feature = "http")]
mod http {
    use crate::assert_traits::assert_traits;
    use tollgate::Limiter;
    use tollgate_tower::{AnyLimiter, By, http::*};

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
        ResourceLimits:                            yes yes yes;
        AdaptiveGate:                              yes yes yes;
        AdaptiveAdmission:                         yes yes no;
        Unreported:                                yes yes yes;
        Refusal:                                   yes yes yes;
        Partitioned<Limiter, fn(&()) -> Vec<u8>>:  yes yes yes;
        By<AnyLimiter, fn(&()) -> (Limiter, u64)>: yes yes yes;
    }

    #[cfg(feature = "keyed")]
    mod keyed {
        use crate::assert_traits::assert_traits;
        use std::hash::RandomState;
        use tollgate::KeyedLimiter;
        use tollgate_tower::{Admission, By, http::*};

        #[rustfmt::skip]
        assert_traits! {
            KeyView<u8, RandomState>:                  yes yes yes;
            By<KeyedLimiter<u8>, fn(&()) -> (u8, u64)>:  yes yes yes;
            Admission<KeyedLimiter<u8>, (u8, u64)>:    yes yes no;
        }
    }
}
