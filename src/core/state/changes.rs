//! Cancellation, settling after the grant, and changes of the limiter itself.

use super::{MAX_COST, Refund, Role, State, classes_in};
use crate::core::classes::{ClassId, ROOT};
use crate::core::dry_run::DryRun;
use crate::core::outcome::Outcome;
use crate::core::queue::{LeaveResult, Place, Waiter};
use crate::core::rovers::Rovers;
use crate::error::{ConfigError, QuotaError};
use crate::quota::Quota;
use crate::which::Which;
use std::pin::Pin;
use std::task::Waker;

/// The leftovers of a claim that has left its place.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// The outcome with which the claim was called out, if its future has not taken it.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) waker: Option<Waker>,
}

impl State {
    /// Cancels a waiter behind the front, while nothing was known to be due by `now`. Only the waiter's own claim
    /// changes, so the work of `settle` and `finish` can be left to the next caller. Returns `None`, and does nothing,
    /// if these conditions do not hold.
    ///
    /// The claim counts as gone since the queue was last served: tokens that have come due for it since go to the
    /// claims behind it, which could not have had them before now.
    pub(crate) fn remove_fast(&mut self, rovers: &Rovers, place: Pin<&mut Place>, now: u64) -> Option<Waker> {
        if self.closed
            || self.queue.has_joint()
            || self.front_has_proxy()
            || self.role.has(Role::CLASSES | Role::DRY_RUN)
            || self.last_due <= now.max(self.supply.synced())
        {
            return None;
        }
        let waiter = self.queue.leave_behind_front(place)?;
        self.forget_wait(waiter.number);
        self.pass_behind_front(&waiter);
        self.forget_denial(rovers);
        Some(waiter.waker)
    }

    /// A claim behind the front, which the scheduler does not know, was cancelled: every position moves past its tokens.
    pub(super) fn pass_behind_front(&mut self, waiter: &Waiter) {
        self.supply.shift(waiter.cost);
        self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
        if let Some(rare) = &mut self.rare {
            rare.forecast.note_leave(waiter.number, waiter.debt_after);
        }
    }

    /// Empties the place of a future that is done with it, in any state.
    pub(crate) fn depart(&mut self, rovers: &Rovers, place: Pin<&mut Place>, class: ClassId) -> Departed {
        let base = self.base(rovers);
        let (waiter, is_front) = match self.queue_of(class).leave(place) {
            LeaveResult::Nothing => return Departed::default(),
            LeaveResult::Called(outcome) => return Departed { outcome: Some(outcome), ..Departed::default() },
            LeaveResult::Front(waiter) => (waiter, true),
            LeaveResult::Behind(waiter) => (waiter, false),
        };
        self.forget_wait(waiter.number);
        if self.role.has(Role::CLASSES) {
            self.leave_class(class, &waiter, is_front, base);
        } else {
            self.leave_queue(&waiter, is_front);
        }
        Departed { outcome: None, waker: Some(waiter.waker) }
    }

    /// A claim was cancelled in a limiter without classes.
    fn leave_queue(&mut self, waiter: &Waiter, is_front: bool) {
        self.leave_dry_run(waiter.number);
        if is_front && self.held().is_none() {
            self.recall_proxy();
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            return self.supply.drop_front(waiter.cost, waiter.debt_after);
        }
        if let Some(fronts) = self.joint_mut().filter(|_| is_front) {
            fronts.debt += waiter.debt_after;
        }
        self.pass_behind_front(waiter);
    }

    /// Returns tokens of a grant at the instant up to which the queue has been served.
    pub(super) fn give_back_now(&mut self, rovers: &Rovers, refund: Refund) {
        let (tokens, now) = (refund.tokens, self.supply.synced());
        self.refund_to_givers(tokens, refund.granted_at, refund.word);
        if let Some(classes) = self.classes_mut() {
            let Refund { class, uncharged, granted_at, .. } = refund;
            classes.scheduler.refund(classes.entry(class).leaf, tokens, uncharged, now, granted_at);
        }
        self.totals.refunded = self.totals.refunded.wrapping_add(tokens);
        self.release_now(rovers, tokens);
    }

    /// Charges `tokens` on top of a grant made in a class, or in a limiter without classes: as a debt at the end of its queue,
    /// or at once if no claim waits. Returns how many of them were charged: a debt is cut to what fits between the rovers.
    pub(crate) fn charge(&mut self, rovers: &Rovers, class: ClassId, tokens: u64) -> u64 {
        let tokens = tokens.min(MAX_COST).min(self.space_left(rovers));
        if let Some((dry_run, now)) = self.dry_run_now() {
            dry_run.charge(tokens, now);
        }
        rovers.claim(tokens);
        if let Some(fronts) = self.joint_mut() {
            fronts.charged = fronts.charged.wrapping_add(tokens);
        }
        let (is_clear, now) = (self.is_clear(), self.supply.synced());
        let last = if is_clear { None } else { self.queue_of(class).note_debt(tokens) };
        if is_clear {
            self.supply.claim(tokens);
        } else {
            self.supply.owe(tokens);
        }
        if let Some(classes) = classes_in(&mut self.rare) {
            let leaf = classes.entry(class).leaf;
            classes.scheduler.tree.charge_ceilings(leaf, tokens, now);
            match last {
                _ if is_clear => classes.scheduler.note_taken(tokens, now),
                Some(_) => {}
                None => classes.scheduler.add_debt(leaf, tokens, now),
            }
        } else if let Some(last) = last {
            self.rare.iter_mut().for_each(|rare| rare.forecast.note_debt(last, tokens));
        } else if let Some(fronts) = self.joint_mut().filter(|_| !is_clear) {
            fronts.debt += tokens;
        }
        tokens
    }

