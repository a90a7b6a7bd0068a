//! A published denial is repeated without reading the state, but never beyond the instant up to which it holds.

use super::*;

type Claim = Pin<Box<ConsumeOwned>>;

/// A waiter that calls `try_acquire` as soon as it is woken and has seen its own result.
struct Asker {
    limiter: Limiter,
    claim: Mutex<Option<Claim>>,
    heard: Mutex<Option<Result<(), TryAcquireError>>>,
}

impl Wake for Asker {
    fn wake(self: Arc<Self>) {
        let mut claim = self.claim.lock().unwrap().take().expect("woken once");
        assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        *self.heard.lock().unwrap() = Some(self.limiter.try_acquire(1).map(drop));
    }
}

/// The answer to the first of a hundred waiters. It calls `try_acquire` while the others are still being served, in
/// batches.
fn heard_by_the_first(act: impl Fn(&Limiter)) -> Result<(), TryAcquireError> {
    let fixture = Fixture::new(Quota::per_second(1).burst(2_000).initial(0));
    let limiter = fixture.limiter.clone();
    let asker = Arc::new(Asker { limiter: limiter.clone(), claim: Mutex::default(), heard: Mutex::default() });
    let mut first = Box::pin(limiter.clone().consume_owned(1));
    assert!(first.as_mut().poll(&mut Context::from_waker(&Waker::from(asker.clone()))).is_pending());
    *asker.claim.lock().unwrap() = Some(first);
    let mut others: Vec<_> = (1..100).map(|_| spawn(limiter.consume(1))).collect();
    for other in &mut others {
        assert_pending!(other.poll());
    }
    assert!(limiter.try_acquire(1).is_err(), "the setup must cause a denial");
    act(&limiter);
    asker.heard.lock().unwrap().take().expect("the first was woken")
}

#[test]
fn a_caller_that_sees_the_limiter_closed_gets_no_old_denial() {
    assert_eq!(heard_by_the_first(Limiter::close), Err(TryAcquireError::Closed));
}

#[test]
fn a_caller_granted_by_a_replenish_gets_no_old_denial() {
    assert_eq!(heard_by_the_first(|limiter| limiter.replenish(2_000)), Ok(()));
}

#[test]
fn a_denial_is_repeated_until_the_next_token_with_the_remaining_wait() {
    let fixture = Fixture::new(one_per_milli(10));
    let wait = |fixture: &Fixture| fixture.denied(2).retry_after.unwrap();
    assert_eq!(wait(&fixture), 2 * MILLI);
    for nanos in [1, 400_000, 999_999] {
        fixture.clock.advance(Duration::from_nanos(nanos) - (2 * MILLI - wait(&fixture)));
        assert_eq!((wait(&fixture), fixture.denied(2).remaining), (2 * MILLI - Duration::from_nanos(nanos), 0));
    }
    fixture.clock.advance(NANO);
    let denied = fixture.denied(2);
    assert_eq!((denied.by, denied.remaining, denied.retry_after), (Bound::Quota(0), 1, Some(MILLI)));
}

type Act = Box<dyn FnOnce() + Send>;

/// The denial uses a clock reading that is older than a claim on the fast path, and a waiter entered in between. The
/// denial is correct at that moment, and must not be repeated a moment later.
#[test]
fn a_denial_that_misses_a_claim_is_not_repeated() {
    let ask_twice = |tick: bool| {
        let (nanos, shows) = shown(ClockFn::manual);
        // The clock runs one of these each time while it is read.
        let acts: Arc<Mutex<Vec<Act>>> = Arc::default();
        let runs = Arc::clone(&acts);
        let clock = ClockFn::manual(move || {
            let act = runs.lock().unwrap().pop();
            act.into_iter().for_each(|act| act());
            shows.now()
        });
        let stepped = Quota::new(46, 1_000 * NANO).stepped().burst(50).initial(4);
        let builder = Limiter::builder().quota(Quota::new(1, 100 * NANO).burst(5)).quota(stepped).stride(3);
        let limiter = builder.clock(clock).build().unwrap();
        limiter.tick();
        let kept: Arc<Mutex<Vec<Claim>>> = Arc::default();
        let (waiter, claimer) = (limiter.clone(), limiter.clone());
        let (more, keep) = (acts.clone(), kept.clone());
        acts.lock().unwrap().push(Box::new(move || {
            more.lock().unwrap().push(Box::new(move || drop(claimer.try_acquire(1).unwrap())));
            let mut claim = Box::pin(waiter.consume_owned(4));
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            keep.lock().unwrap().push(claim);
        }));
        let first = limiter.try_acquire(5).map(drop);
        nanos.store(200, Relaxed);
        if tick {
            limiter.tick();
        }
        (first, limiter.try_acquire(5).map(drop))
    };
    assert_eq!(ask_twice(false), ask_twice(true));
}
