//! The allocation audit: granting, refusing, waiting and cancelling never allocate.
//!
//! Allocations are counted per thread, so that tests that run at the same time do not disturb each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Class, Consume, ConsumeOwned, Limiter, ManualClock, Quota, Share};

struct Counting;

thread_local! {
    // Without lazy initialization and without a destructor, so the allocator itself can use it.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread allocated, minus those that it freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count_one(bytes: usize) {
    COUNT.set(COUNT.get() + 1);
    LIVE.set(LIVE.get() + bytes as i64);
}

fn count_out(bytes: usize) {
    LIVE.set(LIVE.get() - bytes as i64);
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one(layout.size());
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count_out(layout.size());
        // SAFETY: the caller fulfils the contract of `dealloc`, and all memory is from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one(size);
        count_out(layout.size());
        // SAFETY: the caller fulfils the contract of `realloc`, and all memory is from the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MILLI: Duration = Duration::from_millis(1);
const ROUNDS: u64 = 1_000;

/// The number of allocations of this thread during `act`.
fn allocations<T>(act: impl FnOnce() -> T) -> u64 {
    let before = COUNT.get();
    drop(black_box(act()));
    COUNT.get() - before
}

/// A token each millisecond, on a manual clock.
fn by_hand(initial: u64) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::new(1, MILLI).burst(10_000).initial(initial);
    let limiter = Limiter::builder().quota(quota).max_in_flight(20_000).clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_count_counts() {
    assert_eq!(allocations(|| Box::new(7)), 1);
    assert_eq!(allocations(|| vec![0_u8; 100]), 1);
    assert_eq!(allocations(|| 7), 0);
}

/// Runs `act` many times, which must not allocate.
#[track_caller]
fn allocates_nothing(mut act: impl FnMut()) {
    assert_eq!(allocations(|| (0..ROUNDS).for_each(|_| act())), 0);
}

#[test]
fn grants_and_refusals_without_waiting_allocate_nothing() {
    let (limiter, _clock) = by_hand(10_000);
    allocates_nothing(|| {
        drop(limiter.try_acquire(1).unwrap());
        let Poll::Ready(Ok(_grant)) = poll_once(limiter.consume(1)) else { panic!("the token is available") };
        let within = poll_once(limiter.consume(1).within(MILLI));
        let Poll::Ready(Ok(_grant)) = within else { panic!("the second token is available") };
        let owned = limiter.clone().consume_owned(1);
        let Poll::Ready(Ok(_grant)) = poll_once(owned) else { panic!("the third token is available") };
    });
    let (limiter, _clock) = by_hand(0);
    let refuse = || {
        assert!(limiter.try_acquire(1).is_err());
        assert!(limiter.try_acquire(20_001).is_err());
        assert!(poll_once(limiter.consume(20_001)).is_ready());
        assert!(poll_once(limiter.consume(5).within(MILLI)).is_ready());
    };
    allocates_nothing(refuse);
    let mut waiting = Box::pin(limiter.consume(5));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    allocates_nothing(refuse);
}

#[test]
fn entering_the_queue_being_served_and_cancelling_allocate_nothing() {
    let (limiter, clock) = by_hand(0);
    let mut cx = Context::from_waker(Waker::noop());
    let mut round = || {
        let mut front = std::pin::pin!(limiter.consume(1));
        let mut middle = Box::pin(limiter.consume(1));
        let mut back = std::pin::pin!(limiter.consume(1));
        assert!(front.as_mut().poll(&mut cx).is_pending());
        assert!(middle.as_mut().poll(&mut cx).is_pending());
        assert!(back.as_mut().poll(&mut cx).is_pending());
        drop(middle);
        clock.advance(2 * MILLI);
        limiter.tick();
        assert!(front.poll(&mut cx).is_ready());
        assert!(back.poll(&mut cx).is_ready());
    };
    // The test's own box is moved out, and not dropped.
    assert_eq!(allocations(|| (0..ROUNDS).for_each(|_| round())), ROUNDS);
}

#[test]
fn leaving_from_each_place_allocates_nothing() {
    let (limiter, clock) = by_hand(0);
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiters: Vec<_> = (0..10_u64).map(|_| Some(Box::pin(limiter.consume(5)))).collect();
    for waiting in waiters.iter_mut().flatten() {
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    }
    clock.advance(7 * MILLI);
    // Granted but not polled, at the front, at the back, in the middle, then the rest.
    for place in [0, 1, 9, 4, 2, 3, 5, 6, 7, 8] {
        assert_eq!(allocations(|| waiters[place] = None), 0, "from place {place}");
    }
}

#[test]
fn settling_releasing_and_replenishing_allocate_nothing() {
    let (limiter, _clock) = by_hand(10_000);
    allocates_nothing(|| {
        let mut grant = limiter.try_acquire(5).unwrap();
        grant.settle(3);
        grant.settle(7);
        grant.settle(1);
        grant.forget();
        limiter.release(1).unwrap();
        limiter.replenish(1);
        black_box((limiter.available(), limiter.deficiency(), limiter.estimate(3)));
    });
}

/// On a runtime, with the replenisher and its timer: the first wait spawns the task, the later ones allocate nothing.
#[test]
fn consume_that_waits_on_a_runtime_allocates_nothing_once_the_replenisher_is_there() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let limiter = runtime.block_on(async { Limiter::new(Quota::new(1, MILLI).burst(1).initial(0)).unwrap() });
    let wait = |rounds: u64| {
        runtime.block_on(async {
            for _ in 0..rounds {
                let _grant = limiter.consume(1).await.unwrap();
                // And a claim that times out.
                let mut left = std::pin::pin!(limiter.consume(1));
                let _pending = futures::poll!(left.as_mut());
            }
        });
    };
    assert!(allocations(|| wait(10)) > 0, "spawning the task allocates");
    assert_eq!(allocations(|| wait(ROUNDS)), 0);
    assert_eq!(limiter.snapshot().granted - limiter.snapshot().refunded, 10 + ROUNDS);
}

