//! The parts of joint claims in one queue. Only data: the rule that moves them is in `core/state/joint.rs`.
//!
//! No part has a node in the list of waiters. A part that waits for the claims ahead of it is known by its *place*, the
//! number of the claim that arrives next: the claims ahead of it have left once no waiter has a lower number. All parts are known by the number of their claim, and the numbers follow the order of arrival.
//!
//! In a limiter with classes, a part first waits in the queue of its class, where a waiter without a waker stands for it.
//! Until its turn there it counts as a claim of that queue, and not as a part that waits here.

use super::Waiter;
use crate::core::classes::{ClassId, ROOT};
use crate::core::joint::{JointClaim, JointPart};
use crate::core::outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

/// The alarm of a part that must be looked at before anything else is decided. It is no due instant of a part: time has reached
/// it when a queue is made.
pub(crate) const AT_ONCE: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Parts {
    all: BTreeMap<u64, Part>,
    /// The places of the parts that wait for the claims ahead of them, by number.
    places: BTreeMap<u64, u64>,
    /// The instants at which parts must be looked at, and their numbers.
    alarms: BTreeSet<(u64, u64)>,
    /// The parts that have an alarm because of a debt of this limiter: the other queues are ready earlier.
    debt_alarms: BTreeSet<u64>,
    /// Tokens came in since those alarms were set: they may be too late.
    may_be_late: bool,
    /// The parts that wait for an update.
    aside: BTreeSet<u64>,
    /// The parts that wait until the held part leaves.
    blocked: BTreeSet<u64>,
    pub(super) held: Option<Held>,
    /// How many parts have not been called out yet, without those that wait for their turn in a class.
    pub(super) waiting: u32,
    /// How many parts wait for their turn in a class.
    turns: u32,
    /// The tokens of the parts that are not held. Only claims in the queue are bounded by the space of the rovers.
    pub(super) tokens: u128,
    /// The sum of the debts charged while a part waited here.
    pub(crate) charged: u64,
}

/// The part at the front of the queue.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) waiter: Waiter,
    pub(crate) number: u64,
    /// The part stays at the front, whatever updates come, because the instant at which this queue is ready was
    /// unknown.
    pub(crate) stays: bool,
    /// The due instant that this queue announced last.
    pub(crate) announced: Option<u64>,
}

/// A part of a joint claim.
#[derive(Debug)]
pub(crate) struct Part {
    /// The tokens to take from the quotas when the part is granted.
    pub(crate) cost: u64,
    /// The class in which the part waits for its turn, in a limiter with classes.
    class: ClassId,
    /// Tokens that were set aside for the part in earlier turns, if its cost is larger than an installment.
    paid: u64,
    /// [`Parts::charged`] when the part entered.
    pub(crate) charged: u64,
    stage: PartStage,
    /// `None` while the part is held, because the [`Waiter`] then has the waker, and after the part was called out.
    waker: Option<Waker>,
    /// `None` at the same times.
    joint_part: Option<Box<JointPart>>,
}

impl Part {
    fn new(cost: u64, charged: u64, class: ClassId, stage: PartStage, waker: Waker, part: Box<JointPart>) -> Self {
        Self { cost, class, paid: 0, charged, stage, waker: Some(waker), joint_part: Some(part) }
    }

    /// The cost of the claim.
    pub(crate) fn whole_cost(&self) -> u64 {
        self.cost + self.paid
    }
}

/// The tokens that the class of a part has reserved for the part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) class: ClassId,
    /// Tokens that were set aside for the part in earlier turns.
    pub(crate) paid: u64,
}

/// The stage of a part: where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartStage {
    /// Behind other claims.
    Place,
    /// In the queue of its class, until its turn.
    Turn,
    /// Aside, until an update arrives.
    Aside,
    /// Aside, until this instant.
    Alarm(u64),
    /// Aside, until the part that is held leaves.
    Blocked,
    /// At the front of the queue.
    Held,
    /// Nowhere: it was granted or turned away, and its future has not seen that.
    Called(Outcome),
}

impl Parts {
    pub(super) fn add(&mut self, place: u64, cost: u64, waker: Waker, part: Box<JointPart>) {
        let (number, charged) = (part.number(), self.charged);
        self.places.insert(number, place);
        self.waiting += 1;
        self.tokens += u128::from(cost);
        self.insert(number, Part::new(cost, charged, ROOT, PartStage::Place, waker, part));
    }

