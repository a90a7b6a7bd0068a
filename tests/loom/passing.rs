//! Joint claims that are set aside while another queue is not ready: one race per model. `join.rs` explains the rules
//! of these models.

use super::join::{Joint, MS, answer, explore, on, waiting};
use crate::{is_served, on_clock, sorted};
use tollgate::{Limiter, ManualClock, Quota};

/// Limiters that mint a token after each of these times in milliseconds, full at first, in the order of their locks. 0
/// is a manual quota, empty at first.
fn limiters(periods: [u32; 2]) -> (ManualClock, [Limiter; 2]) {
    let clock = ManualClock::new();
    let limiters = sorted::<2>(|| on_clock(&clock, Limiter::builder().quota(Quota::new(1, MS).burst(1))));
    for (limiter, period) in limiters.iter().zip(periods) {
        if period == 0 {
            limiter.set_quota(0, Quota::manual(1)).unwrap();
            limiter.try_acquire(1).unwrap().forget();
        } else {
            limiter.set_quota(0, Quota::new(1, period * MS).burst(1)).unwrap();
        }
    }
    (clock, limiters)
}

/// A claim that waits in a fast queue and a slow one, and is due in both in a millisecond.
fn due_soon() -> (ManualClock, [Limiter; 2], Joint) {
    let (clock, limiters) = limiters([1, 10]);
    limiters[1].try_acquire(1).unwrap().forget();
    let joint = waiting(&limiters);
    clock.advance(9 * MS);
    (clock, limiters, joint)
}

/// The claim is dropped while it is aside in one queue and held in the other one, which becomes ready.
#[test]
fn cancel_aside_against_commit() {
    explore(3, |race| {
        let (_clock, limiters) = limiters([1, 0]);
        let joint = waiting(&limiters);
        race.run([Box::new(move || drop(joint)), on(&limiters[1], |limiter| limiter.replenish(1))]);
        assert_eq!(limiters.each_ref().map(|limiter| limiter.snapshot().waiting_tasks), [0, 0]);
        assert_eq!(limiters.each_ref().map(Limiter::available), [1, 1]);
    });
}

/// The claim is dropped while its part in the fast queue comes to the front.
#[test]
fn cancel_against_the_front() {
    explore(3, |race| {
        let (clock, limiters, joint) = due_soon();
        race.run([Box::new(move || drop(joint)), on(&limiters[0], Limiter::tick)]);
        clock.advance(MS);
        assert_eq!(limiters.each_ref().map(|limiter| limiter.snapshot().waiting_tasks), [0, 0]);
        assert_eq!(limiters.each_ref().map(Limiter::available), [1, 1]);
    });
}

/// The slow queue is paused while the part in the fast queue comes to the front: it is set aside again, and others
/// pass.
#[test]
fn a_pause_against_the_front() {
    explore(3, |race| {
        let (clock, limiters, mut joint) = due_soon();
        race.run([on(&limiters[1], |limiter| limiter.pause_for(20 * MS)), on(&limiters[0], Limiter::tick)]);
        assert_eq!(limiters[0].available(), 1, "nothing delays the fast queue");
        clock.advance(20 * MS);
        limiters.iter().for_each(Limiter::tick);
        assert_eq!(answer(&mut joint), Some(Ok(())));
    });
}

/// The fast queue has a cap that others have used up. Its release comes while the slow queue is served, or becomes
/// ready: whichever is last, the claim is granted.
#[test]
fn a_release_in_one_queue_against_the_alarm_of_the_other() {
    explore(3, |race| {
        let clock = ManualClock::new();
        let capped = || Limiter::builder().quota(Quota::new(1, MS).burst(2)).max_in_flight(1);
        let limiters = sorted::<2>(|| on_clock(&clock, capped()));
        limiters[1].set_quota(0, Quota::new(1, 10 * MS).burst(1)).unwrap();
        drop(limiters[1].try_acquire(1).unwrap());
        limiters[0].try_acquire(1).unwrap().forget();
        let mut joint = waiting(&limiters);
        clock.advance(10 * MS);
        race.run([on(&limiters[0], |limiter| limiter.release(1).unwrap()), on(&limiters[1], Limiter::tick)]);
        limiters[1].tick();
        assert_eq!(answer(&mut joint), Some(Ok(())));
    });
}

/// Two queues learn their instants at once, and a third one, in which the claim is aside, hears of both.
#[test]
fn two_queues_learn_their_instants_at_once() {
    explore(2, |race| {
        let clock = ManualClock::new();
        let limiters = sorted::<3>(|| on_clock(&clock, Limiter::builder().quota(Quota::new(1, MS).burst(1))));
        for limiter in &limiters[1..] {
            limiter.set_quota(0, Quota::manual(1)).unwrap();
            limiter.try_acquire(1).unwrap().forget();
        }
        let mut joint = waiting(&limiters);
        race.run([1, 2].map(|index: usize| on(&limiters[index], |limiter| limiter.replenish(1))));
        assert_eq!(answer(&mut joint), Some(Ok(())));
        let mut behind = crate::waiting(&limiters[0], 1);
        clock.advance(MS);
        limiters[0].tick();
        assert!(is_served(&mut behind));
    });
}
