//! The primitive: nobody waits for a lock, and nothing is minted twice.

use crate::{SECOND, explore};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Bucket, Quota};

/// Two threads replenish at once, with times of their own: the head goes where the later time says, and no further.
/// (Seastar's goes twice as far: its stamp and its head move in two steps.)
///
/// Plant `two_replenishers_mint_the_same_tokens`.
#[test]
fn two_replenishes_do_not_overshoot() {
    explore(|race| {
        let bucket = Arc::new(Bucket::new(Quota::per_second(1).burst(3).initial(0), Duration::ZERO).unwrap());
        let replenishes = [1, 2].map(|seconds| {
            let bucket = bucket.clone();
            race.actor(move || bucket.replenish(SECOND * seconds))
        });
        for replenish in replenishes {
            replenish.join().unwrap();
        }
        bucket.replenish(SECOND * 2);
        assert_eq!(bucket.deficiency(bucket.grab(3)), 1, "two seconds, two tokens");
    });
}

/// At one and the same instant, somebody grabs what a full bucket holds and somebody replenishes it. A grab at that
/// instant cannot have made room before it.
///
/// Plant `mint_bound_uses_an_old_tail`: the bound counts what was grabbed since the last replenish.
#[test]
fn grab_against_replenish() {
    explore(|race| {
        let bucket = Arc::new(Bucket::new(Quota::per_second(1).burst(2), Duration::ZERO).unwrap());
        let other = bucket.clone();
        let grab = race.actor(move || other.deficiency(other.grab(2)));
        let other = bucket.clone();
        let replenish = race.actor(move || other.replenish(SECOND));
        assert_eq!(grab.join().unwrap(), 0, "the bucket was full");
        replenish.join().unwrap();
        bucket.replenish(SECOND);
        assert_eq!(bucket.deficiency(bucket.grab(1)), 1, "all of it within an instant, from a burst of 2");
    });
}

/// Somebody works, then releases; somebody else replenishes and finds out whether the next claim passes. If it does,
/// the work is seen, and in the end it does.
///
/// Plants `release_between_two_readings_is_lost` and `release_is_relaxed`.
#[test]
fn release_against_replenish() {
    explore(|race| {
        let bucket = Arc::new(Bucket::capped(Quota::per_second(10), 1, Duration::ZERO).unwrap());
        let (first, second) = (bucket.grab(1), bucket.grab(1));
        assert_eq!((bucket.deficiency(first), bucket.deficiency(second)), (0, 1));
        let work = Arc::new(AtomicU64::new(0));
        let (seen, other) = (work.clone(), bucket.clone());
        let release = race.actor(move || {
            work.store(1, Relaxed);
            other.release(1);
        });
        let other = bucket.clone();
        let replenish = race.actor(move || {
            other.replenish(Duration::ZERO);
            (other.deficiency(second) == 0).then(|| seen.load(Relaxed))
        });
        release.join().unwrap();
        assert_ne!(replenish.join().unwrap(), Some(0), "it passed and did not see what was done");
        bucket.replenish(Duration::ZERO);
        assert_eq!(bucket.deficiency(second), 0, "the release was lost");
    });
}

/// Somebody grabs two tokens, of which the ceiling lets one through, so that neither is granted; somebody else finds that
/// grab in the tail, and must know that it can be as large as two: time that passes then makes no room beyond it.
///
/// Plant `grab_is_relaxed`: the grab is seen, and how large it is is not.
#[test]
fn a_grab_astride_the_ceiling_against_replenish() {
    explore(|race| {
        let bucket = Arc::new(Bucket::capped(Quota::per_second(1).burst(4), 2, Duration::ZERO).unwrap());
        assert_eq!(bucket.deficiency(bucket.grab(1)), 0);
        let other = bucket.clone();
        let grab = race.actor(move || other.deficiency(other.grab(2)));
        let other = bucket.clone();
        let replenish = race.actor(move || {
            other.replenish(Duration::ZERO);
            other.replenish(SECOND * 9);
        });
        assert_eq!(grab.join().unwrap(), 1, "one more may be in flight");
        replenish.join().unwrap();
        bucket.release(9);
        bucket.replenish(SECOND * 9);
        let granted = 12 - bucket.deficiency(bucket.grab(9));
        assert_eq!(granted - 1, 4, "the first was granted long ago: from then on, a burst at once");
    });
}
