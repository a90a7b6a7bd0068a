//! The result of a replay with one quota.

use crate::goal::Goal;
use crate::replay::{Candidate, Replay, Setting};
use crate::summary::Summary;
use crate::trace::Trace;
use tollgate::ConfigError;

pub struct Outcome {
    pub candidate: Candidate,
    pub summary: Summary,
    /// `None` without a goal.
    pub meets_goal: Option<bool>,
}

impl Outcome {
    /// Replays the trace.
    ///
    /// # Errors
    ///
    /// The same as [`Replay::new`].
    pub fn new(trace: &Trace, candidate: Candidate, setting: Setting, goal: Option<Goal>) -> Result<Self, ConfigError> {
        let events = &trace.events;
        let waits: Vec<_> = Replay::new(events, candidate, setting)?.collect();
        Ok(Self {
            candidate,
            summary: Summary::new(events, &waits),
            meets_goal: goal.map(|goal| goal.is_met(waits.len(), waits.iter().copied())),
        })
    }
}
