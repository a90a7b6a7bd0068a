//! The state of a limiter at one instant.

use crate::core::dry_run::DryRun;
use crate::core::rovers::{Rovers, ahead};
use crate::core::state::State;
use crate::quota::Quota;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A consistent picture of a limiter, returned by [`Limiter::snapshot`](crate::Limiter::snapshot). It prints as one line for a
/// log.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota};
/// let limiter = Limiter::builder().quota(Quota::per_second(10).burst(20)).max_in_flight(8).build()?;
/// let _grant = limiter.try_acquire(3)?;
/// let line = "0 wait for 0 tokens; 17 available of 10/s, burst 20; 3 of 8 in flight; granted 3, refunded 0, refused 0";
/// assert_eq!(limiter.snapshot().to_string(), line);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// How many callers wait.
    pub waiting_tasks: u64,
    /// How many tokens the waiting callers ask for.
    pub waiting_tokens: u64,
    /// Each quota, in the order in which the quotas were added to the builder.
    pub quotas: Vec<QuotaSnapshot>,
    /// Tokens granted and not yet released; `None` without a cap.
    pub in_flight: Option<u64>,
    /// The in-flight cap in tokens; `None` without one.
    pub max_in_flight: Option<u64>,
    /// How long the pause still lasts; `None` without a pause.
    pub paused_for: Option<Duration>,
    /// True once the limiter was closed.
    pub closed: bool,
    /// Tokens granted since the limiter was built, including those charged by `settle`.
    pub granted: u64,
    /// Tokens that came back unused: settled for less than the grant, or granted to a caller that had already left.
    pub refunded: u64,
    /// Callers that wanted to wait and were refused. Denials of `try_acquire` are returned to the caller and are not
    /// counted, so that they write nothing that other threads read. (A meter of the feature `metrics` does count
    /// them.)
    pub refused: u64,
    /// The longest delay between the instant at which the schedule granted a waiter and the moment at which the timer
    /// let the limiter deliver that grant. An observer sees at most `burst + rate x (window + lateness)` tokens in any
    /// window.
    pub lateness: Duration,
    /// The simulation of a [dry run](crate::Builder::dry_run); `None` if no quota is in dry run.
    pub dry_run: Option<DryRunSnapshot>,
    /// The position up to which tokens are claimed. Positions count tokens since the limiter was built, and all of them
    /// share one axis.
    pub tail: u64,
    /// The position up to which claims may go without reading the clock.
    pub published: u64,
    /// The position up to which the in-flight cap lets claims go; `None` without a cap.
    pub ceiling: Option<u64>,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wait for {} tokens", self.waiting_tasks, self.waiting_tokens)?;
        for seen in &self.quotas {
            write!(f, "; {} available of {}", seen.available, seen.quota)?;
        }
        if let (Some(in_flight), Some(most)) = (self.in_flight, self.max_in_flight) {
            write!(f, "; {in_flight} of {most} in flight")?;
        }
        if let Some(pause) = self.paused_for {
            write!(f, "; paused for {pause:?}")?;
        }
        write!(f, "; granted {}, refunded {}, refused {}", self.granted, self.refunded, self.refused)?;
        if self.closed { f.write_str("; closed") } else { Ok(()) }
    }
}

/// The state that a limiter would have if all of its quotas were enforced, in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DryRunSnapshot {
    /// How many callers would be waiting.
    pub waiting_tasks: u64,
    /// How many tokens would be waited for, including debts of `settle` behind waiting callers.
    pub waiting_tokens: u64,
    /// Calls that passed and would have waited, since the limiter has had a quota in dry run.
    pub would_wait: u64,
    /// Calls that passed and would have been refused, since the limiter has had a quota in dry run.
    pub would_refuse: u64,
    /// The longest wait that a call would have had, as far as a clock could tell.
    pub longest_wait: Duration,
}

