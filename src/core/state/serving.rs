//! Serving: the queue gets what the supply has, each claim at the exact instant that the schedule gives it.

use super::{Role, State};
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;

/// How far a queue is served if its front claim is ready here and the parent holds it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Up to now, like every other queue. For callers that act on the state.
    Now,
    /// Up to the instant at which the front claim became ready. The claim can then still be granted as of its own
    /// instant, and tokens minted after that instant are not cut at the burst. For callers that only look, or join the
    /// end of the queue, and for [`State::finish`], after any action.
    Held,
}

/// How far a caller serves a queue that is behind, where a driver could do it instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// Up to now: for changes that apply from now on.
    Fully,
    /// One batch of wakers. The drivers are woken to serve the rest, and the caller acts on a queue that is
    /// [behind](State::act_behind).
    Batch,
}

/// How far [`State::serve`] serves the queue.
#[derive(Clone, Copy)]
pub(super) struct Until {
    pub(super) now: u64,
    pub(super) reach: Reach,
    /// Waiters with this number or a higher one have not arrived yet.
    pub(super) end: Option<u64>,
}

/// How a call that serves the queue ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The queue is served up to the given instant.
    All,
    /// The lock must be released now: the batch of wakers or the steps of one hold are used up, or changes of classes are
    /// left to do. The caller wakes the collected wakers, reads the time anew, and serves the queue again. Or, if
    /// [`State::finish`] returns it, a child may have to answer first.
    Again,
    /// A joint set has to be [reviewed](State::due_review) before this queue is served further. Or a child has to
    /// [answer](crate::core::Core::answer_parent) first.
    Stopped,
}

/// What one step of serving did.
pub(super) enum Step {
    /// Something changed: the next step decides anew.
    Moved,
    Ended(Served),
}

impl State {
    /// Brings everything up to `now`. Callers call this before they act on the state.
    pub(crate) fn settle(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> Served {
        match self.do_all_deferred(rovers, u64::MAX, wakes) {
            Some(Served::Stopped) => return Served::Stopped,
            Some(_) => return self.leave_unfinished(rovers),
            None => {}
        }
        loop {
            match self.serve(rovers, Until { now, reach, end: None }, wakes) {
                Served::Again => return self.leave_unfinished(rovers),
                Served::Stopped => return Served::Stopped,
                Served::All => {}
            }
            if self.refresh_ceiling(rovers) == 0 {
                return Served::All;
            }
        }
    }

    /// Ends every action: serves the queue again, publishes, and wakes each driver that has set its alarm too late. If a review
    /// has to come first, `wakes` has it, the queue is left unfinished, and the result is `All` all the same.
    pub(crate) fn finish(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Served {
        let busy = self.cap.as_ref().is_some_and(|cap| cap.watching) || self.role.has(Role::ALWAYS_SERVED);
        if !self.queue.has_joint() && self.queue.is_empty() && !busy && self.next_deferred().is_none() {
            // The common case: no waiter to serve, no alarm to set.
            self.supply.mint(now, None);
            if !self.wake_source(rovers, wakes) {
                return self.leave_unfinished(rovers);
            }
            self.publish(rovers);
            if self.last_due == u64::MAX {
                return Served::All;
            }
            return self.note_due(rovers, now, wakes);
        }
        self.last_served = now;
        match self.settle(rovers, now, Reach::Held, wakes) {
            Served::Again => return Served::Again,
            Served::Stopped if self.role.has(Role::AWAITS) => return self.leave_unfinished(rovers),
            // The rest follows when this queue is served again.
            Served::Stopped => {
                self.due_review().into_iter().for_each(|set| wakes.push_review(set));
                self.leave_unfinished(rovers);
                return Served::All;
            }
            Served::All => {}
        }
        if !self.wake_source(rovers, wakes) {
            return self.leave_unfinished(rovers);
        }
        self.publish(rovers);
        self.note_due(rovers, now, wakes)
    }

    /// Replaces [`finish`](Self::finish) if one batch was served and more is due: tells the drivers to look at once.
    pub(crate) fn hand_over(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Served {
        self.leave_unfinished(rovers);
        self.last_served = now;
        if self.drivers.call_lead(now, wakes) { Served::All } else { Served::Again }
    }

    #[inline(always)]
    fn note_due(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Served {
        let due = self.due(rovers);
        self.last_due = due;
        if self.drivers.wake_if_late(due, now, wakes) { Served::All } else { self.leave_unfinished(rovers) }
    }

    /// The lock is about to be released in the middle of serving: results computed before may not hold any more.
    pub(crate) fn leave_unfinished(&mut self, rovers: &Rovers) -> Served {
        self.last_due = 0;
        self.forget_denial(rovers);
        Served::Again
    }

    /// Serves the queue in virtual time: grants each waiter at the exact instant that the schedule gives it.
    pub(super) fn serve(&mut self, rovers: &Rovers, until: Until, wakes: &mut Wakes) -> Served {
        // One check here, instead of one at each place below.
        if self.queue.has_joint() || !self.role.is_plain() {
            if self.awaited_child().is_some() {
                return Served::Stopped;
            }
            if self.role.has(Role::CALENDAR) {
                self.look_at_wall(until.now);
            }
            if !self.turn_closed_away(rovers, wakes) {
                return if self.role.has(Role::AWAITS) { Served::Stopped } else { Served::Again };
            }
            let served = self.serve_as::<false>(rovers, until, wakes);
            // The last grant may have left debts that are to be taken off first.
            return if served == Served::All && self.is_changing() { Served::Again } else { served };
        }
        self.serve_as::<true>(rovers, until, wakes)
    }

    /// Takes [steps](Self::step) until one of them ends the pass.
    fn serve_as<const PLAIN: bool>(&mut self, rovers: &Rovers, mut until: Until, wakes: &mut Wakes) -> Served {
        loop {
            until.now = until.now.max(self.supply.synced());
            if let Step::Ended(served) = self.step::<PLAIN>(rovers, until, wakes) {
                return served;
            }
        }
    }

    /// Serves the queue up to `at`. Calls made by `at` while the queue was behind take effect on the way.
    pub(super) fn serve_up_to(&mut self, rovers: &Rovers, at: u64, wakes: &mut Wakes) -> Served {
        if let Some(stopped) = self.do_all_deferred(rovers, at, wakes) {
            return stopped;
        }
        let end = self.next_deferred().map(|deferred| deferred.from);
        self.serve(rovers, Until { now: at, reach: Reach::Now, end }, wakes)
    }

    /// Does the calls that were made by `at` while the queue was behind, each when the queue is served up to its instant.
    /// Returns what stopped it, if that was not all.
    #[inline]
    fn do_all_deferred(&mut self, rovers: &Rovers, at: u64, wakes: &mut Wakes) -> Option<Served> {
        while let Some(deferred) = self.next_deferred().filter(|deferred| deferred.at <= at) {
            let until = Until { now: deferred.at, reach: Reach::Now, end: Some(deferred.from) };
            match self.serve(rovers, until, wakes) {
                Served::All => self.do_deferred(rovers),
                stopped => return Some(stopped),
            }
        }
        None
    }
}
