//! What a limiter does that is a parent: the child that has to answer, the classes of keys, and its answers to claims that a
//! child has answered already. See `core/parent.rs`.

use super::step::InService;
use super::{Role, State, classes_in};
use crate::core::Core;
use crate::core::classes::{ClassId, KeyName, ROOT};
use crate::core::outcome::Outcome;
use crate::core::rovers::Rovers;
use crate::error::{Bound, Denied, TryAcquireError};
use crate::observe::GrantWord;
use std::sync::Weak;
use std::time::Duration;

/// A keyed limiter with a parent, as the parent sees it.
pub(crate) trait ChildLimiter: Send + Sync {
    /// The parent was closed.
    fn close(&self);
}

/// A child that has to answer. Its proxy is at the front of its class, or has just left. Until the answer the class counts
/// as backlogged, and nothing else is picked: otherwise no key would ever be served twice in a row, whatever its weight is.
#[derive(Debug)]
pub(super) struct AwaitedChild {
    child: Weak<Core>,
    class: ClassId,
    /// If the proxy has left: the debt that was noted behind it.
    gone: Option<u64>,
}

impl State {
    /// The front claim of a class is a proxy: nothing is served until its child has answered. Or a proxy has left the queue
    /// of the class, with the debt `gone` behind it: nothing is picked until its child says which of its claims is next.
    pub(super) fn await_child(&mut self, child: Weak<Core>, class: ClassId, gone: Option<u64>) {
        self.role.add(Role::AWAITS);
        self.rare().awaited = Some(AwaitedChild { child, class, gone });
    }

    #[inline]
    fn awaited(&self) -> Option<&AwaitedChild> {
        if self.role.has(Role::AWAITS) { self.rare.as_ref()?.awaited.as_ref() } else { None }
    }

    /// Whether the proxy of a class, or its child's next one, is being waited for.
    #[inline]
    pub(super) fn awaits_class(&self, class: ClassId) -> bool {
        self.awaited().is_some_and(|awaited| awaited.class == class)
    }

    /// Grants the proxy that is in service in a limiter with classes.
    pub(super) fn pay_proxy(&mut self, rovers: &Rovers, next: InService) {
        let InService { ticket: Some(ticket), pick: Some(pick), owner, .. } = next else { return };
        let Some(classes) = classes_in(&mut self.rare) else { return };
        // The outcome is not read: the child grants its claim itself.
        let waiter = classes.entry_mut(owner).queue.call_front(Outcome::Granted(GrantWord::NOTHING));
        let Some(waiter) = waiter else { return };
        self.queue.count_out(pick.tokens);
        classes.count_served(owner, pick);
        classes.scheduler.saves_for = None;
        classes.scheduler.pay(pick, &mut self.supply, ticket.wrapping_sub(pick.tokens));
        if let Some(child) = waiter.child {
            self.await_child(child, owner, Some(waiter.debt_after));
        }
        self.forget_denial(rovers);
    }

    /// The child that has to answer. A child that is gone has no further claim.
    pub(crate) fn awaited_child(&mut self) -> Option<Weak<Core>> {
        let child = self.awaited()?.child.clone();
        if child.strong_count() > 0 {
            return Some(child);
        }
        self.go_on();
        None
    }

    /// Whether `child` has to answer.
    pub(crate) fn awaits(&self, child: &Core) -> bool {
        self.awaited().is_some_and(|awaited| std::ptr::eq(awaited.child.as_ptr(), child))
    }

    /// The awaited child has answered, and has entered its next claim, or has none.
    pub(crate) fn go_on(&mut self) {
        self.role.remove(Role::AWAITS);
        let awaited = self.rare.as_mut().and_then(|rare| rare.awaited.take());
        if let Some(AwaitedChild { class, gone: Some(debt), .. }) = awaited {
            self.put_next_in_front(class, debt);
        }
    }

    /// Charges `tokens` on top of a grant of a key; see [`charge`](Self::charge). While no claim waits, no class
    /// is charged, and the key needs none.
    pub(crate) fn charge_key(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        key: KeyName,
        weight: u64,
        tokens: u64,
    ) -> u64 {
        if self.queue.is_empty() {
            return self.charge(rovers, group, tokens);
        }
        let class = self.join_key(group, key, weight);
        let charged = self.charge(rovers, class, tokens);
        self.remove_user(class);
        charged
    }

