//! The supply side: every head, the ceiling and the gate, and the instant they stand at. Pure: no lock, no queue, no
//! clock. The same code serves the line for real and, on a copy, foretells it.
//!
//! # The invariant, and the line that keeps it
//!
//! **Tokens granted over any window <= burst + rate x window, for each quota.** A bucket keeps it if its level, the
//! head minus what is granted, never exceeds the burst at any instant. Here every move of a head passes
//! [`Supply::bound`]:
//!
//! ```text
//! head <= max(claimed + burst, ticket of the front waiter)
//! ```
//!
//! * `claimed` is the position up to which claims are *known* to be granted by the instant `synced`. It is never ahead
//!   of the truth at that instant, so a claim the last reading of time has not seen makes the bound too low, never too
//!   high. (Clamping against the tail counts claims that still wait; when a gate opens, the whole line would pass.)
//! * Only minting for the front waiter's own cost goes above the burst. If that waiter leaves, [`Supply::cut`] burns
//!   what it had saved.
//! * Gates (ceiling, pause) hold grants back and burn nothing below the bound.
//!
//! Time moves from grant to grant ([`Supply::due`], then [`Supply::mint`] to that very instant), not straight to now:
//! minting to now first would clamp against a front that should have left long ago, or spend what had burned.

use crate::Quota;
use crate::error::Bound;
#[cfg(feature = "redis")]
use crate::lease::Feed;
use crate::rovers::{ahead, earlier, later};
use crate::schedule::Schedule;
use std::ops::{Deref, DerefMut};
use std::slice;

/// In an order that [`State`](crate::state::State) tells of.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Supply {
    /// Where the in-flight cap ends; `None` without a cap.
    ceiling: Option<u64>,
    /// Debts that lie behind waiters: in flight already, though nobody has passed them.
    debts: u64,
    /// Nobody passes before this instant.
    gate: u64,
    /// The instant all of this stands at. Never moves back, whatever the clock does.
    synced: u64,
    /// See the invariant above.
    claimed: u64,
    /// One head per quota, all minted up to `synced`.
    quotas: Quotas,
}

/// Nearly always one, which then is no wait for memory of its own.
#[derive(Clone, Debug)]
enum Quotas {
    One(Schedule),
    Many(Box<[Schedule]>),
}

impl FromIterator<Schedule> for Quotas {
    fn from_iter<I: IntoIterator<Item = Schedule>>(quotas: I) -> Self {
        let mut quotas: Vec<Schedule> = quotas.into_iter().collect();
        match quotas.pop() {
            Some(only) if quotas.is_empty() => Self::One(only),
            last => Self::Many(quotas.into_iter().chain(last).collect()),
        }
    }
}

impl Deref for Quotas {
    type Target = [Schedule];

    #[inline]
    fn deref(&self) -> &[Schedule] {
        match self {
            Self::One(only) => slice::from_ref(only),
            Self::Many(many) => many,
        }
    }
}

impl DerefMut for Quotas {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Schedule] {
        match self {
            Self::One(only) => slice::from_mut(only),
            Self::Many(many) => many,
        }
    }
}

/// A claim in the line, and the holes behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) cost: u64,
    pub(crate) skip: u64,
}

impl Supply {
    /// Checked quotas, whose empty buckets have their heads at `start`.
    pub(crate) fn new(quotas: &[Quota], cap: Option<u64>, start: u64) -> Self {
        Self {
            quotas: quotas.iter().map(|quota| Schedule::new(*quota, start, 0)).collect(),
            ceiling: cap.map(|cap| start.wrapping_add(cap)),
            debts: 0,
            gate: 0,
            synced: 0,
            claimed: start,
        }
    }

    /// One quota, whose schedule has come to `at` while everything claimed so far ends at `claimed`.
    #[cfg(feature = "keyed")]
    pub(crate) fn resume(schedule: Schedule, cap: Option<u64>, claimed: u64, at: u64) -> Self {
        let ceiling = cap.map(|cap| claimed.wrapping_add(cap));
        Self { quotas: Quotas::One(schedule), ceiling, debts: 0, gate: 0, synced: at, claimed }
    }

