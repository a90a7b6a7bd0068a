//! Polls and wakers: too many polls, another waker, no further poll, and wakers that misbehave.

use super::*;

/// Polls `future` as the task `task` would, leaving its waker.
fn poll_as<F: Future + Unpin>(task: &mut Spawn<()>, future: &mut F) -> Poll<F::Output> {
    task.enter(|cx, _| std::pin::Pin::new(future).poll(cx))
}

#[test]
fn of_two_wakers_the_latest_is_woken_and_the_other_dropped() {
    let fixture = Fixture::new(one_per_milli(5));
    let (mut old, mut new) = (spawn(()), spawn(()));
    let mut waiting = Box::pin(fixture.limiter.consume(1));
    assert_pending!(poll_as(&mut old, &mut waiting));
    assert_pending!(poll_as(&mut new, &mut waiting));
    assert_eq!((old.waker_ref_count(), new.waker_ref_count()), (1, 2));
    fixture.pass(MILLI);
    assert!(!old.is_woken() && new.is_woken());
    assert_eq!(new.waker_ref_count(), 1);
    let _grant = assert_ready_ok!(poll_as(&mut old, &mut waiting));
}

#[test]
fn a_cancelled_claim_is_not_woken_and_its_waker_is_dropped() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut task = spawn(());
    let mut waiting = Box::pin(fixture.limiter.consume(1));
    assert_pending!(poll_as(&mut task, &mut waiting));
    drop(waiting);
    assert_eq!(task.waker_ref_count(), 1);
    fixture.pass(MILLI);
    assert!(!task.is_woken());
}

#[test]
fn a_claim_polled_only_once_delays_no_other() {
    let fixture = Fixture::new(one_per_milli(5));
    let stalled = fixture.enter(3);
    let mut others: Vec<_> = (0..20).map(|_| fixture.enter(1)).collect();
    fixture.pass(3 * MILLI);
    assert!(stalled.is_woken(), "the claim is granted, whether it is polled or not");
    for waiting in &mut others {
        waits(waiting);
        fixture.pass(MILLI);
        let _grant = served(waiting);
    }
    drop(stalled);
    assert_eq!(fixture.limiter.available(), 3);
}

#[test]
fn a_leaked_claim_delays_no_other_and_the_limiter_can_be_dropped() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut task = spawn(());
    let mut forgotten = Box::pin(fixture.limiter.consume(3));
    let mut forgotten_too = Box::pin(fixture.limiter.clone().consume_owned(2));
    assert_pending!(poll_as(&mut task, &mut forgotten));
    assert_pending!(poll_as(&mut task, &mut forgotten_too));
    let mut next = fixture.enter(1);
    std::mem::forget(forgotten);
    std::mem::forget(forgotten_too);
    fixture.pass(5 * MILLI);
    waits(&mut next);
    fixture.pass(MILLI);
    let _grant = served(&mut next);
    let mut still_waiting = Box::pin(fixture.limiter.consume(1));
    assert_pending!(poll_as(&mut task, &mut still_waiting));
    std::mem::forget(still_waiting);
}

#[test]
fn a_future_polled_after_it_was_ready_panics() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(5).initial(1)).max_in_flight(1));
    let claim = || spawn(fixture.limiter.consume(1));
    let is_spent = |mut done: Waiting<'_>| {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(done.poll()))).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("polled after it was ready"));
    };
    let mut at_once = claim();
    let grant = assert_ready_ok!(at_once.poll());
    is_spent(at_once);
    let mut timed_out = spawn(fixture.limiter.consume(1).within(Duration::ZERO));
    assert!(assert_ready!(timed_out.poll()).is_err());
    is_spent(timed_out);
    let mut in_the_queue = fixture.enter(1);
    drop(grant);
    fixture.pass(MILLI);
    drop(served(&mut in_the_queue));
    is_spent(in_the_queue);
    fixture.limiter.close();
    let mut refused = claim();
    assert!(assert_ready!(refused.poll()).is_err());
    is_spent(refused);
}

// ---- wakers of our own ----------------------------------------------------------------------------------------------

#[test]
fn claims_due_together_are_woken_in_the_order_of_the_queue() {
    const DUE: usize = if cfg!(miri) { 40 } else { 150 }; // more than one batch in both cases
    let fixture = Fixture::new(one_per_milli(5));
    let rung = Arc::new(Mutex::new(vec![]));
    let mut waiters: Vec<_> = (0..DUE + 10).map(|_| Box::pin(fixture.limiter.consume(1))).collect();
    for (place, waiting) in waiters.iter_mut().enumerate() {
        let rung = Arc::clone(&rung);
        let waker = waker(move || rung.lock().unwrap().push(place));
        assert_pending!(waiting.as_mut().poll(&mut Context::from_waker(&waker)));
    }
    fixture.pass(DUE as u32 * MILLI);
    assert_eq!(*rung.lock().unwrap(), (0..DUE).collect::<Vec<_>>());
}

