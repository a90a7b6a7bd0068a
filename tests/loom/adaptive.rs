//! Feedback of an adaptive limiter against feedback and reconfiguration by other threads.

use crate::{build, ends, explore};
use std::time::Duration;
use tollgate::{Adaptive, Limiter, Quota};

/// One result raises the rate while another one lowers it: at the end the limiter has the latest rate.
///
/// Plant `adaptive_applies_a_stale_quota`: the thread that decided first changes the limiter last.
#[test]
fn feedback_against_feedback_applies_the_latest_rate() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::per_second(1)));
        let adaptive = Adaptive::between("1/s", "1000/s").start("10/s").seed(1).drive(&limiter).unwrap();
        // As large as ten seconds of requests: the rate grows by more than one step.
        let (grows, falls) = (adaptive.attempt(100, true), adaptive.attempt(1, true));
        let up = race.actor(move || grows.succeeded());
        let down = race.actor(move || falls.throttled(None));
        ends(up, down);
        let seen = adaptive.snapshot();
        assert_eq!(limiter.snapshot().quotas[0].quota, seen.rate);
        assert_eq!((seen.accepted, seen.refused, seen.falls + seen.probes_refused), (1, 1, 1));
    });
}

/// Two refusals of one event race, and the operator pauses meanwhile: one decrease, and the longer pause.
///
/// Plant `adaptive_counts_each_refusal`: the generation of the refused request is ignored.
#[test]
fn refusals_of_one_event_against_a_pause() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::per_second(1)));
        let adaptive = Adaptive::between("1/s", "1000/s").start("10/s").seed(1).drive(&limiter).unwrap();
        let attempts = [adaptive.attempt(1, true), adaptive.attempt(1, true)];
        let [one, other] = attempts;
        let first = race.actor(move || one.throttled(Duration::from_secs(2)));
        let second = race.on(&limiter, move |limiter| {
            other.throttled(None);
            limiter.pause_for(Duration::from_secs(1));
        });
        ends(first, second);
        let seen = adaptive.snapshot();
        assert_eq!((seen.falls, seen.refused), (1, 2));
        let limiter = limiter.snapshot();
        assert_eq!((limiter.quotas[0].quota, limiter.paused_for), (seen.rate, Some(Duration::from_secs(2))));
    });
}
