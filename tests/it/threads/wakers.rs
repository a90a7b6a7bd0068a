//! Wakers that panic wherever they are handled, or call the limiter that woke them.

use super::*;
use crate::fixture::{self, MILLI, Waiting, one_per_milli, pending};
use std::task::{RawWaker, RawWakerVTable};

/// Where a waker may misbehave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    Cloned,
    Woken,
    Dropped,
}

type Act = Box<dyn Fn(When) + Send + Sync>;

/// A waker that calls `act` whenever it is handled. The closure is leaked, so a waker is a plain reference.
pub(super) fn waker(act: impl Fn(When) + Send + Sync + 'static) -> Waker {
    let act: Act = Box::new(act);
    let act: &'static Act = Box::leak(Box::new(act));
    // SAFETY: `raw` gives the table what it expects: a reference with a static lifetime to a value that may be shared.
    unsafe { Waker::from_raw(raw(std::ptr::from_ref(act).cast())) }
}

fn raw(act: *const ()) -> RawWaker {
    fn call(act: *const (), when: When) {
        // SAFETY: every pointer in here is the leaked reference of `waker`.
        let act = unsafe { &*act.cast::<Act>() };
        act(when);
    }
    fn clone(act: *const ()) -> RawWaker {
        call(act, When::Cloned);
        raw(act)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        clone,
        |act| call(act, When::Woken),
        |act| call(act, When::Woken),
        |act| call(act, When::Dropped),
    );
    RawWaker::new(act, &TABLE)
}

/// A token each millisecond into an empty bucket of 5, on a manual clock.
fn empty() -> (Limiter, ManualClock) {
    fixture::built(Limiter::builder().quota(one_per_milli(5)))
}

fn enter(limiter: &Limiter) -> Waiting<'_> {
    pending(limiter.consume(1))
}

fn is_served(claim: &mut Waiting<'_>) -> bool {
    claim.is_woken() && matches!(claim.poll(), Poll::Ready(Ok(_)))
}

/// A waker that panics in one way. It is not dropped here: only the limiter's clones are dropped.
struct Mine(std::mem::ManuallyDrop<Waker>);

impl Mine {
    fn that_panics_when(at: When) -> Self {
        Self(std::mem::ManuallyDrop::new(waker(move |when| {
            if when == at {
                // Not `panic!`: the panic is intended, and its message would only clutter the output.
                resume_unwind(Box::new("a broken waker"));
            }
        })))
    }

    fn poll<F: Future>(&self, future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(&self.0))
    }
}

/// More of them than are woken at a time, at both ends and in the middle of a batch.
#[test]
fn wakers_that_panic_when_woken_affect_no_other_claim_and_still_get_their_tokens() {
    const COUNT: usize = if cfg!(miri) { 20 } else { 100 };
    let (limiter, clock) = empty();
    let mine = Mine::that_panics_when(When::Woken);
    let mut broken: Vec<_> = (0..COUNT).map(|_| Box::pin(limiter.consume(1))).collect();
    let mut sane = Vec::new();
    for claim in &mut broken {
        assert!(mine.poll(claim).is_pending());
        sane.push(enter(&limiter));
    }
    tick_after(&clock, &limiter, MILLI * 2 * COUNT as u32);
    assert_eq!(sane.iter_mut().filter_map(|claim| is_served(claim).then_some(())).count(), COUNT);
    assert!(broken.iter_mut().all(|claim| mine.poll(claim).is_ready()));
    assert_eq!(limiter.available(), 0);
}

/// The worst case of `panic_any`: a payload that panics when it is dropped.
#[test]
fn a_waker_that_panics_with_a_payload_that_panics_affects_no_other_claim() {
    struct PanickingRecorder;
    impl Drop for PanickingRecorder {
        fn drop(&mut self) {
            resume_unwind(Box::new("a broken panic"));
        }
    }
    let (limiter, clock) = empty();
    let thrower = waker(|when| {
        if when == When::Woken {
            resume_unwind(Box::new(PanickingRecorder));
        }
    });
    let mut broken = Box::pin(limiter.consume(1));
    assert!(broken.as_mut().poll(&mut Context::from_waker(&thrower)).is_pending());
    let mut sane = [enter(&limiter), enter(&limiter)];
    clock.advance(MILLI * 3);
    assert!(!panics(|| limiter.tick()), "the caller that served the queue gets no panic");
    assert!(sane.iter_mut().all(is_served));
}

