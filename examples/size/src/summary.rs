//! The waits of a replay in a few numbers.

use crate::event::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub granted: usize,
    pub refused: usize,
    /// The median wait of the granted calls. `p99` and `max` are also those of the granted calls.
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
    /// The most callers that waited at one instant.
    pub queue: usize,
}

impl Summary {
    /// `waits` belong to `events`, one each.
    pub fn new(events: &[Event], waits: &[Option<Duration>]) -> Self {
        let mut granted: Vec<_> = waits.iter().copied().flatten().collect();
        Self {
            granted: granted.len(),
            refused: waits.len() - granted.len(),
            p50: all_but_one_in(2, &mut granted),
            p99: all_but_one_in(100, &mut granted),
            max: granted.iter().copied().max().unwrap_or_default(),
            queue: longest_queue(events, waits),
        }
    }
}

/// The smallest wait that at most one call in `parts` exceeds: exact, where a histogram would round it.
fn all_but_one_in(parts: usize, waits: &mut [Duration]) -> Duration {
    let Some(last) = waits.len().checked_sub(1) else { return Duration::ZERO };
    *waits.select_nth_unstable(last - waits.len() / parts.max(1)).1
}

fn longest_queue(events: &[Event], waits: &[Option<Duration>]) -> usize {
    let (mut granted_at, mut longest) = (BinaryHeap::new(), 0);
    for (event, wait) in events.iter().zip(waits) {
        while granted_at.peek().is_some_and(|Reverse(at)| *at <= u128::from(event.at)) {
            granted_at.pop();
        }
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            granted_at.push(Reverse(u128::from(event.at) + wait.as_nanos()));
            longest = longest.max(granted_at.len());
        }
    }
    longest
}