    /// Adds `tokens` by hand at the instant up to which the queue has been served. A front waiter with the number `end` or a
    /// higher one has not arrived yet.
    pub(super) fn replenish_now(&mut self, rovers: &Rovers, tokens: u64, end: Option<u64>) {
        let has_come = self.queue.front().is_none_or(|front| end.is_none_or(|end| front.number < end));
        let front = if has_come || self.held().is_some() { self.front_ticket(rovers) } else { None };
        self.supply.replenish(tokens, front);
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.scheduler.with_shadow(now, |shadow| shadow.replenish(tokens, None));
        }
    }

    /// Returns what is to be dropped without the lock.
    pub(crate) fn close(&mut self, rovers: &Rovers) -> Option<DryRun> {
        self.retract(rovers);
        let forgotten = self.dry_run_now().map(|(dry_run, now)| dry_run.close(now));
        self.closed = true;
        self.classes_mut().into_iter().for_each(|classes| classes.closing.push(ROOT..classes.len()));
        self.review_all_fronts();
        forgotten
    }

    pub(crate) fn set_quota(&mut self, rovers: &Rovers, which: Which<'_>, quota: Quota) -> Result<(), ConfigError> {
        let index = self.find_quota(which)?;
        let checked = quota.check().and_then(|()| self.check_change(index, quota));
        checked.map_err(|reason| reason.of(index, self.name(index).map(|name| &**name)))?;
        self.check_ceilings(index, quota)?;
        self.retract(rovers);
        if let Some((dry_run, now)) = self.dry_run_now() {
            dry_run.set_quota(index, quota, now);
            if dry_run.is_dry(index) {
                self.supply.quota_mut(index).quota = quota;
                return Ok(());
            }
        }
        self.replacing_quotas(rovers, |supply, front| supply.set_quota(index, quota, front));
        self.note_sliding();
        self.review_all_fronts();
        let now = self.supply.synced();
        if let Some(classes) = classes_in(&mut self.rare) {
            classes.scheduler.requote(&self.supply, index, now);
        }
        self.stride.shorten(self.supply.least_burst() / 64);
        Ok(())
    }

    /// Checks whether the quota with this index may be replaced by `quota`.
    fn check_change(&self, index: usize, quota: Quota) -> Result<(), QuotaError> {
        if self.supply.quotas()[index].is_external() {
            return Err(QuotaError::DistributedQuota);
        }
        if self.role.has(Role::CLASSES) {
            return quota.check_not_sliding("classes");
        }
        if self.has_children() { quota.check_not_sliding("parent") } else { Ok(()) }
    }

    /// The index of a quota.
    pub(super) fn find_quota(&self, which: Which<'_>) -> Result<usize, ConfigError> {
        let count = self.supply.quotas().len();
        let found = match which {
            Which::Index(index) => (index < count).then_some(index),
            Which::Name(name) => (0..count).find(|index| self.name(*index).is_some_and(|known| **known == *name)),
        };
        found.ok_or_else(|| ConfigError::UnknownQuota { which: which.to_string(), count })
    }

    /// Replaces all quotas by checked ones; see [`Supply::replace_quotas`](crate::core::supply::Supply::replace_quotas).
    /// The periods of stepped quotas are counted from the origin of time.
    pub(crate) fn replace_quotas(&mut self, rovers: &Rovers, quotas: &[Quota]) {
        self.retract(rovers);
        self.replacing_quotas(rovers, |supply, front| supply.replace_quotas(quotas.iter().copied(), front));
        self.supply.step_from_origin();
        self.review_all_fronts();
        self.replace_quotas_in_dry_run(quotas);
        self.note_sliding();
        self.stride.shorten(self.supply.least_burst() / 64);
    }

    pub(crate) fn set_max_in_flight(&mut self, rovers: &Rovers, tokens: u64) -> Result<(), ConfigError> {
        self.retract(rovers);
        let cap = self.cap.as_mut().ok_or(ConfigError::NotCapped)?;
        self.supply.raise_ceiling(tokens.wrapping_sub(cap.tokens));
        cap.tokens = tokens;
        self.review_all_fronts();
        Ok(())
    }
}
