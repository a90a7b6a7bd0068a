//! A waiter stands in its limiter's line, so the limiter must still be there.

use tollgate::{Limiter, Quota};

fn main() {
    let waiting = {
        let limiter = Limiter::new(Quota::per_second(100)).unwrap();
        limiter.consume(1)
    };
    drop(waiting);
}
