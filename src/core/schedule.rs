//! Tokens <-> time: the head of one quota, and the rule by which it moves. Integers only; no clock, no locks, no
//! waiters.
//!
//! **What this file guarantees:** after any sequence of `mint(now, limit)`, the head has moved by no more than `amount
//! x elapsed / period`, rounded down once over the whole sequence (the remainder of a token is carried over), and never
//! beyond a `limit`. `reached(ticket)` is the first nanosecond at which an unlimited `mint` gets there: minting rounds
//! down, waiting rounds up, and the two agree.
//!
//! While the head stands at its limit, the tokens that would be minted *burn*: they are discarded, and a full bucket
//! earns no credit for idle time. The remainder is kept only if the last token arrived in this very nanosecond.

use crate::core::calendar::CalendarTime;
use crate::core::rovers::ahead;
use crate::core::source::Source;
use crate::core::window::Window;
use crate::quota::{MAX_BURST, Quota, Refill};
use std::ops::Rem;

/// The quota is the last field because it is read only when a caller asks for it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Schedule {
    /// The most tokens that may be kept: the burst of the quota, or less for external tokens.
    pub(crate) burst: u64,
    /// The position up to which tokens are minted.
    pub(crate) head: u64,
    mint: Mint,
    pub(crate) quota: Quota,
}

#[derive(Clone, Debug)]
enum Mint {
    /// `amount` tokens per `period` nanoseconds, in lowest terms. `rem < period` is the fraction of the next token, in
    /// `1/period` tokens. Minted up to the instant `stamp`.
    Continuous { amount: u64, period: u64, rem: u64, stamp: u64 },
    /// `amount` tokens at the end of each period of `period` nanoseconds. `next` is the end of the current period,
    /// `None` if it is beyond the end of time. The ends of periods never drift.
    Stepped { amount: u64, period: u64, next: Option<u64> },
    /// `amount` tokens at the beginning of each period of a calendar. `next` is that of the next period, `u64::MAX` if it is
    /// not known or beyond the end of time.
    Calendar { amount: u64, next: u64, time: Box<CalendarTime> },
    /// No tokens by time.
    Manual,
    /// As many tokens as there is space for, at any time: the quota is in dry run and holds back no claim.
    Open,
    /// The tokens that a source outside of this limiter has promised.
    External(Box<dyn Source>),
    /// The tokens that leave the window. The head is the amount ahead of everything that has left it.
    Sliding(Box<Window>),
}

/// The level of a quota at an instant, without positions or clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "state", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SavedLevel {
    /// Whole tokens; negative for a debt.
    pub(crate) tokens: i64,
    /// The fraction of the next token: how many parts of the period, in lowest terms.
    pub(crate) fraction: u64,
    /// For a stepped quota, the nanoseconds until the next step; `None` if that is beyond the end of time. For a calendar quota,
    /// the beginning of the next period in nanoseconds since 1970; `None` if it is not known.
    pub(crate) step_in: Option<u64>,
}

impl SavedLevel {
    /// The name and the value of the part that no limiter with the checked `quota` can have, if there is one.
    pub(crate) fn impossible(&self, quota: &Quota) -> Option<(&'static str, i128)> {
        let full = quota.capacity() as i64;
        let (fractions, steps) = match Mint::new(*quota, 0) {
            // A full bucket keeps the fraction that came with its last token, and no more: see `Schedule::mint`.
            Mint::Continuous { amount, period, .. } if self.tokens == full => (amount.min(period), 0),
            Mint::Continuous { period, .. } => (period, 0),
            Mint::Stepped { period, .. } => (1, period),
            Mint::Calendar { .. } => (1, u64::MAX),
            Mint::Manual | Mint::Open | Mint::External(_) | Mint::Sliding(_) => (1, 0),
        };
        let step_in = self.step_in.filter(|step_in| !(1..=steps).contains(step_in));
        // No queue owes more than 2^62 tokens.
        if !(-(1 << 62)..=full).contains(&self.tokens) {
            Some(("tokens", self.tokens.into()))
        } else if self.fraction >= fractions {
            Some(("fraction", self.fraction.into()))
        } else {
            step_in.map(|step_in| ("step_in", step_in.into()))
        }
    }
}

