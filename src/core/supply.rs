//! The supply of tokens: the head of every quota, the ceiling, the gate, and the instant at which all of them stand.
//! Pure: no lock, no queue, no clock. The same code serves the queue for real and, on a copy, computes estimates.
//!
//! # The invariant, and how this file keeps it
//!
//! **For each quota and over any window, tokens granted minus tokens refunded <= burst + rate x window.** A bucket
//! keeps this invariant under two conditions. Its level, which is the head minus the tokens granted, never exceeds the
//! burst at any instant. And only time, refunds and [`Supply::replenish`] raise the level. Here [`Supply::bound`]
//! limits every move that raises a level, but for two: [`Supply::lend`] credits a joint claim with a debt that is in the
//! level already, and [`Supply::restore`] is bounded by the shadow. (A move of all positions changes no level.)
//!
//! ```text
//! head <= max(claimed + burst, ticket of the front waiter)
//! ```
//!
//! * `claimed` is the position up to which tokens are *known* to be granted, charged or set aside by `synced`. It is
//!   never ahead of the true position at that instant. So a claim that the last reading of the time has not seen makes
//!   the bound too low, never too high. (A bound that used the tail instead would count claims that still wait: while a
//!   gate is closed, the heads would rise by the cost of the whole queue, and the whole queue would pass when the gate
//!   opens.)
//! * Only minting for the front waiter's own cost goes above the burst. If that waiter leaves the queue without a
//!   grant, [`Supply::cut`] burns the tokens that it had saved. Those of a store leave the bucket for its source.
//! * The level of a sliding quota is the amount less the tokens in its [window](crate::core::window), whatever else moves.
//! * Gates (the ceiling and a pause) hold grants back and burn nothing below the bound.
//!
//! Time moves from grant to grant ([`Supply::due`], then [`Supply::mint`] to that exact instant), not straight to now.
//! Minting straight to now would be wrong in two ways: it would limit the heads by a front waiter that should have left
//! long ago, or it would let later claims spend tokens that had burned by then.

mod aside;
mod behind;
mod calendars;
mod changes;
mod external;
mod quotas;

use crate::core::rovers::{ahead, earlier, later};
use crate::core::schedule::Schedule;
use crate::error::Bound;
use crate::quota::{MAX_BURST, Quota};
use quotas::Quotas;

/// [`State`](crate::core::state::State) explains the order of the fields.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Supply {
    /// The position at which the in-flight cap ends; `None` without a cap.
    ceiling: Option<u64>,
    /// Tokens of debts that wait to be paid. They count as in flight already, although no grant has passed their positions.
    debts: u64,
    /// Tokens that are taken for claims that are not granted yet, with classes. They are not in flight yet: the ceiling is
    /// later by as many.
    set_aside: u64,
    /// The end of the pause: no claim passes before this instant, in nanoseconds. 0 if there was no pause.
    gate: u64,
    /// The instant, in nanoseconds, up to which everything here is advanced. Never moves back, even if the clock does.
    synced: u64,
    /// Tokens up to this position are known to be taken by `synced`; see the invariant above.
    claimed: u64,
    /// Counts the changes made by anything other than time and grants in queue order. A forecast made before such a
    /// change does not hold any more.
    changes: u64,
    /// One schedule with its head per quota, all minted up to `synced`.
    quotas: Quotas,
}

impl Supply {
    /// Creates a supply from checked quotas. Their buckets are empty when their heads are at `start`.
    pub(crate) fn new(quotas: &[Quota], cap: Option<u64>, start: u64) -> Self {
        Self::from_schedules(quotas.iter().map(|quota| Schedule::new(*quota, start, 0)), cap, start, 0)
    }

