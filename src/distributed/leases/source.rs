//! The promised tokens as the limiter's [`Source`].

use super::{Lease, Leases, Pace, Wait};
use crate::core::outcome::CutOff;
use crate::core::rovers::ahead;
use crate::core::source::{RequestTask, Source};
use std::any::Any;
use std::task::Waker;

/// In nanoseconds. Tokens that find no space return to the store if they came less than this ago.
const RECENT: u64 = 5_000_000;

impl Source for Leases {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    /// Without the planner and the store, which belong to the limiter.
    fn copy(&self) -> Box<dyn Source> {
        let &Self { ref list, until, after, period, .. } = self;
        Box::new(Self { list: list.clone(), until, after, period, ..Self::default() })
    }

    /// Mints the tokens that came by `now` and returns their number. The limit is `space`. If the front claim was promised
    /// all it `lacks` in one piece, the limit is at least `lacks`. (Tokens that the claim saves up in several pieces would
    /// come on top of the tokens that other nodes save up between them.) Tokens that came before `now` and find no space
    /// return, or are lost if they came long ago: the store may have filled up since. Tokens that come in this very
    /// nanosecond wait until the next one, for the next waiter in the queue, unless the front claim has no use for them.
    fn mint(&mut self, now: u64, space: u64, lacks: u64) -> u64 {
        if now >= self.period.ends {
            self.period.since = u64::MAX;
        }
        let (mut minted, mut is_called) = (0, false);
        loop {
            let (end, tokens) = self.piece(0);
            let Some(first) = self.list.front() else { break };
            let is_own = first.own;
            let is_whole = tokens >= lacks.saturating_sub(minted);
            let most = if is_whole { space.max(lacks) } else { space };
            let gone_by = if is_whole { now.checked_sub(1) } else { Some(now) };
            let fits = self.due_by(0..end, now).min(most.saturating_sub(minted));
            let gone = |by: Option<u64>| by.map_or(0, |then| self.due_by(0..end, then)).max(fits);
            let (taken, lost) = (gone(gone_by), gone(now.checked_sub(RECENT)));
            minted += fits;
            if !is_own {
                self.spare += taken - lost;
                is_called |= taken > fits;
            }
            self.take(end, now, taken);
            // What comes in later pieces is for the claims behind the front.
            if taken < tokens || lacks > 0 && minted >= lacks {
                break;
            }
        }
        // A waiter may have counted on them.
        if is_called {
            self.call_task();
        }
        minted
    }

    /// The instant at which `need` more tokens are minted for the front claim, for which at most `space` tokens are kept
    /// of those that come in other pieces; `None` if fewer were promised.
    fn passes(&self, need: u64, space: u64) -> Option<u64> {
        let (mut first, mut need, mut space, mut at) = (0, need, space, 0);
        while first < self.list.len() {
            let (end, tokens) = self.piece(first);
            at = at.max(self.come_by(first..end, tokens.min(need))?);
            if tokens >= need {
                return Some(at);
            }
            let kept = tokens.min(space);
            (first, need, space) = (end, need - kept, space - kept);
        }
        None
    }

    /// How many of `burst` tokens may be kept unused at `now`.
    fn kept(&self, burst: u64, now: u64) -> u64 {
        if now < self.until { burst } else { burst.min(self.after) }
    }

    fn not_before(&self, tokens: u64, now: u64) -> Option<u64> {
        let missing = tokens.checked_sub(self.promised()).filter(|missing| *missing > 0)?;
        self.planner.as_ref()?.not_before(missing, now)
    }

    /// The claim with this number waits since `since`.
    fn note_wait(&mut self, number: u64, since: u64) {
        self.waits.push_back(Wait { number, since, until: u64::MAX, has_left: false });
    }

    fn note_deadline(&mut self, until: u64) {
        self.waits.back_mut().into_iter().for_each(|wait| wait.until = until);
    }

