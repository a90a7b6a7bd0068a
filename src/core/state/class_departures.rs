//! Claims that leave their classes without a grant: cancelled, or turned away because the limiter or the class is closed, or
//! the source of tokens is cut off.

use super::{Role, State, classes_in};
use crate::core::classes::ClassId;
use crate::core::outcome::Outcome;
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::steps;
use crate::core::wakes::Wakes;
use std::ops::Range;

/// How many classes of a limiter that was closed are looked at while the lock is held.
const LOOKED_AT_AT_ONCE: usize = 1_024;

impl State {
    /// Finishes changes of the classes, and turns away the waiters of a limiter that was closed, and of removed classes.
    /// Returns false if a child has to answer first, if the batch of wakers is full, or if enough classes were looked at for
    /// one hold of the lock.
    pub(super) fn turn_closed_away(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        if !self.finish_changes() {
            return false;
        }
        let mut looked_at = 0;
        while let Some(class) = self.next_closed(&mut looked_at) {
            if wakes.is_full() {
                return false;
            }
            self.ask_or_turn_away(rovers, class, Outcome::Closed, wakes);
            if self.role.has(Role::AWAITS) {
                return false;
            }
        }
        looked_at <= LOOKED_AT_AT_ONCE
    }

    /// A class with a waiter that has to be turned away.
    fn next_closed(&mut self, looked_at: &mut usize) -> Option<ClassId> {
        let classes = classes_in(&mut self.rare)?;
        if self.queue.is_empty() {
            classes.closing.clear();
        }
        while let Some(Range { start: class, end }) = classes.closing.pop() {
            if class == end {
                continue;
            }
            // No class has been made since with the number of a removed one: this list is emptied before any other change.
            let is_found = classes.entry(class).queue.front().is_some();
            classes.closing.push(if is_found { class..end } else { class + 1..end });
            if is_found {
                return Some(class);
            }
            // A class that was removed is in the list only if a claim waited there.
            if self.closed {
                steps::count();
                *looked_at += 1;
                if *looked_at > LOOKED_AT_AT_ONCE {
                    return None;
                }
            }
        }
        None
    }

    /// Turns the front claim of a class, or of a limiter without classes, away. If it is a proxy, its child must learn it, and
    /// has to answer.
    pub(super) fn ask_or_turn_away(&mut self, rovers: &Rovers, class: ClassId, outcome: Outcome, wakes: &mut Wakes) {
        let child = self.queue_of(class).front().and_then(Waiter::living_child);
        if let Some(child) = child {
            return self.await_child(child, class, None);
        }
        if !self.role.has(Role::CLASSES) {
            return self.call_front(rovers, outcome, wakes);
        }
        self.forget_denial(rovers);
        let base = self.base(rovers);
        let waiter = self.queue_of(class).call_front(outcome).expect("a claim waits in the class");
        self.forget_wait(waiter.number);
        self.leave_class(class, &waiter, true, base);
        // The waker of a proxy does nothing.
        wakes.push(waiter.waker);
    }

    /// A claim is out of the queue of a class without a grant; it was in front there, or not. What was set aside for it goes
    /// back to the quotas, and everything moves past its unpaid positions.
    ///
    /// If it is the proxy of a child, that one says next which claim is in front, if any. Until then the class must not count
    /// as idle: its siblings would become even with it.
    pub(super) fn leave_class(&mut self, class: ClassId, gone: &Waiter, is_front: bool, base: u64) {
        let now = self.supply.synced();
        let Some(classes) = classes_in(&mut self.rare) else { return };
        let (leaf, offers_joint) = (classes.entry(class).leaf, classes.entry(class).offers_joint);
        if !is_front || offers_joint {
            // The scheduler does not know the claim. In front, nothing before it takes over its debt.
            if is_front && gone.debt_after > 0 {
                classes.scheduler.add_debt(leaf, gone.debt_after, now);
            }
            self.queue.count_out(gone.cost);
            return self.pass_behind_front(gone);
        }
        let paid = classes.scheduler.paid(leaf);
        classes.scheduler.withdraw(paid, &mut self.supply, base);
        self.queue.count_out(gone.cost - paid);
        self.supply.shift(gone.cost - paid);
        self.totals.skipped = self.totals.skipped.wrapping_add(gone.cost);
        match gone.living_child() {
            Some(child) => self.await_child(child, class, Some(gone.debt_after)),
            None => self.put_next_in_front(class, gone.debt_after),
        }
    }
}
