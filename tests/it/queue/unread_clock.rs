//! Cancelling a claim behind the front does not read a clock that moves by itself: the claim counts as cancelled since
//! the queue was last served. The same history on a manual clock, with the cancellation at that very moment, has the
//! same result.

use proptest::collection::vec;
use proptest::sample::Index;

use super::*;

/// Claims enter and the queue is served. Then time passes until it is served again, and some claims are cancelled
/// meanwhile.
#[derive(Clone, Debug)]
struct Span {
    costs: Vec<u64>,
    nanos: u64,
    leaving: Vec<Index>,
}

fn span() -> impl Strategy<Value = Span> {
    (vec(1..12u64, 0..6), 0..40u64, vec(any::<Index>(), 0..4)).prop_map(|(costs, nanos, leaving)| Span {
        costs,
        nanos,
        leaving,
    })
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let continuous = (1..4u64, 1..6u32, 3..9u64)
        .prop_map(|(amount, nanos, burst)| Quota::new(amount, nanos * NANO).burst(burst).initial(0));
    let stepped = (1..4u64, 2..20u32, 3..9u64)
        .prop_map(|(amount, nanos, burst)| Quota::new(amount, nanos * NANO).stepped().burst(burst).initial(1));
    vec(prop_oneof![continuous, stepped], 1..3)
}

/// One of the two limiters, with its claims.
struct Side<'a> {
    limiter: &'a Limiter,
    waiters: Vec<Waiting<'a>>,
}

impl<'a> Side<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        Self { limiter, waiters: Vec::new() }
    }

    fn enter(&mut self, costs: &[u64]) {
        for cost in costs {
            let mut waiting = spawn(self.limiter.consume(*cost));
            if waiting.poll().is_pending() {
                self.waiters.push(waiting);
            }
        }
    }

    /// Cancels some of the claims behind the front.
    fn leave(&mut self, leaving: &[Index]) {
        for index in leaving {
            if self.waiters.len() > 1 {
                drop(self.waiters.remove(1 + index.index(self.waiters.len() - 1)));
            }
        }
    }

    /// Serves the queue. The granted claims are dropped at once, and only those that wait are left.
    fn look(&mut self) -> (u64, u64, usize, Snapshot) {
        self.limiter.tick();
        while let Some(at) = self.waiters.iter().position(|waiting| waiting.is_woken()) {
            drop(served(&mut self.waiters.remove(at)));
        }
        (self.limiter.available(), self.limiter.deficiency(), self.waiters.len(), self.limiter.snapshot())
    }
}

proptest! {
    #[test]
    fn a_claim_cancelled_behind_the_front_counts_as_cancelled_since_the_last_serving(
        quotas in quotas(),
        cap in prop::option::of(12..30u64),
        spans in vec(span(), 1..12),
    ) {
        // The limiter does not know that the test moves the wall clock.
        let (by_hand, (nanos, wall)) = (ManualClock::new(), shown(ClockFn::moving));
        let builder = || {
            let builder = quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota));
            match cap {
                Some(cap) => builder.max_in_flight(cap),
                None => builder,
            }
        };
        let at_once = builder().clock(by_hand.clone()).build().unwrap();
        let unread = builder().clock(wall.clone()).build().unwrap();
        // This replenisher serves the queue; otherwise no claim could wait outside of a runtime.
        let mut driver = spawn(unread.replenisher());
        prop_assert!(driver.poll().is_pending());
        let (mut at_once, mut unread) = (Side::new(&at_once), Side::new(&unread));
        for span in spans {
            at_once.enter(&span.costs);
            unread.enter(&span.costs);
            prop_assert_eq!(at_once.look(), unread.look());
            at_once.leave(&span.leaving);
            by_hand.advance(Duration::from_nanos(span.nanos));
            nanos.fetch_add(span.nanos, SeqCst);
            unread.leave(&span.leaving);
            prop_assert_eq!(at_once.look(), unread.look());
        }
    }
}
