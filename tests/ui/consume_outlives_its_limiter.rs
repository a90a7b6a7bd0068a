//! A waiter is in its limiter's queue, so the limiter must outlive it.

use tollgate::{Limiter, Quota};

fn main() {
    let waiting = {
        let limiter = Limiter::new(Quota::per_second(100)).unwrap();
        limiter.consume(1)
    };
    drop(waiting);
}