impl Schedule {
    /// Creates a schedule for a *checked* quota. Its bucket is empty when the head is at `start`.
    pub(crate) fn new(quota: Quota, start: u64, now: u64) -> Self {
        Self {
            quota,
            burst: quota.capacity(),
            head: start.wrapping_add(quota.filled_at_start()),
            mint: Mint::new(quota, now),
        }
    }

    /// Creates a schedule that holds back no claim, for a `quota` in dry run. Claims up to `claimed` are granted.
    pub(crate) fn open(quota: Quota, claimed: u64) -> Self {
        Self { quota, burst: MAX_BURST, head: claimed.wrapping_add(MAX_BURST), mint: Mint::Open }
    }

    /// Mints the tokens that came due by `now`, up to `limit`.
    pub(crate) fn mint(&mut self, now: u64, limit: u64) {
        let space = ahead(limit, self.head).max(0) as u64;
        let minted = match &mut self.mint {
            Mint::Continuous { amount, period, rem, stamp } => {
                let elapsed = now.saturating_sub(*stamp);
                if elapsed == 0 {
                    // The bucket is full because of a replenish, a refund, or a limit that came down, not because of
                    // minting. The fraction of the next token burns in this case too.
                    if space == 0 && *rem >= *amount {
                        *rem = 0;
                    }
                    return;
                }
                *stamp = now;
                let (minted, left) = mul_div(elapsed, *amount, *rem, *period);
                // Full before this nanosecond: `left >= amount` means that the last token came in an earlier one.
                let burned = minted > space || (minted == space && left >= *amount);
                *rem = if burned { 0 } else { left };
                minted
            }
            Mint::Stepped { amount, period, next } => match *next {
                Some(end) if end <= now => {
                    let more = (now - end) / *period;
                    *next = (end + more * *period).checked_add(*period);
                    // `end` is at least 1, so `more` is below `u64::MAX` and `more + 1` cannot overflow.
                    (more + 1).saturating_mul(*amount)
                }
                _ => 0,
            },
            Mint::Calendar { amount, next, time } => {
                if now < *next {
                    return;
                }
                let (begun, end) = time.cross(now, *next);
                *next = end;
                begun.saturating_mul(*amount)
            }
            Mint::Manual => 0,
            Mint::Open => u64::MAX,
            Mint::External(_) => return self.mint_external(now, limit, self.head),
            Mint::Sliding(_) => return self.slide(limit.wrapping_sub(self.burst), now),
        };
        self.head = self.head.wrapping_add(minted.min(space));
    }

    /// Mints external tokens up to `limit`, and beyond it all tokens that the front claim, which ends at `front`, needs
    /// if they were promised in one piece.
    pub(crate) fn mint_external(&mut self, now: u64, limit: u64, front: u64) {
        let (space, lacks) = (ahead(limit, self.head).max(0) as u64, ahead(front, self.head).max(0) as u64);
        if let Mint::External(source) = &mut self.mint {
            self.head = self.head.wrapping_add(source.mint(now, space, lacks));
        }
    }

    /// The window of a sliding quota.
    #[inline]
    fn window(&self) -> Option<&Window> {
        if let Mint::Sliding(window) = &self.mint { Some(window) } else { None }
    }

    fn window_mut(&mut self) -> Option<&mut Window> {
        if let Mint::Sliding(window) = &mut self.mint { Some(window) } else { None }
    }

    /// How many tokens up to `claimed` are not in the window yet. They were granted by the instant up to which it is
    /// advanced.
    fn unseen(&self, window: &Window, claimed: u64) -> i64 {
        let seen = self.head.wrapping_sub(window.lent).wrapping_sub(self.burst).wrapping_add(window.used);
        ahead(claimed, seen)
    }