    fn forget_wait(&mut self, number: u64) {
        let Some(index) = self.index_of_wait(number) else { return };
        self.waits[index].has_left = true;
        self.left += 1;
        // Seldom, so that a claim that leaves moves one other claim on average, wherever it waited.
        if 2 * self.left > self.waits.len() {
            self.waits.retain(|wait| !wait.has_left);
            self.left = 0;
        }
    }

    fn too_late(&self, number: u64, lacks: u64) -> Option<(u64, u64)> {
        let (sent_away, lacks) = (self.planner.as_deref()?.sent_away, lacks.saturating_sub(self.promised()));
        let wait = self.wait_of(number).filter(|wait| wait.is_too_late(sent_away, lacks))?;
        Some((sent_away?.at.saturating_sub(wait.since), wait.until.saturating_sub(wait.since)))
    }

    fn completes(&self, need: u64) -> bool {
        need <= self.pieces().next().unwrap_or(0)
    }

    fn hand_on(&mut self, tokens: u64, now: u64) {
        if tokens > 0 {
            let own = self.list.front().is_some_and(|next| next.own && next.goes_on);
            self.list.push_front(Lease { own, ..Lease::new(now, Pace::AT_ONCE, 0, tokens) });
        }
    }

    /// Records that `tokens` were minted and cannot be kept. A waiter may have counted on them, so the refill task has
    /// to run.
    fn spare(&mut self, tokens: u64) {
        if tokens > 0 {
            self.spare += tokens;
            self.call_task();
        }
    }

    /// Whether a refund of a grant made at this instant counts.
    fn takes_back(&self, granted_at: Option<u64>) -> bool {
        let is_calendar = self.planner.as_ref().is_some_and(|planner| planner.terms.is_calendar());
        !is_calendar || granted_at.is_some_and(|at| at >= self.period.since)
    }

    fn most_claimed(&self) -> u64 {
        self.planner.as_ref().map_or(u64::MAX, |planner| planner.terms.burst())
    }

    fn most_at_once(&self) -> u64 {
        self.planner.as_ref().map_or(0, |planner| planner.terms.most_held())
    }

    fn miss(&mut self, cost: u64) {
        self.planner.iter_mut().for_each(|planner| planner.miss(cost));
    }

    fn call_task(&mut self) {
        self.planner.iter_mut().for_each(|planner| planner.called = true);
    }

    fn cut_off(&self) -> Option<CutOff> {
        self.planner.as_ref()?.cut_off()
    }

    fn is_low(&self, claims: u64, head: u64, is_waiting: bool) -> bool {
        self.planner.as_ref().is_some_and(|planner| {
            let unused = ahead(head.wrapping_add(self.promised()), claims);
            let is_idle = !is_waiting && unused >= 0;
            planner.is_low(claims) || is_idle && (self.spare > 0 || planner.has_too_much(unused as u64))
        })
    }

    fn is_urgent(&self) -> bool {
        self.planner.as_ref().is_some_and(|planner| planner.denies)
    }

    fn sleeps_without_plan_for(&self, claim: u64) -> bool {
        self.planner.as_ref().is_some_and(|planner| planner.sleeps_without_plan_for(claim))
    }

    fn take_waker(&mut self) -> Option<Waker> {
        self.planner.as_mut()?.take_waker()
    }

    fn is_stopped(&self) -> bool {
        self.planner.as_ref().is_some_and(|planner| planner.vacant.is_some())
    }

    fn take_task(&mut self) -> Option<RequestTask> {
        self.planner.as_mut()?.vacant.take()
    }

    fn end(&mut self, unused: u64, now: u64) -> Option<Waker> {
        let mut planner = self.planner.take()?;
        if planner.may_be_known() {
            self.spare(unused);
            let mut ask = planner.final_request();
            self.return_with(&mut ask, u64::MAX, now, planner.is_out);
            _ = planner.final_return.set(ask);
        }
        planner.take_waker()
    }
}
