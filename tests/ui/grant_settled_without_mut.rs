//! Settling needs exclusive access to the grant.

use tollgate::{Limiter, Quota};

fn main() {
    let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    let grant = limiter.try_acquire(5).unwrap();
    grant.settle(3);
}