/// One quota of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QuotaSnapshot {
    /// The name of the quota, if it has one.
    pub name: Option<Arc<str>>,
    /// The quota as it is now.
    pub quota: Quota,
    /// The position up to which tokens are minted.
    pub head: u64,
    /// Tokens in the bucket: the head minus all tokens granted. Negative while a debt of `settle` is outstanding. If
    /// the first waiter of the queue is ready but delayed by another queue of its joint claim, this is the level at
    /// the instant at which that waiter became ready.
    pub level: i64,
    /// How many tokens of this quota a new caller could take, behind everything that is claimed. Other quotas are
    /// ignored.
    pub available: u64,
    /// After how long a new caller could take one more token than that, if no caller arrives or leaves; `None` if
    /// the time is unknown. For a full quota, how long the next token takes after one was taken; `None` for a full sliding
    /// one, which never grants more at once.
    pub more_in: Option<Duration>,
    /// True if the quota is in [dry run](crate::Builder::dry_run). The head, the level and the available tokens are then
    /// those of the simulation.
    pub dry_run: bool,
    /// Calls that passed and would have been refused by this quota, since the limiter has had a quota in dry run.
    pub would_refuse: u64,
}

impl QuotaSnapshot {
    /// The state of the quota with this index in the simulation, without its name.
    fn in_dry_run(dry_run: &DryRun, quota: usize, now: u64) -> Self {
        let schedule = &dry_run.supply.quotas()[quota];
        let available = dry_run.level(quota).max(0) as u64;
        let one_more = dry_run.tail().wrapping_add(available).wrapping_add(1);
        Self {
            name: None,
            quota: schedule.quota,
            head: schedule.head,
            level: ahead(schedule.head, dry_run.supply.claimed()),
            available,
            more_in: schedule.reached(one_more).map(|at| Duration::from_nanos(at.saturating_sub(now))),
            dry_run: dry_run.is_dry(quota),
            would_refuse: dry_run.totals.refused_by[quota],
        }
    }
}

impl DryRunSnapshot {
    fn of(dry_run: &DryRun) -> Self {
        Self {
            waiting_tasks: dry_run.waiting(),
            waiting_tokens: dry_run.waiting_tokens(),
            would_wait: dry_run.totals.would_wait,
            would_refuse: dry_run.totals.would_refuse,
            longest_wait: Duration::from_nanos(dry_run.totals.longest),
        }
    }
}

impl Snapshot {
    pub(crate) fn of(state: &mut State, rovers: &Rovers, now: u64) -> Self {
        state.served_dry_run(now);
        let origin = state.totals.origin;
        let position = |at: u64| at.wrapping_sub(origin);
        let supply = &state.supply;
        let granted_to = state.base(rovers);
        let quotas = supply.quotas().iter().enumerate();
        let (in_flight, max_in_flight) = state.in_flight(rovers).unzip();
        Self {
            tail: position(rovers.tail()),
            published: position(rovers.published()),
            ceiling: supply.ceiling().map(position),
            quotas: quotas
                .map(|(index, schedule)| {
                    if let Some(dry_run) = state.dry_run().filter(|dry_run| dry_run.is_dry(index)) {
                        let head = position(rovers.tail().wrapping_add(dry_run.level(index) as u64));
                        return QuotaSnapshot {
                            name: state.name(index).cloned(),
                            head,
                            ..QuotaSnapshot::in_dry_run(dry_run, index, now)
                        };
                    }
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
                        dry_run: false,
                        would_refuse: state.dry_run().map_or(0, |dry_run| dry_run.totals.refused_by[index]),
                    }
                })
                .collect(),
            waiting_tasks: state.queue.len(),
            waiting_tokens: state.waiting_tokens(),
            in_flight,
            max_in_flight,
            granted: state.granted(rovers),
            refunded: state.totals.refunded,
            refused: state.totals.refused,
            paused_for: supply.is_paused().then(|| Duration::from_nanos(supply.gate().saturating_sub(now))),
            closed: state.closed,
            lateness: Duration::from_nanos(state.totals.lateness),
            dry_run: state.dry_run().map(DryRunSnapshot::of),
        }
    }
}