    /// Adds all grants up to `claimed` to the window.
    fn see(&mut self, claimed: u64) {
        let unseen = self.window().map_or(0, |window| self.unseen(window, claimed));
        let full = claimed.wrapping_add(self.burst);
        if let Mint::Sliding(window) = &mut self.mint {
            if unseen >= 0 {
                window.grant(unseen.unsigned_abs());
            } else {
                // After a dry run: claims that the simulation has granted and the limiter has not.
                window.retract(unseen.unsigned_abs());
            }
            self.head = full.wrapping_add(window.lent).wrapping_sub(window.used);
        }
    }

    /// Adds all grants up to `claimed` to the window, and advances it to `now`.
    pub(crate) fn slide(&mut self, claimed: u64, now: u64) {
        self.see(claimed);
        let back = self.window_mut().map_or(0, |window| window.advance(now));
        self.head = self.head.wrapping_add(back);
    }

    /// Returns `n` tokens to a sliding quota.
    fn free(&mut self, n: u64, claimed: u64) {
        self.see(claimed);
        let freed = self.window_mut().map_or(0, |window| window.free(n));
        self.head = self.head.wrapping_add(freed);
    }

    /// Lends `n` tokens to a joint claim.
    pub(crate) fn lend(&mut self, n: u64) {
        self.head = self.head.wrapping_add(n);
        if let Some(window) = self.window_mut() {
            window.lent = window.lent.wrapping_add(n);
        }
    }

    /// Adds up to `n` tokens at once, up to `limit`.
    pub(crate) fn add(&mut self, n: u64, limit: u64) {
        if let Mint::Sliding(_) = self.mint {
            return self.free(n, limit.wrapping_sub(self.burst));
        }
        let space = ahead(limit, self.head).max(0) as u64;
        self.head = self.head.wrapping_add(n.min(space));
        match &mut self.mint {
            Mint::External(source) if n > space => source.lose(),
            _ => {}
        }
    }

    /// Lowers the accrued fraction of the next token to that of `other`, a schedule of the same quota.
    pub(crate) fn lower_fraction(&mut self, other: &Self) {
        if let (Mint::Continuous { rem, .. }, Mint::Continuous { rem: most, .. }) = (&mut self.mint, &other.mint) {
            *rem = (*rem).min(*most);
        }
    }

    /// Burns the tokens beyond `limit`.
    pub(crate) fn cut(&mut self, limit: u64) {
        if ahead(self.head, limit) > 0 && !self.is_sliding() {
            if let Mint::External(source) = &mut self.mint {
                source.spare(ahead(self.head, limit) as u64);
            }
            self.head = limit;
            if let Mint::Continuous { rem, .. } = &mut self.mint {
                *rem = 0;
            }
        }
    }

    /// The same for external tokens that came long ago.
    pub(crate) fn burn(&mut self, limit: u64) {
        if ahead(self.head, limit) <= 0 {
            return;
        }
        if let Mint::External(source) = &mut self.mint {
            source.lose();
            self.head = limit;
        }
    }

    /// The instant at which the head reaches `ticket` if nothing limits it. 0 if it has reached it already. `None` if
    /// time alone does not move the head that far, or if the instant is beyond the end of time (584 years).
    pub(crate) fn reached(&self, ticket: u64) -> Option<u64> {
        let need = ahead(ticket, self.head);
        if need <= 0 {
            return Some(0);
        }
        match &self.mint {
            &Mint::Continuous { amount, period, rem, stamp } => {
                stamp.checked_add(wait_for(need as u64, period, rem, amount)?)
            }
            Mint::Calendar { amount, next, time } => match (need as u64).div_ceil(*amount) {
                1 => Some(*next).filter(|next| *next != u64::MAX),
                periods => time.nth(periods),
            },
            &Mint::Stepped { amount, period, next } => {
                let steps = (need as u64).div_ceil(amount);
                next?.checked_add((steps - 1).checked_mul(period)?)
            }
            Mint::Manual => None,
            Mint::Open => Some(0),
            Mint::External(source) => Self::promised(&**source, need as u64),
            Mint::Sliding(window) => window.back(need as u64, 0).filter(|_| need as u64 <= window.used),
        }
    }

