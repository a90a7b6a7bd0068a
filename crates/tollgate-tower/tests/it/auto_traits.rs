//! One line for each public type and future: may it be sent, shared, moved? A change here is a change of the contract.

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
    use tollgate_tower::{Chosen, http::*};

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
        use crate::assert_traits::assert_traits;
        use std::hash::RandomState;
        use tollgate_tower::{Keyed, KeyedAdmission, http::*};

        #[rustfmt::skip]
        assert_traits! {
            KeyView<u8, RandomState>:                  yes yes yes;
            Keyed<u8, RandomState, fn(&()) -> (u8, u64)>:  yes yes yes;
            KeyedAdmission<u8, RandomState>:           yes yes no;
        }
    }
}
