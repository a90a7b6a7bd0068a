//! More claims are due than one batch of wakers, and a caller that is not a driver arrives. It wakes at most a batch
//! and has the driver continue at once. The effect of its call is the same as if the whole queue had been served first.
//!
//! The limiter takes the clock for a real one, and the driver's own timer would fire in an hour.

use super::*;
use std::sync::atomic::Ordering::*;
use tokio::runtime::Runtime;

const BATCH: usize = 32;
const MANY: usize = 200;

/// Runs the driver until it has nothing left to do.
fn run(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    });
}

fn limiter(wall: &ClockFn, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).clock(wall.clone()).build().unwrap()
}

/// `length` waiters. Their driver has gone to sleep.
fn queue<'a>(runtime: &Runtime, limiter: &'a Limiter, length: usize) -> Vec<Spawn<Consume<'a>>> {
    let _inside = runtime.enter();
    let waiters: Vec<_> = (0..length).map(|_| pending(limiter.consume(1))).collect();
    run(runtime);
    waiters
}

fn wakes_a_batch<R>(call: impl Fn(&Limiter) -> R) {
    let (runtime, (nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::per_hour(1).initial(0));
    let mut waiters = queue(&runtime, &limiter, MANY);
    nanos.fetch_add(HOUR.as_nanos() as u64 * (MANY as u64 + 9), SeqCst);
    assert_eq!(woken(&waiters), 0);
    let inside = runtime.enter();
    let _kept = call(&limiter);
    drop(inside);
    assert!((1..=BATCH).contains(&woken(&waiters)), "{}", woken(&waiters));
    assert_eq!(
        waiters.iter().position(|waiting| !waiting.is_woken()),
        Some(woken(&waiters)),
        "the first waiters are woken"
    );
    run(&runtime);
    assert_eq!(woken(&waiters), MANY);
    waiters.iter_mut().for_each(|waiting| drop(waiting.poll()));
}

#[test]
fn a_tick_wakes_a_batch_at_most() {
    wakes_a_batch(|limiter| drop(limiter.snapshot()));
    wakes_a_batch(|limiter| assert_eq!(limiter.available(), 0));
    wakes_a_batch(|limiter| assert!(limiter.deficiency() > 0));
    wakes_a_batch(|limiter| assert_eq!(limiter.estimate(1), Some(Duration::ZERO)));
    wakes_a_batch(|limiter| assert!(!limiter.is_closed()));
    wakes_a_batch(Limiter::tick);
}

#[test]
fn a_caller_that_wants_tokens_wakes_a_batch_at_most_and_does_not_overtake() {
    wakes_a_batch(|limiter| assert_eq!(denied(limiter.try_acquire(1)).by, Bound::Queue));
    wakes_a_batch(|limiter| pending(limiter.clone().consume_owned(1)));
    wakes_a_batch(|limiter| pending(limiter.clone().consume_owned(1).within(HOUR)));
}

#[test]
fn closing_wakes_a_batch_and_the_driver_refuses_the_rest() {
    let (runtime, (_nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::per_hour(1).initial(0));
    let mut waiters = queue(&runtime, &limiter, MANY);
    limiter.close();
    assert_eq!(woken(&waiters), BATCH);
    assert!(limiter.is_closed());
    assert!(matches!(limiter.try_acquire(1), Err(TryAcquireError::Closed)));
    assert!(matches!(spawn(limiter.consume(1)).poll(), Poll::Ready(Err(ConsumeError::Closed))));
    run(&runtime);
    for waiting in &mut waiters {
        assert!(waiting.is_woken());
        assert_eq!(tokio_test::assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    }
}

#[test]
fn on_a_manual_clock_every_caller_serves_all() {
    let (runtime, clock) = (alone(), ManualClock::new());
    let _inside = runtime.enter();
    for call in [Limiter::tick, Limiter::close, |limiter: &Limiter| drop(limiter.snapshot())] {
        let limiter = Limiter::builder().quota(Quota::per_hour(1).initial(0)).clock(clock.clone()).build().unwrap();
        let _driver = pending(limiter.replenisher());
        let waiters: Vec<_> = (0..MANY).map(|_| pending(limiter.consume(1))).collect();
        clock.advance(HOUR * MANY as u32);
        call(&limiter);
        assert_eq!(woken(&waiters), MANY);
    }
}

#[test]
fn without_a_driver_every_caller_serves_all() {
    let (runtime, (nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::per_hour(1).initial(0));
    let mut waiters = queue(&runtime, &limiter, MANY);
    drop(runtime);
    nanos.fetch_add(HOUR.as_nanos() as u64 * MANY as u64, SeqCst);
    limiter.tick();
    waiters.iter_mut().for_each(|waiting| drop(assert_ready_ok!(waiting.poll())));
}

#[test]
fn tokens_refunded_meanwhile_are_not_cut_at_the_burst() {
    let many = MANY as u64;
    let (runtime, (_nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::manual(many));
    let mut grant = limiter.try_acquire(many).unwrap();
    let mut waiters = queue(&runtime, &limiter, MANY);
    limiter.replenish(many);
    assert_eq!(woken(&waiters), BATCH);
    // The others have not been granted yet, and the tokens in the bucket are theirs.
    limiter.replenish(many / 2);
    grant.settle(many / 2);
    run(&runtime);
    waiters.iter_mut().for_each(|waiting| drop(assert_ready_ok!(waiting.poll())));
    assert_eq!(limiter.available(), many);
}

/// The refund counts when it is made, although the claim that leaves then is the last one: not once the bucket is full.
#[test]
fn tokens_refunded_meanwhile_are_not_forgotten_when_the_last_claim_leaves() {
    let (runtime, (nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::per_hour(1).burst(2));
    let mut grant = limiter.try_acquire(2).unwrap();
    let mut waiters = queue(&runtime, &limiter, 2 * BATCH + 1);
    nanos.fetch_add(HOUR.as_nanos() as u64 * (2 * BATCH as u64 + 1), SeqCst);
    grant.settle(1);
    assert_eq!(woken(&waiters), BATCH);
    drop(waiters.pop());
    assert_eq!(woken(&waiters), 2 * BATCH);
    nanos.fetch_add(2 * HOUR.as_nanos() as u64, SeqCst);
    drop(limiter.try_acquire(2).unwrap());
    assert_eq!(limiter.available(), 0);
}

/// Meanwhile it serves the two later claims at 20 and at 30 ns. They pass at 1,000 and at 1,010, and each leaves 10 tokens.
#[test]
fn an_estimate_made_meanwhile_does_not_last() {
    let (runtime, (nanos, wall)) = (alone(), shown(ClockFn::moving));
    let limiter = limiter(&wall, Quota::new(70, 10 * NANO).stepped().burst(70).initial(0));
    let waiters = queue(&runtime, &limiter, 70);
    nanos.store(1_000, SeqCst);
    let inside = runtime.enter();
    limiter.tick();
    let _later = [(); 2].map(|()| pending(limiter.consume(60)));
    limiter.estimate(20);
    assert_eq!(woken(&waiters), 2 * BATCH);
    drop(inside);
    run(&runtime);
    assert_eq!(limiter.estimate(20), Some(20 * NANO));
}

/// One of two limiters with the same history. Claims are numbered.
struct Side<'a> {
    limiter: &'a Limiter,
    waiters: Vec<(usize, Spawn<Consume<'a>>)>,
    grants: Vec<(usize, Grant<'a>)>,
    /// Granted since the last sorting.
    fresh: Vec<(usize, Grant<'a>)>,
    came: usize,
}

impl<'a> Side<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        Self { limiter, waiters: Vec::new(), grants: Vec::new(), fresh: Vec::new(), came: 0 }
    }

    fn enter(&mut self, cost: u64) {
        let mut waiting = spawn(self.limiter.consume(cost));
        self.came += 1;
        match waiting.poll() {
            Poll::Ready(grant) => self.fresh.push((self.came, grant.unwrap())),
            Poll::Pending => self.waiters.push((self.came, waiting)),
        }
    }

    fn act(&mut self, random: &mut Rng) {
        match random.u8(0..7) {
            0 => self.limiter.replenish(random.u64(0..40)),
            1 if !self.grants.is_empty() => {
                let (_, mut grant) = self.grants.swap_remove(random.usize(0..self.grants.len()));
                grant.settle(random.u64(0..2 * grant.cost()));
            }
            2 => _ = self.limiter.snapshot(),
            3 => self.limiter.pause_for(Duration::from_nanos(random.u64(0..50))),
            4 => _ = self.limiter.estimate(3),
            _ => self.enter(random.u64(1..9)),
        }
    }

    fn woken(&self) -> usize {
        self.waiters.iter().filter(|(_, waiting)| waiting.is_woken()).count()
    }

    fn look(&mut self) -> Vec<String> {
        self.limiter.tick();
        for (number, mut waiting) in std::mem::take(&mut self.waiters) {
            if waiting.is_woken() {
                self.fresh.push((number, assert_ready_ok!(waiting.poll())));
            } else {
                self.waiters.push((number, waiting));
            }
        }
        self.grants.append(&mut self.fresh);
        self.grants.sort_by_key(|(number, _)| *number);
        let granted: Vec<_> = self.grants.iter().map(|(number, _)| *number).collect();
        let Snapshot { tail, quotas, waiting_tasks, granted: tokens, refunded, paused_for, .. } =
            self.limiter.snapshot();
        let quotas = quotas.iter().map(|quota| format!("{} {:?}", quota.level, quota.more_in));
        let rest = format!("{tail} {waiting_tasks} {tokens} {refunded} {paused_for:?} {granted:?}");
        quotas.chain([rest, format!("{:?}", self.limiter.estimate(3))]).collect()
    }
}

/// A history in which every caller serves all due claims has the result of one in which the queue falls behind.
#[test]
fn calls_while_the_queue_is_behind_count_at_their_own_time() {
    let mut left_behind = 0;
    for seed in 0..300 {
        let (runtime, (wall_nanos, wall), by_hand) = (alone(), shown(ClockFn::moving), ManualClock::new());
        let mut random = Rng::with_seed(seed);
        let mut builders = [Limiter::builder().clock(wall.clone()), Limiter::builder().clock(by_hand.clone())];
        for _ in 0..random.usize(1..3) {
            let (amount, nanos) = (random.u64(1..9), random.u32(2..20));
            let quota = Quota::new(amount, Duration::from_nanos(nanos.into())).burst(random.u64(9..60));
            let quota = if random.bool() { quota.stepped() } else { quota };
            builders = builders.map(|builder| builder.quota(quota));
        }
        if random.bool() {
            let cap = random.u64(100..400);
            builders = builders.map(|builder| builder.max_in_flight(cap));
        }
        let limiters = builders.map(|builder| builder.build().unwrap());
        let mut sides = limiters.each_ref().map(Side::new);
        for round in 0..6 {
            let inside = runtime.enter();
            let costs: Vec<u64> = (0..random.usize(0..150)).map(|_| random.u64(1..5)).collect();
            sides.iter_mut().for_each(|side| costs.iter().for_each(|cost| side.enter(*cost)));
            drop(inside);
            run(&runtime);
            let nanos = random.u64(0..500);
            wall_nanos.fetch_add(nanos, SeqCst);
            by_hand.advance(Duration::from_nanos(nanos));
            let (acts, count) = (random.fork(), random.usize(0..8));
            let inside = runtime.enter();
            for side in &mut sides {
                // For up to 2 ms after a claim was due, new callers leave it to the driver to serve it first.
                side.limiter.tick();
                let mut acts = acts.clone();
                (0..count).for_each(|_| side.act(&mut acts));
            }
            drop(inside);
            left_behind += usize::from(sides[0].woken() < sides[1].woken());
            run(&runtime);
            let [real, manual] = sides.each_mut().map(Side::look);
            assert_eq!(real, manual, "seed {seed}, round {round}");
            sides.iter_mut().for_each(|side| side.grants.truncate(9));
        }
        drop(sides);
    }
    assert!(left_behind > 50, "{left_behind}");
}
