//! The tests of the documents with many threads. The races are models in `tests/loom`; `threads::storm` accounts for every
//! token of more kinds of calls.

use super::MOST;
use super::seastar::{bucket, capped};
use crate::fixture::*;

/// How many of the calls of all `threads` are granted.
fn granted(threads: usize, calls: usize, call: impl Fn() -> bool + Sync) -> usize {
    let start = Barrier::new(threads);
    let caller = || {
        start.wait();
        (0..calls).filter(|_| call()).count()
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..threads).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    })
}

/// better-bucket has eight threads, the small bucket a hundred of ten thousand calls, the course a hundred of one call.
#[test]
fn threads_are_granted_exactly_the_capacity() {
    for (threads, calls, capacity, stride) in [
        (8, 1_000, 1, None),
        (8, 1_000, 4_096, None),
        (100, 10_000, 500_000, None),
        (100, 10_000, 500_000, Some(1_000)),
        (100, 1, 50, None),
        (100, 1, 50, Some(0)),
        (100, 1, 50, Some(10)),
    ] {
        let builder = Limiter::builder().quota(Quota::per_second(1).burst(capacity)).clock(ManualClock::new());
        let builder = stride.into_iter().fold(builder, |builder, stride| builder.stride(stride));
        let limiter = builder.rovers_at(u64::MAX - capacity / 2).build().unwrap();
        let granted = granted(threads, calls, || limiter.try_acquire(1).is_ok()) as u64;
        assert_eq!((granted, limiter.available()), (capacity, 0), "{threads} threads of {calls} calls");
        assert_eq!((limiter.snapshot().granted, limiter.snapshot().refused), (capacity, 0));
    }
}

#[test]
fn concurrent_allow_grants_at_most_capacity() {
    for _ in 0..10 {
        let quota = Quota::per_second(1).burst(50);
        let keyed = tollgate::KeyedLimiter::builder().quota(quota).clock(ManualClock::new()).build().unwrap();
        assert_eq!(granted(100, 1, || keyed.try_acquire(&"a", 1).is_ok()), 50);
        assert_eq!(keyed.available(&"a"), 0);
    }
}

/// better-bucket's acquire-while-reset.
#[test]
fn threads_that_also_set_the_quota_are_granted_exactly_the_capacity() {
    let quota = Quota::per_second(1).burst(6_000);
    let limiter = Limiter::builder().quota(quota).clock(ManualClock::new()).build().unwrap();
    let call = || {
        let is_granted = limiter.try_acquire(1).is_ok();
        limiter.set_quota(0, quota).unwrap();
        is_granted
    };
    assert_eq!((granted(8, 1_000, call), limiter.available()), (6_000, 0));
}

/// Seastar's dispatch loop, on four threads, with two timers that move the time on.
#[derive(Default)]
struct Dispatch {
    now: AtomicU64,
    granted: AtomicU64,
    in_flight: AtomicU64,
    /// Claims that were not granted at once.
    waited: AtomicU64,
    stop: AtomicBool,
}

impl Dispatch {
    /// A token each microsecond.
    fn minted(&self) -> u64 {
        self.now.load(SeqCst) / 1_000
    }

    fn timer<C>(&self, bucket: &Bucket<C>) {
        while !self.stop.load(SeqCst) {
            // The timers stop a few tokens ahead of the grants: the bucket is never full.
            if self.minted() < self.granted.load(SeqCst) + 4 {
                // Moved before the replenish, and not by whole tokens.
                self.now.fetch_add(700, SeqCst);
            }
            bucket.replenish(Duration::from_nanos(self.now.load(SeqCst)));
            thread::yield_now();
        }
    }

    fn request<C>(&self, bucket: &Bucket<C>, cost: u64, cap: u64, release: impl Fn(u64)) {
        let ticket = bucket.grab(cost);
        let mut yields = 0;
        while bucket.deficiency(ticket) > 0 {
            yields += 1;
            assert!(yields < 1 << 22 && !self.stop.load(SeqCst), "stranded");
            thread::yield_now();
        }
        self.waited.fetch_add(u64::from(yields > 0), SeqCst);
        let granted = self.granted.fetch_add(cost, SeqCst) + cost;
        assert!(granted <= self.minted(), "{granted} tokens granted when {} were minted", self.minted());
        let in_flight = self.in_flight.fetch_add(cost, SeqCst) + cost;
        assert!(in_flight <= cap, "{in_flight} in flight");
        thread::yield_now();
        self.in_flight.fetch_sub(cost, SeqCst);
        release(cost);
    }

    /// All that was minted was granted or is there.
    fn run<C>(self, bucket: &Bucket<C>, cap: u64, release: impl Fn(u64) + Sync) {
        const TURNS: u64 = 900;
        let answers: Vec<_> = thread::scope(|scope| {
            let (this, release) = (&self, &release);
            let requests = |index: u64| {
                move || (0..TURNS).for_each(|turn| this.request(bucket, 1 + (turn + index) % 3, cap, release))
            };
            let threads: Vec<_> = (0..4).map(|index| scope.spawn(requests(index))).collect();
            (0..2).for_each(|_| drop(scope.spawn(|| this.timer(bucket))));
            let answers = threads.into_iter().map(|thread| thread.join()).collect();
            // Also if one of them panicked; otherwise the timers would never end.
            this.stop.store(true, SeqCst);
            answers
        });
        answers.into_iter().for_each(|answer| answer.expect("a request failed, see above"));
        assert!(self.waited.load(SeqCst) > 0, "no claim had to wait");
        bucket.replenish(Duration::from_nanos(self.now.load(SeqCst)));
        let granted = 4 * TURNS * 2;
        assert_eq!(bucket.deficiency(bucket.grab(1_000)), granted + 1_000 - self.minted());
    }
}

#[test]
fn dispatch_loops_on_several_threads_get_all_that_time_brought_and_no_more() {
    Dispatch::default().run(&bucket(Quota::new(1, Duration::from_micros(1)).burst(1_000).initial(0)), MOST, |_| {});
}

#[test]
fn dispatch_loops_on_several_threads_never_have_more_in_flight_than_the_cap() {
    let bucket = capped(Quota::new(1, Duration::from_micros(1)).burst(1_000).initial(0), 5);
    Dispatch::default().run(&bucket, 5, |tokens| bucket.release(tokens));
}

/// With a head that never moves, the deficiency of an empty grab is the number of tokens that were grabbed before.
#[test]
fn grabs_that_race_never_share_a_token() {
    for _ in 0..20 {
        let bucket = bucket(Quota::manual(1).initial(0));
        granted(4, 20_000, || bucket.deficiency(bucket.grab(1)) > 0);
        assert_eq!(bucket.deficiency(bucket.grab(0)), 80_000);
    }
}
