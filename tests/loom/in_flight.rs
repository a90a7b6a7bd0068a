//! Tokens in flight: no release is missed, and no claim passes the ceiling.

use crate::{
    SECOND, build, drain, ends, enters, explore, explore_bounded, is_granted, is_served, taken, timed, try_keep,
    waiting,
};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use tollgate::{Limiter, Quota};

/// A cap of `cap` in flight, and enough tokens.
fn capped(cap: u64) -> Limiter {
    build(Limiter::builder().quota(Quota::manual(10)).max_in_flight(cap))
}

/// A claim enters the queue below a closed ceiling, while the grant that closes the ceiling is dropped. The release
/// takes the lock if a claim waits for it already, and is counted by claims that wait later.
///
/// Plants `release_reads_the_report_flag_before_it_counts`: the release is counted without the lock although the flag was set;
/// `releases_are_counted_before_they_are_watched`: the waiter counts releases before it sets the flag.
#[test]
fn consume_against_release() {
    explore(|race| {
        let limiter = capped(1);
        let grant = taken(&limiter, 1);
        let enter = enters(race, &limiter, 1);
        let release = race.actor(move || drop(grant));
        let (mut claim, ()) = ends(enter, release);
        assert!(is_granted(&mut claim), "the ceiling is open, and the claim was not served");
        assert_eq!(limiter.snapshot().in_flight, Some(1));
    });
}

/// Two grants are dropped at once while a waiter needs both: the later of the two must serve it.
///
/// Plant `first_release_clears_the_report_flag`: a release under the lock clears the flag.
#[test]
fn two_releases_against_a_waiter() {
    explore(|race| {
        let limiter = capped(2);
        let grants = [1, 1].map(|cost| taken(&limiter, cost));
        let mut waiter = waiting(&limiter, 2);
        let releases = grants.map(|grant| race.actor(move || drop(grant)));
        releases.into_iter().for_each(|release| release.join().unwrap());
        assert!(is_served(&mut waiter), "the ceiling is open, and the claim was not served");
        assert_eq!(limiter.snapshot().in_flight, Some(2));
    });
}

/// A waiter is dropped while the grant that delays it is dropped too: tokens it was granted unseen are not in flight.
///
/// Plant `refunded_tokens_stay_in_flight`: refunded tokens still count as in flight.
#[test]
fn cancel_against_release() {
    explore(|race| {
        let limiter = capped(1);
        let grant = taken(&limiter, 1);
        let waiter = waiting(&limiter, 1);
        let cancel = race.actor(move || drop(waiter));
        let release = race.actor(move || drop(grant));
        ends(cancel, release);
        assert_eq!(limiter.snapshot().in_flight, Some(0));
        assert_eq!(drain(&limiter), 1);
    });
}

/// A grant is dropped while two claims need its tokens: one of them gets them, or a later claim does.
///
/// Bounded: three actors, each interrupted once. Without a bound the model passes as well, in 110,000 executions.
///
/// Plant `release_is_counted_twice`: a release between two readings of the count is counted twice.
#[test]
fn two_claims_against_release() {
    explore_bounded(Some(3), |race| {
        let limiter = capped(1);
        let grant = taken(&limiter, 1);
        let release = race.actor(move || drop(grant));
        let claims = [(); 2].map(|()| {
            let limiter = limiter.clone();
            race.actor(move || u64::from(try_keep(&limiter, 1)))
        });
        release.join().unwrap();
        let granted: u64 = claims.map(|claim| claim.join().unwrap()).iter().sum();
        assert_eq!(granted + drain(&limiter), 1);
        assert_eq!(limiter.snapshot().in_flight, Some(1));
    });
}

/// A grant is dropped while the cap is lowered to what remains.
///
/// Plant `release_between_two_readings_is_lost`: a release between two readings of the count is lost.
#[test]
fn drop_against_set_max_in_flight() {
    explore(|race| {
        let limiter = capped(3);
        let grant = taken(&limiter, 1);
        let release = race.actor(move || drop(grant));
        let change = race.on(&limiter, |limiter| limiter.set_max_in_flight(2).unwrap());
        ends(release, change);
        assert_eq!(limiter.snapshot().in_flight, Some(0));
        assert_eq!(drain(&limiter), 2, "all of the new cap");
    });
}