    fn insert(&mut self, number: u64, part: Part) {
        self.all.insert(number, part);
    }

    /// A part enters the queue of a class.
    pub(super) fn add_turn(&mut self, class: ClassId, cost: u64, waker: Waker, part: Box<JointPart>) {
        self.turns += 1;
        self.insert(part.number(), Part::new(cost, self.charged, class, PartStage::Turn, waker, part));
    }

    /// A part has its turn in its class. `paid` was set aside for it in earlier turns.
    pub(super) fn take_turn(&mut self, number: u64, paid: u64) {
        let Some(part) = self.all.get_mut(&number) else { return };
        (part.cost, part.paid) = (part.cost - paid, paid);
        self.turns -= 1;
        self.waiting += 1;
        self.tokens += u128::from(part.cost);
        self.move_to(number, PartStage::Aside);
    }

    /// The tokens that the class of a part has reserved for it; `None` before its turn, and after the part was called
    /// out.
    pub(crate) fn reservation(&self, number: u64) -> Option<Reservation> {
        let part = self.all.get(&number)?;
        let is_reserved = !matches!(part.stage, PartStage::Turn | PartStage::Place | PartStage::Called(_));
        is_reserved.then_some(Reservation { class: part.class, paid: part.paid })
    }

    /// How many parts wait, also for their turn.
    pub(super) fn count(&self) -> u32 {
        self.waiting + self.turns
    }

