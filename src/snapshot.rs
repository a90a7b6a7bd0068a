//! What a limiter looks like from outside, at one instant.

use crate::Quota;
use crate::rovers::{Rovers, ahead};
use crate::state::State;
use std::sync::Arc;
use std::time::Duration;

/// A consistent picture of a limiter; from [`Limiter::snapshot`](crate::Limiter::snapshot).
///
/// Positions are in tokens since the limiter was built, in the one line that all rovers move along.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// How far tokens are claimed.
    pub tail: u64,
    /// How far claims may go without looking at the time.
    pub published: u64,
    /// How far the in-flight cap lets claims go; `None` without a cap.
    pub ceiling: Option<u64>,
    /// Each quota, in the order the builder was given them.
    pub quotas: Vec<QuotaSnapshot>,
    /// How many callers wait.
    pub waiting_tasks: usize,
    /// How many tokens they wait for.
    pub waiting_tokens: u64,
    /// Tokens granted and not yet released; `None` without a cap.
    pub in_flight: Option<u64>,
    /// The cap on those; `None` without one.
    pub max_in_flight: Option<u64>,
    /// Tokens granted since the limiter was built, those charged by `settle` included.
    pub granted: u64,
    /// Tokens that came back unused: settled below the grant, or granted to somebody who had left.
    pub refunded: u64,
    /// Callers who wanted to wait and were turned away. Denials of `try_acquire` are told to who asks and not counted:
    /// they write nothing that others read. (A meter of the feature `metrics` does count them.)
    pub refused: u64,
    /// How long the pause still lasts; `None` without one.
    pub paused_for: Option<Duration>,
    /// True once the limiter was closed.
    pub closed: bool,
    /// The longest time between the instant at which the schedule granted somebody in line and the moment the timer let
    /// it be delivered. An observer sees at most `burst + rate x (window + lateness)` tokens in any window.
    pub lateness: Duration,
}

/// One quota of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QuotaSnapshot {
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// What it is now.
    pub quota: Quota,
    /// How far tokens are minted.
    pub head: u64,
    /// Tokens in the bucket: the head minus all that was granted. Negative while `settle` left a debt. Of a line whose
    /// front is ready and held by another line of a joint claim, as of the instant it became ready.
    pub level: i64,
    /// How many tokens a newcomer could have of this quota, behind all that was claimed; whatever the others say.
    pub available: u64,
    /// After how long it could have one more than that, if nobody else comes or leaves; `None` if no clock can tell. Of
    /// a full quota, how long the next token takes once one was taken.
    pub more_in: Option<Duration>,
}

impl Snapshot {
    pub(crate) fn of(state: &State, rovers: &Rovers, now: u64) -> Self {
        let origin = state.totals.origin;
        let position = |at: u64| at.wrapping_sub(origin);
        let supply = &state.supply;
        let granted_to = state.line.front().map_or_else(|| rovers.tail(), |front| front.start());
        let quotas = supply.quotas().iter().enumerate();
        let (in_flight, max_in_flight) = state.in_flight(rovers).unzip();
        Self {
            tail: position(rovers.tail()),
            published: position(rovers.published()),
            ceiling: supply.ceiling().map(position),
            quotas: quotas
                .map(|(index, schedule)| {
                    let available = ahead(schedule.head, rovers.tail()).max(0) as u64;
                    let one_more = rovers.tail().wrapping_add(available).wrapping_add(1);
                    let wait = |at: u64| Duration::from_nanos(at.saturating_sub(now));
                    QuotaSnapshot {
                        name: state.name(index).cloned(),
                        quota: schedule.quota,
                        head: position(schedule.head),
                        level: ahead(schedule.head, granted_to),
                        available,
                        more_in: schedule.reached(one_more).map(wait),
                    }
                })
                .collect(),
            waiting_tasks: state.line.len(),
            waiting_tokens: state.line.tokens() + state.line.part_tokens(),
            in_flight,
            max_in_flight,
            granted: state.granted(rovers),
            refunded: state.totals.refunded,
            refused: state.totals.refused,
            paused_for: supply.is_paused().then(|| Duration::from_nanos(supply.gate().saturating_sub(now))),
            closed: state.closed,
            lateness: Duration::from_nanos(state.totals.lateness),
        }
    }
}