    /// Whether time moves the head to `ticket`, but only after the end of time.
    pub(crate) fn is_beyond_time(&self, ticket: u64) -> bool {
        let mints_by_time = matches!(self.mint, Mint::Continuous { .. } | Mint::Stepped { .. } | Mint::Calendar { .. });
        mints_by_time && self.reached(ticket).is_none()
    }

    /// The instant at which `need` more external tokens will have been minted.
    #[cold]
    fn promised(source: &dyn Source, need: u64) -> Option<u64> {
        source.passes(need, u64::MAX)
    }

    /// The instant at which a front claim that ends at `ticket` passes, if tokens are otherwise kept only up to
    /// `limit`. It is later than `reached` if external tokens were promised in several pieces, or if claims are not in the
    /// window yet.
    #[inline]
    pub(crate) fn passes(&self, ticket: u64, limit: u64) -> Option<u64> {
        if self.is_steady() { self.reached(ticket) } else { self.passes_unsteady(ticket, limit) }
    }

    #[cold]
    fn passes_unsteady(&self, ticket: u64, limit: u64) -> Option<u64> {
        let need = ahead(ticket, self.head);
        if need <= 0 {
            return Some(0);
        }
        match &self.mint {
            Mint::External(source) => source.passes(need as u64, ahead(limit, self.head).max(0) as u64),
            Mint::Sliding(window) => {
                let unseen = self.unseen(window, limit.wrapping_sub(self.burst));
                window.back(need as u64, unseen.max(0) as u64)
            }
            _ => self.reached(ticket),
        }
    }

    /// The longest time, in nanoseconds, until `n` tokens have been minted. `None` if no clock can tell.
    pub(crate) fn time_to_mint(&self, n: u64) -> Option<u64> {
        match &self.mint {
            &Mint::Continuous { amount, period, .. } => wait_for(n, period, 0, amount),
            &Mint::Stepped { amount, period, .. } => n.div_ceil(amount).checked_mul(period),
            Mint::Calendar { amount, time, .. } => time.longest(n.div_ceil(*amount)),
            Mint::Open => Some(0),
            Mint::Sliding(window) => window.longest(),
            Mint::Manual | Mint::External(_) => None,
        }
    }

