//! Quotas in dry run: every call also arrives in the [simulation](crate::core::dry_run).

use super::{Arrival, Role, State};
use crate::core::classes::{ClassId, ROOT};
use crate::core::dry_run::{Ask, DryRun};
use crate::core::outcome::Outcome;
use crate::core::rovers::{Rovers, ahead};
use crate::error::{ConfigError, ConsumeError, TryAcquireError};
use crate::observe::GrantWord;
use crate::quota::Quota;
use crate::which::Which;
use std::time::Duration;

/// A simulation that has ended, if one has.
pub(crate) type Ended = Option<Box<DryRun>>;

impl State {
    pub(crate) fn dry_run(&self) -> Option<&DryRun> {
        self.rare.as_ref()?.dry_run.as_deref()
    }

    fn dry_run_epoch(&self) -> u64 {
        self.rare.iter().flat_map(|rare| &rare.enforced_in).max().copied().unwrap_or(0)
    }

    /// Returns tokens of a grant with this word to the quotas that gave them: to none that was enforced again since, if the
    /// dry run would have refused the call.
    pub(super) fn refund_to_givers(&mut self, tokens: u64, granted_at: Option<u64>, word: GrantWord) {
        let (epoch, rare) = (self.dry_run_epoch(), self.rare.as_deref());
        let enforced_in = |quota| rare.and_then(|rare| rare.enforced_in.get(quota)).copied().unwrap_or(0);
        let gave = |quota, _: &_| !word.is_refused_before(enforced_in(quota), epoch);
        self.supply.refund_to(tokens, granted_at, gave);
    }

    fn dry_run_mut(&mut self) -> Option<&mut DryRun> {
        self.rare.as_mut()?.dry_run.as_deref_mut()
    }

    /// The simulation, served up to the time of the caller that holds the lock, and that time.
    pub(super) fn dry_run_now(&mut self) -> Option<(&mut DryRun, u64)> {
        if !self.role.has(Role::DRY_RUN) {
            return None;
        }
        let synced = self.supply.synced();
        let rare = self.rare.as_mut()?;
        let now = rare.acts_at.unwrap_or(synced);
        rare.dry_run.as_deref_mut().map(|dry_run| (dry_run, now))
    }

    /// Charges more tokens for a grant with the verdict in `word`. A simulation that refused the grant has taken no tokens for
    /// it, and takes none now.
    pub(crate) fn charge_more(&mut self, rovers: &Rovers, class: ClassId, tokens: u64, word: GrantWord) -> u64 {
        if !word.is_refused() {
            return self.charge(rovers, class, tokens);
        }
        let dry_run = self.rare.as_mut().and_then(|rare| rare.dry_run.take());
        let result = self.charge(rovers, class, tokens);
        self.rare().dry_run = dry_run;
        result
    }

    /// A claim arrives in the queue and in the simulation. A grant carries the verdict.
    pub(super) fn arrive_in_dry_run(
        &mut self,
        rovers: &Rovers,
        arrival: Arrival<'_>,
    ) -> Result<Option<GrantWord>, ConsumeError> {
        let Arrival { cost, allowed, now, .. } = arrival;
        let ask = Ask::Wait { allowed, max_waiting: self.queue.max_waiting() };
        // First the limiter itself: a call that the cap refuses, for example, is no claim in the simulation either.
        let granted = self.arrive_uncounted(rovers, arrival)?;
        let (number, epoch) = (self.next_number - 1, self.dry_run_epoch());
        let Some(dry_run) = self.dry_run_mut() else { return Ok(granted) };
        let verdict = dry_run.arrive(cost, now, ask);
        dry_run.count(verdict);
        if granted.is_none() {
            dry_run.hold(number, cost, GrantWord::of_verdict(verdict, epoch));
        }
        Ok(granted.map(|_| GrantWord::of_verdict(verdict, epoch)))
    }

    /// Grants or denies `cost` tokens, and has the simulation judge the call that passes.
    pub(super) fn try_acquire_in_dry_run(
        &mut self,
        rovers: &Rovers,
        cost: u64,
        now: u64,
    ) -> Result<GrantWord, TryAcquireError> {
        let enforced = self.try_acquire_enforced(rovers, ROOT, cost, now)?;
        let epoch = self.dry_run_epoch();
        let Some(dry_run) = self.dry_run_mut() else { return Ok(enforced) };
        let verdict = dry_run.arrive(cost, now, Ask::AtOnce);
        dry_run.count(verdict);
        Ok(GrantWord::of_verdict(verdict, epoch))
    }

    /// The outcome of the front claim, which is called out: a grant carries the verdict on the claim.
    pub(super) fn outcome_in_dry_run(&mut self, outcome: Outcome) -> Outcome {
        let Some(number) = self.queue.front().map(|front| front.number) else { return outcome };
        let Outcome::Granted(_) = outcome else {
            self.leave_dry_run(number);
            return outcome;
        };
        let word = self.dry_run_mut().and_then(|dry_run| dry_run.pass(number));
        word.map_or(outcome, Outcome::Granted)
    }

    /// A claim has left the queue without a grant.
    pub(super) fn leave_dry_run(&mut self, number: u64) {
        if let Some((dry_run, now)) = self.dry_run_now() {
            dry_run.leave(number, now);
        }
    }

    /// The simulation, served up to `now`.
    pub(crate) fn served_dry_run(&mut self, now: u64) -> Option<&mut DryRun> {
        let dry_run = self.dry_run_mut()?;
        dry_run.serve(now);
        Some(dry_run)
    }

