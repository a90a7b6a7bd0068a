//! Claims that join the queue of a class without serving what is due: the schedule is the same.

use crate::{Class, Clock, ConsumeOwned, Limiter, ManualClock, OwnedGrant, Quota, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};

/// Moved by the test, and unknown to the limiter: the limiter has drivers, and the test gives them no turn.
#[derive(Clone, Debug, Default)]
struct DriverlessClock(Arc<AtomicU64>);

impl Clock for DriverlessClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

struct Fixture {
    limiter: Limiter,
    classes: [Class; 2],
    waiting: Vec<(usize, Spawn<ConsumeOwned<Class>>)>,
    held: Vec<OwnedGrant<Class>>,
    advance: Box<dyn Fn(u64)>,
}

impl Fixture {
    fn new<C: Clock>(clock: C, shares: [Share; 2], advance: impl Fn(u64) + 'static) -> Self {
        let quota = Quota::per_second(10_000).burst(10).initial(0);
        let limiter = Limiter::builder().quota(quota).classes().clock(clock).build().expect("valid");
        let [a, b] = shares;
        let classes = [("a", a), ("b", b)].map(|(name, share)| limiter.class(name, share).expect("free"));
        Self { limiter, classes, waiting: Vec::new(), held: Vec::new(), advance: Box::new(advance) }
    }

    fn arrive(&mut self, class: usize, count: usize) {
        (0..count).for_each(|_| self.claim(class, 1));
    }

    /// A claim that waits, or was granted at once.
    fn claim(&mut self, class: usize, cost: u64) {
        let mut claim = spawn(self.classes[class].clone().consume_owned(cost));
        match claim.poll() {
            Poll::Ready(answer) => self.held.extend(answer.ok()),
            Poll::Pending => self.waiting.push((class, claim)),
        }
    }

    /// A change of the limiter, of a class or of a grant.
    fn change(&mut self, random: &mut fastrand::Rng) {
        let class = random.usize(0..2);
        match random.u8(0..7) {
            0 => self.limiter.pause_for(Duration::from_nanos(random.u64(0..900_000))),
            1 => _ = self.limiter.set_quota(0, Quota::per_second(10_000).burst(random.u64(3..14))),
            2 => self.limiter.replenish(random.u64(1..6)),
            3 => _ = self.classes[class].try_acquire(random.u64(1..8)).map(|grant| grant.forget()),
            4 => _ = self.classes[class].set_share(Share::weight(random.u64(1..8))),
            5 => {
                self.classes[class].remove();
                let share = Share::weight(random.u64(1..8));
                self.classes[class] = self.limiter.class(["a", "b"][class], share).expect("free");
            }
            _ => {
                if let Some(mut grant) = self.held.pop() {
                    let actual = grant.cost() + random.u64(0..20);
                    grant.settle(actual.saturating_sub(5));
                }
            }
        }
    }

    /// Random claims, some of them cancelled, and with `changes` random changes, never more than two milliseconds after the last
    /// service. Returns what waits after each service.
    fn run_random(mut self, seed: u64, changes: bool) -> Vec<Vec<usize>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seen = Vec::new();
        self.arrive(0, 30);
        self.arrive(1, 5);
        for _ in 0..60 {
            for _ in 0..random.usize(0..4) {
                (self.advance)(random.u64(0..500_000));
                let cost = [1, 1, 2, 7, 25][random.usize(0..5)];
                self.claim(usize::from(random.u8(0..4) == 0), cost);
                if changes && random.u8(0..3) == 0 {
                    self.change(&mut random);
                }
            }
            if random.u8(0..5) == 0 && !self.waiting.is_empty() {
                drop(self.waiting.remove(random.usize(0..self.waiting.len())));
            }
            self.limiter.tick();
            self.waiting.retain_mut(|(_, claim)| {
                if !claim.is_woken() {
                    return true;
                }
                let polled = claim.poll();
                let waits = polled.is_pending();
                if let Poll::Ready(answer) = polled {
                    self.held.extend(answer.ok());
                }
                waits
            });
            let of = |class: usize| self.waiting.iter().filter(|(of, _)| *of == class).count();
            seen.push(vec![of(0), of(1), self.limiter.available() as usize]);
        }
        seen
    }

    /// How many claims were called out, granted or not.
    fn woken(&self) -> usize {
        self.waiting.iter().filter(|(_, claim)| claim.is_woken()).count()
    }

    /// Which claims are granted by now.
    fn granted(&mut self) -> Vec<usize> {
        self.limiter.tick();
        let is_granted =
            |claim: &mut Spawn<ConsumeOwned<Class>>| claim.is_woken() && matches!(claim.poll(), Poll::Ready(Ok(_)));
        (0..self.waiting.len()).filter(|index| is_granted(&mut self.waiting[*index].1)).collect()
    }

    /// Returns how many claims the arrivals woke that found more due, and which claims were granted, millisecond by
    /// millisecond.
    fn run(mut self) -> ([usize; 2], Vec<Vec<usize>>) {
        self.arrive(0, 20);
        self.arrive(1, 3);
        (self.advance)(1_050_000);
        // Ten tokens are due: too few for all claims of the first class, enough for those of the second.
        self.arrive(0, 1);
        let first = self.woken();
        self.arrive(1, 1);
        let woken = [first, self.woken()];
        let mut granted = Vec::new();
        while granted.len() < 4 {
            granted.push(self.granted());
            (self.advance)(1_000_000);
        }
        (woken, granted)
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_joins_a_class_late_changes_nothing() {
    let manual = ManualClock::new();
    let moved = manual.clone();
    let equal = || [Share::weight(1), Share::weight(1)];
    let exact = Fixture::new(manual, equal(), move |nanos| moved.advance(Duration::from_nanos(nanos))).run();
    let late = DriverlessClock::default();
    let moved = Arc::clone(&late.0);
    let late = Fixture::new(late, equal(), move |nanos| _ = moved.fetch_add(nanos, Ordering::Relaxed)).run();
    assert_eq!((exact.0, late.0), ([10, 10], [0, 10]), "only a claim of the class that may have run empty serves");
    assert_eq!(exact.1, late.1);
    assert_eq!(exact.1.iter().map(Vec::len).sum::<usize>(), 25);
}

/// Outside of tokio's cooperative budget: the test polls many claims and never yields.
#[tokio::test(start_paused = true)]
async fn claims_that_join_late_change_no_history() {
    let histories = (0..600).map(|seed| compare_histories(seed / 2, seed % 2 == 1));
    tokio::task::unconstrained(async { histories.collect() }).await
}

fn compare_histories(seed: u64, changes: bool) {
    let shares = || match seed % 3 {
        0 => [Share::weight(1), Share::weight(3)],
        1 => [Share::weight(2), Share::weight(1).floor(Quota::per_second(4_000).burst(5))],
        _ => [Share::weight(1).ceiling(Quota::per_second(3_000).burst(30)), Share::weight(1)],
    };
    let manual = ManualClock::new();
    let moved = manual.clone();
    let exact = Fixture::new(manual, shares(), move |nanos| moved.advance(Duration::from_nanos(nanos)));
    let late = DriverlessClock::default();
    let moved = Arc::clone(&late.0);
    let late = Fixture::new(late, shares(), move |nanos| _ = moved.fetch_add(nanos, Ordering::Relaxed));
    assert_eq!(exact.run_random(seed, changes), late.run_random(seed, changes), "seed {seed}");
}
