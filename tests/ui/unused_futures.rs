//! A future that is not polled does nothing.

#![deny(unused_must_use)]

use std::time::Duration;
use tollgate::{Limiter, Quota, join};

fn main() {
    let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    limiter.consume(1);
    limiter.consume(1).within(Duration::ZERO);
    limiter.clone().consume_owned(1);
    limiter.clone().consume_owned(1).within(Duration::ZERO);
    limiter.replenisher();
    join([(&limiter, 1)]);
    join([(&limiter, 1)]).within(Duration::ZERO);
}