    /// The latest instant from which on `n` tokens are minted until `at`, whatever the fraction of a token is then; 0 if
    /// that has passed. `None` if no clock can tell.
    pub(crate) fn start_by(&self, n: u64, at: u64) -> Option<u64> {
        let span = self.time_to_mint(n)?;
        match &self.mint {
            Mint::Calendar { amount, time, .. } => {
                Some(time.last_begun_by(at, n.div_ceil(*amount)).unwrap_or(0).saturating_sub(1))
            }
            &Mint::Stepped { period, next, .. } => {
                // From just before the first of the steps that are needed, up to the last one by `at`.
                let Some(steps) = next.and_then(|next| at.checked_sub(next)).map(|rest| rest / period) else {
                    return Some(0);
                };
                let last = next.unwrap_or(0) + steps * period;
                Some(last.saturating_add(period).saturating_sub(span).saturating_sub(1))
            }
            _ => Some(at.saturating_sub(span)),
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

    /// Replaces the quota by `quota` at `now`; the old quota has been minted up to `now`.
    ///
    /// The level stays. If both quotas are continuous, the fraction of a token stays too. If both are stepped, the
    /// share of the period that has passed stays, and with the same period its end. If the kind of refill changes,
    /// refilling begins anew: the incomplete part of a step must not become tokens, or more than the burst and one step
    /// would pass around the change. A quota that becomes sliding counts the tokens that it lacks as granted now. If both
    /// are sliding, the tokens in the window stay instead of the level. `claimed` is the end of all grants.
    ///
    /// Both shares are rounded down, so a change mints nothing early. It loses less than the new quota mints in a
    /// nanosecond, and nothing if the period stays the same.
    pub(crate) fn become_quota(&mut self, quota: Quota, claimed: u64, now: u64) {
        self.see(claimed);
        let mut mint = Mint::new(quota, now);
        match (&mut self.mint, &mut mint) {
            (Mint::Calendar { next: old, time: was, .. }, Mint::Calendar { next, time, .. }) if was.is_like(time) => {
                *next = *old;
                std::mem::swap(time, was);
            }
            (Mint::Continuous { period: old, rem: had, .. }, Mint::Continuous { period, rem, .. }) => {
                *rem = share(*had, *old, *period);
            }
            (Mint::Stepped { period: old, next: end, .. }, Mint::Stepped { period, next, .. }) => {
                if old == period {
                    *next = *end;
                } else if let Some(end) = end {
                    let passed = old.saturating_sub(end.saturating_sub(now));
                    *next = now.checked_add(*period - share(passed, *old, *period));
                }
            }
            (Mint::Sliding(old), Mint::Sliding(window)) => {
                **window = old.resized(quota.amount(), quota.period_nanos());
                self.head = self.head.wrapping_sub(self.burst).wrapping_add(quota.amount());
                self.head = self.head.wrapping_add(window.advance(now));
            }
            (_, Mint::Sliding(window)) => {
                let amount = quota.amount();
                let level = ahead(self.head, claimed).min(amount as i64);
                **window = Window::with_used(amount, quota.period_nanos(), now, (amount as i64 - level) as u64);
                self.head = claimed.wrapping_add_signed(level);
            }
            _ => {}
        }
        self.quota = quota;
        self.burst = quota.capacity();
        self.mint = mint;
    }

    /// Creates a schedule with its head at `head`, plus `fraction` of a token, as of `now`. Steps are counted from
    /// the origin of time.
    pub(crate) fn from_level(quota: Quota, head: u64, fraction: u64, now: u64) -> Self {
        let mut schedule = Self { head, ..Self::new(quota, head, now) };
        if let Mint::Continuous { rem, .. } = &mut schedule.mint {
            *rem = fraction;
        }
        schedule.step_from_origin(now);
        schedule
    }

    /// Creates the schedule of a limiter that is built now, from one that was at `saved` some `offline` nanoseconds
    /// ago, when everything claimed so far ended at `claimed`.
    pub(crate) fn restored(quota: Quota, saved: SavedLevel, claimed: u64, offline: u64) -> Self {
        // The schedule is created as of the instant of saving, and then advanced to now, which becomes the new origin.
        let mut schedule = Self::new(quota, claimed, 0);
        schedule.head = claimed.wrapping_add_signed(saved.tokens);
        match &mut schedule.mint {
            Mint::Continuous { rem, .. } => *rem = saved.fraction,
            Mint::Stepped { next, .. } => *next = saved.step_in,
            Mint::Calendar { time, .. } => saved.step_in.into_iter().for_each(|next| time.restore(next)),
            // The instants of its grants are not saved: they count as made when the level was.
            Mint::Sliding(window) => {
                let (amount, period) = (quota.amount(), quota.period_nanos());
                **window = Window::with_used(amount, period, 0, (amount as i64 - saved.tokens) as u64);
            }
            Mint::Manual | Mint::Open | Mint::External(_) => {}
        }
        schedule.mint(offline, claimed.wrapping_add(quota.capacity()));
        match &mut schedule.mint {
            Mint::Continuous { stamp, .. } => *stamp -= offline,
            Mint::Stepped { next, .. } => *next = next.map(|next| next - offline),
            Mint::Sliding(window) => window.begin(offline),
            Mint::Calendar { .. } | Mint::Manual | Mint::Open | Mint::External(_) => {}
        }
        schedule
    }

    /// This schedule at `now`, up to which it has been minted, when everything granted so far ends at `granted`. A quota in
    /// dry run is saved as full.
    pub(crate) fn saved(&self, granted: u64, now: u64) -> SavedLevel {
        let (tokens, full) = (ahead(self.head, granted), self.quota.capacity() as i64);
        let begun = if let Mint::Open = self.mint { &Mint::new(self.quota, now) } else { &self.mint };
        let step_in = match begun {
            Mint::Stepped { next, .. } => next.map(|next| next.saturating_sub(now)),
            Mint::Calendar { time, .. } => time.next_on_wall(),
            _ => None,
        };
        if tokens > full {
            // The tokens above the burst were saved up for the front waiter, which is not a part of the saved state.
            return SavedLevel { tokens: full, fraction: 0, step_in };
        }
        SavedLevel { tokens, fraction: self.fraction(), step_in }
    }

    /// Counts steps from the origin of time, not from the instant at which the quota was set. The steps up to `now`
    /// have been minted.
    pub(crate) fn step_from_origin(&mut self, now: u64) {
        if let Mint::Stepped { period, next, .. } = &mut self.mint {
            *next = (now - now % *period).checked_add(*period);
        }
    }

    /// The fraction of the next token: in parts of the period, in lowest terms.
    pub(crate) fn fraction(&self) -> u64 {
        if let Mint::Continuous { rem, .. } = self.mint { rem } else { 0 }
    }

    /// The largest number of tokens that can ever be available at once.
    pub(crate) fn most(&self) -> u64 {
        if let Mint::Open = self.mint {
            return MAX_BURST;
        }
        self.source().map_or_else(|| self.quota.capacity(), Source::most_at_once)
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.mint, Mint::Manual)
    }

    pub(crate) fn is_sliding(&self) -> bool {
        self.window().is_some()
    }

    /// False if tokens come from a source, or back from a window: not as this schedule alone says.
    #[inline]
    pub(crate) fn is_steady(&self) -> bool {
        !matches!(self.mint, Mint::External(_) | Mint::Sliding(_))
    }

    /// True if only tokens arrive that a source outside of this limiter has promised.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.mint, Mint::External(_))
    }