#[test]
fn a_limiter_is_640_bytes_in_all() {
    let before = LIVE.get();
    let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    let bytes = LIVE.get() - before;
    drop(limiter);
    assert_eq!(LIVE.get(), before);
    // A live entry of a keyed limiter has a driver, a key hash and perhaps a parent; a counted limiter has observers.
    let most = if cfg!(any(feature = "keyed", feature = "metrics")) { 768 } else { 640 };
    assert!((1..=most).contains(&bytes), "{bytes} bytes");
}

/// What the keys of a limiter leave behind in memory, on a runtime with paused time.
mod keys {
    use super::*;
    use futures::poll;
    use std::future::Future;
    use std::task::{Context, Waker};
    use tokio::runtime::{Builder, Runtime};
    use tollgate::KeyedLimiter;

    fn keyed() -> (Runtime, KeyedLimiter<u64>) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(10).burst(1)).shards(1);
        let keyed = runtime.block_on(async { builder.build().unwrap() });
        (runtime, keyed)
    }

    /// Only a new key is made.
    #[test]
    fn calls_by_a_borrowed_form_of_a_key_in_memory_allocate_nothing() {
        let (runtime, _) = keyed();
        let users: KeyedLimiter<String> = KeyedLimiter::new(Quota::per_minute(1).burst(1 << 20)).unwrap();
        // What the shard allocates on first use.
        (0..10).for_each(|_| drop(users.try_acquire("ann", 1)));
        assert!(users.try_acquire("ann", 1 << 20).is_err());
        allocates_nothing(|| users.try_acquire("ann", 2).unwrap().settle("ann", 1));
        allocates_nothing(|| assert!(users.try_acquire("ann", 1 << 20).is_err()));
        allocates_nothing(|| assert!(users.available("ann") < 1 << 20));
        runtime.block_on(async {
            let mut context = Context::from_waker(Waker::noop());
            allocates_nothing(|| assert!(std::pin::pin!(users.wait("ann", 1)).poll(&mut context).is_ready()));
        });
    }

    /// Calls `visit` with one key after the other. After the first thousand of them, no more memory is kept.
    fn leave_nothing(visit: impl AsyncFn(&KeyedLimiter<u64>, u64)) {
        let (runtime, keyed) = keyed();
        let live_after = |keys: std::ops::Range<u64>| {
            runtime.block_on(async {
                for key in keys {
                    visit(&keyed, key).await;
                }
                tokio::time::sleep(10_000 * MILLI).await;
            });
            LIVE.get()
        };
        let rounds = [0, 1, 2, 3, 4].map(|round| live_after(1_000 * round..1_000 * (round + 1)));
        let more = rounds[4] - rounds[0];
        assert!(more < 100_000, "{more} bytes more");
    }

    /// A live entry is some 700 bytes. The background task must not keep its record until its waiter would have been due.
    #[test]
    fn keys_with_cancelled_waiters_leave_no_memory_behind() {
        leave_nothing(async |keyed, key| {
            drop(keyed.consume(&key, 1).await.unwrap());
            let mut giant = Box::pin(keyed.consume(&key, 1_000_000));
            assert!(poll!(giant.as_mut()).is_pending());
            tokio::task::yield_now().await;
        });
    }

    /// The live entry is removed before the background task learns that its waiter left: by a sweep, or by the driver of
    /// another runtime.
    #[test]
    fn live_entries_swept_before_their_driver_is_woken_leave_no_memory_behind() {
        leave_nothing(async |keyed, key| {
            let mut giant = Box::pin(keyed.consume(&key, 1_000_000));
            assert!(poll!(giant.as_mut()).is_pending());
            tokio::task::yield_now().await;
            drop(giant);
            keyed.tick();
            assert_eq!(keyed.snapshot().keys, 0, "swept");
        });
    }

    /// As `Quota::sliding` says.
    #[test]
    fn a_key_with_a_sliding_quota_takes_some_1400_bytes() {
        let quota = Quota::per_minute(60).sliding();
        let keyed = KeyedLimiter::<u64>::builder().quota(quota).shards(1).clock(ManualClock::new()).build().unwrap();
        let live_after = |keys: std::ops::Range<u64>| {
            keys.for_each(|key| drop(keyed.try_acquire(&key, 1).unwrap()));
            LIVE.get()
        };
        let before = live_after(0..1_000);
        let bytes = (live_after(1_000..9_000) - before) / 8_000;
        assert!((1_300..1_500).contains(&bytes), "{bytes} bytes");
    }

    /// The memory that the background task needed for many keys is not kept when no claim waits any more.
    #[test]
    fn many_keys_leave_no_memory_behind() {
        let (runtime, keyed) = keyed();
        let live_after = |keys: u64| {
            runtime.block_on(async {
                let claims = (0..keys).map(|key| keyed.clone().consume_owned(key, 2));
                let grants = futures::future::join_all(claims).await;
                assert!(grants.into_iter().all(|grant| grant.map(drop).is_ok()));
                tokio::time::sleep(10_000 * MILLI).await;
            });
            // As many calls as it takes until the shard is swept and its tables shrink.
            (0..400_000).for_each(|_| drop(keyed.try_acquire(&0, 1)));
            LIVE.get()
        };
        let before = live_after(100);
        let more = live_after(20_000) - before;
        assert!(more < 100_000, "{more} bytes more");
    }
}

