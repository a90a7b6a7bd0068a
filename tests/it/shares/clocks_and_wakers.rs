//! Clocks that stand still, step back and reach the end of time; wakers that panic or call the limiter.

use crate::fixture::*;

const RATE: u64 = 10_000;
const BURST: u64 = 10;

struct Waits {
    waiting: Vec<(usize, u64, Spawn<ConsumeOwned<Class>>)>,
    granted: u64,
}

impl Waits {
    /// Polls a claim, and keeps it if it waits. A claim is granted only after those before it in its class.
    fn poll(&mut self, index: usize) {
        let (class, cost, claim) = &mut self.waiting[index];
        if let Poll::Ready(answer) = claim.poll() {
            drop(answer.expect("the limiter is open"));
            let (class, cost) = (*class, *cost);
            self.granted += cost;
            drop(self.waiting.remove(index));
            let mut before = self.waiting[..index].iter();
            assert!(before.all(|(other, _, claim)| *other != class || claim.is_woken()), "a claim was passed");
        }
    }

    fn poll_woken(&mut self) {
        for index in (0..self.waiting.len()).rev() {
            if self.waiting[index].2.is_woken() {
                self.poll(index);
            }
        }
    }
}

fn history_of_a_wild_clock(seed: u64, is_manual: bool) {
    let mut random = Rng::with_seed(seed);
    let (nanos, clock) = shown(|read| if is_manual { ClockFn::manual(read) } else { ClockFn::moving(read) });
    let quota = Quota::per_second(RATE).burst(BURST).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().clock(clock).rovers_at(u64::MAX - 50).build().unwrap();
    let capped = Share::weight(3).ceiling(Quota::per_second(3_000).burst(20));
    let shares = [Share::weight(1), Share::weight(2), if seed.is_multiple_of(2) { capped } else { Share::weight(3) }];
    let names = ["a", "b", "c"].into_iter().zip(shares);
    let classes: Vec<_> = names.map(|(name, share)| limiter.class(name, share).unwrap()).collect();
    let is_near_the_end = seed.is_multiple_of(3);
    let begin = if is_near_the_end { u64::MAX - 20_000_000 } else { 0 };
    nanos.store(begin, Relaxed);
    limiter.tick();
    let mut latest = begin;
    let mut waits = Waits { waiting: Vec::new(), granted: 0 };
    for _ in 0..200 {
        let now = nanos.load(Relaxed);
        let next = match random.u8(0..4) {
            0 => now,
            1 => now.saturating_sub(random.u64(0..3_000_000)),
            _ => now.saturating_add(random.u64(0..900_000)),
        };
        nanos.store(next, Relaxed);
        latest = latest.max(next);
        let (class, cost) = (random.usize(0..3), [1, 1, 2, 5, 25][random.usize(0..5)]);
        waits.waiting.push((class, cost, spawn(classes[class].clone().consume_owned(cost))));
        waits.poll(waits.waiting.len() - 1);
        limiter.tick();
        if random.u8(0..5) == 0 && !waits.waiting.is_empty() {
            let index = random.usize(0..waits.waiting.len());
            if !waits.waiting[index].2.is_woken() {
                drop(waits.waiting.remove(index));
            }
        }
        waits.poll_woken();
        // More than has been minted at the initial level counts as the burst.
        let minted = u128::from(latest - begin) * u128::from(RATE) / 1_000_000_000;
        let most = u128::from(BURST) + minted;
        assert!(u128::from(waits.granted) <= most, "seed {seed}: {} > {most}", waits.granted);
    }
    for _ in 0..2_000 {
        latest = latest.saturating_add(1_000_000);
        nanos.store(latest, Relaxed);
        limiter.tick();
        waits.poll_woken();
    }
    assert!(is_near_the_end || waits.waiting.is_empty(), "seed {seed}: {:?}", limiter.snapshot());
}

#[tokio::test(start_paused = true)]
async fn whatever_the_clock_does_the_rate_law_and_the_order_hold() {
    tokio::task::unconstrained(async {
        (0..150).for_each(|seed| [false, true].into_iter().for_each(|manual| history_of_a_wild_clock(seed, manual)));
    })
    .await;
}

/// Panics or calls the limiter, while it is armed, when it is woken and when its last clone is dropped.
struct RudeWaker {
    limiter: Limiter,
    class: Class,
    random: Arc<Mutex<Rng>>,
    is_armed: Arc<AtomicBool>,
    was_woken: Arc<AtomicBool>,
}

impl RudeWaker {
    fn act(&self) {
        // A waker that is woken by its own call does nothing.
        if std::thread::panicking() || !self.is_armed.load(Relaxed) {
            return;
        }
        let choice = self.random.lock().unwrap().u8(0..8);
        match choice {
            0 => resume_unwind(Box::new("rude")),
            1 => self.quietly(|| self.limiter.tick()),
            2 => self.quietly(|| _ = self.class.try_acquire(1).map(|mut grant| grant.settle(0))),
            _ => {}
        }
    }

    fn quietly(&self, act: impl FnOnce()) {
        self.is_armed.store(false, Relaxed);
        act();
        self.is_armed.store(true, Relaxed);
    }
}

impl Wake for RudeWaker {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, Relaxed);
        self.act();
    }
}

impl Drop for RudeWaker {
    fn drop(&mut self) {
        self.act();
    }
}