    /// Creates a supply with these quotas, minted up to `at`, when everything claimed so far ends at `claimed`.
    pub(crate) fn from_schedules(
        schedules: impl Iterator<Item = Schedule>,
        cap: Option<u64>,
        claimed: u64,
        at: u64,
    ) -> Self {
        let ceiling = cap.map(|cap| claimed.wrapping_add(cap));
        Self { quotas: schedules.collect(), ceiling, debts: 0, set_aside: 0, gate: 0, synced: at, claimed, changes: 0 }
    }

    /// Counts the periods of stepped quotas from the origin of time.
    pub(crate) fn step_from_origin(&mut self) {
        let now = self.synced;
        self.quotas.iter_mut().for_each(|quota| quota.step_from_origin(now));
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

    /// The number of changes so far that invalidate forecasts; see the field.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Declares every forecast made before as void.
    pub(crate) fn note_change(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.synced < self.gate
    }

    /// The position at which the in-flight cap ends, as if nothing were set aside.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.ceiling.map(|ceiling| ceiling.wrapping_sub(self.set_aside))
    }

    /// The smallest burst of all quotas; without a quota, the largest burst that there is.
    #[inline]
    pub(crate) fn least_burst(&self) -> u64 {
        self.quotas.iter().map(|quota| quota.burst).min().unwrap_or(MAX_BURST)
    }

    /// The largest number of tokens that the quotas can ever have available at once.
    pub(crate) fn most_at_once(&self) -> u64 {
        self.quotas.iter().map(Schedule::most).min().unwrap_or(MAX_BURST)
    }

    /// The index of the quota that can have the fewest tokens available at once; 0 without a quota.
    pub(crate) fn smallest(&self) -> usize {
        let smallest = self.quotas.iter().enumerate().min_by_key(|(_, quota)| quota.most());
        smallest.map_or(0, |(index, _)| index)
    }

    /// The bound that holds back claims that end at `ticket` longest; `None` if they are not held back.
    pub(crate) fn holder(&self, ticket: u64) -> Option<Bound> {
        let is_held = self.is_paused() || ahead(ticket, self.limit()) > 0;
        is_held.then(|| self.obstacle(ticket))
    }

    pub(crate) fn quota_mut(&mut self, index: usize) -> &mut Schedule {
        &mut self.quotas[index]
    }

