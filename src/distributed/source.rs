//! The promised tokens as the limiter's [`Source`].

use super::{Leases, RefillPlanner};
use crate::core::outcome::CutOff;
use crate::core::rovers::ahead;
use crate::core::source::{RequestTask, Source};
use std::any::Any;
use std::task::Waker;

impl Leases {
    fn is_planner(&self, test: impl FnOnce(&RefillPlanner) -> bool) -> bool {
        self.planner.as_deref().is_some_and(test)
    }
}

impl Source for Leases {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn copy(&self) -> Box<dyn Source> {
        Box::new(self.clone())
    }

    fn mint(&mut self, now: u64, space: u64, lacks: u64) -> u64 {
        self.mint(now, space, lacks)
    }

    fn passes(&self, need: u64, space: u64) -> Option<u64> {
        self.passes(need, space)
    }

    fn kept(&self, burst: u64, now: u64) -> u64 {
        self.kept(burst, now)
    }

    fn not_before(&self, tokens: u64, now: u64) -> Option<u64> {
        let missing = tokens.checked_sub(self.promised()).filter(|missing| *missing > 0)?;
        self.planner.as_ref()?.not_before(missing, now)
    }

    fn note_wait(&mut self, number: u64, since: u64) {
        self.note_wait(number, since);
    }

    fn note_deadline(&mut self, until: u64) {
        self.note_deadline(until);
    }

    fn too_late(&self, number: u64, lacks: u64) -> Option<(u64, u64)> {
        let (sent_away, lacks) = (self.planner.as_deref()?.sent_away, lacks.saturating_sub(self.promised()));
        let wait = self.wait_of(number).filter(|wait| wait.is_too_late(sent_away, lacks))?;
        Some((sent_away?.at.saturating_sub(wait.since), wait.until.saturating_sub(wait.since)))
    }

    fn completes(&self, need: u64) -> bool {
        need <= self.pieces().next().unwrap_or(0)
    }

    fn spare(&mut self, tokens: u64) {
        self.spare(tokens);
    }

    fn takes_back(&self, granted_at: Option<u64>) -> bool {
        self.takes_back(granted_at)
    }

    fn lose(&mut self) {
        self.planner.iter_mut().for_each(|planner| planner.call());
    }

    fn most_claimed(&self) -> u64 {
        self.planner.as_ref().map_or(u64::MAX, |planner| planner.terms().most_claimed())
    }

    fn most_at_once(&self) -> u64 {
        self.planner.as_ref().map_or(0, |planner| planner.terms().most_held())
    }

    fn miss(&mut self, cost: u64) {
        self.planner.iter_mut().for_each(|planner| planner.miss(cost));
    }

    fn wake_task(&mut self) {
        self.planner.iter_mut().for_each(|planner| planner.call());
    }

    fn cut_off(&self) -> Option<CutOff> {
        self.planner.as_deref().and_then(RefillPlanner::cut_off)
    }

    fn is_low(&self, claims: u64, head: u64, is_waiting: bool) -> bool {
        self.is_planner(|planner| {
            let unused = ahead(head.wrapping_add(self.promised()), claims);
            let is_idle = !is_waiting && unused >= 0;
            planner.is_low(claims) || is_idle && (self.has_spares() || planner.has_too_much(unused as u64))
        })
    }

    fn is_urgent(&self) -> bool {
        self.is_planner(|planner| planner.denies)
    }

    fn knows_stuck(&self, ticket: u64) -> bool {
        self.planner.as_deref().is_none_or(|planner| planner.has_planned_for(ticket))
    }

    fn sleeps_without_plan_for(&self, ticket: u64) -> bool {
        self.is_planner(|planner| planner.sleeps_without_plan_for(ticket))
    }

    fn take_waker(&mut self) -> Option<Waker> {
        self.planner.as_mut()?.take_waker()
    }

    fn is_stopped(&self) -> bool {
        self.is_planner(|planner| planner.vacant.is_some())
    }

    fn take_task(&mut self) -> Option<RequestTask> {
        self.planner.as_mut()?.vacant.take()
    }

    fn end(&mut self, unused: u64, now: u64) -> Option<Waker> {
        let mut planner = self.planner.take()?;
        if planner.may_be_known() {
            self.spare(unused);
            let (last, rest) = (self.last(), self.rest(now));
            let unused = self.give_up();
            planner.return_all(self.take_spares(), unused, last, rest);
        }
        planner.take_waker()
    }
}