    /// The class of a key in `group`; counts one more user of the class.
    pub(crate) fn join_key(&mut self, group: ClassId, key: KeyName, weight: u64) -> ClassId {
        let now = self.supply.synced();
        self.classes_mut().map_or(ROOT, |classes| classes.join_key(group, key, weight, now))
    }

    /// A user of the class is gone, and has no claim there.
    pub(crate) fn remove_user(&mut self, class: ClassId) {
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.remove_user(class, now);
        }
    }

    /// The largest number of tokens that this queue can still take, if it is less than `cost`.
    pub(crate) fn overruns(&self, rovers: &Rovers, cost: u64) -> Option<u64> {
        Some(self.space_left(rovers)).filter(|space| *space < cost)
    }

    /// How long a claim of `cost` will have waited, counted from now, if it arrives after `delay` and no other claim
    /// arrives before it. `None` as in [`estimate`](Self::estimate), and if claims wait in a parent with classes: the
    /// order in which the scheduler will serve them is known only after a simulation of all of them.
    pub(crate) fn estimate_later(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        cost: u64,
        now: u64,
        delay: Duration,
    ) -> Option<Duration> {
        if self.role.has(Role::CLASSES) {
            let is_known = self.queue.is_empty() && !self.queue.has_joint() && cost <= self.most_claimable(rovers);
            let at = if is_known { self.served_by(rovers, group, cost)? } else { return None };
            return Some(self.wait(at, now).max(delay));
        }
        if cost == 0 || delay.is_zero() || self.queue.has_joint() {
            return self.estimate(rovers, group, cost, now).map(|wait| wait.max(delay));
        }
        self.estimate(rovers, group, cost, now)?;
        let comes = now.checked_add(u64::try_from(delay.as_nanos()).ok()?)?;
        let (ahead, base) = self.forecast_supply(rovers)?;
        let mut ahead = ahead.clone();
        ahead.mint(comes.max(ahead.synced()), None);
        let at = ahead.scheduled(base.wrapping_add(cost))?;
        Some(Duration::from_nanos(at.saturating_sub(now)).max(delay))
    }

    /// The final answer to a `try_acquire` for `cost` tokens that a child has denied: parent and child both have to
    /// grant them.
    pub(crate) fn deny_too(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        cost: u64,
        now: u64,
        denied: Denied,
    ) -> TryAcquireError {
        if self.is_closed(group) {
            return TryAcquireError::Closed;
        }
        if let Some(error) = self.too_large_at_once(group, cost) {
            return State::as_parent(error, 0);
        }
        let fits = self.fits_in_flight(rovers, cost);
        let later = |delay| match (fits, self.role.has(Role::CLASSES)) {
            (false, _) => None,
            (true, true) => self.served_by(rovers, group, cost).map(|at| self.wait(at, now).max(delay)),
            (true, false) => self.estimate_later(rovers, group, cost, now, delay),
        };
        let retry_after = denied.retry_after.and_then(later);
        let remaining = denied.remaining.min(self.available_in(rovers, group));
        if retry_after == denied.retry_after {
            return Denied { remaining, ..denied }.into();
        }
        let end = rovers.tail().wrapping_add(cost);
        let below_ceilings = self.classes().map_or(0, |it| it.scheduler.tree.ceilings_have(it.entry(group).leaf, cost));
        let is_delayed = self.is_delayed_by_ceiling(group, end, below_ceilings);
        let by = if is_delayed { Bound::Ceiling } else { self.supply.obstacle(end) };
        let name = self.name_in_class(by, group, cost);
        Denied { retry_after, remaining, by: by.of_parent(), name }.into()
    }

    /// Translates a refusal of this limiter into the refusal that its child, which has `remaining` tokens, returns.
    pub(crate) fn as_parent(error: TryAcquireError, remaining: u64) -> TryAcquireError {
        match error {
            TryAcquireError::Denied(denied) => {
                let (by, remaining) = (denied.by.of_parent(), remaining.min(denied.remaining));
                Denied { by, remaining, ..denied }.into()
            }
            TryAcquireError::TooLarge { cost, most, by, quota_name } => {
                TryAcquireError::TooLarge { cost, most, by: by.of_parent(), quota_name }
            }
            error => error,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::{Limiter, Quota};

    #[test]
    fn a_claim_that_just_fits_does_not_overrun() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        limiter.core().with(|state, rovers, _| {
            let space = state.space_left(rovers);
            assert_eq!(state.overruns(rovers, space), None);
            assert_eq!(state.overruns(rovers, space + 1), Some(space));
        });
    }
}
