//! Tokens <-> time: the head of one quota, and the rule by which it moves. Integers only; no clock, no locks, no
//! waiters.
//!
//! **What this file guarantees of a continuous quota** ([`Mint`] tells about the others): after any sequence of
//! `mint(now, limit)`, the head has moved by no more than `amount x elapsed / period`, rounded down once over the whole
//! sequence (the remainder of a token is carried over), and never beyond a `limit`. `reached(ticket)` is the first
//! nanosecond at which an unlimited `mint` gets there: minting rounds down, waiting rounds up, and the two agree.
//!
//! While the head stands at its limit, the tokens that would be minted *burn*: they are discarded, and a full bucket
//! earns no credit for idle time. The remainder is kept only if the last token arrived in this very nanosecond.

mod calendar;
mod external;
mod saved_level;
mod sliding;

pub(crate) use saved_level::SavedLevel;

use crate::core::arithmetic::{gcd, mul_div, share, wait_for};
use crate::core::calendar::CalendarTime;
use crate::core::rovers::ahead;
use crate::core::source::Source;
use crate::core::window::Window;
use crate::quota::{MAX_BURST, Quota, Refill};

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

    /// Adds up to `n` tokens at once, up to `limit`.
    pub(crate) fn add(&mut self, n: u64, limit: u64) {
        if let Mint::Sliding(window) = &mut self.mint {
            // The limiter has been served up to now: all grants are in the window.
            self.head = self.head.wrapping_add(window.free(n));
            return;
        }
        let space = ahead(limit, self.head).max(0) as u64;
        self.head = self.head.wrapping_add(n.min(space));
        if let Mint::External(source) = &mut self.mint {
            source.spare(n.saturating_sub(space));
        }
    }

    /// Lends `n` tokens to a joint claim. Not for a sliding quota.
    pub(crate) fn lend(&mut self, n: u64) {
        self.head = self.head.wrapping_add(n);
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
            Mint::External(source) => source.passes(need as u64, u64::MAX),
            Mint::Sliding(window) => window.back(need as u64, 0).filter(|_| need as u64 <= window.used),
        }
    }

    /// Whether time moves the head to `ticket`, but only after the end of time.
    pub(crate) fn is_beyond_time(&self, ticket: u64) -> bool {
        let mints_by_time = matches!(self.mint, Mint::Continuous { .. } | Mint::Stepped { .. } | Mint::Calendar { .. });
        mints_by_time && self.reached(ticket).is_none()
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

    /// The latest instant such that `n` tokens are minted between it and `at`, whatever the fraction of a token is then; 0 if
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
        let mut mint = Mint::new(quota, now);
        match (&mut self.mint, &mut mint) {
            (Mint::Calendar { next: old, time: was, .. }, Mint::Calendar { next, time, .. }) if was.is_like(time) => {
                *next = *old;
                std::mem::swap(time, was);
            }
            (Mint::Continuous { period: old, rem: had, .. }, Mint::Continuous { period, rem, .. }) => {
                *rem = share(*had, *old, *period);
            }
            (Mint::Stepped { period: old, next: Some(end), .. }, Mint::Stepped { period, next, .. }) => {
                let passed = old.saturating_sub(end.saturating_sub(now));
                *next = now.checked_add(*period - share(passed, *old, *period));
            }
            (Mint::Sliding(old), Mint::Sliding(window)) => {
                **window = old.resized(quota.amount(), quota.period_nanos());
                self.head = self.head.wrapping_sub(self.burst).wrapping_add(quota.amount());
            }
            _ => {}
        }
        self.quota = quota;
        self.burst = quota.capacity();
        self.mint = mint;
        // What a sliding quota lacks is in its window from now on.
        self.slide(claimed, now);
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

    /// False if tokens come from a source, or back from a window: not as this schedule alone says.
    #[inline]
    pub(crate) fn is_steady(&self) -> bool {
        !matches!(self.mint, Mint::External(_) | Mint::Sliding(_))
    }

    /// True for a stepped quota if a limit behind the next ticket never cuts one of its steps, as long as no claim
    /// costs more than `largest`.
    pub(crate) fn keeps_steps(&self, largest: u64) -> bool {
        matches!(self.mint, Mint::Stepped { amount, .. } | Mint::Calendar { amount, .. } if largest.saturating_add(amount - 1) <= self.burst)
    }

    /// Returns `n` tokens of a grant made at `granted_at`, up to `limit`. A calendar quota takes only those of this period,
    /// and a sliding one only those in its window: none if the instant is not known. While `debts` wait, a sliding quota takes
    /// that much less: the refund may be of such a debt, which is not in the window yet.
    pub(crate) fn refund(&mut self, n: u64, debts: u64, limit: u64, granted_at: Option<u64>) {
        let (counts, debts) = match &self.mint {
            Mint::Sliding(window) => (window.has(granted_at), debts),
            Mint::Calendar { time, .. } => (time.is_of_this_period(granted_at), 0),
            Mint::External(source) => (source.takes_back(granted_at), 0),
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

    /// True if it holds back no claim: the quota is in dry run.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.mint, Mint::Open)
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
