//! Quotas whose tokens come from a [`Source`].

use super::{Mint, Schedule};
use crate::core::rovers::ahead;
use crate::core::source::Source;

impl Schedule {
    /// Mints external tokens up to `limit`, and beyond it all tokens that the front claim, which ends at `front`, needs
    /// if they were promised in one piece.
    pub(crate) fn mint_external(&mut self, now: u64, limit: u64, front: u64) {
        let (space, lacks) = (ahead(limit, self.head).max(0) as u64, ahead(front, self.head).max(0) as u64);
        if let Mint::External(source) = &mut self.mint {
            self.head = self.head.wrapping_add(source.mint(now, space, lacks));
        }
    }

    /// Burns external tokens beyond `limit`, which came long ago, if all that end at `ticket` are here.
    pub(crate) fn shed(&mut self, ticket: u64, limit: u64) {
        if let Mint::External(source) = &mut self.mint {
            if ahead(self.head, ticket) >= 0 && ahead(self.head, limit) > 0 {
                source.call_task();
                self.head = limit;
            }
        }
    }

    /// The front claim has left: the external tokens beyond `limit`, which it had saved, come for the next one.
    pub(crate) fn hand_on(&mut self, limit: u64, now: u64) {
        if let Mint::External(source) = &mut self.mint {
            let saved = ahead(self.head, limit).max(0);
            source.hand_on(saved as u64, now);
            self.head = self.head.wrapping_add_signed(-saved);
        }
    }

    /// Makes the tokens come from `source` from now on. The bucket holds nothing until the source allows it.
    pub(crate) fn become_external(&mut self, source: Box<dyn Source>, start: u64) {
        (self.head, self.burst) = (start, 0);
        self.mint = Mint::External(source);
    }

    /// Lowers the burst once external tokens may not be kept any longer.
    pub(crate) fn run_out(&mut self, now: u64) {
        if let Mint::External(source) = &self.mint {
            self.burst = source.kept(self.burst, now);
        }
    }

    /// Whether tokens beyond the limit may be kept for a front claim that ends at `ticket`. External tokens may only if
    /// the next ones complete the claim.
    pub(crate) fn saves_up(&self, ticket: u64) -> bool {
        let Mint::External(source) = &self.mint else { return true };
        source.completes(ahead(ticket, self.head).max(0) as u64)
    }

    #[inline]
    pub(crate) fn source(&self) -> Option<&dyn Source> {
        if let Mint::External(source) = &self.mint { Some(&**source) } else { None }
    }

    pub(crate) fn source_mut(&mut self) -> Option<&mut dyn Source> {
        if let Mint::External(source) = &mut self.mint { Some(&mut **source) } else { None }
    }

    /// True if only tokens arrive that a source outside of this limiter has promised.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.mint, Mint::External(_))
    }
}
