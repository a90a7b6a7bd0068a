//! Quotas and builders are values: a setting is lost if its result is not used.

#![deny(unused_must_use)]

use std::time::Duration;
use tollgate::{Bucket, Limiter, Quota};

fn main() {
    let quota = Quota::per_second(100);
    quota.burst(5);
    quota.initial(5);
    quota.stepped();
    Limiter::builder().quota(quota);
    let bucket = Bucket::new(quota, Duration::ZERO).unwrap();
    bucket.grab(1);
}
