//! Dry run switched on and off, against claims without the lock.

use crate::{build, explore, try_keep};
use tollgate::{Limiter, Quota};

/// A quota goes into dry run while another thread claims without the lock: the simulation knows of the claim, whichever
/// comes first, and of all later ones.
///
/// Plant `dry_run_without_retract`: published tokens stay published, and are claimed without the simulation.
#[test]
fn a_dry_run_begins_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::per_second(4)).stride(4));
        limiter.tick();
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let switch = race.on(&limiter, |limiter| limiter.set_dry_run(0, true).unwrap());
        assert!(claim.join().unwrap(), "there were enough tokens, before and after");
        switch.join().unwrap();
        assert_eq!(limiter.available(), 3);
        assert!(try_keep(&limiter, 4), "a quota in dry run refuses nothing");
        assert_eq!(limiter.available(), 3, "it would have been refused");
    });
}

/// A quota is enforced again while another thread makes a claim: the claim counts, whichever comes first.
///
/// Plant `dry_run_ends_with_a_full_bucket`: the level of the simulation is lost.
#[test]
fn a_dry_run_ends_against_a_claim() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::per_second(4)).dry_run());
        let claim = race.on(&limiter, |limiter| try_keep(limiter, 1));
        let switch = race.on(&limiter, |limiter| limiter.set_dry_run(0, false).unwrap());
        assert!(claim.join().unwrap(), "there were enough tokens, before and after");
        switch.join().unwrap();
        assert_eq!(limiter.available(), 3);
        assert!(!try_keep(&limiter, 4));
    });
}