fn history_of_rude_wakers(seed: u64) {
    let (clock, random) = (ManualClock::new(), Arc::new(Mutex::new(Rng::with_seed(seed))));
    let (began, is_armed) = (clock.now(), Arc::new(AtomicBool::new(false)));
    let quota = Quota::per_second(RATE).burst(1_000_000).initial(0);
    let builder = Limiter::builder().quota(quota).classes().clock(clock.clone());
    let limiter = builder.rovers_at(u64::MAX - 30).build().unwrap();
    let classes: Vec<_> = ["a", "b", "c"].map(|name| limiter.class(name, Share::weight(1)).unwrap()).into();
    let roll = |below: usize| random.lock().unwrap().usize(0..below);
    // Returns `None` if `act` panics.
    let rudely = |act: &mut dyn FnMut() -> Option<u64>| {
        is_armed.store(true, Relaxed);
        let done = catch_unwind(AssertUnwindSafe(act)).ok().flatten();
        is_armed.store(false, Relaxed);
        done
    };
    let waker_that_sets = |was_woken: &Arc<AtomicBool>| {
        let [is_armed, was_woken] = [&is_armed, was_woken].map(Arc::clone);
        let (limiter, class, random) = (limiter.clone(), classes[0].clone(), Arc::clone(&random));
        Waker::from(Arc::new(RudeWaker { limiter, class, random, is_armed, was_woken }))
    };
    let waker = || waker_that_sets(&Arc::default());
    // Returns the cost of a claim that is granted.
    let poll = |claim: &mut Pin<Box<ConsumeOwned<Class>>>, waker: &Waker| {
        let Poll::Ready(answer) = claim.as_mut().poll(&mut Context::from_waker(waker)) else { return None };
        Some(answer.expect("the limiter is open").cost())
    };
    let (mut granted, mut waiting) = (0, Vec::new());
    for _ in 0..120 {
        let mut claim = Box::pin(classes[roll(3)].clone().consume_owned([1, 1, 3, 20][roll(4)]));
        let new = waker();
        match rudely(&mut || poll(&mut claim, &new)) {
            Some(cost) => granted += cost,
            None => waiting.push(claim),
        }
        clock.advance(Duration::from_nanos(roll(600_000) as u64));
        rudely(&mut || {
            limiter.tick();
            None
        });
        if roll(3) == 0 && !waiting.is_empty() {
            let mut claim = Some(waiting.remove(roll(waiting.len())));
            rudely(&mut || {
                drop(claim.take());
                None
            });
        }
        if roll(2) == 0 && !waiting.is_empty() {
            let mut claim = waiting.remove(roll(waiting.len()));
            let new = waker();
            match rudely(&mut || poll(&mut claim, &new)) {
                Some(cost) => granted += cost,
                None => waiting.push(claim),
            }
        }
    }
    // The wakers of all that wait are called, though some of them panic.
    let mut called = Vec::new();
    waiting.retain_mut(|claim| {
        let was_woken = Arc::default();
        let cost = poll(claim, &waker_that_sets(&was_woken));
        granted += cost.unwrap_or(0);
        called.extend(cost.is_none().then_some(was_woken));
        cost.is_none()
    });
    clock.advance(Duration::from_secs(3));
    rudely(&mut || {
        limiter.tick();
        None
    });
    limiter.tick();
    for mut claim in waiting {
        granted += poll(&mut claim, Waker::noop()).expect("all is due");
    }
    let minted = (clock.now() - began).as_nanos() as u64 * RATE / 1_000_000_000;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.quotas[0].level as u64 + granted, snapshot.waiting_tasks), (minted, 0), "seed {seed}");
    assert!(called.iter().all(|was_woken| was_woken.load(Relaxed)), "seed {seed}");
}

#[test]
fn wakers_that_panic_or_call_the_limiter_lose_no_token() {
    (0..300).for_each(history_of_rude_wakers);
}

/// A claim polled again on a runtime without timers panics, and leaves the queue to the claims behind it.
#[test]
fn a_poll_that_panics_delays_no_other_claim() {
    let limiter = Limiter::builder().quota(Quota::manual(1).initial(0)).classes().build().unwrap();
    let class = limiter.class("a", Share::weight(1)).unwrap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let (bare, timed) = (builder.build().unwrap(), builder.enable_all().build().unwrap());
    let mut claims = [(); 2].map(|()| spawn(class.clone().consume_owned(1)));
    timed.block_on(async { claims.iter_mut().for_each(|claim| assert!(claim.poll().is_pending())) });
    let [first, second] = &mut claims;
    bare.block_on(async { assert!(catch_unwind(AssertUnwindSafe(|| drop(first.poll()))).is_err()) });
    assert_eq!(limiter.snapshot().waiting_tasks, 1);
    limiter.replenish(1);
    timed.block_on(async { assert!(matches!(second.poll(), Poll::Ready(Ok(_)))) });
}

/// The installments of so many classes are made smaller in several steps, and time passes between these.
#[test]
fn no_installment_is_above_the_burst_while_a_change_of_the_quota_goes_on() {
    let (clock, quota) = (ManualClock::new(), Quota::per_second(10));
    let builder = Limiter::builder().quota(quota.burst(100).initial(0)).classes();
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let class =
        |index: u64| limiter.class(index.to_string(), Share::weight(if index == 0 { 1_000 } else { 1 })).unwrap();
    let classes: Vec<_> = (0..3_000).map(class).collect();
    let mut first = Box::pin(classes[0].consume(1));
    let slow = clock.clone();
    let waker = waker(move || slow.advance(Duration::from_secs(9)));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let _large = pending(classes[1].consume(100));
    let small: Vec<_> = (0..80).map(|_| pending(classes[0].consume(1))).collect();
    clock.advance(Duration::from_millis(100));
    limiter.set_quota(0, quota.burst(10)).unwrap();
    let granted = woken(&small);
    let late = limiter.snapshot().lateness.as_secs() as usize;
    assert!(granted <= 10 + 10 * late, "{granted} tokens at one instant, {late} seconds late");
}
