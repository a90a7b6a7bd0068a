//! The clock: that of the store, which may step back, and no other.

use super::client::{ask, at_once, terms};
use super::{Outcome, Subject, Trial};
use crate::quota::Quota;

/// A day in microseconds.
const DAY: i64 = 86_400_000_000;

pub(super) async fn client_clock(trial: &Trial<'_, impl Subject>) -> Outcome {
    let terms = terms(Quota::per_day(10));
    let drained = ask(&*trial.client("clocks").await?, at_once(1, terms, 10)).await?.grant;
    ensure!(drained.now == 10, "a new store grants {} of 10 tokens", drained.now);
    // Ahead, so that tokens seem to be minted, and behind, so that they are for the next one.
    for (node, skew) in (2..).zip([DAY, -2 * DAY, 0, 3 * DAY, 0]) {
        let grant = ask(&*trial.skewed("clocks", skew).await?, at_once(node, terms, 1)).await?.grant;
        ensure!(
            (grant.now, grant.remaining) == (0, 0),
            "no token is there, and a client whose clock is {} h ahead gets {grant:?}",
            skew / (DAY / 24)
        );
    }
    Ok(true)
}

pub(super) async fn clock(trial: &Trial<'_, impl Subject>) -> Outcome {
    let terms = terms(Quota::per_second(100).burst(10));
    let name = trial.name("clock");
    let mut now: i64 = 1_700_000_000_000_000;
    // How far the clock moves, in microseconds, and how many tokens are there then; they are taken.
    let steps = [
        (0, 10),
        (-DAY, 0),
        (-1, 0),
        // From there it goes on.
        (9_999, 0),
        (1, 1),
        (50_000, 5),
        (-3_000_000, 0),
        (30_000, 3),
        (DAY, 10),
    ];
    for (node, (step, there)) in (0..).step_by(2).zip(steps) {
        now += step;
        for (node, tokens, granted) in [(node + 1, there + 1, 0), (node + 2, there, there)] {
            let Some(answer) = trial.subject.ask_at(&name, at_once(node, terms, tokens), now as u64).await else {
                return Ok(false);
            };
            let grant = answer.map_err(|error| format!("a clock that moved by {step} us gives the error `{error}`"))?;
            ensure!(
                grant.now == granted,
                "after the clock moved by {step} us, {there} tokens are there, and a request for {tokens} gets {grant:?}"
            );
        }
    }
    Ok(true)
}
