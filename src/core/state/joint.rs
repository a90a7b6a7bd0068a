//! The rule for joint claims: when a joint claim holds the front of a queue, and when other claims pass it.
//!
//! # The rule
//!
//! A joint claim has a *part* in each of its queues. Each part goes through up to three stages:
//!
//! 1. **Place.** The part waits, at no cost, behind all claims that were in the queue before it.
//! 2. **Aside.** Once these have been granted, the part leaves the queue, and the claims behind it pass.
//! 3. **Held.** The part stands at the front of the queue with its real cost, until all queues are ready. Then all of
//!    them grant it at one instant (see `core/joint.rs`).
//!
//! Once all parts are aside, each queue computes its *due instant*: the instant at which it could grant its part if it
//! held the part now. The latest of them is the *joint due instant*. A queue moves its part from aside to held at the
//! joint due instant less the time that it takes to mint the part's cost into an empty bucket, or now if that has passed.
//! So the slowest queue holds its part at once, and a faster one only for as long as it takes to mint the part's own
//! tokens. Parts are put in front of the queue: their claim is older than every claim that waits there.
//!
//! This is a reservation at the instant at which the last resource is free, as in EASY backfilling: claims behind may
//! pass as long as they leave the reservation alone.
//!
//! The details:
//!
//! - When its due instant changes, a queue sends an *update* to all queues of the claim, and each decides anew. A part that
//!   is held too early for the new joint due instant goes aside again. The end of a pause, another quota, and tokens that
//!   are added or refunded make instants earlier: the parts that wait aside because of them are looked at before any other
//!   claim is granted; between two steps of a quota, a bounded number of them. See `state/alarms.rs`.
//! - A queue that no clock makes ready (the in-flight cap, a manual or a distributed quota, queues on different clocks)
//!   holds its part from then on until the grant. If it could be set aside again, others could take its tokens each time.
//!   While its instant is unknown, the queues that do have an instant hold nothing.
//! - A queue holds one part at a time. If two claims want the front, the older one has it, and a younger one that is held
//!   goes aside. Places wait until no part is held.
//! - A queue that receives an update first serves itself up to the instant of the update. If that is the present, it also
//!   reads the releases. Only then does it decide about the part. If it decided by an older state, it could hold the part,
//!   and the claims behind it, for as long as the other queues take. For the same reason, every release reports to the
//!   queue while a part waits aside, as it does while a claim waits in the queue.
//! - A debt charged while the part waited does not delay it: the debt is put behind the part. But tokens that are there
//!   already when the debt is charged, or that come in at once later, pay the debt first; and with classes all do.
//! - A queue with a held part that is ready mints no further than the instant at which it became ready. When it receives
//!   an update about an older part, it first mints up to the instant of the update, cut at what the held part allows. The
//!   older part then saves tokens above the burst from that instant on, and not from one at which it was not in front.
//!
//! # Why it is correct
//!
//! - *The rate law.* A part that comes to the front lowers every head, the ceiling and the position up to which claims
//!   are granted by its cost, and one that goes aside raises them again and cuts what was saved above the burst. So no
//!   level rises, and everything else is as for a plain claim. The joint due instant decides nothing about the
//!   law: if it is wrong, a grant is late.
//! - *Order.* Places follow the order of arrival, and a part passes no claim that was there before it. If two claims
//!   are over the same limiters, the older one is never behind the younger one: it is aside first, it has the front
//!   first, and places wait for it.
//! - *No deadlock.* Where one claim waits for another, the younger waits for the older, in all queues: numbers are
//!   given while all queues of a claim are locked.
//! - *No starvation.* Take the oldest claim that has all its parts aside or held. In no queue is a part of another
//!   claim ahead of its part. Each queue becomes ready from the start it computes, unless an action from outside
//!   changes its instant: a pause, another quota, a cap that others use up before the part is held. The last can happen
//!   once per queue, since the queue then holds its part. A place waits for a finite number of claims that came before
//!   it.
//!
//! # Bounds
//!
//! A claim that finds all its parts aside at instant `t` is granted by `t` plus the longest time that one of its queues
//! takes to mint its cost, plus the same for each older joint claim that holds a part in one of its queues at `t`, if no
//! pause, cap or change of quota comes between. The claims behind it in one queue wait for the time that this queue takes
//! to mint the part's cost; and if the joint due instant changes while the part is held, also for the time up to that
//! change.
//!
//! A part costs O(log n) for n parts in the queue each time it changes its stage, and when a pause ends, the quota changes, or
//! a debt is paid. One serving pass looks at no part that is neither due nor next; a refund between two steps of a quota looks
//! at up to 32 more.

