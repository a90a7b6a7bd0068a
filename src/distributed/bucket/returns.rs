//! What nodes return to a bucket.

use super::{Returned, SharedBucket, exact};
use crate::distributed::LeaseRequest;

/// The most returned promises that are remembered: of more, the one whose tokens come first is lost.
const MOST_RETURNED: usize = 8;

/// The instants of a promise differ by no more than this time between node and store, in microseconds, if no clock
/// steps.
const SLACK: i64 = 100;

impl SharedBucket {
    /// Takes back what a node does not use: `back` tokens that are there, and promised ones. The last promised tokens
    /// are not promised any more, so the debt falls. Those that have later ones behind them can be promised anew, under
    /// their numbers.
    pub(super) fn take_back(&mut self, ask: &LeaseRequest, mut back: i64, held: i64) {
        let last = exact(ask.last);
        let minted = self.minted();
        let is_on_time = self.time_to(last - minted) <= exact(ask.rest) + SLACK;
        if last <= self.last && last - exact(ask.unused) >= self.void && is_on_time {
            let returned = Returned { from: (last - exact(ask.unused)).max(minted), to: last.max(minted) };
            back += exact(ask.unused) - (returned.to - returned.from);
            self.returned.push(returned);
            self.returned.sort_unstable();
        }
        while let Some(&Returned { from, .. }) = self.returned.last().filter(|returned| returned.to >= self.last) {
            self.level += self.last - from;
            self.last = from;
            self.returned.pop();
        }
        self.returned.retain(|returned| returned.from < returned.to);
        if self.returned.len() > MOST_RETURNED {
            self.returned.remove(0);
        }
        if self.level < 0 {
            self.credit += back;
        } else {
            self.level += back;
        }
        self.cut(held);
    }
}