    /// Counts all steps from the origin of time.
    #[cfg(feature = "keyed")]
    pub(crate) fn step_from_origin(&mut self) {
        self.quotas.iter_mut().for_each(Schedule::step_from_origin);
    }

    pub(crate) fn quotas(&self) -> &[Schedule] {
        &self.quotas
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.claimed
    }

    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.synced < self.gate
    }

    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.ceiling
    }

    /// The smallest burst of all quotas.
    pub(crate) fn least_burst(&self) -> u64 {
        self.quotas.iter().map(|quota| quota.burst).min().unwrap_or(0)
    }

    /// The most that can ever be had at once.
    pub(crate) fn most_at_once(&self) -> u64 {
        self.quotas.iter().map(Schedule::most).min().unwrap_or(0)
    }

    /// Whether a claim in front that passes at `at` would take leased tokens that were all there before, and are more than
    /// may be kept unused: something else, such as a pause, has held it back.
    #[cfg(feature = "redis")]
    pub(crate) fn is_stale(&self, ticket: u64, at: u64) -> bool {
        self.quotas.iter().any(|quota| {
            quota.is_leased()
                && ahead(ticket, self.claimed.wrapping_add(quota.burst)) > 0
                && quota.passes(ticket, self.claimed.wrapping_add(quota.burst)).is_some_and(|reached| reached < at)
        })
    }

    /// Mints up to `at`, and says whether leased tokens are missing then for the front claim, which ends at `ticket`.
    #[cfg(feature = "redis")]
    pub(crate) fn falls_short(&mut self, ticket: u64, at: u64) -> bool {
        if !self.quotas.iter().any(Schedule::is_leased) {
            return false;
        }
        self.mint(at, Some(ticket));
        self.quotas.iter().any(|quota| quota.is_leased() && ahead(ticket, quota.head) > 0)
    }

    /// The front waiter's ticket is reached by what was leased, and something else holds it back: what it has saved is kept
    /// as far as a lease may be kept unused. Others count on the rest not to pass later than it was minted.
    #[cfg(feature = "redis")]
    pub(crate) fn shed(&mut self, ticket: u64) {
        let claimed = self.claimed;
        for quota in &mut *self.quotas {
            if quota.is_leased() && ahead(quota.head, ticket) >= 0 {
                quota.cut(claimed.wrapping_add(quota.burst));
            }
        }
    }

    /// Whether all but the quota of this index let a claim that ends at `ticket` pass by `soon`.
    #[cfg(feature = "redis")]
    pub(crate) fn would_pass(&self, ticket: u64, but: usize, soon: u64) -> bool {
        let mut others = self.quotas.iter().enumerate().filter(|(index, _)| *index != but);
        !self.is_capped_below(ticket) && others.all(|(_, quota)| quota.reached(ticket).is_some_and(|at| at <= soon))
    }

    /// What there is to know of the line that one of the quotas is shared through.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn feed(&self) -> Option<&Feed> {
        self.quotas.iter().find_map(Schedule::feed)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn feed_mut(&mut self) -> Option<&mut Feed> {
        self.quotas.iter_mut().find_map(Schedule::leases)?.feed.as_deref_mut()
    }

    /// Takes it out, to be put back.
    #[cfg(feature = "redis")]
    pub(crate) fn take_feed(&mut self) -> Option<Box<Feed>> {
        self.quotas.iter_mut().find_map(Schedule::leases)?.feed.take()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn put_feed(&mut self, feed: Box<Feed>) {
        if let Some(leases) = self.quotas[feed.quota].leases() {
            leases.feed = Some(feed);
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn quota_mut(&mut self, index: usize) -> &mut Schedule {
        &mut self.quotas[index]
    }

    /// How far claims may go: the nearest of all heads and the ceiling.
    pub(crate) fn limit(&self) -> u64 {
        let heads = self.quotas.iter().map(|quota| quota.head);
        heads.chain(self.ceiling).reduce(earlier).unwrap_or(self.claimed)
    }

    /// Mints everything up to `now`. `front` is the ticket of the waiter in front, if anybody waits.
    pub(crate) fn mint(&mut self, now: u64, front: Option<u64>) {
        let claimed = self.claimed;
        for quota in &mut *self.quotas {
            #[cfg(feature = "redis")]
            if quota.is_leased() {
                quota.run_out(now);
                Self::trim(quota, claimed, front);
                let full = Self::bound(claimed, quota.burst, None);
                quota.mint_leased(now, full, front.unwrap_or(full));
                continue;
            }
            quota.mint(now, Self::bound(claimed, quota.burst, front));
        }
        self.synced = self.synced.max(now);
    }

    fn bound(claimed: u64, burst: u64, front: Option<u64>) -> u64 {
        let full = claimed.wrapping_add(burst);
        front.map_or(full, |ticket| later(full, ticket))
    }

    /// The instant, not before `synced`, at which a waiter in front passes; `None` if no clock can tell.
    pub(crate) fn due(&self, ticket: u64) -> Option<u64> {
        if self.is_capped_below(ticket) { None } else { self.scheduled(ticket) }
    }

    /// The same by the schedule alone, as if there were no ceiling.
    pub(crate) fn scheduled(&self, ticket: u64) -> Option<u64> {
        let start = self.synced.max(self.gate);
        self.quotas.iter().try_fold(start, |at, quota| {
            Some(at.max(quota.passes(ticket, Self::bound(self.claimed, quota.burst, None))?))
        })
    }

    /// When a claim passes that ends at `ticket`, behind one that ends at `front`: what is saved above the bound of that one is
    /// burned by then. By the schedule alone if there may be a release `by_release`.
    pub(crate) fn due_after(&self, front: u64, ticket: u64, by_release: bool) -> Option<u64> {
        let over = |quota: &Schedule| ahead(quota.head, Self::bound(self.claimed, quota.burst, Some(front))).max(0);
        let saved = self.quotas.iter().map(over).max().unwrap_or(0);
        if !by_release && self.is_capped_below(ticket) {
            return None;
        }
        self.scheduled(ticket.wrapping_add(saved as u64))
    }

    fn is_capped_below(&self, ticket: u64) -> bool {
        self.ceiling.is_some_and(|ceiling| ahead(ticket.wrapping_add(self.debts), ceiling) > 0)
    }

    /// The next instant at which a head moves while nobody waits; `u64::MAX` if no clock can tell.
    pub(crate) fn next_mint(&self) -> u64 {
        let moving = self.quotas.iter().filter(|quota| ahead(self.claimed.wrapping_add(quota.burst), quota.head) > 0);
        moving.filter_map(|quota| quota.reached(quota.head.wrapping_add(1))).min().unwrap_or(u64::MAX)
    }

    /// The bound that holds `ticket` back longest: what no clock can tell before what one can.
    pub(crate) fn obstacle(&self, ticket: u64) -> Bound {
        if self.is_capped_below(ticket) {
            return Bound::InFlight;
        }
        let mut longest = (self.synced, Bound::Pause);
        for (index, quota) in self.quotas.iter().enumerate() {
            match quota.reached(ticket) {
                None => return Bound::Quota(index),
                Some(at) if at > longest.0 => longest = (at, Bound::Quota(index)),
                Some(_) => {}
            }
        }
        if self.gate > longest.0 { Bound::Pause } else { longest.1 }
    }

    /// The front claim was granted. The next one begins at `next`, behind the holes of cancelled ones and behind debts,
    /// which are charged by this.
    pub(crate) fn pass(&mut self, front: Stretch, next: u64) {
        self.move_on(front, next);
        self.jump(front.skip);
    }

    /// The front claim left instead of passing: it is a hole too.
    /// What was saved above the burst stays if it is for a claim that ends at `saver`.
    pub(crate) fn drop_front(&mut self, front: Stretch, next: u64, saver: Option<u64>) {
        self.move_on(front, next);
        self.jump(front.cost + front.skip);
        self.cut(saver);
    }

    fn move_on(&mut self, front: Stretch, next: u64) {
        let stretch = next.wrapping_sub(front.start);
        self.claimed = self.claimed.wrapping_add(stretch);
        self.debts -= stretch - front.cost - front.skip;
    }

    /// A debt of `n` tokens was put behind those who wait.
    pub(crate) fn owe(&mut self, n: u64) {
        self.debts += n;
    }

    /// `n` tokens of the line are nobody's: everything steps over them.
    fn jump(&mut self, n: u64) {
        for quota in &mut *self.quotas {
            quota.head = quota.head.wrapping_add(n);
        }
        self.ceiling = self.ceiling.map(|ceiling| ceiling.wrapping_add(n));
    }

    /// `n` tokens were granted, at `synced`, to a claim that has no position in the line: it was in front of all that have.
    pub(crate) fn take(&mut self, n: u64) {
        self.jump(n.wrapping_neg());
    }

    /// Moves every position by `n`, after [`retract`](crate::rovers::Rovers::retract) moved the tail.
    pub(crate) fn shift(&mut self, n: u64) {
        self.jump(n);
        self.claimed = self.claimed.wrapping_add(n);
    }

    /// Burns what stands above the bound.
    pub(crate) fn cut(&mut self, front: Option<u64>) {
        let claimed = self.claimed;
        self.quotas.iter_mut().for_each(|quota| Self::trim(quota, claimed, front));
    }

    fn trim(quota: &mut Schedule, claimed: u64, front: Option<u64>) {
        quota.cut(Self::bound(claimed, quota.burst, front.filter(|ticket| quota.saves_up(*ticket))));
    }

    /// `n` tokens were granted, at `synced`, to somebody who did not stand in the line.
    pub(crate) fn claim(&mut self, n: u64) {
        self.claimed = self.claimed.wrapping_add(n);
    }

    /// Claims up to `to` are known to be granted by `synced`.
    pub(crate) fn know_claimed(&mut self, to: u64) {
        self.claimed = later(self.claimed, to);
    }

    /// `n` granted tokens were not used: they go back, as far as the burst.
    pub(crate) fn refund(&mut self, n: u64) {
        for quota in &mut *self.quotas {
            quota.add(n, self.claimed.wrapping_add(quota.burst));
        }
    }

    /// `n` tokens by hand: to the manual quotas if there are any, else to all.
    pub(crate) fn replenish(&mut self, n: u64, front: Option<u64>) {
        let any_manual = self.quotas.iter().any(Schedule::is_manual);
        for quota in &mut *self.quotas {
            if quota.is_manual() || !any_manual && !quota.is_leased() {
                quota.add(n, Self::bound(self.claimed, quota.burst, front));
            }
        }
    }

    pub(crate) fn raise_ceiling(&mut self, n: u64) {
        self.ceiling = self.ceiling.map(|ceiling| ceiling.wrapping_add(n));
    }

    /// Moves the ceiling from `old` tokens in flight to `new` ones.
    pub(crate) fn change_cap(&mut self, old: u64, new: u64) {
        self.raise_ceiling(new.wrapping_sub(old));
    }

    pub(crate) fn pause_until(&mut self, gate: u64) {
        self.gate = self.gate.max(gate);
    }

    pub(crate) fn set_quota(&mut self, index: usize, quota: Quota, front: Option<u64>) {
        self.quotas[index].become_quota(quota, self.synced);
        self.cut(front);
    }

    /// True if the wait for a ticket is a matter of its number alone, whoever stands before it.
    pub(crate) fn is_straight(&self) -> bool {
        !self.is_paused() && matches!(&*self.quotas, [only] if only.is_gapless())
    }
}

#[cfg(all(test, feature = "redis", not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_would_pass_once_all_other_quotas_and_the_ceiling_let_it() {
        let supply = Supply::new(&[Quota::per_second(1), Quota::per_second(1_000).burst(2)], Some(10), 0);
        let soonest = |ticket, but| {
            let instants = [0, 999_999, 1_000_000, 999_999_999, 1_000_000_000, u64::MAX];
            instants.into_iter().find(|soon| supply.would_pass(ticket, but, *soon))
        };
        assert_eq!([1, 2, 3].map(|ticket| soonest(ticket, 0)), [Some(0), Some(0), Some(1_000_000)]);
        assert_eq!([1, 2].map(|ticket| soonest(ticket, 1)), [Some(0), Some(1_000_000_000)]);
        assert_eq!(
            [10, 11].map(|ticket| soonest(ticket, 0)),
            [Some(999_999_999), None],
            "8 ms, and beyond the ceiling"
        );
    }
}
