//! The fronts of joint sets in one limiter: what the limiter knows of them under its own lock. Only data: the rule is in
//! `core/joint.rs`, and what it does to the limiter in `state/joint.rs`.

use super::set::{JointSet, SetKey};
use crate::core::classes::ClassId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many fronts that want to hold a limiter are looked at one by one. Of more, all costs are counted.
const MOST_COUNTED: usize = 32;

/// Present while a joint claim waits in the limiter.
#[derive(Debug, Default)]
pub(crate) struct Fronts {
    fronts: BTreeMap<u64, Front>,
    /// For each front its number, and before that the instant at which it wants to hold this limiter, or else its joint
    /// instant. With different clocks, it is the instant at which this limiter could grant the front.
    alarms: BTreeSet<(u64, u64)>,
    /// The fronts that must be reviewed at once, besides those that were not reviewed in this round.
    urgent: BTreeSet<u64>,
    /// How often all fronts became urgent together.
    round: u64,
    /// Fronts with smaller numbers were reviewed in this round, or became fronts in it.
    unreviewed_from: u64,
    /// The fronts that want to hold this limiter.
    ready: BTreeSet<u64>,
    /// The sum of their costs.
    ready_tokens: u128,
    /// The front for which this limiter saves tokens: the oldest that wants to hold it.
    pub(crate) held: Option<u64>,
    /// Fronts with smaller numbers had their turn, in a limiter without classes.
    turned: u64,
    /// The front that is reviewed now, and the instant of the review.
    pub(crate) reviewed: Option<(u64, u64)>,
    /// The sum of the debts charged while a joint claim waited here.
    pub(crate) charged: u64,
    /// What each quota has lent to the held front, and how much of the debts was counted on for that.
    pub(crate) lent: (Box<[u64]>, u64),
    /// Debts that are charged when the held front is granted or goes aside: no plain claim waits before them.
    pub(crate) debt: u64,
    /// The sets whose first member this limiter is.
    pub(crate) sets: BTreeMap<SetKey, Arc<JointSet>>,
    /// The tokens of the fronts that wait in queues of classes, where they count as claims.
    pub(crate) in_classes: u64,
    /// How many joint claims wait in each class, and their tokens.
    waiting: BTreeMap<ClassId, (u64, u128)>,
}

/// The front claim of a set, in one of its members.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) set: Arc<JointSet>,
    pub(crate) class: ClassId,
    /// The tokens to take from the quotas when the claim is granted.
    pub(crate) cost: u64,
    /// Tokens that were set aside in earlier turns, in a limiter with classes.
    pub(crate) paid: u64,
    /// [`Fronts::charged`] when the claim arrived.
    pub(crate) charged: u64,
    pub(crate) has_turn: bool,
    /// When this limiter could grant it, as far as is known; `None` if no clock can tell.
    pub(crate) due: Option<u64>,
    /// The joint instant, in this limiter's time; `None` if it is unknown.
    pub(crate) joint_due: Option<u64>,
    /// This limiter holds the claim until its grant.
    pub(crate) stays: bool,
    alarm: Option<u64>,
    /// The last round in which it was reviewed, or in which it became a front.
    round: u64,
}

impl Front {
    pub(crate) fn new(set: Arc<JointSet>, class: ClassId, cost: u64, charged: u64) -> Self {
        let (due, joint_due, alarm) = (None, None, None);
        Self { set, class, cost, paid: 0, charged, has_turn: false, due, joint_due, stays: false, alarm, round: 0 }
    }
}

