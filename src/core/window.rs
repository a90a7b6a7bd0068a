//! The window of a sliding quota: the tokens granted within the last period, by the instants at which they come back.
//!
//! **What this file guarantees:** no token comes back before one period has passed since its grant. Tokens come back in
//! the order of their grants. A grant is known to be in the window or not, whatever was refunded meanwhile.
//!
//! # Refunds
//!
//! A refund takes tokens out of the window from its oldest end, as long as the tokens of its own grant have not come
//! back. So for any instant, the window holds at least the grants made since then, less their refunds: only refunds of
//! those grants can have taken more than what is older. From the latest end, a refund of an old grant would let tokens
//! of a later one, which are used, come back with the old one.

use std::collections::VecDeque;

/// The most slots. With this many, each a 32nd of a period wide, the oldest comes back before another one begins.
const MOST: usize = 33;

/// Tokens that come back together.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When they come back, in nanoseconds: one period after the last of their grants, or a little later. `u64::MAX` if
    /// that is beyond the end of time.
    back_at: u64,
    tokens: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Window {
    period: u64,
    /// Grants of one multiple of so many nanoseconds share a slot.
    width: u64,
    /// The instant up to which the window is advanced.
    now: u64,
    /// The tokens of all slots.
    pub(crate) used: u64,
    /// The tokens of each grant made before this instant have come back.
    known_from: u64,
    /// The oldest grants first.
    slots: VecDeque<Slot>,
}

impl Window {
    pub(crate) fn new(amount: u64, period: u64, now: u64) -> Self {
        let width = if amount <= MOST as u64 { 1 } else { period.div_ceil(MOST as u64 - 1) };
        Self { period, width, now, used: 0, known_from: 0, slots: VecDeque::with_capacity(MOST) }
    }

    /// A window in which `used` tokens count as granted now, for which no refund counts.
    pub(crate) fn with_used(amount: u64, period: u64, now: u64, used: u64) -> Self {
        let mut window = Self { known_from: now, ..Self::new(amount, period, now) };
        window.grant(used);
        window
    }

    /// Adds tokens that were granted by the instant up to which the window is advanced.
    pub(crate) fn grant(&mut self, tokens: u64) {
        self.grant_at(self.now, tokens);
    }

    fn grant_at(&mut self, at: u64, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.used += tokens;
        let back_at = self.back_at(at);
        let is_full = self.slots.len() == MOST;
        match self.slots.back_mut() {
            Some(last) if last.back_at >= back_at || is_full => {
                *last = Slot { back_at: last.back_at.max(back_at), tokens: last.tokens + tokens };
            }
            _ => self.slots.push_back(Slot { back_at, tokens }),
        }
    }

    /// When tokens that are granted at `at` come back.
    fn back_at(&self, at: u64) -> u64 {
        at.checked_next_multiple_of(self.width).map_or(u64::MAX, |end| end.saturating_add(self.period))
    }

    /// Takes out the latest tokens, which were granted elsewhere only.
    pub(crate) fn retract(&mut self, tokens: u64) {
        let mut left = tokens.min(self.used);
        self.used -= left;
        while let Some(last) = self.slots.back_mut().filter(|_| left > 0) {
            let part = left.min(last.tokens);
            (left, last.tokens) = (left - part, last.tokens - part);
            if last.tokens == 0 {
                self.slots.pop_back();
            }
        }
    }

    /// Advances to `now`: tokens come back.
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some(first) = self.slots.front().filter(|first| first.back_at <= self.now) {
            self.used -= first.tokens;
            self.known_from = self.known_from.max(first.back_at.saturating_sub(self.period).saturating_add(1));
            self.slots.pop_front();
        }
    }

    /// Whether the tokens of a grant made at this instant have not come back.
    pub(crate) fn has(&self, granted_at: Option<u64>) -> bool {
        granted_at.is_some_and(|at| at >= self.known_from)
    }

    /// Takes out the oldest tokens, up to `tokens` of them. Returns how many.
    pub(crate) fn free(&mut self, tokens: u64) -> u64 {
        let freed = tokens.min(self.used);
        self.used -= freed;
        let mut left = freed;
        while let Some(first) = self.slots.front_mut().filter(|_| left > 0) {
            let part = left.min(first.tokens);
            (left, first.tokens) = (left - part, first.tokens - part);
            if first.tokens == 0 {
                self.slots.pop_front();
            }
        }
        freed
    }

    /// The instant at which `need` tokens have come back, if `unseen` tokens more were granted by now. With fewer tokens in
    /// the window, it is the instant at which the window is empty. `None` if that is beyond the end of time.
    pub(crate) fn back(&self, need: u64, unseen: u64) -> Option<u64> {
        let (mut left, mut at) = (need, 0);
        let unseen_at = if unseen > 0 { self.back_at(self.now) } else { 0 };
        for (index, slot) in self.slots.iter().enumerate() {
            // The last of all slots takes the unseen tokens too.
            at = if index == MOST - 1 { slot.back_at.max(unseen_at) } else { slot.back_at };
            left = left.saturating_sub(slot.tokens);
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            at = at.max(unseen_at);
        }
        Some(at).filter(|at| *at < u64::MAX)
    }

    /// The longest time until a token that is granted now comes back, unless the period changes.
    pub(crate) fn longest(&self) -> Option<u64> {
        self.period.checked_add(self.width - 1)
    }

    /// This window, with the `amount` and the period of another quota from now on. What is in it stays in it for the new
    /// period.
    pub(crate) fn resized(&self, amount: u64, period: u64) -> Self {
        let mut window = Self { known_from: self.known_from, used: self.used, ..Self::new(amount, period, self.now) };
        // Slots within one multiple of `width` are joined. It is a power of two, so such a multiple lies within one
        // multiple of each larger width: tokens come back two widths later at most, however often the period changes.
        let width = i128::from(window.width.next_power_of_two());
        let mut last_end = None;
        for slot in &self.slots {
            // A restored window has tokens that were granted before the origin of time. If tokens come back after the end
            // of time, the instant of their grants is not known: it is now at the latest.
            let at = match slot.back_at {
                u64::MAX => i128::from(self.now),
                back_at => i128::from(back_at) - i128::from(self.period),
            };
            let back_at = u64::try_from((at + i128::from(period)).max(0)).unwrap_or(u64::MAX);
            let end = Some((at - 1).div_euclid(width));
            // A slot that comes back after the end of time can have a lower `end` than the one before it, which may end later
            // than now.
            match window.slots.back_mut().filter(|_| end <= last_end) {
                Some(last) => *last = Slot { back_at: last.back_at.max(back_at), tokens: last.tokens + slot.tokens },
                // Not at the end of the slot: one change after the other would move it on, and it would never come back.
                None => window.slots.push_back(Slot { back_at, tokens: slot.tokens }),
            }
            last_end = last_end.max(end);
        }
        window
    }

    /// Moves the origin of time to `now`, up to which the window is advanced.
    pub(crate) fn begin(&mut self, now: u64) {
        self.slots.iter_mut().for_each(|slot| slot.back_at -= now);
        (self.now, self.known_from) = (self.now - now, 0);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
