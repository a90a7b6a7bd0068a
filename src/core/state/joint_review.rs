//! What a review of a joint set does in one of its members; see `core/joint.rs`.

use super::serving::Served;
use super::{Role, State};
use crate::core::classes::ClassId;
use crate::core::joint::{Front, JointSet, Part};
use crate::core::outcome::Outcome;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::observe::GrantWord;
use std::sync::Arc;

impl State {
    /// A joint claim is the front of its set from now on.
    pub(crate) fn add_front(&mut self, rovers: &Rovers, set: &Arc<JointSet>, class: ClassId, part: Part) {
        let Part { cost, number, charged } = part;
        let mut front = Front::new(Arc::clone(set), class, cost, charged);
        let has_classes = self.role.has(Role::CLASSES);
        front.has_turn = !has_classes && self.queue.front().is_none_or(|first| first.number > number);
        let Some(fronts) = self.joint_mut() else { return };
        fronts.add(number, front);
        fronts.set_urgent(number);
        if has_classes {
            self.enter_front_in_class(rovers, class, number, cost);
        }
    }

    /// A front leaves without a grant.
    pub(crate) fn remove_front(&mut self, rovers: &Rovers, number: u64) {
        self.forget_denial(rovers);
        let Some(front) = self.joint_mut().and_then(|fronts| fronts.remove(number)) else { return };
        if self.role.has(Role::CLASSES) {
            self.leave_class_of_front(rovers, number, &front);
        }
        self.update_held(rovers);
    }

    /// The front that holds this limiter is granted at the instant up to which the limiter is served. `now` is the present.
    /// Returns how many tokens remain.
    pub(crate) fn grant_front_of_set(&mut self, rovers: &Rovers, number: u64, now: u64) -> GrantWord {
        self.forget_denial(rovers);
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(self.supply.synced()));
        let Some(front) = self.joint_mut().and_then(|fronts| fronts.remove(number)) else {
            return GrantWord::NOTHING;
        };
        rovers.claim(front.cost);
        self.supply.claim(front.cost);
        self.charge_class_of_front(number, &front);
        let end = self.base(rovers);
        let word = match self.classes() {
            Some(_) => GrantWord::charged(self.supply.level(end, 0)),
            None => GrantWord::plain(self.remaining_after(end)),
        };
        self.update_held(rovers);
        self.with_instant(word)
    }

    /// When front `number` could be granted here, as of the instant up to which this limiter is served; `None` if no clock
    /// can tell. And whether an older front is before it.
    pub(crate) fn find_front(&self, rovers: &Rovers, number: u64) -> (Option<u64>, bool) {
        let Some(fronts) = self.joint() else { return (None, false) };
        let Some((older, between)) = fronts.ready_before(number) else {
            return (self.front_due(rovers, number), false);
        };
        let cost = fronts.get(number).map_or(0, |front| front.cost).saturating_add(between);
        let leaves = older.joint_due.map(|at| at.max(self.supply.synced()));
        (leaves.and_then(|at| self.supply.minted_from(at, cost)), true)
    }

    /// What a review has found for front `number`: when this limiter can grant it, when all members can, and whether an older
    /// front is before it here.
    pub(crate) fn plan_front(
        &mut self,
        rovers: &Rovers,
        number: u64,
        due: Option<u64>,
        joint_due: Option<u64>,
        is_blocked: bool,
        one_clock: bool,
    ) {
        let synced = self.supply.synced();
        let Some(cost) = self.joint().and_then(|fronts| fronts.get(number)).map(|front| front.cost) else { return };
        let start = joint_due.and_then(|at| self.supply.start_by(cost, at));
        let is_unknown = due.is_none() || !one_clock || self.supply.start_by(cost, synced).is_none();
        let Some(fronts) = self.joint_mut() else { return };
        let Some(front) = fronts.get_mut(number) else { return };
        (front.due, front.joint_due) = (due, joint_due);
        front.stays |= is_unknown && !is_blocked;
        // The slowest member holds the claim at once, or next after the older front that does. So what comes free here is
        // found by a look at the held front alone. If the joint instant is unknown, the claim is reviewed when it is next.
        let is_slowest = joint_due.map_or(is_blocked, |at| due.is_some_and(|due| due >= at));
        let wants = front.stays || is_slowest || start.is_some_and(|start| start <= synced);
        let alarm = match joint_due {
            Some(joint_due) if wants => Some(joint_due),
            Some(joint_due) => Some(start.map_or(joint_due, |start| start.min(joint_due))),
            None => due.filter(|due| !one_clock && *due > synced),
        };
        fronts.set_alarm(number, alarm);
        fronts.set_ready(number, wants);
        self.update_held(rovers);
    }

    /// Holds this limiter for front `number`, which is due at the instant up to which it is served. Returns false if tokens of
    /// a source are missing.
    pub(crate) fn hold_front(&mut self, rovers: &Rovers, number: u64) -> bool {
        if let Some(fronts) = self.joint_mut() {
            fronts.set_ready(number, true);
        }
        self.update_held(rovers);
        let (synced, ticket) = (self.supply.synced(), self.front_ticket(rovers));
        self.supply.mint(synced, ticket);
        !ticket.is_some_and(|ticket| self.supply.lacks_external(ticket))
    }

    /// Why front `number` gets no tokens here, if it has to fail for that reason.
    pub(crate) fn refuses_front(&self, rovers: &Rovers, number: u64) -> Option<Outcome> {
        let front = self.joint()?.get(number).filter(|front| front.has_turn)?;
        self.source_refusal(0, front.cost, self.base(rovers).wrapping_add(front.cost))
    }

    /// Serves this limiter up to `at`, for a review of the front `number`.
    pub(crate) fn serve_for_review(&mut self, rovers: &Rovers, number: u64, at: u64, wakes: &mut Wakes) -> Served {
        if let Some(fronts) = self.joint_mut() {
            // Two reviews that are both late, because another member was served beyond, must not wait for each other.
            let planned = fronts.get(number).and_then(|front| front.joint_due);
            fronts.reviewed = Some((number, planned.map_or(at, |planned| planned.min(at))));
        }
        if self.supply.synced() >= at {
            // The front comes before the claims that are due at this instant too.
            return Served::All;
        }
        self.serve_up_to(rovers, at, wakes)
    }
}
