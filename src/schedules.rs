//! The quotas of one supply. Where there is only one, as nearly always, it lies inside the supply and not elsewhere: of the
//! lines of a keyed limiter none is in a cache when it is looked at, and each place they are spread over is one more wait.

use crate::Quota;
use crate::schedule::Schedule;
use std::ops::{Deref, DerefMut};

#[derive(Clone, Debug)]
pub(crate) enum Schedules {
    One([Schedule; 1]),
    Several(Box<[Schedule]>),
}

impl Schedules {
    /// Of checked quotas, whose empty buckets have their heads at `start`.
    pub(crate) fn new(quotas: &[Quota], start: u64) -> Self {
        let schedule = |quota: &Quota| Schedule::new(*quota, start, 0);
        match quotas {
            [only] => Self::One([schedule(only)]),
            several => Self::Several(several.iter().map(schedule).collect()),
        }
    }
}

impl Deref for Schedules {
    type Target = [Schedule];

    fn deref(&self) -> &[Schedule] {
        match self {
            Self::One(only) => only,
            Self::Several(several) => several,
        }
    }
}

impl DerefMut for Schedules {
    fn deref_mut(&mut self) -> &mut [Schedule] {
        match self {
            Self::One(only) => only,
            Self::Several(several) => several,
        }
    }
}
