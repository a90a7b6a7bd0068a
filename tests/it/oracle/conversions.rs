//! Conversions between the types of the crate and those of the oracle.

use std::fmt;
use std::time::Duration;

use tollgate::{Bound, ConsumeError, Denied, Limiter, ManualClock, Quota, TryAcquireError};

use crate::oracle::model::Seen;
use crate::oracle::ops::Setup;
use crate::oracle::{self, Answer, Int, Refill, Rule};

/// A limiter as `setup` says. `stride` is forced, with 0 for exact, or adaptive if it is `None`.
pub(crate) fn limiter(setup: &Setup, stride: impl Into<Option<u64>>, clock: &ManualClock) -> Limiter {
    let mut builder = Limiter::builder().clock(clock.clone()).max_waiting(setup.max_waiting);
    builder = setup.rules.iter().fold(builder, |builder, &rule| builder.quota(quota(rule)));
    if let Some(most) = setup.max_in_flight {
        builder = builder.max_in_flight(unsigned(most));
    }
    builder = builder.rovers_at(setup.rovers_at);
    if let Some(stride) = stride.into() {
        builder = builder.stride(stride);
    }
    builder.build().expect("the setup of a history is valid")
}

pub(crate) fn quota(rule: Rule) -> Quota {
    let quota = match rule.refill {
        Refill::Continuous { amount, period } => Quota::new(unsigned(amount), nanoseconds(period)),
        Refill::Stepped { amount, period } => Quota::new(unsigned(amount), nanoseconds(period)).stepped(),
        Refill::Calendar { amount, period } => return calendar(amount, period).initial(unsigned(rule.initial)),
        Refill::Manual => Quota::manual(unsigned(rule.burst)),
        Refill::Sliding { amount, period } => {
            let quota = Quota::new(unsigned(amount), nanoseconds(period)).sliding();
            return quota.initial(unsigned(rule.initial));
        }
    };
    quota.burst(unsigned(rule.burst)).initial(unsigned(rule.initial))
}

/// As text, because the crate may be built without the feature.
fn calendar(amount: Int, period: Int) -> Quota {
    format!("{amount}/{period}ns@epoch").parse().expect("histories have such quotas only with the feature")
}

/// The answer to a `try_acquire` of `cost`.
pub(crate) fn not_acquired(error: TryAcquireError, cost: Int) -> Answer {
    match error {
        TryAcquireError::Denied(denied) => denial(denied),
        TryAcquireError::TooLarge { cost: asked, most, .. } => {
            assert_eq!(asked, unsigned(cost));
            Answer::TooLarge { most: most.into() }
        }
        TryAcquireError::Closed => Answer::Closed,
        other => panic!("{other:?}"),
    }
}

/// The answer to a `consume`.
pub(crate) fn not_consumed(error: ConsumeError) -> Answer {
    match error {
        ConsumeError::TimedOut { waited, .. } => Answer::TimedOut { waited: signed(waited) },
        ConsumeError::Closed => Answer::Closed,
        ConsumeError::QueueFull { waiting } => Answer::QueueFull { waiting },
        ConsumeError::TooLarge { most, .. } => Answer::TooLarge { most: most.into() },
        ConsumeError::TooLate { estimate, .. } => Answer::TooLate { estimate: signed(estimate) },
        other => panic!("{other:?}"),
    }
}

fn denial(Denied { retry_after, remaining, by, .. }: Denied) -> Answer {
    let by = match by {
        Bound::Quota(index) => oracle::Bound::Quota(index),
        Bound::InFlight => oracle::Bound::InFlight,
        Bound::Pause => oracle::Bound::Pause,
        Bound::Queue => oracle::Bound::Queue,
        other => panic!("{other:?}"),
    };
    Answer::Denied { retry_after: retry_after.map(signed), remaining: remaining.into(), by }
}

pub(crate) fn seen_result<E: fmt::Debug>(result: Result<(), E>) -> Seen {
    if result.is_ok() { Seen::Nothing } else { Seen::Refused }
}

pub(crate) fn unsigned(tokens: Int) -> u64 {
    tokens.try_into().expect("tokens of a history fit")
}

pub(crate) fn signed_tokens(tokens: u64) -> Int {
    tokens.into()
}

pub(crate) fn nanoseconds(span: Int) -> Duration {
    Duration::from_nanos(span.try_into().expect("spans of a history fit"))
}

pub(crate) fn signed(span: Duration) -> Int {
    span.as_nanos().try_into().expect("a duration fits")
}