    /// [`available`](Self::available), as if all quotas were enforced.
    pub(crate) fn shown_available(&mut self, rovers: &Rovers, class: ClassId, now: u64) -> u64 {
        let closed = self.closed;
        match self.served_dry_run(now) {
            Some(dry_run) if !closed => dry_run.available(),
            _ => self.available_in(rovers, class),
        }
    }

    /// [`deficiency`](Self::deficiency), as if all quotas were enforced.
    pub(crate) fn shown_deficiency(&mut self, rovers: &Rovers, now: u64) -> u64 {
        match self.served_dry_run(now) {
            Some(dry_run) => dry_run.deficiency(),
            None => self.deficiency(rovers),
        }
    }

    /// [`estimate`](Self::estimate), as if all quotas were enforced.
    pub(crate) fn shown_estimate(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Option<Duration> {
        let is_possible = !self.closed && cost <= self.most_claimable(rovers);
        match self.dry_run_mut() {
            Some(dry_run) if is_possible => dry_run.estimate(cost, now),
            Some(_) => None,
            None => self.estimate(rovers, ROOT, cost, now),
        }
    }

    /// Puts a quota in dry run, or enforces it again. The result is to be dropped without the lock.
    pub(crate) fn set_dry_run(
        &mut self,
        rovers: &Rovers,
        which: Which<'_>,
        is_dry: bool,
    ) -> Result<Ended, ConfigError> {
        let index = self.find_quota(which)?;
        if is_dry == self.dry_run().is_some_and(|dry_run| dry_run.is_dry(index)) {
            return Ok(None);
        }
        if is_dry {
            self.check_dry_run()?;
        }
        self.retract(rovers);
        self.forget_denial(rovers);
        let ended = if is_dry { self.start_dry_run(rovers, index) } else { self.end_dry_run(rovers, index) };
        self.note_sliding();
        Ok(ended)
    }

    /// Puts all quotas in dry run, or enforces them again. The result is to be dropped without the lock.
    pub(crate) fn set_dry_run_of_all(&mut self, rovers: &Rovers, is_dry: bool) -> Result<Ended, ConfigError> {
        let mut indices = 0..self.supply.quotas().len();
        indices.try_fold(None, |ended, index| Ok(self.set_dry_run(rovers, index.into(), is_dry)?.or(ended)))
    }

    /// Replaces the quotas of the simulation, after those of the limiter.
    pub(super) fn replace_quotas_in_dry_run(&mut self, quotas: &[Quota]) {
        let Some((dry_run, now)) = self.dry_run_now() else { return };
        dry_run.replace_quotas(quotas.iter().copied(), now);
        let dry: Vec<usize> = (0..dry_run.supply.quotas().len()).filter(|index| dry_run.is_dry(*index)).collect();
        dry.into_iter().for_each(|index| self.supply.open_quota(index));
    }

    fn check_dry_run(&self) -> Result<(), ConfigError> {
        let setting = if self.role.has(Role::CLASSES) {
            "classes"
        } else if self.has_source() {
            "distributed"
        } else if self.has_children() || self.role.has(Role::CHILD) {
            "parent"
        } else if self.queue.has_joint() {
            "join"
        } else {
            return Ok(());
        };
        Err(ConfigError::DryRunUnsupported { setting })
    }

    fn start_dry_run(&mut self, rovers: &Rovers, index: usize) -> Ended {
        if !self.role.has(Role::DRY_RUN) {
            self.role.add(Role::DRY_RUN);
            let dry_run = DryRun::new(&self.supply, self.base(rovers), self.claims_and_debts());
            self.rare().dry_run = Some(Box::new(dry_run));
        }
        let epoch = self.dry_run_epoch();
        let mut schedule = self.supply.quotas()[index].clone();
        let level = ahead(schedule.head, rovers.tail()) as u64;
        if let Some((dry_run, now)) = self.dry_run_now() {
            // Calls that another quota in dry run would have refused have taken tokens of this one all the same.
            dry_run.serve(now);
            schedule.head = dry_run.tail().wrapping_add(level).wrapping_add(dry_run.refused_tokens(epoch));
            dry_run.begin(index, schedule);
        }
        self.supply.open_quota(index);
        None
    }

    /// Enforces a quota again. Its level stays: all claims of the simulation count, also those that would still wait.
    fn end_dry_run(&mut self, rovers: &Rovers, index: usize) -> Ended {
        let epoch = self.dry_run_epoch() + 1;
        let (dry_run, now) = self.dry_run_now()?;
        dry_run.serve(now);
        dry_run.end(index);
        let mut schedule = dry_run.supply.quotas()[index].clone();
        let level = dry_run.level(index) as u64;
        schedule.head = rovers.tail().wrapping_add(level).wrapping_sub(dry_run.refused_tokens(epoch));
        let is_needed = dry_run.is_needed();
        let enforced_in = &mut self.rare().enforced_in;
        enforced_in.resize(enforced_in.len().max(index + 1), 0);
        enforced_in[index] = epoch;
        self.supply.continue_quota(index, schedule, self.front_ticket(rovers));
        // The stride may have grown without a limit while no quota was enforced.
        self.stride.shorten(self.supply.least_burst() / 64);
        if is_needed {
            return None;
        }
        self.role.remove(Role::DRY_RUN);
        self.rare().dry_run.take()
    }
}