    /// True for a stepped quota if a limit behind the next ticket never cuts one of its steps, as long as no claim
    /// costs more than `largest`.
    pub(crate) fn keeps_steps(&self, largest: u64) -> bool {
        matches!(self.mint, Mint::Stepped { amount, .. } | Mint::Calendar { amount, .. } if largest.saturating_add(amount - 1) <= self.burst)
    }

    /// The periods of a calendar quota.
    pub(crate) fn calendar(&self) -> Option<&CalendarTime> {
        if let Mint::Calendar { time, .. } = &self.mint { Some(time) } else { None }
    }

    /// When the next period of a calendar quota begins.
    pub(crate) fn next_period(&self) -> u64 {
        if let Mint::Calendar { next, .. } = &self.mint { *next } else { u64::MAX }
    }

    /// Sets the periods of a calendar quota, the next of which begins at `at`.
    pub(crate) fn set_periods(&mut self, periods: CalendarTime, at: u64) {
        if let Mint::Calendar { next, time, .. } = &mut self.mint {
            (*next, **time) = (at, periods);
        }
    }

    /// The instant until which nothing of the wall clock has to be known anew; `u64::MAX` without a calendar.
    pub(crate) fn fresh_until(&self) -> u64 {
        if let Mint::Calendar { next, time, .. } = &self.mint { time.fresh_until(*next) } else { u64::MAX }
    }