/// Two tokens are published. The cap is lowered to one while another thread takes a token without the lock; the thread
/// that lowered it takes another if it can. Exactly one of them gets a token.
///
/// Plant `set_max_in_flight_without_retract`: published tokens stay published.
#[test]
fn a_claim_without_the_lock_against_set_max_in_flight() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(10)).max_in_flight(2).stride(2));
        limiter.tick();
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let change = race.on(&limiter, move |limiter| {
            limiter.set_max_in_flight(1).unwrap();
            try_keep(limiter, 1)
        });
        assert!(claim.join().unwrap() != change.join().unwrap(), "exactly one in flight");
    });
}

/// The bucket of one is full, and the ceiling holds three claims back, until all is released three seconds later.
/// Another thread serves the queue with a clock reading that may be old. One claim passes then; the tokens for the
/// others were lost to the full bucket while the ceiling was closed.
///
/// Plant `release_serves_waiters_in_the_past`.
#[test]
fn an_old_reading_against_a_release() {
    explore(|race| {
        let (limiter, clock) = timed(Limiter::builder().quota(Quota::per_second(1).burst(1)).max_in_flight(3));
        for _ in 0..3 {
            taken(&limiter, 1).forget();
            clock.advance(SECOND);
        }
        let mut waiters = [1, 1, 1].map(|cost| waiting(&limiter, cost));
        let release = race.on(&limiter, move |limiter| {
            clock.advance(3 * SECOND);
            limiter.release(3).unwrap();
        });
        let look = race.on(&limiter, Limiter::tick);
        ends(release, look);
        limiter.tick();
        let passed = waiters.iter_mut().map(is_served).filter(|served| *served).count();
        assert_eq!(passed, 1, "a bucket of one grants one");
    });
}

/// Two threads release the same forgotten grant: one of them gets the error that it releases too much.
///
/// Plant `owed_is_checked_then_taken`.
#[test]
fn two_releases_of_one_forgotten_grant() {
    explore(|race| {
        let limiter = capped(3);
        let _kept = taken(&limiter, 1);
        taken(&limiter, 2).forget();
        let releases = [(); 2].map(|()| {
            let limiter = limiter.clone();
            race.actor(move || limiter.release(2).is_ok())
        });
        let released = releases.map(|release| u64::from(release.join().unwrap()));
        assert_eq!(released.iter().sum::<u64>(), 1);
        assert_eq!(limiter.snapshot().in_flight, Some(1), "the token that was not forgotten");
    });
}

/// One grant is forgotten while another, forgotten before, is released.
///
/// Plant `forget_overwrites_what_is_owed`: the owed tokens are read, then stored.
#[test]
fn forget_against_release() {
    explore(|race| {
        let limiter = capped(2);
        let (one, other) = (taken(&limiter, 1), taken(&limiter, 1));
        one.forget();
        let forget = race.actor(move || other.forget());
        let release = race.on(&limiter, |limiter| limiter.release(1).is_ok());
        forget.join().unwrap();
        assert!(release.join().unwrap(), "one token was owed all the time");
        assert!(limiter.release(1).is_ok() && limiter.release(1).is_err(), "one token is still owed, and no more");
        assert_eq!(limiter.snapshot().in_flight, Some(0));
    });
}

/// One thread works, then drops its grant; a second one reads the releases and publishes tokens; a third one takes a
/// published token. The work is visible to it.
///
/// Plants `release_is_relaxed` and `publish_is_relaxed`.
#[test]
fn work_before_a_drop_is_visible_to_the_claim_that_passes_because_of_it() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(10)).max_in_flight(1).stride(1));
        let grant = taken(&limiter, 1);
        let work = Arc::new(AtomicU64::new(0));
        let seen = work.clone();
        let worker = race.actor(move || {
            work.store(1, Relaxed);
            drop(grant);
        });
        let publisher = race.on(&limiter, Limiter::tick);
        let passer = race.actor(move || try_keep(&limiter, 1).then(|| seen.load(Relaxed)));
        ends(worker, publisher);
        assert_ne!(passer.join().unwrap(), Some(0), "the claim passed and the work was not visible");
    });
}
