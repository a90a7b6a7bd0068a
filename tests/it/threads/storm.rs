//! Many threads make all kinds of calls at once, and at the end the tokens are counted.

use super::*;

/// Tokens per second: one each 1,000 nanoseconds.
const RATE: u64 = 1_000_000;
/// So large that the bucket is never full: no token is lost, and the account is exact.
const ENDLESS: u64 = 1 << 40;

/// Small enough to be reached.
const CAP: u64 = 300;

fn quota() -> Quota {
    Quota::per_second(RATE).burst(ENDLESS)
}

/// The state that all workers share, and their records.
struct World {
    limiter: Limiter,
    nanos: Arc<AtomicU64>,
    /// How many threads are in a call of the limiter.
    inside: AtomicU64,
    /// How often a thread entered a call while another was inside.
    met: AtomicU64,
    /// The latest costs of all grants that were dropped.
    spent: AtomicU64,
    replenished: AtomicU64,
}

impl World {
    fn new(stride: Option<u64>) -> Self {
        let ((nanos, time), readings) = (shown(ClockFn::manual), AtomicU64::new(0));
        // It often delays its readers: between the reading and the lock, other threads go first.
        let clock = ClockFn::manual(move || {
            let now = time.now();
            if readings.fetch_add(1, SeqCst).is_multiple_of(4) {
                thread::yield_now();
            }
            now
        });
        let builder = Limiter::builder().quota(quota().initial(0)).max_in_flight(CAP).clock(clock);
        let builder = stride.into_iter().fold(builder, |builder, stride| builder.stride(stride));
        let [inside, met, spent, replenished] = Default::default();
        Self { limiter: builder.build().unwrap(), nanos, inside, met, spent, replenished }
    }

    fn within<R>(&self, act: impl FnOnce() -> R) -> R {
        if self.inside.fetch_add(1, SeqCst) > 0 {
            self.met.fetch_add(1, SeqCst);
        }
        let result = act();
        self.inside.fetch_sub(1, SeqCst);
        result
    }

    /// Moves time on, sometimes back, until told to stop.
    fn advance_until(&self, stop: &AtomicBool) {
        let mut random = Rng::with_seed(99);
        while !stop.load(SeqCst) {
            self.nanos.fetch_add(random.u64(..20_000), SeqCst);
            self.within(|| self.limiter.tick());
            let back = random.u64(..8_000);
            let _ = self.nanos.fetch_update(SeqCst, SeqCst, |nanos| Some(nanos.saturating_sub(back)));
            thread::yield_now();
        }
    }

    /// Every token that was minted or replenished was spent, or is still there.
    fn check_account(&self) {
        // Later than any reading that a step back has undone.
        let now = self.nanos.fetch_add(100_000, SeqCst) + 100_000;
        let snapshot = self.limiter.snapshot();
        let minted = u128::from(now) * u128::from(RATE) / 1_000_000_000;
        let came = minted as i64 + self.replenished.load(SeqCst) as i64;
        let spent = self.spent.load(SeqCst);
        assert_eq!(spent as i64 + snapshot.quotas[0].level, came, "{snapshot:?}");
        assert_eq!(snapshot.granted - snapshot.refunded, spent);
        assert_eq!((snapshot.in_flight, snapshot.waiting_tasks, snapshot.waiting_tokens), (Some(0), 0, 0));
    }
}

struct Worker<'a> {
    world: &'a World,
    random: Rng,
    grants: VecDeque<Grant<'a>>,
    claims: VecDeque<Spawn<Consume<'a>>>,
    /// Whether its claims stay in the queue if they have to wait.
    keeps_claims: bool,
}

impl<'a> Worker<'a> {
    fn run(world: &'a World, seed: u64, keeps_claims: bool) {
        let (grants, claims) = Default::default();
        let mut worker = Self { world, random: Rng::with_seed(seed), grants, claims, keeps_claims };
        (0..many(8_000)).for_each(|_| worker.step());
        while let Some(claim) = worker.claims.pop_front() {
            world.within(|| drop(claim));
        }
        while let Some(grant) = worker.grants.pop_front() {
            worker.let_go(grant);
        }
    }

    fn step(&mut self) {
        let World { limiter, replenished, .. } = self.world;
        let some = self.random.u64(..20);
        match self.random.u64(..13) {
            0..=2 => self.grants.extend(self.world.within(|| limiter.try_acquire(some)).ok()),
            3..=5 => self.poll(spawn(limiter.consume(some))),
            6 | 7 => self.claims.pop_front().into_iter().for_each(|claim| self.poll(claim)),
            8 => self.world.within(|| drop(self.claims.pop_back())),
            9 => self.grants.front_mut().into_iter().for_each(|grant| self.world.within(|| grant.settle(some))),
            10 => {
                replenished.fetch_add(some, SeqCst);
                self.world.within(|| limiter.replenish(some));
            }
            11 => self.world.within(|| self.change_nothing(some)),
            _ => self.grants.pop_front().into_iter().for_each(|grant| self.let_go(grant)),
        }
        if self.grants.len() > 10 {
            self.grants.pop_back().into_iter().for_each(|grant| self.let_go(grant));
        }
    }

    /// Changes without effect, each of which takes back the published tokens.
    fn change_nothing(&self, some: u64) {
        let World { limiter, .. } = self.world;
        match some % 3 {
            0 => limiter.set_quota(0, quota()).unwrap(),
            1 => limiter.set_max_in_flight(CAP).unwrap(),
            _ => limiter.pause_for(Duration::ZERO),
        }
    }

    fn poll(&mut self, mut claim: Spawn<Consume<'a>>) {
        match self.world.within(|| claim.poll()) {
            Poll::Ready(grant) => self.grants.extend(grant.ok()),
            Poll::Pending if self.keeps_claims => self.claims.push_back(claim),
            Poll::Pending => self.world.within(|| drop(claim)),
        }
    }

    fn let_go(&mut self, grant: Grant<'a>) {
        let cost = grant.cost();
        self.world.spent.fetch_add(cost, SeqCst);
        if self.random.u64(..4) == 0 {
            self.world.within(|| grant.forget());
            self.world.within(|| self.world.limiter.release(cost)).expect("the grant was just forgotten");
        } else {
            self.world.within(|| drop(grant));
        }
    }
}

/// Runs until the threads have contended often enough; fails if they never do.
fn storm(stride: Option<u64>, keeps_claims: bool) {
    const ENOUGH: u64 = many(1_000) as u64;
    let world = World::new(stride);
    for round in 1..=100 {
        let (seen, stop) = (&world, AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| seen.advance_until(&stop));
            let run = |seed| scope.spawn(move || Worker::run(seen, seed, keeps_claims));
            let workers: Vec<_> = (1..=4).map(|seed| run(seed + round * 1_000)).collect();
            let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, SeqCst);
            ends.into_iter().for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
        });
        world.check_account();
        if world.met.load(SeqCst) >= ENOUGH {
            return;
        }
    }
    panic!("the threads contended only {} times", world.met.load(SeqCst));
}

#[test]
fn a_storm_of_threads_accounts_for_every_token() {
    for stride in [None, Some(0), Some(64)] {
        to_its_end(move || storm(stride, true));
    }
}

/// Almost no claim waits, so that tokens are published ahead, taken without the lock, and taken back.
#[test]
fn a_storm_of_threads_that_do_not_wait_accounts_for_every_token() {
    for stride in [None, Some(10), Some(200)] {
        to_its_end(move || storm(stride, false));
    }
}
