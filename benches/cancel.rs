//! What does a cancellation cost, from any place in a queue of this length?

use divan::Bencher;
use divan::counter::ItemsCount;
use std::task::{Context, Waker};
use tollgate::{Limiter, ManualClock, Quota};

fn main() {
    divan::main();
}

/// Half of the queue leaves in random order; the rest stays.
#[divan::bench(args = [100, 10_000, 100_000])]
fn half_of_a_queue_leaves(bencher: Bencher, length: usize) {
    let quota = Quota::per_day(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(ManualClock::new()).build().expect("valid");
    let mut random = fastrand::Rng::with_seed(7);
    let queue = || {
        let mut queue: Vec<_> = (0..length).map(|_| Box::pin(limiter.consume(1))).collect();
        for waiting in &mut queue {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        random.shuffle(&mut queue);
        let stay = queue.split_off(length / 2);
        (queue, stay)
    };
    bencher.counter(ItemsCount::new(length / 2)).with_inputs(queue).bench_local_values(|(leaving, stay)| {
        drop(leaving);
        stay // dropped outside of the measurement
    });
}
