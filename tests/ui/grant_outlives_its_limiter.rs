//! A grant releases its tokens to its limiter, so the limiter must outlive it.

use tollgate::{Limiter, Quota};

fn main() {
    let grant = {
        let limiter = Limiter::new(Quota::per_second(100)).unwrap();
        limiter.try_acquire(1).unwrap()
    };
    drop(grant);
}
