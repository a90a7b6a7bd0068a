//! Tokens of a bucket without a cap cannot be released.

use std::time::Duration;
use tollgate::{Bucket, Quota};

fn main() {
    let capped = Bucket::capped(Quota::per_second(100), 5, Duration::ZERO).unwrap();
    capped.release(1);
    let uncapped = Bucket::new(Quota::per_second(100), Duration::ZERO).unwrap();
    uncapped.release(1);
}
