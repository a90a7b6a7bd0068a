//! Claims that join the queue of a class without serving what is due: the schedule is the same.

use crate::{Class, Clock, ConsumeOwned, Limiter, ManualClock, Quota, Share};
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
    advance: Box<dyn Fn(u64)>,
}

impl Fixture {
    fn new<C: Clock>(clock: C, advance: impl Fn(u64) + 'static) -> Self {
        let quota = Quota::per_second(10_000).burst(10).initial(0);
        let limiter = Limiter::builder().quota(quota).classes().clock(clock).build().expect("valid");
        let classes = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).expect("free"));
        Self { limiter, classes, waiting: Vec::new(), advance: Box::new(advance) }
    }

    fn arrive(&mut self, class: usize, count: usize) {
        for _ in 0..count {
            let mut claim = spawn(self.classes[class].clone().consume_owned(1));
            assert!(claim.poll().is_pending());
            self.waiting.push((class, claim));
        }
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
    let exact = Fixture::new(manual, move |nanos| moved.advance(Duration::from_nanos(nanos))).run();
    let late = DriverlessClock::default();
    let moved = Arc::clone(&late.0);
    let late = Fixture::new(late, move |nanos| _ = moved.fetch_add(nanos, Ordering::Relaxed)).run();
    assert_eq!((exact.0, late.0), ([10, 10], [0, 10]), "only a claim of the class that may have run empty serves");
    assert_eq!(exact.1, late.1);
    assert_eq!(exact.1.iter().map(Vec::len).sum::<usize>(), 25);
}