impl Fronts {
    pub(crate) fn add(&mut self, number: u64, front: Front) {
        self.fronts.insert(number, Front { round: self.round, ..front });
        self.skip_reviewed();
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Front> {
        self.fronts.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Front> {
        self.fronts.get_mut(&number)
    }

    /// Removes a front. The limiter may still save tokens for it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Front> {
        self.set_alarm(number, None);
        self.urgent.remove(&number);
        self.set_ready(number, false);
        let front = self.fronts.remove(&number);
        self.skip_reviewed();
        front
    }

    pub(crate) fn held(&self) -> Option<&Front> {
        self.fronts.get(&self.held?)
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = &Arc<JointSet>> {
        self.fronts.values().map(|front| &front.set)
    }

    /// The oldest front that wants to hold this limiter.
    pub(crate) fn first_ready(&self) -> Option<u64> {
        self.ready.first().copied()
    }

    pub(crate) fn set_ready(&mut self, number: u64, ready: bool) {
        let Some(cost) = self.fronts.get(&number).map(|front| u128::from(front.cost)) else { return };
        if ready && self.ready.insert(number) {
            self.ready_tokens += cost;
        } else if !ready && self.ready.remove(&number) {
            self.ready_tokens -= cost;
        }
    }

    /// The oldest front that wants to hold this limiter before number `number`, and the costs of those between the two: if
    /// there are very many, of all.
    pub(crate) fn ready_before(&self, number: u64) -> Option<(&Front, u64)> {
        let mut older = self.ready.range(..number);
        let first = self.fronts.get(older.next()?)?;
        let between = older.by_ref().take(MOST_COUNTED).filter_map(|older| self.fronts.get(older)).map(|it| it.cost);
        let counted = between.fold(0, u64::saturating_add);
        let all = || u64::try_from(self.ready_tokens).unwrap_or(u64::MAX);
        let between = if older.next().is_some() { all() } else { counted };
        Some((first, between))
    }

    /// Sets the instant at which front `number` is looked at.
    pub(crate) fn set_alarm(&mut self, number: u64, alarm: Option<u64>) {
        let Some(front) = self.fronts.get_mut(&number) else { return };
        if let Some(old) = std::mem::replace(&mut front.alarm, alarm) {
            self.alarms.remove(&(old, number));
        }
        if let Some(alarm) = alarm {
            self.alarms.insert((alarm, number));
        }
    }

    pub(crate) fn first_alarm(&self) -> Option<u64> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// The first alarm, except that for the grant of the front that is reviewed.
    pub(crate) fn next_alarm(&self) -> Option<(u64, u64)> {
        let reviewed = self.reviewed.map(|(number, ..)| number);
        let is_next = |(at, number): &&(u64, u64)| Some(*number) != reviewed || self.begins_at(*at, *number);
        self.alarms.iter().find(is_next).copied()
    }

    /// Whether front `number` wants to hold this limiter from this instant on, before its joint instant.
    pub(crate) fn begins_at(&self, at: u64, number: u64) -> bool {
        let joint_due = self.fronts.get(&number).and_then(|front| front.joint_due);
        !self.ready.contains(&number) && joint_due.is_some_and(|joint_due| at < joint_due)
    }

    /// The first alarm of another front than `number`.
    pub(crate) fn next_alarm_of_others(&self, number: u64) -> Option<u64> {
        self.alarms.iter().find(|(_, other)| *other != number).map(|(at, _)| *at)
    }

    /// The front has to be reviewed before anything else is decided here.
    pub(crate) fn set_urgent(&mut self, number: u64) {
        self.urgent.insert(number);
    }

    pub(crate) fn is_urgent(&self, number: u64) -> bool {
        let is_unreviewed = || self.fronts.get(&number).is_some_and(|front| front.round != self.round);
        self.urgent.contains(&number) || is_unreviewed()
    }

    pub(crate) fn clear_urgent(&mut self, number: u64) {
        self.urgent.remove(&number);
        if let Some(front) = self.fronts.get_mut(&number) {
            front.round = self.round;
        }
        self.skip_reviewed();
    }

    pub(crate) fn first_urgent(&self) -> Option<u64> {
        let unreviewed = self.fronts.range(self.unreviewed_from..).next().map(|(number, _)| *number);
        self.urgent.first().copied().into_iter().chain(unreviewed).min()
    }

    /// All fronts have to be reviewed at once. Takes no time for each of them.
    pub(crate) fn make_all_urgent(&mut self) {
        (self.round, self.unreviewed_from) = (self.round + 1, 0);
    }

    /// Moves on to the first front that was not reviewed in this round, or to the end.
    fn skip_reviewed(&mut self) {
        let mut rest = self.fronts.range(self.unreviewed_from..);
        let first = rest.find(|(_, front)| front.round != self.round);
        self.unreviewed_from = first.map_or(u64::MAX, |(number, _)| *number);
    }

    /// A front that has its turn now that no plain claim with a number below `limit` waits. Each is returned once.
    pub(crate) fn next_turn(&mut self, limit: u64) -> Option<u64> {
        if self.turned >= limit {
            return None;
        }
        let number =
            self.fronts.range(self.turned..limit).find(|(_, front)| !front.has_turn).map(|(number, _)| *number);
        self.turned = number.map_or(limit, |number| number + 1);
        number
    }

    /// A joint claim waits in a class, or does not wait any more. Returns whether another one waits there.
    pub(crate) fn count(&mut self, class: ClassId, cost: u64, comes: bool) -> bool {
        let (claims, tokens) = self.waiting.entry(class).or_default();
        if comes {
            (*claims, *tokens) = (*claims + 1, *tokens + u128::from(cost));
        } else {
            (*claims, *tokens) = (*claims - 1, *tokens - u128::from(cost));
        }
        let is_empty = *claims == 0;
        if is_empty {
            self.waiting.remove(&class);
        }
        !is_empty
    }

    /// How many joint claims wait in a class, and their tokens.
    pub(crate) fn waiting_in(&self, class: ClassId) -> (u64, u128) {
        self.waiting.get(&class).copied().unwrap_or_default()
    }

    /// The tokens of all joint claims that wait.
    pub(crate) fn tokens(&self) -> u128 {
        self.waiting.values().map(|(_, tokens)| tokens).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
