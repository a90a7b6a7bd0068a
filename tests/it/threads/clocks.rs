//! Clocks that panic, and clocks that call the limiter that reads them.

use super::*;
use std::sync::OnceLock;

/// A manual clock. While it is broken, reading it panics.
#[derive(Clone, Debug)]
struct Brittle {
    time: ManualClock,
    /// The number of readings before it breaks.
    sound: Arc<AtomicU64>,
}

impl Default for Brittle {
    fn default() -> Self {
        Self { time: ManualClock::new(), sound: Arc::new(AtomicU64::new(u64::MAX)) }
    }
}

impl Brittle {
    fn breaks<R>(&self, act: impl FnOnce() -> R) -> bool {
        self.breaks_after(0, act)
    }

    fn breaks_after<R>(&self, readings: u64, act: impl FnOnce() -> R) -> bool {
        self.sound.store(readings, SeqCst);
        let panicked = panics(act);
        self.sound.store(u64::MAX, SeqCst);
        panicked
    }
}

impl Clock for Brittle {
    fn now(&self) -> Duration {
        let use_up = |sound: u64| if sound == u64::MAX { Some(sound) } else { sound.checked_sub(1) };
        if self.sound.fetch_update(SeqCst, SeqCst, use_up).is_err() {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            resume_unwind(Box::new("a broken clock"));
        }
        self.time.now()
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// A token each millisecond into a bucket of 5, at most 4 of them in flight.
fn brittle() -> (Limiter, Brittle) {
    let clock = Brittle::default();
    let quota = Quota::per_second(1_000).burst(5);
    (Limiter::builder().quota(quota).max_in_flight(4).clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn a_panicking_clock_panics_in_the_caller_and_changes_nothing() {
    let (limiter, clock) = brittle();
    let mut grant = limiter.try_acquire(3).unwrap();
    let before = limiter.snapshot();
    let verbs: [&dyn Fn(); 12] = [
        &|| drop(limiter.try_acquire(1)),
        &|| drop(spawn(limiter.consume(1)).poll().map(Result::ok)),
        &|| drop(spawn(limiter.consume(1).within(MILLI)).poll().map(Result::ok)),
        &|| drop(limiter.blocking_consume(1)),
        &|| limiter.replenish(1),
        &|| limiter.tick(),
        &|| assert_ne!(limiter.estimate(1), Some(Duration::MAX)),
        &|| drop(limiter.set_quota(0, Quota::per_second(1))),
        &|| drop(limiter.set_max_in_flight(1)),
        &|| limiter.pause_for(MILLI),
        &|| limiter.close(),
        &|| drop(limiter.snapshot()),
    ];
    for (index, verb) in verbs.iter().enumerate() {
        assert!(clock.breaks(verb), "verb {index}");
    }
    assert!(clock.breaks(|| grant.settle(1)) && clock.breaks(|| grant.settle(9)));
    assert_eq!(grant.cost(), 3);
    assert_eq!(limiter.snapshot(), before);
    drop(grant);
    assert_eq!((limiter.available(), limiter.snapshot().in_flight), (2, Some(0)));
}

/// A `settle` that panicked forgot what was counted, and the whole reservation stayed charged.
#[test]
fn a_panicking_clock_changes_nothing_in_a_reservation() {
    let (limiter, clock) = brittle();
    let mut stream = assert_ready_ok!(spawn(tollgate::reserve([(&limiter, 4)])).poll());
    stream.count(0, 1);
    assert!(clock.breaks(|| stream.settle(0, 2)) && clock.breaks(|| stream.count(0, 9)));
    stream.count(0, 1);
    drop(stream);
    assert_eq!((limiter.available(), limiter.snapshot().in_flight), (3, Some(0)));
}

#[test]
fn a_grant_dropped_or_released_while_the_clock_panics_serves_the_queue() {
    let (limiter, clock) = brittle();
    let (grant, mut next) = (limiter.try_acquire(4).unwrap(), pending(limiter.consume(1)));
    assert!(!clock.breaks(|| drop(grant)), "the drop itself does not panic");
    // No other call is made: the drop itself serves the queue.
    let grant = served(&mut next);
    grant.forget();
    // A manual release accounts for its tokens at once, so the call cannot be repeated.
    clock.time.advance(9 * MILLI);
    let mut next = pending(limiter.consume(4));
    assert!(!clock.breaks(|| limiter.release(1).unwrap()));
    drop(served(&mut next));
}

/// Every grant of a joint claim, and every grant of a key under a parent, is released though the first of them meets a
/// broken clock.
#[test]
fn several_grants_dropped_while_the_clock_panics_are_all_released() {
    let ((one, clock), (two, other_clock)) = (brittle(), brittle());
    let grants = tollgate::try_join([(&one, 4), (&two, 4)]).unwrap();
    let mut waiting = [&one, &two].map(|limiter| pending(limiter.consume(1)));
    assert!(!clock.breaks(|| assert!(!other_clock.breaks(|| drop(grants)))));
    assert!(waiting.iter_mut().all(|claim| claim.is_woken() && claim.poll().is_ready()));
}

/// Time advances, and the clock fails just when the grant is dropped: the waiter's token was minted meanwhile, which
/// the limiter cannot know. The driver serves the queue as soon as the clock works again.
#[tokio::test(start_paused = true)]
async fn a_grant_dropped_while_the_clock_panics_leaves_the_rest_to_the_driver() {
    let (start, broken) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let breaks = Arc::clone(&broken);
    let clock = ClockFn::moving(move || {
        if breaks.load(SeqCst) {
            resume_unwind(Box::new("a broken clock"));
        }
        start.elapsed()
    });
    let quota = Quota::per_second(1_000).burst(4);
    let limiter = Limiter::builder().quota(quota).max_in_flight(4).clock(clock).build().unwrap();
    let grant = limiter.try_acquire(4).unwrap();
    let waiting = tokio::spawn(limiter.clone().consume_owned(2));
    tokio::task::yield_now().await;
    assert_eq!(limiter.snapshot().waiting_tasks, 1);
    tokio::time::advance(5 * MILLI).await;
    broken.store(true, SeqCst);
    drop(grant);
    tokio::time::advance(3 * MILLI).await;
    broken.store(false, SeqCst);
    let since = Instant::now();
    let granted = tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("the driver serves the queue");
    assert!(granted.unwrap().is_ok());
    assert!(since.elapsed() <= 2 * MILLI, "{:?}", since.elapsed());
}

/// A waiter that cannot leave its queues aborts the process. Where one joint claim gives way to another, the other's queues
/// are served too, on the same clock.
#[test]
fn a_joint_claim_dropped_while_the_clock_panics_leaves_all_its_queues() {
    let clock = Brittle::default();
    let [ready, other, lacking] = [1, 1, 0].map(|initial| {
        let quota = Quota::manual(1).initial(initial);
        Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap()
    });
    let leaving = pending(join([(&ready, 1), (&lacking, 1)]));
    let mut next = pending(join([(&ready, 1), (&other, 1)]));
    let mut last = pending(lacking.consume(1));
    assert!(!clock.breaks(|| drop(leaving)), "the drop itself does not panic");
    assert!(next.is_woken() && matches!(next.poll(), Poll::Ready(Ok(_))));
    lacking.replenish(1);
    assert!(last.is_woken() && last.poll().is_ready());
}

/// A joint claim arrives while more claims are due than are woken at once, among them one that also waits in another
/// queue. The clock fails at the second reading: a claim that was found to be granted is granted in all its queues.
#[test]
fn a_clock_that_panics_during_a_joint_arrival_leaves_a_consistent_state() {
    for sound in 0..20 {
        let (clock, steady) = (Brittle::default(), ManualClock::new());
        let [busy, beside] = [(); 2].map(|()| {
            Limiter::builder().quota(Quota::per_second(1_000).burst(100)).clock(clock.clone()).build().unwrap()
        });
        let elsewhere = Limiter::builder().quota(Quota::manual(9)).clock(steady).build().unwrap();
        drop(busy.try_acquire(100).unwrap());
        let mut both = pending(join([(&busy, 1), (&elsewhere, 9)]));
        let waiters: Vec<_> = (0..99).map(|_| pending(busy.consume(1))).collect();
        let _behind = pending(elsewhere.consume(1));
        clock.time.advance(100 * MILLI);
        let mut arriving = spawn(join([(&busy, 1), (&beside, 1)]));
        clock.breaks_after(sound, || drop(arriving.poll()));
        busy.tick();
        assert!(waiters.iter().all(Spawn::is_woken), "after {sound} readings");
        // The other queue is served only by the call that granted the joint claim in this one.
        assert!(matches!(both.poll(), Poll::Ready(Ok(_))), "after {sound} readings");
    }
}

/// A caller is delayed with an old reading of the time. Meanwhile a second passes, and others take the published
/// tokens. If the claims of that second counted as made before it, the bucket would be filled once more for them.
#[test]
fn claims_made_during_a_clock_reading_do_not_count_as_made_before_it() {
    let others: Arc<Mutex<Option<Limiter>>> = Arc::default();
    let taken = Arc::new(AtomicU64::new(0));
    let ((nanos, time), interrupts, count) = (shown(ClockFn::manual), Arc::clone(&others), Arc::clone(&taken));
    // Once, this happens between the reading of the time and its return to the caller.
    let clock = ClockFn::manual(move || {
        let (now, others) = (time.now(), interrupts.lock().unwrap().take());
        if let Some(others) = others {
            nanos.fetch_add(1_000_000_000, SeqCst);
            count.store((0..320).filter(|_| others.try_acquire(1).is_ok()).count() as u64, SeqCst);
        }
        now
    });
    let limiter = Limiter::builder().quota(Quota::per_second(640)).stride(320).clock(clock).build().unwrap();
    limiter.tick();
    *others.lock().unwrap() = Some(limiter.clone());
    limiter.tick();
    assert_eq!(taken.load(SeqCst), 320, "the published tokens, without reading the clock");
    let rest = (0..1_000).filter(|_| limiter.try_acquire(1).is_ok()).count();
    assert_eq!(rest, 320, "one burst in one instant");
}

thread_local! {
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// The cost granted by a first poll. A claim that was not granted at once has left the queue again.
fn cost(polled: Poll<Result<Grant<'_>, ConsumeError>>) -> u64 {
    match polled {
        Poll::Ready(grant) => grant.unwrap().cost(),
        Poll::Pending => 0,
    }
}

#[test]
fn a_clock_that_calls_the_limiter_back_mints_every_token_once() {
    to_its_end(|| {
        let (nanos, time) = shown(ClockFn::manual);
        let (called, taken_by_clock) = (Arc::new(OnceLock::<Limiter>::new()), Arc::new(AtomicU64::new(0)));
        let (limiter, taken) = (Arc::clone(&called), Arc::clone(&taken_by_clock));
        // It calls the limiter that reads it, unless that happens within such a call.
        let clock = ClockFn::manual(move || {
            let now = time.now();
            if let Some(limiter) = limiter.get()
                && !ASKING.replace(true)
            {
                limiter.tick();
                let grant = limiter.try_acquire(1).ok();
                taken.fetch_add(grant.as_ref().map_or(0, Grant::cost), SeqCst);
                let grant = spawn(limiter.consume(1)).poll();
                taken.fetch_add(cost(grant), SeqCst);
                limiter.estimate(1);
                ASKING.set(false);
            }
            // The reading precedes these calls, so it is late by now.
            now
        });
        let quota = Quota::per_second(1_000_000).burst(1 << 40).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock).build().unwrap();
        called.set(limiter.clone()).unwrap();
        let work = |seed: u64| {
            let mut taken = 0;
            for step in 0..many(3_000) as u64 {
                nanos.fetch_add(1_700, SeqCst);
                taken += limiter.try_acquire(1 + (step + seed) % 3).map_or(0, |grant| grant.cost());
                taken += cost(spawn(limiter.consume(2)).poll());
            }
            taken
        };
        let taken: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|seed| scope.spawn(move || work(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        ASKING.set(true);
        let minted = nanos.load(SeqCst) / 1_000;
        assert_eq!(taken + taken_by_clock.load(SeqCst) + limiter.available(), minted);
    });
}