    /// The position up to which claims may go: the earliest of all heads and the ceiling.
    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        self.earliest(self.ceiling).unwrap_or(self.claimed)
    }

    /// The earliest of all heads and `ceiling`.
    #[inline(always)]
    fn earliest(&self, ceiling: Option<u64>) -> Option<u64> {
        let head = self.quotas.iter().map(|quota| quota.head).reduce(earlier);
        head.map(|head| ceiling.map_or(head, |ceiling| earlier(head, ceiling))).or(ceiling)
    }

    /// The tokens that are there behind `end`, as far as the cap lets them go, once `granted` of those set aside are granted.
    #[inline]
    pub(crate) fn level(&self, end: u64, granted: u64) -> u64 {
        let cap_end = self.ceiling.map(|it| it.wrapping_sub(granted).wrapping_sub(self.debts));
        ahead(self.earliest(cap_end).unwrap_or(end), end).max(0) as u64
    }

    /// Mints everything up to `now`. `front` is the ticket of the front waiter, if a waiter waits.
    #[inline]
    pub(crate) fn mint(&mut self, now: u64, front: Option<u64>) {
        let claimed = self.claimed;
        for quota in &mut *self.quotas {
            if !quota.is_steady() {
                Self::mint_unsteady(quota, claimed, now, front);
                continue;
            }
            quota.mint(now, Self::bound(claimed, quota.burst, front));
        }
        self.synced = self.synced.max(now);
    }

    #[inline]
    fn bound(claimed: u64, burst: u64, front: Option<u64>) -> u64 {
        let full = claimed.wrapping_add(burst);
        front.map_or(full, |ticket| later(full, ticket))
    }

    /// The instant, not before `synced`, at which a front waiter with this ticket passes; `None` if no clock can tell.
    #[inline]
    pub(crate) fn due(&self, ticket: u64) -> Option<u64> {
        if self.is_capped_below(ticket) { None } else { self.scheduled(ticket) }
    }

    /// [`scheduled`](Self::scheduled), of a front claim of `cost` that begins at `base` and does not wait for `debt` of the
    /// tokens that are missing there.
    pub(crate) fn scheduled_with_credit(&self, base: u64, cost: u64, debt: u64) -> Option<u64> {
        let minted = self.quotas.iter().try_fold(self.synced, |at, quota| {
            let end = base.wrapping_add(cost).wrapping_sub(Self::credit(quota, base, debt));
            Some(at.max(quota.passes(end, Self::bound(self.claimed, quota.burst, None))?))
        });
        Some(minted?.max(self.gate))
    }

    /// How much of a debt a quota lends to the claims that end at `base`: what is missing. A sliding quota lends nothing,
    /// because a debt leaves its window without being paid.
    fn credit(quota: &Schedule, base: u64, debt: u64) -> u64 {
        if quota.is_sliding() { 0 } else { debt.min(ahead(base, quota.head).max(0) as u64) }
    }

    /// Each quota lends what it lacks of a `debt` for the claims that end at `base`. Returns how much.
    pub(crate) fn lend(&mut self, base: u64, debt: u64) -> Box<[u64]> {
        let lend = |quota: &mut Schedule| {
            let lent = Self::credit(quota, base, debt);
            quota.lend(lent);
            lent
        };
        self.quotas.iter_mut().map(lend).collect()
    }

    /// Each quota lends again what was taken back from it. One that has become sliding lends nothing.
    pub(crate) fn lend_again(&mut self, lent: &mut [u64]) {
        for (quota, lent) in self.quotas.iter_mut().zip(lent) {
            *lent = if quota.is_sliding() { 0 } else { *lent };
            quota.lend(*lent);
        }
    }

    /// Takes back what each quota has lent.
    pub(crate) fn take_back(&mut self, lent: &[u64]) {
        for (quota, lent) in self.quotas.iter_mut().zip(lent) {
            quota.lend(lent.wrapping_neg());
        }
    }

    /// The latest instant from which on every quota mints `cost` tokens until `at`, with an empty bucket at first. `None`
    /// if no clock can tell.
    pub(crate) fn start_by(&self, cost: u64, at: u64) -> Option<u64> {
        self.quotas.iter().try_fold(at, |start, quota| Some(start.min(quota.start_by(cost, at)?)))
    }

    /// An instant by which every quota has minted `cost` tokens, with an empty bucket at `start`. `None` if no clock can
    /// tell.
    pub(crate) fn minted_from(&self, start: u64, cost: u64) -> Option<u64> {
        self.quotas.iter().try_fold(start, |at, quota| Some(at.max(start.checked_add(quota.time_to_mint(cost)?)?)))
    }

    /// Like [`due`](Self::due), by the quotas and the pause alone, as if there were no ceiling.
    #[inline]
    pub(crate) fn scheduled(&self, ticket: u64) -> Option<u64> {
        Some(self.minted(ticket)?.max(self.gate))
    }

    /// The instant, not before `synced`, at which the quotas alone let a claim pass that ends at `ticket`; `None` if no
    /// clock can tell.
    #[inline]
    pub(crate) fn minted(&self, ticket: u64) -> Option<u64> {
        self.quotas.iter().try_fold(self.synced, |at, quota| {
            Some(at.max(quota.passes(ticket, Self::bound(self.claimed, quota.burst, None))?))
        })
    }

    /// An instant by which all claims up to `position` have passed, in any order, if they cost at most the smallest burst
    /// each. While a claim waits, a quota does not have its tokens: it is not full, and mints for what waits. `None` if that
    /// is not known.
    pub(crate) fn passed_by(&self, position: u64) -> Option<u64> {
        // One token more: during a pause, or while another quota is waited for, a quota can be full. Then it loses the fraction
        // of a token that it has now.
        let position = position.wrapping_add(1);
        self.quotas.iter().try_fold(self.synced.max(self.gate), |at, quota| {
            at.checked_add(quota.reached(position).filter(|_| quota.is_gapless())?.saturating_sub(self.synced))
        })
    }

    /// The instant before which no claim that ends at `ticket` passes, if that is known where [`scheduled`](Self::scheduled)
    /// knows no instant: the end of time, if a quota mints its tokens no earlier, or what the source of the tokens knows.
    pub(crate) fn not_before(&self, ticket: u64) -> Option<u64> {
        if self.quotas.iter().any(|quota| quota.is_beyond_time(ticket)) {
            return Some(u64::MAX);
        }
        let (quota, source) = self.source()?;
        source.not_before(u64::try_from(ahead(ticket, self.quotas[quota].head)).ok()?, self.synced)
    }

    /// Whether the cap has no space for a claim that ends at `ticket`.
    #[inline]
    pub(crate) fn is_capped_below(&self, ticket: u64) -> bool {
        self.ceiling.is_some_and(|ceiling| ahead(ticket.wrapping_add(self.debts), ceiling) > 0)
    }

    /// The next instant at which a head moves while no waiter waits; `u64::MAX` if no clock can tell.
    pub(crate) fn next_mint(&self) -> u64 {
        let moving = self.quotas.iter().filter(|quota| ahead(self.claimed.wrapping_add(quota.burst), quota.head) > 0);
        moving.filter_map(|quota| quota.reached(quota.head.wrapping_add(1))).min().unwrap_or(u64::MAX)
    }

    /// The bound that holds `ticket` back longest. A bound for which no clock can tell the end counts as longer than
    /// any other.
    pub(crate) fn obstacle(&self, ticket: u64) -> Bound {
        if self.is_capped_below(ticket) { Bound::InFlight } else { self.scheduled_obstacle(ticket) }
    }

    /// Like [`obstacle`](Self::obstacle), by the quotas and the pause alone, as if there were no ceiling.
    pub(crate) fn scheduled_obstacle(&self, ticket: u64) -> Bound {
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

    /// The front claim was granted: takes its `cost`, and charges the `debt` behind it.
    pub(crate) fn pass(&mut self, cost: u64, debt: u64) {
        self.claimed = self.claimed.wrapping_add(cost + debt);
        self.debts -= debt;
    }

    /// The front claim was cancelled or turned away: moves every position past it, charges the `debt` behind it, and
    /// burns the tokens that it had saved above the burst. External ones are for the next claim, but not during a pause.
    pub(crate) fn drop_front(&mut self, cost: u64, debt: u64) {
        self.note_change();
        self.shift(cost);
        self.pass(0, debt);
        if !self.is_paused() {
            let (claimed, now) = (self.claimed, self.synced);
            self.quotas.iter_mut().for_each(|quota| quota.hand_on(Self::bound(claimed, quota.burst, None), now));
        }
        self.cut(None);
    }

    /// Moves every position by `n`, past tokens that belong to no claim: those of a claim that has left, or those by which
    /// [`retract`](crate::core::rovers::Rovers::retract) moved the tail.
    pub(crate) fn shift(&mut self, n: u64) {
        for quota in &mut *self.quotas {
            quota.head = quota.head.wrapping_add(n);
        }
        self.ceiling = self.ceiling.map(|ceiling| ceiling.wrapping_add(n));
        self.claimed = self.claimed.wrapping_add(n);
    }

    /// Burns the tokens above the bound.
    pub(crate) fn cut(&mut self, front: Option<u64>) {
        let claimed = self.claimed;
        self.quotas.iter_mut().for_each(|quota| Self::trim(quota, claimed, front));
    }

    fn trim(quota: &mut Schedule, claimed: u64, front: Option<u64>) {
        quota.cut(Self::bound(claimed, quota.burst, front.filter(|ticket| quota.saves_up(*ticket))));
    }

    /// Records that `n` tokens were granted, at `synced`, to a claim that did not wait in the queue.
    pub(crate) fn claim(&mut self, n: u64) {
        self.claimed = self.claimed.wrapping_add(n);
    }

    /// Records that claims up to `to` are known to be granted by `synced`.
    #[inline]
    pub(crate) fn know_claimed(&mut self, to: u64) {
        if ahead(to, self.claimed) > 0 {
            self.claimed = to;
            self.note_change();
        }
    }

    /// Returns `n` tokens of a grant made at this instant that were not used, as far as the burst allows.
    pub(crate) fn refund(&mut self, n: u64, granted_at: Option<u64>) {
        self.refund_to(n, granted_at, |_, _| true);
    }

    /// Like [`refund`](Self::refund), for some of the quotas.
    pub(crate) fn refund_to(&mut self, n: u64, granted_at: Option<u64>, takes: impl Fn(usize, &Schedule) -> bool) {
        self.note_change();
        for (_, quota) in self.quotas.iter_mut().enumerate().filter(|(index, quota)| takes(*index, quota)) {
            quota.refund(n, self.debts, Self::bound(self.claimed, quota.burst, None), granted_at);
        }
    }

    /// The index and the amount of the sliding quota with the smallest amount.
    pub(crate) fn smallest_window(&self) -> Option<(usize, u64)> {
        let sliding = self.quotas.iter().enumerate().filter(|(_, quota)| quota.is_sliding());
        sliding.map(|(index, quota)| (index, quota.burst)).min_by_key(|(_, amount)| *amount)
    }

    /// Returns `n` tokens that were set aside for a claim that has left, as far as the burst and the levels in `shadow` allow:
    /// the supply without divided claims. Where its level is the bound, its fraction of a token is one too. What is granted
    /// ends at `base`.
    pub(crate) fn restore(&mut self, n: u64, base: u64, shadow: &Self) {
        self.note_change();
        for (quota, shadow_quota) in self.quotas.iter_mut().zip(&*shadow.quotas) {
            let full = base.wrapping_add(shadow_quota.burst);
            let level = ahead(shadow_quota.head, shadow.claimed);
            let most = earlier(full, base.wrapping_add_signed(level));
            quota.add(n, most);
            if ahead(quota.head, most) >= 0 {
                quota.lower_fraction(shadow_quota);
            }
        }
    }

    /// Adds `n` tokens by hand: to the manual quotas if there are any, else to all quotas without a source.
    pub(crate) fn replenish(&mut self, n: u64, front: Option<u64>) {
        self.note_change();
        let any_manual = self.has_manual();
        for quota in &mut *self.quotas {
            if quota.is_manual() || !any_manual && !quota.is_external() {
                quota.add(n, Self::bound(self.claimed, quota.burst, front));
            }
        }
    }

    /// Moves the end of the cap, also back.
    pub(crate) fn raise_ceiling(&mut self, n: u64) {
        self.ceiling = self.ceiling.map(|ceiling| ceiling.wrapping_add(n));
    }

    /// Whether a manual quota takes the tokens of [`replenish`](Self::replenish).
    pub(crate) fn has_manual(&self) -> bool {
        self.quotas.iter().any(Schedule::is_manual)
    }

    /// Notes a change if the front claim, which ends at `ticket`, could pass by `now` by the quotas and the pause
    /// alone: something that forecasts do not include holds it back.
    pub(crate) fn note_hold(&mut self, ticket: u64, now: u64) {
        if self.scheduled(ticket).is_some_and(|at| at <= now) {
            self.note_change();
        }
    }

    /// True if the wait for a ticket depends on its position alone, not on the claims before it.
    pub(crate) fn is_straight(&self) -> bool {
        let mut holding = self.quotas.iter().filter(|quota| !quota.is_open());
        !self.is_paused() && holding.next().is_none_or(Schedule::is_gapless) && holding.next().is_none()
    }
}
