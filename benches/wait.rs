//! What does it cost to wait in the queue and be served, depending on the number of waiters?

use divan::Bencher;
use divan::counter::ItemsCount;
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota};

fn main() {
    divan::main();
}

const LENGTHS: [u64; 4] = [1, 100, 10_000, 100_000];

/// A token each millisecond, on a manual clock: nothing here waits for real time.
fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::new(1, Duration::from_millis(1)).burst(1).initial(0);
    (Limiter::builder().quota(quota).clock(clock.clone()).build().expect("valid"), clock)
}

/// All claims of a queue enter, fall due together, are served by one tick, and are polled again.
#[divan::bench(args = LENGTHS)]
fn enter_and_be_served(bencher: Bencher, length: u64) {
    let (limiter, clock) = limiter();
    bencher.counter(ItemsCount::new(length)).bench_local(|| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut queue: Vec<_> = (0..length).map(|_| Box::pin(limiter.consume(1))).collect();
        for waiting in &mut queue {
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
        }
        clock.advance(Duration::from_millis(length));
        limiter.tick();
        for waiting in &mut queue {
            assert!(waiting.as_mut().poll(&mut cx).is_ready());
        }
    });
}

/// One claim is cancelled at the front and one enters at the end, behind this many.
#[divan::bench(args = LENGTHS)]
fn one_in_one_out(bencher: Bencher, length: u64) {
    let (limiter, clock) = limiter();
    let mut cx = Context::from_waker(Waker::noop());
    let mut queue: std::collections::VecDeque<_> = (0..length).map(|_| Box::pin(limiter.consume(1))).collect();
    for waiting in &mut queue {
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    }
    bencher.bench_local(|| {
        clock.advance(Duration::from_millis(1));
        limiter.tick();
        let mut front = queue.pop_front().expect("a claim waits");
        assert!(front.as_mut().poll(&mut cx).is_ready());
        front.set(limiter.consume(1));
        // With one waiter, the place behind it is the front.
        assert!(front.as_mut().poll(&mut cx).is_pending());
        queue.push_back(front);
    });
}