    /// Removes a part that is not held from the counts. Returns whether it was counted among the parts that wait here.
    fn count_out(&mut self, stage: PartStage, cost: u64) -> bool {
        if stage == PartStage::Turn {
            self.turns -= 1;
            return false;
        }
        self.tokens -= u128::from(cost);
        self.waiting -= 1;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn stage(&self, number: u64) -> Option<PartStage> {
        self.all.get(&number).map(|part| part.stage)
    }

    pub(crate) fn part(&self, number: u64) -> Option<&Part> {
        self.all.get(&number)
    }

    pub(crate) fn joint_part(&self, number: u64) -> Option<&JointPart> {
        match &self.held {
            Some(held) if held.number == number => held.waiter.part.as_deref(),
            _ => self.all.get(&number)?.joint_part.as_deref(),
        }
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    pub(crate) fn held_mut(&mut self) -> Option<&mut Held> {
        self.held.as_mut()
    }

    /// The part with the first place, if no claim is ahead of it in a queue whose front claim has the number `front`.
    pub(super) fn first_place(&self, front: Option<u64>) -> Option<u64> {
        let (number, place) = self.places.first_key_value()?;
        front.is_none_or(|front| *place <= front).then_some(*number)
    }

    /// The oldest part that waits for the held one to leave.
    pub(crate) fn first_blocked(&self) -> Option<u64> {
        self.blocked.first().copied()
    }

    /// A part that waits and is not held, if there is one.
    pub(crate) fn first_not_held(&self) -> Option<u64> {
        let place = self.places.first_key_value().map(|(number, _)| number);
        let aside = self.aside.first().or(self.blocked.first()).or(self.alarms.first().map(|(_, number)| number));
        place.or(aside).copied()
    }

    // Not inlined: most queues have no parts, and the walk down a tree is much code.
    #[inline(never)]
    pub(crate) fn first_alarm(&self) -> Option<(u64, u64)> {
        self.alarms.first().copied()
    }

    /// Moves all alarms to [`AT_ONCE`]. Takes time in proportion to their number.
    pub(crate) fn make_alarms_due(&mut self) {
        let numbers = std::mem::take(&mut self.alarms);
        self.make_due(numbers.into_iter().map(|(_, number)| number));
    }

    /// Does [`make_alarms_due`](Self::make_alarms_due) for the `most` first alarms.
    pub(crate) fn make_first_alarms_due(&mut self, most: usize) {
        let first: Vec<u64> = self.alarms.iter().take(most).map(|(_, number)| *number).collect();
        self.make_due(first.into_iter());
    }

    /// Does [`make_alarms_due`](Self::make_alarms_due) for the alarms that parts have because of a debt.
    pub(crate) fn make_debt_alarms_due(&mut self) {
        let numbers = std::mem::take(&mut self.debt_alarms);
        self.may_be_late = false;
        self.make_due(numbers.into_iter());
    }

    fn make_due(&mut self, numbers: impl Iterator<Item = u64>) {
        numbers.for_each(|number| self.move_to(number, PartStage::Alarm(AT_ONCE)));
    }

    /// Part `number` has an alarm because of a debt.
    pub(crate) fn note_debt_alarm(&mut self, number: u64) {
        self.debt_alarms.insert(number);
    }

    /// The alarms that parts have because of a debt may be too late from now on.
    pub(crate) fn note_late_alarms(&mut self) {
        self.may_be_late = !self.debt_alarms.is_empty();
    }

    /// The oldest part with an alarm because of a debt, if these alarms may be too late.
    pub(crate) fn first_late(&self) -> Option<u64> {
        if self.may_be_late { self.debt_alarms.first().copied() } else { None }
    }

    /// Moves a part, which must not be held, to another stage.
    pub(crate) fn move_to(&mut self, number: u64, stage: PartStage) {
        let Some(part) = self.all.get_mut(&number) else { return };
        match std::mem::replace(&mut part.stage, stage) {
            PartStage::Place => drop(self.places.remove(&number)),
            PartStage::Alarm(at) => {
                self.alarms.remove(&(at, number));
                self.debt_alarms.remove(&number);
                self.may_be_late &= !self.debt_alarms.is_empty();
            }
            PartStage::Blocked => drop(self.blocked.remove(&number)),
            PartStage::Aside => drop(self.aside.remove(&number)),
            PartStage::Turn | PartStage::Held | PartStage::Called(_) => {}
        }
        match stage {
            PartStage::Alarm(at) => drop(self.alarms.insert((at, number))),
            PartStage::Aside => drop(self.aside.insert(number)),
            PartStage::Blocked => drop(self.blocked.insert(number)),
            PartStage::Place | PartStage::Turn | PartStage::Held | PartStage::Called(_) => {}
        }
    }

    /// Takes the waker and the part of a part that comes to the front of the queue.
    pub(super) fn take_waker_and_part(&mut self, number: u64) -> Option<(Waker, Box<JointPart>)> {
        let part = self.all.get_mut(&number)?;
        Some((part.waker.take()?, part.joint_part.take()?))
    }

    /// The held part leaves the front for the stage `stage`.
    pub(super) fn put_back(&mut self, held: Held, stage: PartStage) {
        self.tokens += u128::from(held.waiter.cost);
        if let Some(part) = self.all.get_mut(&held.number) {
            (part.waker, part.joint_part) = (Some(held.waiter.waker), held.waiter.part);
        }
        self.move_to(held.number, stage);
    }

    /// Calls out a part that is not held. Returns its waker and its claim, and whether it was counted here.
    pub(super) fn call_out(&mut self, number: u64, outcome: Outcome) -> Option<(Waker, Arc<JointClaim>, bool)> {
        let (waker, part) = self.take_waker_and_part(number)?;
        let (stage, cost) = (self.all[&number].stage, self.all[&number].cost);
        let is_counted = self.count_out(stage, cost);
        self.move_to(number, PartStage::Called(outcome));
        Some((waker, part.claim, is_counted))
    }

    /// Removes a part that is not held. Returns its outcome or its waker, and whether it was counted here.
    pub(super) fn remove(&mut self, number: u64) -> Option<(Option<Outcome>, Option<Waker>, bool)> {
        let stage = self.stage(number)?;
        self.move_to(number, PartStage::Held);
        let part = self.all.remove(&number)?;
        if let PartStage::Called(outcome) = stage {
            return Some((Some(outcome), None, false));
        }
        let is_counted = self.count_out(stage, part.cost);
        Some((None, part.waker, is_counted))
    }

    /// The waker of a part that waits.
    pub(super) fn waker_mut(&mut self, number: u64) -> Option<&mut Waker> {
        match &mut self.held {
            Some(held) if held.number == number => Some(&mut held.waiter.waker),
            _ => self.all.get_mut(&number)?.waker.as_mut(),
        }
    }

    pub(super) fn wakers_mut(&mut self) -> impl Iterator<Item = &mut Waker> {
        let held = self.held.iter_mut().map(|held| &mut held.waiter.waker);
        held.chain(self.all.values_mut().filter_map(|part| part.waker.as_mut()))
    }

    /// The joint claims that wait here.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Arc<JointClaim>> {
        let held = self.held.iter().filter_map(|held| held.waiter.part.as_ref());
        held.chain(self.all.values().filter_map(|part| part.joint_part.as_ref())).map(|part| &part.claim)
    }
}
