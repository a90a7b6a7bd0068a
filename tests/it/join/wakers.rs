//! Wakers that panic, and wakers that call the limiters while their queues are being served.

use super::{costs, empty, full, holding, limiter, on_a_clock, pass, spent};
use crate::fixture::*;

/// A waker that calls `act` with the number of earlier wake-ups, and how many there were.
fn counting(act: impl Fn(usize) + Send + Sync + 'static) -> (Waker, Arc<AtomicUsize>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&wakes);
    (waker(move || act(count.fetch_add(1, Relaxed))), wakes)
}

fn poll(claim: &mut (impl Future + Unpin), waker: &Waker) -> bool {
    std::pin::Pin::new(claim).poll(&mut Context::from_waker(waker)).is_ready()
}

/// Wakers are `'static`, so the limiters that they call must be too.
fn forever(limiter: Limiter) -> &'static Limiter {
    Box::leak(Box::new(limiter))
}

#[test]
fn the_waker_of_the_latest_poll_is_woken_at_most_once_by_each_queue() {
    let (clock, [a, b]) = on_a_clock([empty(5), empty(5)]);
    let ((old, of_old), (new, of_new)) = (counting(|_| ()), counting(|_| ()));
    let mut claim = join([(&a, 1), (&b, 2)]);
    assert!(!poll(&mut claim, &old) && !poll(&mut claim, &new));
    pass(1, &clock, &[&a, &b]);
    assert_eq!(of_new.load(Relaxed), 0, "being ready in one queue wakes no claim");
    pass(1, &clock, &[&a, &b]);
    assert!((1..=2).contains(&of_new.load(Relaxed)));
    assert_eq!(of_old.load(Relaxed), 0);
    let all = of_new.load(Relaxed);
    pass(2, &clock, &[&a, &b]);
    assert_eq!(of_new.load(Relaxed), all);
    assert!(poll(&mut claim, Waker::noop()));
}

#[test]
fn a_waker_may_poll_its_own_claim_and_take_the_grants() {
    let clock = ManualClock::new();
    let (a, b) = (forever(limiter(&clock, empty(5))), forever(limiter(&clock, empty(5))));
    let claim = Arc::new(Mutex::new(Some(join([(a, 1), (b, 1)]))));
    let slot = claim.clone();
    let eager = waker(move || {
        let mut slot = slot.lock().unwrap();
        if slot.as_mut().is_some_and(|claim| poll(claim, Waker::noop())) {
            *slot = None;
        }
    });
    assert!(!poll(claim.lock().unwrap().as_mut().unwrap(), &eager));
    pass(1, &clock, &[a, b]);
    // The first queue wakes the claim before the second one is served. The second wake-up then goes to its latest
    // waker, a noop by now.
    let left = claim.lock().unwrap().take();
    assert!(left.is_none_or(|mut claim| poll(&mut claim, Waker::noop())));
    assert_eq!((spent(a), spent(b)), (1, 1));
}

#[test]
fn a_waker_may_drop_its_own_claim_between_the_two_queues() {
    let clock = ManualClock::new();
    let (a, b) = (forever(limiter(&clock, empty(5))), forever(limiter(&clock, empty(5))));
    let claim = Arc::new(Mutex::new(Some(join([(a, 1), (b, 1)]))));
    let slot = claim.clone();
    let fickle = waker(move || {
        let taken = slot.lock().unwrap().take(); // the lock is released before the drop, which may wake again
        drop(taken);
    });
    assert!(!poll(claim.lock().unwrap().as_mut().unwrap(), &fickle));
    let mut behind = pending(join([(b, 1), (a, 1)]));
    pass(1, &clock, &[a, b]);
    assert!(claim.lock().unwrap().is_none());
    assert!(behind.is_woken(), "tokens that only one queue had granted are there for the next");
    assert_eq!(costs(&mut behind), [1, 1]);
    assert_eq!((spent(a), spent(b)), (1, 1));
}

#[test]
fn a_waker_may_close_pause_and_claim_again() {
    let clock = ManualClock::new();
    let (a, b) = (forever(limiter(&clock, empty(5))), forever(limiter(&clock, full(50))));
    let again = Arc::new(Mutex::new(Vec::new()));
    let claims = again.clone();
    let (busy, _) = counting(move |wakes| {
        b.pause_for(super::MS * 2);
        let mut claim = join([(b, 1), (a, 1)]);
        assert!(!poll(&mut claim, Waker::noop()));
        claims.lock().unwrap().push(claim);
        if wakes == 1 {
            a.close();
        }
    });
    let mut claim = join([(a, 1), (b, 1)]);
    assert!(!poll(&mut claim, &busy));
    pass(1, &clock, &[a, b]);
    assert!(poll(&mut claim, Waker::noop()), "the grant precedes the close by the waker");
    pass(5, &clock, &[a, b]);
    let mut again = again.lock().unwrap();
    assert!(!again.is_empty() && again.iter_mut().all(|claim| poll(claim, Waker::noop())));
    assert_eq!(a.snapshot().waiting_tasks + b.snapshot().waiting_tasks, 0);
}

/// Another caller read the clock a second ago and was delayed. It serves the second queue now, after an event in the
/// first queue and before the second queue hears of it.
#[test]
fn a_tick_with_an_old_clock_reading_grants_no_earlier_than_the_commit() {
    let clock = ManualClock::new();
    let (a, b) = (forever(limiter(&clock, Quota::manual(1).initial(0))), forever(limiter(&clock, holding(5))));
    let time = clock.clone();
    let held_up = waker(move || {
        time.step_back(SECOND);
        b.tick();
        time.advance(SECOND);
    });
    let mut joint = join([(a, 1), (b, 1)]);
    assert!(!poll(&mut joint, &held_up));
    let behind: Vec<_> = (0..100).map(|_| pending(b.consume(1))).collect();
    clock.advance(SECOND);
    a.replenish(1);
    b.tick();
    assert_eq!(woken(&behind), 4, "a burst of 5, of which the joint claim has 1");
}
