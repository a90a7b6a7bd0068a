//! The review of a set under the locks of all its members; see `core/joint.rs`.

use super::set::{Called, JointSet, Part, SetQueue};
use crate::core::Core;
use crate::core::locked::Locked;
use crate::core::outcome::Outcome;
use crate::core::state::{Sample, Served, State};
use crate::core::wakes::Wakes;
use crate::sync::MutexGuard;
use std::sync::{Arc, Weak};

/// How a review ended.
pub(super) enum Reviewed {
    Done,
    /// The locks must be released and the collected wakers woken; then the set is reviewed again.
    Again,
    /// A child of a member has to answer first.
    Awaits(Weak<Core>),
    /// Another set has to be reviewed first.
    After(Arc<JointSet>),
}

impl Reviewed {
    /// What has to happen before a member that has stopped is served further.
    pub(super) fn before(member: &mut State) -> Self {
        match (member.awaited_child(), member.due_review()) {
            (Some(child), _) => Self::Awaits(child),
            (None, Some(other)) => Self::After(other),
            (None, None) => Self::Again,
        }
    }
}

impl JointSet {
    /// Has the set decide what its front claim does next, after those that have to be reviewed before it. No lock is held.
    pub(crate) fn review(self: Arc<Self>, wakes: &mut Wakes) {
        let mut sets = vec![self];
        while let Some(set) = sets.last().cloned() {
            let is_last = sets.len() == 1;
            match with_members_locked(&set, wakes, |members, wakes| members.review(&sets, wakes)) {
                Reviewed::Done => {
                    sets.pop();
                    if !is_last {
                        set.members
                            .iter()
                            .filter_map(|member| member.core.upgrade())
                            .for_each(|core| wakes.push_unserved(core));
                    }
                }
                Reviewed::Again => wakes.wake_all(),
                Reviewed::Awaits(child) => wakes.ask(&child),
                Reviewed::After(other) => {
                    sets.retain(|set| !Arc::ptr_eq(set, &other));
                    sets.push(other);
                }
            }
        }
        wakes.wake_all();
    }
}

