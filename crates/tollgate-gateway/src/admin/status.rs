//! The state of the gateway, for its operator.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config::problem::Problem;

#[derive(Debug)]
pub(crate) struct Status {
    began: Instant,
    began_at: u64,
    now: Mutex<StatusSnapshot>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct StatusSnapshot {
    /// True from the moment a shutdown begins.
    pub(crate) is_ending: bool,
    /// How many times limits were applied.
    pub(crate) loads: u64,
    /// The last of these times, in seconds since 1970.
    pub(crate) loaded_at: u64,
    /// How many times a file was refused.
    pub(crate) refused_loads: u64,
    /// The error in the file that was read last.
    pub(crate) problem: Option<String>,
}

impl Status {
    pub(crate) fn new() -> Self {
        let now =
            StatusSnapshot { is_ending: false, loads: 1, loaded_at: unix_time(), refused_loads: 0, problem: None };
        Self { began: Instant::now(), began_at: unix_time(), now: Mutex::new(now) }
    }

    /// The time of the start, in seconds since 1970.
    pub(crate) fn began_at(&self) -> u64 {
        self.began_at
    }

    pub(crate) fn now(&self) -> StatusSnapshot {
        self.lock().clone()
    }

    pub(crate) fn up_for(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn loaded(&self, done: Result<(), Problem>) {
        let mut now = self.lock();
        match done {
            Ok(()) => {
                now.loads += 1;
                now.loaded_at = unix_time();
                now.problem = None;
            }
            Err(problem) => {
                now.refused_loads += 1;
                now.problem = Some(problem.to_string());
            }
        }
    }

    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
    }

    fn lock(&self) -> MutexGuard<'_, StatusSnapshot> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
