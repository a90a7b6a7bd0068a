//! Values that do nothing if they are not used cause a warning. `expect` is a warning itself where nothing warns, and the
//! lints of `scripts/test` deny warnings.

use futures::executor::block_on;
use std::time::Duration;
use tollgate::{Bucket, Limiter, Quota, join};

fn limiter() -> Limiter {
    Limiter::new(Quota::per_second(100)).unwrap()
}

#[test]
fn a_future_that_is_not_polled_causes_a_warning() {
    let limiter = limiter();
    #[expect(unused_must_use)]
    limiter.consume(1);
    #[expect(unused_must_use)]
    limiter.consume(1).within(Duration::ZERO);
    #[expect(unused_must_use)]
    limiter.clone().consume_owned(1);
    #[expect(unused_must_use)]
    limiter.clone().consume_owned(1).within(Duration::ZERO);
    #[expect(unused_must_use)]
    limiter.replenisher();
    #[expect(unused_must_use)]
    join([(&limiter, 1)]);
    #[expect(unused_must_use)]
    join([(&limiter, 1)]).within(Duration::ZERO);
    assert_eq!(limiter.available(), 100);
}

#[test]
fn a_grant_that_is_not_bound_causes_a_warning() {
    let limiter = limiter();
    #[expect(unused_must_use)]
    limiter.try_acquire(1).unwrap();
    #[expect(unused_must_use)]
    limiter.blocking_consume(1).unwrap();
    block_on(async {
        #[expect(unused_must_use)]
        limiter.consume(1).await.unwrap();
        #[expect(unused_must_use)]
        limiter.clone().consume_owned(1).await.unwrap();
    });
}

#[test]
fn a_setting_whose_result_is_not_used_causes_a_warning() {
    let quota = Quota::per_second(100);
    #[expect(unused_must_use)]
    quota.burst(5);
    #[expect(unused_must_use)]
    quota.initial(5);
    #[expect(unused_must_use)]
    quota.stepped();
    #[expect(unused_must_use)]
    Limiter::builder().quota(quota);
    let bucket = Bucket::new(quota, Duration::ZERO).unwrap();
    #[expect(unused_must_use)]
    bucket.grab(1);
}
