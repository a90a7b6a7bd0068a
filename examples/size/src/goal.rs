//! The goal: how long calls may wait, and how many may be refused.

use crate::share::Share;
use humantime::format_duration;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// At most one granted call in a hundred waits for longer than this.
    pub wait_p99: Option<Duration>,
    /// At most this share of all calls is refused.
    pub refuse: Share,
}

impl Goal {
    /// Whether the waits of `count` calls meet the goal. Stops at the first call after which they cannot.
    pub fn is_met(&self, count: usize, waits: impl Iterator<Item = Option<Duration>>) -> bool {
        let (most_refused, most_late) = (self.refuse.of(count), count / 100);
        let (mut refused, mut late) = (0, 0);
        for wait in waits {
            match (wait, self.wait_p99) {
                (None, _) => refused += 1,
                (Some(wait), Some(most)) if wait > most => late += 1,
                _ => {}
            }
            if refused > most_refused || late > most_late {
                return false;
            }
        }
        late <= (count - refused) / 100
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(wait) = self.wait_p99 {
            write!(f, "p99 wait at most {}, ", format_duration(wait))?;
        }
        write!(f, "at most {} refused", self.refuse)
    }
}