/// Adaptors keep their claim in a box, which the first wait allocates.
#[test]
fn paced_items_and_bytes_that_wait_allocate_nothing_once_their_claim_is_there() {
    use std::pin::pin;
    use tokio::io::AsyncWrite;
    use tollgate::{io::PaceIoExt, stream::PaceStreamExt};

    let (limiter, clock) = by_hand(0);
    let mut items = pin!(futures::stream::repeat(7).pace(&limiter));
    let mut bytes = pin!(tokio::io::sink().pace_writes(&limiter).chunk(3));
    let mut round = || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(futures::Stream::poll_next(items.as_mut(), &mut cx).is_pending());
        assert!(bytes.as_mut().poll_write(&mut cx, &[7; 3]).is_pending());
        clock.advance(4 * MILLI);
        limiter.tick();
        assert!(futures::Stream::poll_next(items.as_mut(), &mut cx).is_ready());
        assert!(bytes.as_mut().poll_write(&mut cx, &[7; 3]).is_ready());
    };
    assert_eq!(allocations(&mut round), 2);
    allocates_nothing(round);
}

/// A waiter records when its wait began, if a meter counts.
#[test]
fn with_a_meter_a_wait_allocates_once_and_nothing_else_allocates() {
    let (limiter, clock) = by_hand(ROUNDS);
    let _meter = tollgate::metrics::Meter::new("api", &limiter).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    allocates_nothing(|| drop(limiter.try_acquire(1).unwrap()));
    let refuse = || {
        assert!(limiter.try_acquire(1).is_err());
        assert!(poll_once(limiter.consume(5).within(MILLI)).is_ready());
    };
    allocates_nothing(refuse);
    let mut wait = || {
        let mut waiting = std::pin::pin!(limiter.consume(1));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        clock.advance(MILLI);
        limiter.tick();
        assert!(waiting.poll(&mut cx).is_ready());
    };
    assert_eq!(allocations(|| (0..ROUNDS).for_each(|_| wait())), ROUNDS);
}

#[test]
fn waiting_and_being_counted_in_a_class_allocate_nothing() {
    let clock = ManualClock::new();
    let quota = Quota::new(1, MILLI).burst(10).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap();
    let classes = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let mut round = || {
        let mut claims = classes.each_ref().map(|class| Box::pin(class.consume(1)));
        let before = COUNT.get();
        claims.iter_mut().for_each(|claim| assert!(claim.as_mut().poll(&mut cx).is_pending()));
        assert!(classes[0].try_acquire(1).is_err());
        clock.advance(2 * MILLI);
        limiter.tick();
        claims.iter_mut().for_each(|claim| assert!(claim.as_mut().poll(&mut cx).is_ready()));
        black_box(classes[0].snapshot());
        COUNT.get() - before
    };
    round();
    assert_eq!((0..ROUNDS).map(|_| round()).sum::<u64>(), 0);
}

#[test]
fn the_futures_are_small() {
    println!("Consume: {} bytes, ConsumeOwned: {}", size_of::<Consume<'_>>(), size_of::<ConsumeOwned>());
    println!("Grant: {} bytes", size_of::<tollgate::Grant<'_>>());
    assert!(size_of::<Consume<'_>>() <= 96);
    assert!(size_of::<ConsumeOwned>() <= 96);
    assert!(size_of::<tollgate::Grant<'_>>() <= 32);
    assert_eq!(size_of::<Consume<'_, Class>>(), size_of::<Consume<'_>>());
    assert_eq!(size_of::<ConsumeOwned<Class>>(), size_of::<ConsumeOwned>());
    assert_eq!(size_of::<tollgate::Grant<'_, Class>>(), size_of::<tollgate::Grant<'_>>());
}
