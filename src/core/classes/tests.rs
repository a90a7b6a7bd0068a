//! Tests of the scheduler inside a limiter. `tests/it/shares` tests classes through the public API.

mod arrivals;
mod bounded_work;
mod lock_holds;

use crate::core::claim_scope::ClaimScope;
use crate::core::state::State;
use crate::handle::Handle;
use crate::{Class, Limiter, ManualClock, Quota, Share};
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};

/// A future that has to wait when it is first polled.
fn pending<F: Future>(future: F) -> Spawn<F> {
    let mut waiting = spawn(future);
    assert!(waiting.poll().is_pending());
    waiting
}

/// A turn ends with the tokens that the source gave for it.
#[test]
fn leaves_are_served_by_turns_before_they_are_served_by_shares() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1_000).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap();
    let classes = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
    let mut waiting = [0, 0, 0, 1].map(|class| (class, pending(classes[class].consume(1))));
    let turns = |state: &mut State| {
        let known = state.classes_mut().unwrap();
        let leaf = |class: &Class| known.entry(class.scope().class()).leaf;
        known.scheduler.turns = [(leaf(&classes[0]), 2), (leaf(&classes[1]), 1)].into();
    };
    turns(&mut limiter.core().state.lock());
    let mut served = Vec::new();
    for _ in 0..3 {
        clock.advance(Duration::from_millis(1));
        limiter.tick();
        served.extend(waiting.iter_mut().filter(|(_, claim)| claim.is_woken()).map(|(class, claim)| {
            assert!(claim.poll().is_ready());
            *class
        }));
    }
    assert_eq!(served, [0, 0, 1]);
    assert!(limiter.core().state.lock().classes_mut().unwrap().scheduler.turns.is_empty());
}