#[test]
fn a_waker_that_panics_when_dropped_after_a_refusal_changes_nothing() {
    let builder = Limiter::builder().quota(one_per_milli(5).initial(5)).max_in_flight(9).max_waiting(0);
    let limiter = fixture::built(builder).0;
    let _held = limiter.try_acquire(5).unwrap();
    let before = limiter.snapshot();
    let mine = Mine::that_panics_when(When::Dropped);
    for cost in [1, 10] {
        let _ = panics(|| assert!(mine.poll(&mut Box::pin(limiter.consume(cost))).is_ready()));
    }
    let after = limiter.snapshot();
    assert_eq!((after.granted, after.waiting_tasks, after.in_flight), (before.granted, 0, before.in_flight));
}

/// The driver's waker is dropped when the driver ends, and then the claims that relied on it are woken.
#[test]
fn a_waker_that_panics_when_dropped_with_a_driver_strands_no_claim() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = Limiter::new(Quota::per_day(1).initial(0)).unwrap();
    let mine = Mine::that_panics_when(When::Dropped);
    let mut replenisher = Box::pin(limiter.replenisher());
    assert!(runtime.block_on(async { mine.poll(&mut replenisher).is_pending() }));
    // Outside of all runtimes the claim relies on the replenisher, which has gone to sleep again.
    let mut outside = enter(&limiter);
    assert!(runtime.block_on(async { mine.poll(&mut replenisher).is_pending() }));
    let _ = panics(|| drop(replenisher));
    assert!(outside.is_woken() && outside.poll().is_ready(), "no driver is left");
}

/// The same, of a driver of keys.
#[cfg(feature = "keyed")]
#[test]
fn a_waker_that_panics_when_dropped_with_a_driver_of_keys_strands_no_claim() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let keys = KeyedLimiter::new(Quota::per_day(1)).unwrap();
    assert!(keys.try_acquire(&1, 1).is_ok());
    let mine = Mine::that_panics_when(When::Dropped);
    let mut replenisher = Box::pin(keys.replenisher());
    assert!(runtime.block_on(async { mine.poll(&mut replenisher).is_pending() }));
    let mut outside = pending(keys.consume(&1, 1));
    assert!(runtime.block_on(async { mine.poll(&mut replenisher).is_pending() }));
    let _ = panics(|| drop(replenisher));
    assert!(outside.is_woken() && outside.poll().is_ready(), "no driver is left");
}

/// Granted in the poll that panics: the grant is lost, so its token must not stay in flight. The waker of a joint claim is
/// cloned for every queue, and needed in none: two panics at once abort the process.
#[test]
fn a_waker_that_panics_when_dropped_in_the_poll_that_grants_leaves_no_token_in_flight() {
    let build = || fixture::built(Limiter::builder().quota(Quota::manual(9)).max_in_flight(9)).0;
    let (one, other) = (build(), build());
    let mine = Mine::that_panics_when(When::Dropped);
    for _ in 0..3 {
        let _ = panics(|| mine.poll(&mut Box::pin(one.consume(1))).map(|grant| drop(grant.unwrap())));
        let mut claim = Box::pin(join([(&one, 1), (&other, 1)]));
        let _ = panics(|| mine.poll(&mut claim).map(|grants| drop(grants.unwrap())));
    }
    assert_eq!((one.snapshot().in_flight, other.snapshot().in_flight), (Some(0), Some(0)));
}

#[test]
fn wakers_may_call_every_method_of_the_limiter_that_wakes_them() {
    to_its_end(|| {
        let (limiter, clock) = empty();
        let calls = Arc::new(AtomicUsize::new(0));
        let call_all = {
            let (limiter, calls) = (limiter.clone(), Arc::clone(&calls));
            move |when| {
                if when == When::Woken {
                    calls.fetch_add(1, SeqCst);
                    limiter.tick();
                    assert!(limiter.try_acquire(1).is_err(), "other claims wait");
                    limiter.replenish(0);
                    limiter.pause_for(Duration::ZERO);
                    limiter.set_quota(0, Quota::per_second(1_000).burst(5)).unwrap();
                    assert!(limiter.estimate(1).is_some() && limiter.deficiency() > 0 && !limiter.is_closed());
                    assert_eq!(limiter.snapshot().quotas.len(), 1);
                    assert!(spawn(limiter.consume(1)).poll().is_pending());
                }
            }
        };
        let waker = waker(call_all);
        let mut waiters: Vec<_> = (0..many(1_000)).map(|_| Box::pin(limiter.consume(1))).collect();
        waiters
            .iter_mut()
            .for_each(|claim| assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()));
        let mut last = enter(&limiter);
        tick_after(&clock, &limiter, MILLI * many(1_000) as u32);
        assert_eq!(calls.load(SeqCst), many(1_000));
        tick_after(&clock, &limiter, MILLI);
        assert!(is_served(&mut last));
    });
}

