//! The primitive: it needs no lock, and no token is minted twice.

use crate::{SECOND, explore};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Bucket, Quota};

/// Two threads replenish at once, each with its own time: the head moves as far as the later time says, and no further.
/// Seastar's head moves twice as far, because its stamp and its head move in two steps.
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
        replenishes.into_iter().for_each(|replenish| replenish.join().unwrap());
        bucket.replenish(SECOND * 2);
        assert_eq!(bucket.deficiency(bucket.grab(3)), 1, "two seconds, two tokens");
    });
}

/// At the same instant, one thread grabs all tokens of a full bucket and another replenishes it. A grab at that instant
/// cannot have made space before it.
///
/// Plant `mint_bound_uses_an_old_tail`: the bound includes tokens that were grabbed since the last replenish.
#[test]
fn grab_against_replenish() {
    explore(|race| {
        let bucket = Arc::new(Bucket::new(Quota::per_second(1).burst(2), Duration::ZERO).unwrap());
        let grab = race.on(&bucket, |bucket| bucket.deficiency(bucket.grab(2)));
        let replenish = race.on(&bucket, |bucket| bucket.replenish(SECOND));
        assert_eq!(grab.join().unwrap(), 0, "the bucket was full");
        replenish.join().unwrap();
        bucket.replenish(SECOND);
        assert_eq!(bucket.deficiency(bucket.grab(1)), 1, "all at one instant, from a burst of 2");
    });
}

/// One thread works, then releases. Another replenishes and checks whether the next claim passes. If it does, the work
/// is visible; at the end it does.
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
        let replenish = race.on(&bucket, move |bucket| {
            bucket.replenish(Duration::ZERO);
            (bucket.deficiency(second) == 0).then(|| seen.load(Relaxed))
        });
        release.join().unwrap();
        assert_ne!(replenish.join().unwrap(), Some(0), "the claim passed and the work was not visible");
        bucket.replenish(Duration::ZERO);
        assert_eq!(bucket.deficiency(second), 0, "the release was lost");
    });
}

/// One thread grabs two tokens, of which the ceiling allows one, so neither is granted. Another thread sees that grab
/// in the tail, and must know that it can be as large as two: later time makes no space beyond it.
///
/// Plant `grab_is_relaxed`: the grab is seen, but its size is not.
#[test]
fn a_grab_across_the_ceiling_against_replenish() {
    explore(|race| {
        let bucket = Arc::new(Bucket::capped(Quota::per_second(1).burst(4), 2, Duration::ZERO).unwrap());
        assert_eq!(bucket.deficiency(bucket.grab(1)), 0);
        let grab = race.on(&bucket, |bucket| bucket.deficiency(bucket.grab(2)));
        let replenish = race.on(&bucket, move |bucket| {
            bucket.replenish(Duration::ZERO);
            bucket.replenish(SECOND * 9);
        });
        assert_eq!(grab.join().unwrap(), 1, "one more may be in flight");
        replenish.join().unwrap();
        bucket.release(9);
        bucket.replenish(SECOND * 9);
        let granted = 12 - bucket.deficiency(bucket.grab(9));
        assert_eq!(granted - 1, 4, "the first was granted long ago: since then, a burst at once");
    });
}