/// A waker that calls the limiter when it is dropped. If a lock were held while wakers are dropped, that would hang.
struct CallsOnDrop(Limiter);

impl Wake for CallsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CallsOnDrop {
    fn drop(&mut self) {
        self.0.tick();
    }
}

#[test]
fn the_drop_of_a_waker_may_call_the_limiter() {
    let fixture = Fixture::new(one_per_milli(5));
    let fresh = || Waker::from(Arc::new(CallsOnDrop(fixture.limiter.clone())));
    let poll = |waiting: &mut std::pin::Pin<Box<Consume<'_>>>| {
        let _ = waiting.as_mut().poll(&mut Context::from_waker(&fresh()));
    };
    let mut waiters: Vec<_> = (0..5).map(|_| Box::pin(fixture.limiter.consume(1))).collect();
    waiters.iter_mut().for_each(&poll);
    // Replaced by another waker, cancelled in the middle, woken, cancelled at the front, refused.
    waiters.iter_mut().for_each(&poll);
    drop(waiters.remove(2));
    fixture.pass(MILLI);
    poll(&mut waiters[0]);
    drop(waiters.remove(1));
    fixture.limiter.close();
    waiters[1..].iter_mut().for_each(&poll);
    assert_eq!(fixture.limiter.snapshot().waiting_tasks, 0);
}

/// A task that is polled by its waker: it takes its grant and drops it, which grants the next one.
struct PolledAtOnce(Mutex<Option<std::pin::Pin<Box<ConsumeOwned>>>>);

impl PolledAtOnce {
    fn poll(self: &Arc<Self>) {
        let Some(mut claim) = self.0.lock().unwrap().take() else { return };
        let waker = Waker::from(Arc::clone(self));
        match claim.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(grant) => drop(grant.unwrap()),
            Poll::Pending => *self.0.lock().unwrap() = Some(claim),
        }
    }
}

impl Wake for PolledAtOnce {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// The stack of this thread has no space for a frame per waiter.
fn with_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(test).unwrap();
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn wakers_that_poll_at_once_take_no_stack_for_each_other() {
    const WAITERS: u64 = if cfg!(miri) { 100 } else { 20_000 };
    with_a_small_stack(|| {
        let limiter = Limiter::builder().max_in_flight(1).clock(ManualClock::new()).build().unwrap();
        let first = limiter.try_acquire(1).unwrap();
        let claim = || Box::pin(limiter.clone().consume_owned(1));
        let waiters: Vec<_> = (0..WAITERS).map(|_| Arc::new(PolledAtOnce(Mutex::new(Some(claim()))))).collect();
        waiters.iter().for_each(PolledAtOnce::poll);
        assert_eq!(limiter.snapshot().waiting_tasks, WAITERS);
        drop(first);
        assert_eq!((limiter.snapshot().waiting_tasks, limiter.available()), (0, 1));
        assert!(waiters.iter().all(|waiter| waiter.0.lock().unwrap().is_none()));
    });
}

/// The waker of the other thread is then called at once, not after this waker.
#[test]
fn a_waker_may_wait_for_a_thread_that_it_lets_go_on() {
    crate::fixture::to_its_end(|| {
        let fixture = Fixture::new(one_per_milli(5));
        let other = Limiter::builder().max_in_flight(1).build().unwrap();
        let held = Mutex::new(Some(other.clone().consume_owned(1).now_or_never().unwrap().unwrap()));
        let waiting_thread = {
            let other = other.clone();
            Mutex::new(Some(std::thread::spawn(move || drop(other.blocking_consume(1).unwrap()))))
        };
        await_waiters(&other, 1);
        let waker = waker(move || {
            drop(held.lock().unwrap().take());
            waiting_thread.lock().unwrap().take().unwrap().join().unwrap();
        });
        let mut waiting = Box::pin(fixture.limiter.consume(1));
        assert_pending!(waiting.as_mut().poll(&mut Context::from_waker(&waker)));
        fixture.pass(MILLI);
        assert_eq!(other.snapshot().granted, 2);
    });
}

/// Its own waker is then among those that were handed over to the call that wakes it.
#[test]
fn a_waker_may_block_its_thread() {
    crate::fixture::to_its_end(|| {
        let fixture = Fixture::new(one_per_milli(5));
        let other = Limiter::new(Quota::new(1, MILLI).burst(1)).unwrap();
        let mine = other.clone();
        let waker = waker(move || (0..5).for_each(|_| drop(mine.blocking_consume(1).unwrap())));
        let mut waiting = Box::pin(fixture.limiter.consume(1));
        assert_pending!(waiting.as_mut().poll(&mut Context::from_waker(&waker)));
        fixture.pass(MILLI);
        assert_eq!(other.snapshot().granted, 5);
    });
}