type Slot = Arc<Mutex<Option<Pin<Box<ConsumeOwned>>>>>;

/// The waker drops its own claim while it is being woken, and the next claim, which is due as well or still waits.
#[test]
fn a_waker_may_drop_the_futures_of_its_own_queue() {
    to_its_end(|| {
        let (limiter, clock) = empty();
        let waiters: Arc<Vec<Slot>> =
            Arc::new((0..if cfg!(miri) { 40 } else { 100 }).map(|_| Slot::default()).collect());
        for (index, slot) in waiters.iter().enumerate() {
            let mut claim = Box::pin(limiter.clone().consume_owned(1));
            let seen = Arc::clone(&waiters);
            let drops = waker(move |when| {
                if when == When::Woken {
                    for place in [index, index + 1] {
                        let gone = seen.get(place).and_then(|slot| slot.lock().unwrap().take());
                        drop(gone);
                    }
                }
            });
            assert!(claim.as_mut().poll(&mut Context::from_waker(&drops)).is_pending());
            *slot.lock().unwrap() = Some(claim);
        }
        let mut last = enter(&limiter);
        // One token: each claim that is called out gives it back and drops the next one.
        tick_after(&clock, &limiter, MILLI);
        assert!(waiters.iter().all(|slot| slot.lock().unwrap().is_none()));
        assert!(is_served(&mut last));
        assert_eq!((limiter.available(), limiter.snapshot().waiting_tasks), (0, 0));
    });
}

/// The waker grants the claim of the blocked thread that calls it, and then parks that thread: its `unpark` is used up.
#[test]
fn a_waker_that_parks_a_blocked_thread_loses_no_wake_up() {
    to_its_end(|| {
        let (limiter, clock) = empty();
        let (again, later) = (limiter.clone(), clock.clone());
        let parks = waker(move |when| {
            if when == When::Woken {
                tick_after(&later, &again, MILLI);
                thread::park();
            }
        });
        let mut first = Box::pin(limiter.consume(1));
        assert!(first.as_mut().poll(&mut Context::from_waker(&parks)).is_pending());
        clock.advance(MILLI);
        let _grant = limiter.blocking_consume(1).unwrap();
    });
}

/// Two threads serve the queue in turns, and each waker serves it again from within.
#[test]
fn wakers_that_serve_the_queue_from_several_threads_serve_each_claim_once() {
    to_its_end(|| {
        let (limiter, clock) = empty();
        let woken: Arc<Vec<AtomicUsize>> = Arc::new((0..2 * many(1_000)).map(|_| AtomicUsize::new(0)).collect());
        let mut waiters: Vec<_> = (0..2 * many(1_000)).map(|_| Box::pin(limiter.consume(1))).collect();
        for (index, claim) in waiters.iter_mut().enumerate() {
            let (limiter, woken) = (limiter.clone(), Arc::clone(&woken));
            let serves = waker(move |when| {
                if when == When::Woken {
                    woken[index].fetch_add(1, SeqCst);
                    limiter.tick();
                }
            });
            assert!(claim.as_mut().poll(&mut Context::from_waker(&serves)).is_pending());
        }
        let advance = || {
            for _ in 0..many(1_000) {
                tick_after(&clock, &limiter, MILLI);
            }
        };
        thread::scope(|scope| {
            scope.spawn(advance);
            scope.spawn(advance);
        });
        limiter.tick();
        assert!(woken.iter().all(|count| count.load(SeqCst) == 1));
        assert!(
            waiters.iter_mut().all(|claim| claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
        );
    });
}

#[test]
fn a_claim_with_a_waker_that_cannot_be_cloned_leaves_no_old_denial() {
    let (limiter, clock) = fixture::built(Limiter::builder().quota(Quota::per_second(1).burst(5).initial(0)));
    assert!(limiter.try_acquire(1).is_err());
    clock.advance(Duration::from_secs(1));
    let mut claim = Box::pin(limiter.consume(3));
    let broken = Mine::that_panics_when(When::Cloned);
    catch_unwind(AssertUnwindSafe(|| broken.poll(&mut claim))).unwrap_err();
    clock.step_back(Duration::from_millis(500));
    assert!(limiter.try_acquire(1).is_ok(), "the token was minted in that poll");
}