    /// The wall clock was read at `now`; see [`CalendarTime::look`]. Returns whether the beginning of the next period has
    /// changed.
    pub(crate) fn look(&mut self, now: u64, offset: Option<i128>, synced: u64) -> bool {
        let Mint::Calendar { next, time, .. } = &mut self.mint else { return false };
        let changed = time.look(now, offset, synced).filter(|at| at != next);
        changed.into_iter().for_each(|at| *next = at);
        changed.is_some()
    }

    /// Returns `n` tokens of a grant made at `granted_at`, up to `limit`. A calendar quota takes only those of this period,
    /// and a sliding one only those in its window: none if the instant is not known. While `debts` wait, a sliding quota takes
    /// that much less: the refund may be of such a debt, which is not in the window yet.
    pub(crate) fn refund(&mut self, n: u64, debts: u64, limit: u64, granted_at: Option<u64>) {
        let (counts, debts) = match &self.mint {
            Mint::Sliding(window) => (window.has(granted_at), debts),
            Mint::Calendar { time, .. } => (time.is_of_this_period(granted_at), 0),
            _ => (true, 0),
        };
        if counts {
            self.add(n.saturating_sub(debts), limit);
        }
    }

    /// For a continuous quota: how many tokens it mints in how many nanoseconds, in lowest terms.
    pub(crate) fn pace(&self) -> Option<(u64, u64)> {
        if let Mint::Continuous { amount, period, .. } = self.mint { Some((amount, period)) } else { None }
    }

    /// True if the head stops at every position on its way: a limit beyond the next ticket then never cuts anything.
    pub(crate) fn is_gapless(&self) -> bool {
        matches!(self.mint, Mint::Continuous { amount, period, .. } if amount <= period)
    }
}

impl Mint {
    fn new(quota: Quota, now: u64) -> Self {
        match quota.refill() {
            Refill::Manual => Self::Manual,
            Refill::Calendar(calendar) => {
                let time = CalendarTime::new(calendar, &quota);
                Self::Calendar { amount: quota.amount(), next: u64::MAX, time: Box::new(time) }
            }
            Refill::Stepped => {
                let period = quota.period_nanos();
                Self::Stepped { amount: quota.amount(), period, next: now.checked_add(period) }
            }
            Refill::Continuous => {
                let (amount, period) = (quota.amount(), quota.period_nanos());
                let common = gcd(amount, period);
                Self::Continuous { amount: amount / common, period: period / common, rem: 0, stamp: now }
            }
            Refill::Sliding => {
                let (amount, missing) = (quota.amount(), quota.amount() - quota.filled_at_start());
                Self::Sliding(Box::new(Window::with_used(amount, quota.period_nanos(), now, missing)))
            }
        }
    }
}

/// `(a * b + c) / d`, saturating, and the remainder.
pub(crate) fn mul_div(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    // The common case fits in 64 bits, where a division is much cheaper than in 128 bits.
    if let Some(sum) = a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        return (sum / d, sum % d);
    }
    let (sum, d) = (a as u128 * b as u128 + c as u128, d as u128);
    (u64::try_from(sum / d).unwrap_or(u64::MAX), (sum % d) as u64)
}

/// The same share of `new` as `part` is of `old`, rounded down. `part < old`, so the result is below `new`.
fn share(part: u64, old: u64, new: u64) -> u64 {
    (part as u128 * new as u128 / old as u128) as u64
}

/// `(need * period - rem) / amount`, rounded up; `rem < period`.
pub(crate) fn wait_for(need: u64, period: u64, rem: u64, amount: u64) -> Option<u64> {
    if let Some(product) = need.checked_mul(period) {
        return Some((product - rem).div_ceil(amount));
    }
    let wait = (need as u128 * period as u128 - rem as u128).div_ceil(amount as u128);
    u64::try_from(wait).ok()
}

pub(crate) fn gcd<N: Copy + Default + PartialEq + Rem<Output = N>>(a: N, b: N) -> N {
    if b == N::default() { a } else { gcd(b, a % b) }
}
