//! Keys of a keyed limiter as classes of its parent; see `core/parent.rs`.

use super::{Role, State};
use crate::core::Core;
use crate::core::classes::{AwaitedChild, ClassId, KeyName, ROOT};
use crate::core::outcome::Outcome;
use crate::core::parent_claim::PairState;
use crate::core::queue::{Place, Waiter};
use crate::core::rovers::Rovers;
use crate::core::wakes::Peer;
use std::pin::Pin;
use std::sync::Weak;

impl State {
    /// The front claim of a class is about to be granted. Returns false if it is the parent ticket of a claim that has left
    /// the child's queue.
    pub(super) fn commit_ticket(&mut self, class: ClassId) -> bool {
        let at = self.supply.synced();
        let front = self.queue_of(class).front();
        let part = front.and_then(|front| front.part.as_ref());
        part.is_none_or(|part| part.set_ready(at) == PairState::Committed)
    }

    /// A parent ticket has left the queue of `class`: nothing is served until the child says which claim is next.
    pub(super) fn await_child(&mut self, class: ClassId, child: Weak<dyn Peer>, gone: &Waiter) {
        if class != ROOT {
            self.count_out(gone.cost);
        }
        self.role.add(Role::AWAITS);
        if let Some(classes) = self.classes_mut() {
            classes.awaited = Some(AwaitedChild { child, class, debt: gone.debt_after });
        }
    }

    /// The child that has to say which of its claims is next. If the child is gone, it has no further claim.
    pub(crate) fn awaited_child(&mut self) -> Option<Weak<dyn Peer>> {
        if !self.role.awaits() {
            return None;
        }
        let child = self.classes().and_then(|classes| Some(classes.awaited.as_ref()?.child.clone()))?;
        if child.strong_count() > 0 {
            return Some(child);
        }
        self.go_on();
        None
    }

    /// Whether `child` has to say which of its claims is next.
    pub(crate) fn awaits(&self, child: &Core) -> bool {
        self.role.awaits()
            && self
                .classes()
                .and_then(|classes| classes.awaited.as_ref())
                .is_some_and(|awaited| std::ptr::addr_eq(awaited.child.as_ptr(), child))
    }

    /// The awaited child has entered its next claim, or has none.
    pub(crate) fn go_on(&mut self) {
        self.role.remove(Role::AWAITS);
        let awaited = self.classes_mut().and_then(|classes| classes.awaited.take());
        if let Some(AwaitedChild { class, debt, .. }) = awaited {
            self.put_next_in_front(class, debt);
        }
    }

    /// Turns away the parent ticket of a claim that has left the child's queue.
    pub(super) fn turn_ticket_away(&mut self, rovers: &Rovers, class: ClassId, base: u64) {
        self.forget_denial(rovers);
        let ticket = self.queue_of(class).call_front(Outcome::TicketEnded).expect("the ticket is at the front");
        self.withdraw_front(rovers, class, &ticket, base);
        if let Some(part) = &ticket.part {
            self.await_child(class, part.claim.child(), &ticket);
        }
    }

    /// Empties the place of a parent ticket of `child`. The child answers next which claim is in front, if any. Until
    /// then the class must not count as idle: its siblings would become even with it.
    pub(crate) fn withdraw_ticket(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        child: Weak<dyn Peer>,
    ) {
        drop(self.depart_from_class(rovers, place, class, Some(child)));
    }

    /// Charges `tokens` on top of a grant of a key; see [`charge_class`](Self::charge_class). While no claim waits, no class
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
            return self.charge_class(rovers, group, tokens);
        }
        let class = self.join_key(group, key, weight);
        let charged = self.charge_class(rovers, class, tokens);
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
