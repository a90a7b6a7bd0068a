//! The children of a parent, as the parent sees them: the child that has to answer, and the classes of keys. See
//! `core/parent.rs`.

use super::step::InService;
use super::{Role, State, classes_in};
use crate::core::Core;
use crate::core::classes::{ClassId, KeyName, ROOT};
use crate::core::outcome::Outcome;
use crate::core::rovers::Rovers;
use std::sync::Weak;

/// A child that has to answer. Its ticket is at the front of its class, or has just left. Until the answer the class counts
/// as backlogged, and nothing else is picked: otherwise no key would ever be served twice in a row, whatever its weight is.
#[derive(Debug)]
pub(super) struct AwaitedChild {
    child: Weak<Core>,
    class: ClassId,
    /// If the ticket has left: the debt that was noted behind it.
    gone: Option<u64>,
}

impl State {
    /// The front claim of a class is a ticket: nothing is served until its child has answered. Or a ticket has left the queue
    /// of the class, with the debt `gone` behind it: nothing is picked until its child says which of its claims is next.
    pub(super) fn await_child(&mut self, child: Weak<Core>, class: ClassId, gone: Option<u64>) {
        self.role.add(Role::AWAITS);
        self.rare().awaited = Some(AwaitedChild { child, class, gone });
    }

    #[inline]
    fn awaited(&self) -> Option<&AwaitedChild> {
        if self.role.has(Role::AWAITS) { self.rare.as_ref()?.awaited.as_ref() } else { None }
    }

    /// Whether the ticket of a class, or its child's next one, is being waited for.
    #[inline]
    pub(super) fn awaits_class(&self, class: ClassId) -> bool {
        self.awaited().is_some_and(|awaited| awaited.class == class)
    }

    /// Grants the ticket that is in service in a limiter with classes.
    pub(super) fn pay_ticket(&mut self, rovers: &Rovers, next: InService) {
        let InService { ticket: Some(ticket), pick: Some(pick), owner, .. } = next else { return };
        // The outcome is not read: the child grants its claim itself.
        let waiter = self.call_front_of_class(owner, Outcome::Granted { remaining: 0 }, pick.tokens);
        let (Some(waiter), Some(classes)) = (waiter, classes_in(&mut self.rare)) else { return };
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
            if self.role.has(Role::CLASSES) {
                self.put_next_in_front(class, debt);
            }
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
        self.leave_key(class);
        charged
    }

    /// The class of a key in `group`; counts one more user of the class.
    pub(crate) fn join_key(&mut self, group: ClassId, key: KeyName, weight: u64) -> ClassId {
        let now = self.supply.synced();
        self.classes_mut().map_or(ROOT, |classes| classes.join_key(group, key, weight, now))
    }

    pub(crate) fn leave_key(&mut self, class: ClassId) {
        let now = self.supply.synced();
        if let Some(classes) = self.classes_mut() {
            classes.leave_key(class, now);
        }
    }
}
