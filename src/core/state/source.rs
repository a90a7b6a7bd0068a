//! A quota with tokens from an external [`Source`]: when its task has to be woken, and
//! which claims fail.

use super::{Role, State};
use crate::core::outcome::{CutOff, Outcome};
use crate::core::rovers::{Rovers, ahead};
use crate::core::source::Source;
use crate::core::wakes::Wakes;
use crate::error::Bound;
use std::task::Waker;

impl State {
    /// Makes the tokens of one of the quotas come from `source`, and empties its bucket.
    pub(crate) fn use_source(&mut self, index: usize, source: Box<dyn Source>, start: u64) {
        self.role.add(Role::SOURCE);
        self.supply.quota_mut(index).become_external(source, start);
    }

    /// Wakes the source's task if it has to look. Returns false if there is no space for its waker.
    #[inline]
    pub(super) fn wake_source(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        !self.is_hungry(rovers) || self.wake_source_task(wakes)
    }

    #[cold]
    fn wake_source_task(&mut self, wakes: &mut Wakes) -> bool {
        if wakes.is_full() {
            return false;
        }
        if let Some(waker) = self.supply.source_mut().and_then(Source::take_waker) {
            wakes.push(waker);
        }
        true
    }

    #[inline]
    pub(crate) fn has_source(&self) -> bool {
        self.role.has(Role::SOURCE)
    }

    /// The claim with this number has left its queue.
    #[inline]
    pub(super) fn forget_wait(&mut self, number: u64) {
        if self.role.has(Role::SOURCE) {
            self.supply.source_mut().into_iter().for_each(|source| source.forget_wait(number));
        }
    }

    /// The waker of the source's task, if a grant of the fast path has to wake it.
    #[cold]
    pub(crate) fn waker_after_grant(&mut self, rovers: &Rovers) -> Option<Waker> {
        let is_urgent = self.supply.source().is_some_and(|(_, source)| source.is_urgent());
        if is_urgent && self.is_source_hungry(rovers) { self.supply.source_mut()?.take_waker() } else { None }
    }

    /// Whether the source's task has to be woken.
    #[inline]
    pub(super) fn is_hungry(&self, rovers: &Rovers) -> bool {
        !self.role.is_plain() && self.is_source_hungry(rovers)
    }

    #[cold]
    fn is_source_hungry(&self, rovers: &Rovers) -> bool {
        let Some((quota, source)) = self.supply.source() else { return false };
        let head = self.supply.quotas()[quota].head;
        source.is_low(self.claims(rovers), head, self.queue.has_claims()) || self.is_unplanned(rovers, source)
    }

    /// Whether the source's task sleeps without a plan for what is in service, which lacks promised tokens.
    fn is_unplanned(&self, rovers: &Rovers, source: &dyn Source) -> bool {
        self.stuck_front(rovers).is_some_and(|claim| source.sleeps_without_plan_for(claim))
    }

    /// The positions at which the front claim or the joint claim that holds this limiter begins and ends; otherwise, with
    /// classes, the installment that is next.
    pub(crate) fn in_service(&self, rovers: &Rovers) -> Option<(u64, u64)> {
        let base = self.base(rovers);
        let Some(classes) = self.classes().filter(|_| self.held().is_none()) else {
            return self.front_ticket(rovers).map(|end| (base, end));
        };
        let pick = classes.scheduler.pick()?;
        Some((base, base.wrapping_add(pick.tokens)))
    }

    /// What the claim [in service](Self::in_service) is known by, if the promised tokens give it no instant at which it
    /// passes: its number, or where its installment ends.
    pub(crate) fn stuck_front(&self, rovers: &Rovers) -> Option<u64> {
        let (_, end) = self.in_service(rovers)?;
        if self.supply.passes_external(end).is_some() {
            return None;
        }
        match self.joint().and_then(|fronts| fronts.held) {
            Some(number) => Some(number),
            None if self.role.has(Role::CLASSES) => Some(end),
            None => self.queue.front().map(|front| front.number),
        }
    }

    /// If no tokens are promised to the installment that is next, or those of other classes come first, it holds back no other
    /// class.
    pub(crate) fn pass_stuck(&mut self, rovers: &Rovers) {
        let is_stuck = self.stuck_front(rovers).is_some();
        if let Some(classes) = self.classes_mut().filter(|classes| is_stuck || classes.scheduler.is_out_of_turn()) {
            classes.scheduler.saves_for = None;
            self.supply.cut(self.in_service(rovers).map(|(_, end)| end));
        }
    }

    /// Checks that the source's task does not sleep while the front waiter needs more promised tokens. This holds
    /// whenever the lock is free, unless a thread has released the lock in the middle of serving the queue and is about
    /// to take it again.
    pub(crate) fn assert_kept(&self, rovers: &Rovers) {
        debug_assert!(
            self.last_due == 0 || self.supply.source().is_none_or(|(_, source)| !self.is_unplanned(rovers, source)),
            "the task of the source sleeps although the front waiter has no instant at which it passes: {:?}",
            self.supply.source()
        );
    }

    /// The reason why a claim that ends at `ticket` gets no tokens from the source, if it has to fail for that reason.
    #[inline]
    pub(super) fn cut_off(&self, ticket: u64) -> Option<CutOff> {
        self.short_source(ticket)?.1.cut_off()
    }

    /// The source, and the index of its quota, if it has promised too few tokens for a claim that ends at `ticket`.
    #[inline]
    fn short_source(&self, ticket: u64) -> Option<(usize, &dyn Source)> {
        self.supply.source().filter(|(quota, _)| self.supply.quotas()[*quota].reached(ticket).is_none())
    }

    /// The reason why a claim of `cost` tokens that ends at `ticket` is turned away, if no tokens are promised to it. A
    /// joint claim has the number 0.
    pub(super) fn source_refusal(&self, number: u64, cost: u64, ticket: u64) -> Option<Outcome> {
        let (quota, source) = self.short_source(ticket)?;
        if let Some(why) = source.cut_off() {
            return Some(Outcome::CutOff(why));
        }
        let most = source.most_claimed();
        if cost > most {
            return Some(Outcome::TooLarge { cost, most });
        }
        let lacks = ahead(ticket, self.supply.quotas()[quota].head).max(0) as u64;
        let (estimate, allowed) = source.too_late(number, lacks)?;
        let (by, name) = (Bound::Quota(quota), self.quota_name(Bound::Quota(quota)));
        Some(Outcome::TooLate { estimate, allowed, by, name })
    }

    /// Called before `try_acquire` denies `cost` tokens. If no promised token would help, the source will request them.
    /// Returns the reason if the source is cut off and the call has to fail for it.
    pub(crate) fn note_miss(&mut self, rovers: &Rovers, cost: u64) -> Option<CutOff> {
        let end = rovers.tail().wrapping_add(cost);
        let cut_off = self.short_source(end).map(|(_, source)| source.cut_off())?;
        self.supply.source_mut()?.miss(cost);
        cut_off
    }

    /// Whether there is a source that has no task any more.
    #[inline]
    pub(crate) fn source_task_is_gone(&self) -> bool {
        self.supply.source().is_some_and(|(_, source)| source.is_stopped())
    }

    /// The limiter is gone: the source gets the unused tokens back. Returns the waker of its task.
    pub(crate) fn end_source(&mut self, rovers: &Rovers) -> Option<Waker> {
        self.supply.know_claimed(rovers.tail());
        let (head, now) = (self.supply.external()?.head, self.supply.synced());
        let unused = ahead(head, self.supply.claimed()).max(0) as u64;
        self.supply.source_mut()?.end(unused, now)
    }
}