use super::serving::Step;
use super::{ServeResult, Served, State};
use crate::core::joint::{JointPart, JointState};
use crate::core::outcome::Outcome;
use crate::core::queue::{AT_ONCE, PartStage};
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use std::task::Waker;

impl State {
    /// A part of a joint claim joins the end of the queue.
    pub(crate) fn enter_part(&mut self, cost: u64, waker: Waker, part: Box<JointPart>) {
        self.queue.add_part(self.next_number, cost, waker, part);
    }

    /// Moves the next part that can move at the instant up to which the queue is served; `None` if no part can.
    pub(super) fn move_next_part(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> Option<Step> {
        let parts = self.queue.parts()?;
        let turned_away = if self.closed { parts.first_not_held() } else { None };
        let blocked = if parts.held().is_none() { parts.first_blocked() } else { None };
        // A part may be due earlier than was planned, and come to the front before any other claim is decided.
        if turned_away.or(blocked).is_none() && parts.first_alarm().is_some_and(|(at, _)| at == AT_ONCE) {
            let front = self.front_ticket(rovers);
            return Some(self.review_alarm(rovers, front, wakes));
        }
        let place = if blocked.is_none() { self.queue.first_place() } else { None };
        let number = turned_away.or(blocked).or(place)?;
        if wakes.must_pause() {
            return Some(Step::Ended(Served::Again));
        }
        wakes.steps += 1;
        if turned_away.is_some() {
            self.turn_part_away(rovers, number, Outcome::Closed, wakes);
        } else if blocked.is_some() {
            self.review_aside(rovers, number, self.supply.synced(), wakes);
        } else {
            self.arrive_part(rovers, number, wakes);
        }
        Some(Step::Moved)
    }

    /// The instant, in this queue's time, of an update about claim `number` as of `since_entered` nanoseconds after the
    /// claim entered. The caller read `now` after the update was sent. `None` if the claim does not wait here.
    pub(crate) fn update_instant(&self, number: u64, since_entered: u64, now: u64) -> Option<u64> {
        let part = self.queue.parts()?.joint_part(number)?;
        Some(if part.has_one_clock() { part.instant(since_entered).min(now) } else { now })
    }

    /// Handles an update about claim `number`, as of `at`. The caller read `now` after the update was sent.
    ///
    /// If this returns [`Again`](ServeResult::Again), the caller releases the lock, reads the time anew and calls this
    /// again, even if the claim has left the queue meanwhile: the queue has not been served up to `at`.
    pub(crate) fn receive_update(
        &mut self,
        rovers: &Rovers,
        number: u64,
        at: u64,
        now: u64,
        wakes: &mut Wakes,
    ) -> ServeResult {
        self.leave_unfinished(rovers);
        let part = self.queue.parts().and_then(|parts| parts.joint_part(number));
        if part.is_some_and(JointPart::is_dead) && !self.is_held(number) {
            self.turn_part_away(rovers, number, Outcome::JointEnded, wakes);
            return ServeResult::Done;
        }
        loop {
            // Claims that are granted by `at` come before the update, and the update does not affect them.
            match self.serve_up_to(rovers, at, now, wakes) {
                Served::Again => return ServeResult::Again,
                // A child has to answer first.
                Served::Stopped if self.role.awaits() => return ServeResult::Again,
                // A joint claim left the queue before `at`. Its queues receive that update first, then this one again.
                Served::Stopped if self.supply.synced() < at => {
                    self.push_update(number, at, wakes);
                    return ServeResult::Done;
                }
                _ if wakes.is_full() => return ServeResult::Again,
                Served::Held => self.mint_for_older(rovers, number, at),
                Served::All | Served::Stopped => {}
            }
            if self.supply.synced() < now || self.refresh_ceiling(rovers) == 0 {
                break;
            }
        }
        match self.queue.parts().and_then(|parts| parts.stage(number)) {
            Some(PartStage::Held) => self.review_held(rovers, now, wakes),
            Some(PartStage::Aside | PartStage::Alarm(_) | PartStage::Blocked) => {
                self.review_aside(rovers, number, at, wakes)
            }
            Some(PartStage::Place | PartStage::Turn | PartStage::Called(_)) | None => {}
        }
        self.leave_unfinished(rovers);
        ServeResult::Done
    }

    /// Mints up to `at` for part `number`, which may come to the front then, if the part that is held is younger. The
    /// held part has been ready since an earlier instant, and the queue has not been served past that instant. What is
    /// minted between the two is cut at the limit that the held part sets: otherwise these tokens would be saved for
    /// the older part.
    fn mint_for_older(&mut self, rovers: &Rovers, number: u64, at: u64) {
        let stage = self.queue.parts().and_then(|parts| parts.stage(number));
        let is_aside = matches!(stage, Some(PartStage::Aside | PartStage::Alarm(_) | PartStage::Blocked));
        if is_aside && self.queue.held().is_some_and(|held| held.number > number) {
            self.supply.mint(at, self.front_ticket(rovers));
        }
    }

    /// No claim is ahead of the part any more.
    pub(super) fn arrive_part(&mut self, rovers: &Rovers, number: u64, wakes: &mut Wakes) {
        let Some(part) = self.queue.parts().and_then(|parts| parts.joint_part(number)) else { return };
        if part.is_dead() {
            return self.turn_part_away(rovers, number, Outcome::JointEnded, wakes);
        }
        // No update is sent: the other queues look at the part once the last of them has set it aside.
        part.set_due(self.due_in_front(rovers, number));
        if part.set_arrived() {
            self.push_update(number, self.supply.synced(), wakes);
        }
        if let Some(parts) = self.queue.parts_mut() {
            parts.move_to(number, PartStage::Aside);
        }
        self.review_aside(rovers, number, self.supply.synced(), wakes);
    }

    /// Decides what becomes of a part that is aside, as of `at`. If an older part is held, the queue may have been served
    /// up to an earlier instant only.
    pub(super) fn review_aside(&mut self, rovers: &Rovers, number: u64, at: u64, wakes: &mut Wakes) {
        let Some(parts) = self.queue.parts() else { return };
        let (Some(part), Some(cost)) = (parts.joint_part(number), parts.part(number).map(|part| part.cost)) else {
            return;
        };
        if part.is_dead() {
            return self.turn_part_away(rovers, number, Outcome::JointEnded, wakes);
        }
        let (others, one_clock, has_arrived) = (part.others_due(), part.has_one_clock(), part.has_arrived());
        let must_not_hold = part.must_not_hold();
        if self.is_behind_held(number) {
            let at = at.max(self.supply.synced());
            let due = self.due_behind_held(cost, at);
            self.set_aside(number, PartStage::Blocked);
            return self.announce_due_as_of(at, number, due, wakes);
        }
        let due = self.due_in_front(rovers, number);
        let start = |at| self.supply.start_by(cost, at);
        let stage = match (due, others) {
            _ if must_not_hold => PartStage::Aside,
            _ if !one_clock => PartStage::Held,
            _ if !has_arrived => PartStage::Aside,
            (None, _) => PartStage::Held,
            (Some(due), None) => start(due).map_or(PartStage::Held, |_| PartStage::Aside),
            (Some(due), Some(others)) => match start(due.max(others)) {
                Some(start) if start > self.supply.synced() => PartStage::Alarm(start),
                _ => PartStage::Held,
            },
        };
        if stage == PartStage::Held {
            let stays = !one_clock || due.and_then(start).is_none();
            return self.hold(rovers, number, stays, wakes);
        }
        self.set_aside(number, stage);
        self.note_if_debt_alarm(number, due, others);
        if has_arrived {
            self.announce_due(number, due, wakes);
        }
    }

    /// Decides whether the held part is held too early, as of `now`, the time read for an update.
    fn review_held(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) {
        self.announce_held_due(rovers, wakes);
        let Some(held) = self.queue.held().filter(|held| !held.stays) else { return };
        let (Some(part), Some(due)) = (&held.waiter.part, held.announced) else { return };
        let (now, number, others) = (now.max(self.supply.synced()), held.number, part.others_due());
        let stage = match others {
            None => PartStage::Aside,
            Some(others) => match self.supply.start_by(held.waiter.cost, due.max(others)) {
                Some(start) if start > now => PartStage::Alarm(start),
                _ => return,
            },
        };
        // If the claim was decided meanwhile, it leaves when the queue is served.
        if part.set_unready() == JointState::Held {
            // Mint up to now first: the claims behind the part cannot pass as of an earlier instant.
            self.supply.mint(now, self.front_ticket(rovers));
            self.set_held_aside(stage);
            self.note_if_debt_alarm(number, Some(due), others);
        }
    }

    /// Announces the due instant of the held part, if it differs from the one announced before.
    pub(super) fn announce_held_due(&mut self, rovers: &Rovers, wakes: &mut Wakes) {
        let Some(held) = self.queue.held() else { return };
        let (number, announced, due, now) = (held.number, held.announced, self.held_due(rovers), self.supply.synced());
        let is_past = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if due == announced || is_past(due) && is_past(announced) {
            return;
        }
        if let Some(held) = self.queue.parts_mut().and_then(|parts| parts.held_mut()) {
            held.announced = due;
            held.stays |= due.is_none();
        }
        self.announce_due(number, due, wakes);
    }

    /// Puts a part at the front of the queue. A younger part that is held there goes aside.
    fn hold(&mut self, rovers: &Rovers, number: u64, stays: bool, wakes: &mut Wakes) {
        let held =
            self.queue.held().map(|held| (held.number, held.waiter.part.as_ref().map(|part| part.set_unready())));
        match held {
            Some((_, Some(JointState::Held))) => self.set_held_aside(PartStage::Blocked),
            // The held part was decided meanwhile, and leaves when the queue is served.
            Some(_) => return self.set_aside(number, PartStage::Blocked),
            None => {}
        }
        // If no claim waits in the queue, published tokens could still be claimed without the lock.
        self.retract(rovers);
        let Some(cost) = self.queue.parts().and_then(|parts| parts.part(number)).map(|part| part.cost) else { return };
        let debt = self.debt_behind(number, self.base(rovers));
        if self.queue.is_empty() {
            rovers.claim(cost);
        } else {
            self.supply.lower(cost);
            self.totals.skipped = self.totals.skipped.wrapping_sub(cost);
        }
        self.supply.put_debt_behind(debt);
        self.supply.note_change();
        self.queue.hold(number, debt, stays);
        let due = self.held_due(rovers);
        if let Some(held) = self.queue.parts_mut().and_then(|parts| parts.held_mut()) {
            held.announced = due;
            held.stays |= due.is_none();
        }
        self.announce_due(number, due, wakes);
        if let Some((younger, _)) = held {
            let cost = self.queue.parts().and_then(|parts| parts.part(younger)).map_or(0, |part| part.cost);
            let due = self.due_behind_held(cost, self.supply.synced());
            self.announce_due(younger, due, wakes);
        }
    }

    /// The held part leaves the front and waits aside.
    pub(super) fn set_held_aside(&mut self, stage: PartStage) {
        let Some((cost, debt)) = self.queue.set_held_aside(stage) else { return };
        self.totals.skipped = self.totals.skipped.wrapping_add(cost);
        self.supply.drop_front(cost, debt);
        self.charge_debts_if_idle();
    }

    fn set_aside(&mut self, number: u64, stage: PartStage) {
        if let Some(parts) = self.queue.parts_mut() {
            parts.move_to(number, stage);
        }
    }

    /// Calls out a part that is not held. The batch of wakers must have space.
    pub(super) fn turn_part_away(&mut self, rovers: &Rovers, number: u64, outcome: Outcome, wakes: &mut Wakes) {
        let at = self.since_entered(number);
        let reservation = self.reservation(number);
        let Some((waker, joint)) = self.queue.call_part(number, outcome) else { return };
        self.end_reservation(rovers, reservation);
        joint.kill_as(outcome);
        wakes.push_update(joint, at);
        wakes.push(waker);
    }

    /// Empties the place of a part after its future is done with it. The queue has been served. Returns the outcome if the
    /// future has not seen it, and otherwise the waker.
    pub(crate) fn remove_part(&mut self, rovers: &Rovers, number: u64) -> (Option<Outcome>, Option<Waker>) {
        if self.is_held(number) {
            self.set_held_aside(PartStage::Aside);
        }
        let reservation = self.reservation(number);
        let (outcome, waker) = self.queue.remove_part(number).unwrap_or_default();
        self.end_reservation(rovers, reservation);
        (outcome, waker)
    }

    /// Announces when this queue can grant part `number`, as of the instant up to which the queue is served.
    fn announce_due(&self, number: u64, due: Option<u64>, wakes: &mut Wakes) {
        self.announce_due_as_of(self.supply.synced(), number, due, wakes);
    }

    /// Stores when this queue can grant part `number`, and sends an update if that changes anything for the other queues.
    fn announce_due_as_of(&self, at: u64, number: u64, due: Option<u64>, wakes: &mut Wakes) {
        let part = self.queue.parts().and_then(|parts| parts.joint_part(number));
        if part.is_some_and(|part| part.has_one_clock() && part.set_due(due)) {
            self.push_update(number, at, wakes);
        }
    }

    /// Adds an update about claim `number`, as of `at`, to what the caller delivers after it has released the lock.
    fn push_update(&self, number: u64, at: u64, wakes: &mut Wakes) {
        if let Some(part) = self.queue.parts().and_then(|parts| parts.joint_part(number)) {
            wakes.push_update(part.claim.clone(), part.since_entered(at));
        }
    }

    fn since_entered(&self, number: u64) -> u64 {
        let part = self.queue.parts().and_then(|parts| parts.joint_part(number));
        part.map_or(0, |part| part.since_entered(self.supply.synced()))
    }

    pub(super) fn is_held(&self, number: u64) -> bool {
        self.queue.held().is_some_and(|held| held.number == number)
    }

    /// Whether an older part is held.
    pub(super) fn is_behind_held(&self, number: u64) -> bool {
        self.queue.held().is_some_and(|held| held.number < number)
    }

    /// The instant at which the part could be granted here if it came to the front now. A younger part that is held
    /// would go aside.
    fn due_in_front(&self, rovers: &Rovers, number: u64) -> Option<u64> {
        let cost = self.queue.parts()?.part(number)?.cost;
        let end = self.base(rovers);
        if self.role.has_classes() {
            return self.due_in_front_of_classes(number, end, cost);
        }
        self.supply.due_in_front(end, cost, self.debt_behind(number, end))
    }

    /// An estimate of the instant at which a part of `cost` tokens can be granted here if it comes to the front when the
    /// held part leaves, which is not before `at`.
    fn due_behind_held(&self, cost: u64, at: u64) -> Option<u64> {
        let held = self.queue.held()?.waiter.part.as_ref().filter(|part| part.has_one_clock())?;
        self.supply.minted_from(held.joint_due()?.max(at), cost)
    }

    /// How many tokens of the debts charged since the part entered are not paid yet, if the queue begins at `start`.
    pub(super) fn debt_behind(&self, number: u64, start: u64) -> u64 {
        let Some(parts) = self.queue.parts() else { return 0 };
        let charged = parts.part(number).map_or(0, |part| parts.charged.wrapping_sub(part.charged));
        if charged == 0 { 0 } else { charged.min(self.supply.shortfall(start)) }
    }
}
