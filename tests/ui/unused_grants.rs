//! With an in-flight cap, a grant that is not bound is released at once.

#![deny(unused_must_use)]

use tollgate::{Limiter, Quota};

fn main() {
    let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    limiter.try_acquire(1).unwrap();
    limiter.blocking_consume(1).unwrap();
    let _bound = limiter.try_acquire(1).unwrap();
    futures::executor::block_on(async {
        limiter.consume(1).await.unwrap();
        limiter.clone().consume_owned(1).await.unwrap();
    });
}