/// Runs `act` on the members of a set, locked in their order.
pub(super) fn with_members_locked<R>(
    set: &Arc<JointSet>,
    wakes: &mut Wakes,
    act: impl FnOnce(&mut Members<'_>, &mut Wakes) -> R,
) -> R {
    // The members that exist, with their indices and samples.
    let present = set.members.iter().enumerate().filter_map(|(index, member)| {
        let core = member.core.upgrade()?;
        Some((index, core.sample_or_last(), core))
    });
    let present: Vec<(usize, Option<Sample>, Arc<Core>)> = present.collect();
    let locked: Vec<_> = present.iter().map(|(index, sample, core)| (*index, Locked::lock(core, *sample))).collect();
    let mut members = Members { set, members: locked, queue: set.lock() };
    members.read_one_clock();
    let result = act(&mut members, wakes);
    members.leave();
    members.members.iter().for_each(|(_, locked)| locked.core.note_parent_poll(&locked.state, wakes));
    result
}

/// The members of a set while all of them are locked.
pub(super) struct Members<'a> {
    pub(super) set: &'a Arc<JointSet>,
    /// Those that still exist, with their indices.
    pub(super) members: Vec<(usize, Locked<'a>)>,
    pub(super) queue: MutexGuard<'a, SetQueue>,
}

/// What a review finds about the front in one member.
struct Found {
    /// When the member could grant it, in common time; `None` if no clock can tell.
    due: Option<i128>,
    /// Whether another front is before it there.
    is_blocked: bool,
}

impl Members<'_> {
    /// All readings of one clock have passed, so the latest of them has passed in all members.
    fn read_one_clock(&mut self) {
        if !self.set.one_clock {
            return;
        }
        let now = |it: &Locked<'_>| it.sample.now.max(it.state.supply.synced());
        let common = self.members.iter().map(|(index, it)| self.set.members[*index].common(now(it))).max();
        for (index, locked) in &mut self.members {
            locked.sample.now = self.set.members[*index].local(common.unwrap_or(0));
        }
    }

    /// Before the locks are released.
    fn leave(&mut self) {
        for (_, locked) in &mut self.members {
            if let Some(fronts) = locked.state.joint_mut() {
                fronts.reviewed = None;
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.members.len() == self.set.members.len()
    }

    /// Reviews the set, which is the last of `sets`, at each instant at which that is due by now, then serves its members up to
    /// now. If the sets before it wait for this one, reviews it once, and serves nothing past that.
    fn review(&mut self, sets: &[Arc<JointSet>], wakes: &mut Wakes) -> Reviewed {
        let is_last = sets.len() == 1;
        let result = match self.review_all(sets, wakes) {
            Reviewed::Done if is_last => self.urgent_set(sets).map_or(Reviewed::Done, Reviewed::After),
            before => before,
        };
        if !is_last || !matches!(result, Reviewed::Done) {
            return self.interrupt(result);
        }
        self.leave();
        self.finish(wakes)
    }

    /// Serves the members up to now: first those in which the front waits for its turn. Of one that stops for a turn, or for
    /// another set, the review comes first, so that the others are not served past that.
    fn finish(&mut self, wakes: &mut Wakes) -> Reviewed {
        let parts = self.queue.front_parts();
        let has_turn = |(index, it): &(usize, Locked<'_>)| {
            let front = it.state.joint().zip(parts).and_then(|(fronts, parts)| fronts.get(parts[*index].number));
            front.is_none_or(|front| front.has_turn)
        };
        self.members.sort_by_key(has_turn);
        for (_, locked) in &mut self.members {
            let served = locked.state.finish(&locked.core.rovers, locked.sample.now, wakes);
            if served == Served::Again || locked.state.due_review().is_some() {
                let before = Reviewed::before(&mut locked.state);
                return self.interrupt(before);
            }
        }
        Reviewed::Done
    }

    fn review_all(&mut self, sets: &[Arc<JointSet>], wakes: &mut Wakes) -> Reviewed {
        let mut is_reviewed = false;
        while !self.queue.is_empty() && (sets.len() == 1 || !is_reviewed) {
            if wakes.must_pause() {
                return Reviewed::Again;
            }
            wakes.steps += 1;
            if let Some(other) = self.urgent_set(sets) {
                return Reviewed::After(other);
            }
            is_reviewed = true;
            if let Some((member, outcome)) = self.refusal() {
                self.turn_front_away(member, outcome, wakes);
                continue;
            }
            let Some(at) = self.next_review() else { break };
            if let Some(other) = self.serve_up_to(&at, wakes) {
                return other;
            }
            self.decide(wakes);
        }
        Reviewed::Done
    }

    /// A set, none of these, that has to be reviewed before anything else is decided in a member.
    fn urgent_set(&self, sets: &[Arc<JointSet>]) -> Option<Arc<JointSet>> {
        let fronts = self.members.iter().filter_map(|(_, it)| it.state.joint());
        let mut urgent = fronts.filter_map(|fronts| Some(&fronts.get(fronts.first_urgent()?)?.set));
        urgent.find(|urgent| sets.iter().all(|set| !Arc::ptr_eq(set, urgent))).cloned()
    }

    pub(super) fn parts(&self) -> Arc<[Part]> {
        self.queue.front_parts().cloned().unwrap_or_default()
    }

    /// The member that does not exist any more, or is closed, or gets no tokens for the front.
    fn refusal(&self) -> Option<(usize, Outcome)> {
        if !self.is_complete() {
            let is_gone = |index: &usize| self.members.iter().all(|(known, _)| known != index);
            return (0..self.set.members.len()).find(is_gone).map(|index| (index, Outcome::Closed));
        }
        let parts = self.queue.front_parts()?;
        self.members.iter().find_map(|(index, Locked { core, state, .. })| {
            let class = self.set.members[*index].class;
            let outcome = if state.is_closed(class) {
                Some(Outcome::Closed)
            } else {
                state.refuses_front(&core.rovers, parts[*index].number)
            };
            Some((*index, outcome?))
        })
    }

    /// The front has an outcome: takes it out of all members, and lets the next claim be the front.
    fn call_front(&mut self, called: Called, wakes: &mut Wakes) {
        let Some((waker, parts)) = self.queue.call_front(called) else { return };
        wakes.push(waker);
        self.count_out(&parts);
        self.enter_front();
    }

    pub(super) fn count_out(&mut self, parts: &[Part]) {
        for (index, locked) in &mut self.members {
            locked.state.count_joint_out(self.set.members[*index].class, parts[*index].cost);
        }
        if self.queue.is_empty() {
            if let Some(fronts) = self.members.first_mut().and_then(|(_, first)| first.state.joint_mut()) {
                fronts.sets.remove(&self.set.key());
            }
        }
    }

    pub(super) fn enter_front(&mut self) {
        let parts = self.parts();
        for (index, Locked { core, state, .. }) in self.members.iter_mut().filter(|_| !parts.is_empty()) {
            state.add_front(&core.rovers, self.set, self.set.members[*index].class, parts[*index]);
        }
    }

    fn turn_front_away(&mut self, member: usize, outcome: Outcome, wakes: &mut Wakes) {
        let parts = self.parts();
        for (index, Locked { core, state, .. }) in &mut self.members {
            state.remove_front(&core.rovers, parts[*index].number);
        }
        self.call_front(Called::Refused { member, outcome }, wakes);
    }

    /// For each member the instant up to which it is served for the next review; `None` if none is due by now.
    fn next_review(&self) -> Option<Vec<u64>> {
        let parts = self.queue.front_parts()?;
        let is_urgent = self
            .members
            .iter()
            .any(|(index, it)| it.state.joint().is_some_and(|fronts| fronts.is_urgent(parts[*index].number)));
        if !self.set.one_clock {
            return is_urgent.then(|| self.members.iter().map(|(_, it)| it.sample.now).collect());
        }
        let member = |index: &usize| &self.set.members[*index];
        let synced = self.members.iter().map(|(index, it)| member(index).common(it.state.supply.synced())).max()?;
        let at = if is_urgent {
            synced
        } else {
            let (index, first) = self.members.first()?;
            member(index).common(first.state.joint()?.get(parts[*index].number)?.joint_due?).max(synced)
        };
        let is_due = |(index, it): &(usize, Locked<'_>)| member(index).local(at) <= it.sample.now;
        let instants = || self.members.iter().map(|(index, _)| member(index).local(at)).collect();
        self.members.iter().all(is_due).then(instants)
    }

    /// Serves all members up to an instant. Returns what has to happen before that.
    fn serve_up_to(&mut self, instants: &[u64], wakes: &mut Wakes) -> Option<Reviewed> {
        let parts = self.parts();
        // First the member with the next alarm of another set: if that comes before, no member is served past it.
        let first = (0..self.members.len()).min_by_key(|place| self.next_alarm(*place, &parts));
        for place in first.into_iter().chain(0..self.members.len()) {
            let ((index, Locked { core, state, .. }), at) = (&mut self.members[place], &instants[place]);
            let number = parts[*index].number;
            match state.serve_for_review(&core.rovers, number, *at, wakes) {
                Served::All => {}
                Served::Again => return Some(Reviewed::Again),
                Served::Stopped => return Some(Reviewed::before(state)),
            }
        }
        None
    }

    /// The next alarm of another set in a member, in common time.
    fn next_alarm(&self, place: usize, parts: &[Part]) -> i128 {
        let (index, it) = &self.members[place];
        let alarm = it.state.joint().and_then(|fronts| fronts.next_alarm_of_others(parts[*index].number));
        alarm.map_or(i128::MAX, |at| self.set.members[*index].common(at))
    }

    /// Decides about the front at the instant up to which all members are served.
    fn decide(&mut self, wakes: &mut Wakes) {
        let parts = self.parts();
        let number = |index: &usize| parts[*index].number;
        let mut has_turns = true;
        for (index, Locked { state, .. }) in &mut self.members {
            if let Some(fronts) = state.joint_mut() {
                fronts.clear_urgent(number(index));
                has_turns &= fronts.get(number(index)).is_some_and(|front| front.has_turn);
            }
        }
        if !has_turns {
            return;
        }
        let found: Vec<Found> = self.members.iter().map(|(index, it)| self.find(*index, it, number(index))).collect();
        let dues = || found.iter().map(|found| found.due);
        let at = self.members.iter().map(|(index, it)| self.set.members[*index].common(it.state.supply.synced())).max();
        let joint_due = dues().try_fold(at.unwrap_or(0), |latest, due| Some(latest.max(due?)));
        let is_due = |(found, (index, it)): (&Found, &(usize, Locked<'_>))| {
            let synced = self.set.members[*index].common(it.state.supply.synced());
            !found.is_blocked && found.due.is_some_and(|due| due <= synced)
        };
        if found.iter().zip(&self.members).all(is_due) {
            return self.grant(&parts, wakes);
        }
        // What another front blocks is looked at again when that one leaves.
        let is_past = joint_due <= at;
        let joint_due = joint_due.filter(|_| self.set.one_clock && !is_past);
        for ((index, Locked { core, state, .. }), found) in self.members.iter_mut().zip(&found) {
            let member = &self.set.members[*index];
            let due = found.due.map(|due| member.local(due));
            let joint_due = joint_due.map(|due| member.local(due));
            state.plan_front(&core.rovers, parts[*index].number, due, joint_due, found.is_blocked, self.set.one_clock);
        }
    }

    fn find(&self, index: usize, Locked { core, state, .. }: &Locked<'_>, number: u64) -> Found {
        let (due, is_blocked) = state.find_front(&core.rovers, number);
        Found { due: due.map(|due| self.set.members[index].common(due)), is_blocked }
    }

    fn grant(&mut self, parts: &[Part], wakes: &mut Wakes) {
        if wakes.is_full() {
            return self.set_urgent(parts);
        }
        // Tokens of a source that come in several pieces may not be kept.
        for (index, Locked { core, state, .. }) in &mut self.members {
            if !state.hold_front(&core.rovers, parts[*index].number) {
                return self.set_urgent(parts);
            }
        }
        let words = self.members.iter_mut().map(|(index, Locked { core, state, sample, .. })| {
            state.grant_front_of_set(&core.rovers, parts[*index].number, sample.now)
        });
        let words = words.collect();
        self.call_front(Called::Granted(words), wakes);
    }

    fn set_urgent(&mut self, parts: &[Part]) {
        for (index, locked) in &mut self.members {
            if let Some(fronts) = locked.state.joint_mut() {
                fronts.set_urgent(parts[*index].number);
            }
        }
    }

    pub(super) fn interrupt(&mut self, before: Reviewed) -> Reviewed {
        self.members.iter_mut().for_each(|(_, locked)| locked.interrupt());
        before
    }
}
