//! The lines of a joint claim, while all of them are locked.

use super::Member;
use crate::error::{ConsumeError, TryAcquireError};
use crate::knot::{Knot, Strand};
use crate::shared::Shared;
use crate::state::{Progress, Reach, Sample, State};
use crate::sync::MutexGuard;
use crate::vigil::Outlook;
use crate::wakes::Wakes;
use std::sync::Arc;
use std::task::Waker;
use tokio::runtime::Handle;

/// All lines of a joint claim, locked and brought up to date; nobody can take anything from any of them meanwhile.
pub(super) struct Lines<'a> {
    held: Vec<Held<'a>>,
    wakes: Wakes,
}

struct Held<'a> {
    index: usize,
    shared: &'a Shared,
    sample: Sample,
    state: MutexGuard<'a, State>,
}

impl<'a> Lines<'a> {
    pub(super) fn enter(members: &[Member<'a>]) -> Self {
        let mut order: Vec<(usize, &'a Shared)> = members.iter().map(|member| member.shared).enumerate().collect();
        order.sort_by_key(|(_, shared)| std::ptr::from_ref(*shared));
        let mut wakes = Wakes::default();
        let mut samples: Vec<Sample> = order.iter().map(|(_, shared)| shared.sample()).collect();
        loop {
            let locked = order.iter().zip(samples.iter().copied());
            let hold = |(&(index, shared), sample): (&(usize, &'a Shared), Sample)| Held {
                index,
                shared,
                sample,
                state: shared.state.lock(),
            };
            let mut held: Vec<Held<'a>> = locked.map(hold).collect();
            if held.iter_mut().all(|line| line.settle(&mut wakes)) {
                return Self { held, wakes };
            }
            drop(held);
            wakes.wake_all();
            // In the middle of something: a clock that panics stands still.
            for ((_, shared), sample) in order.iter().zip(&mut samples) {
                *sample = shared.sample_anyway().unwrap_or(*sample);
            }
        }
    }

    /// `Ok(true)` if it has to wait and may, `Ok(false)` if it was granted.
    pub(super) fn check(
        &mut self,
        members: &mut [Member<'a>],
        hosts: &[Option<Handle>],
    ) -> Result<bool, (usize, ConsumeError)> {
        self.first_refusal(|Held { index, shared, state, .. }| {
            state.check_claim(&shared.rovers, members[*index].cost)
        })?;
        if self.grant_all(members) {
            return Ok(false);
        }
        self.first_refusal(|Held { index, shared, state, .. }| {
            let stands_in_line = members[*index].cost > 0;
            if stands_in_line { state.check_line(shared.is_driven(state, &hosts[*index])) } else { Ok(()) }
        })?;
        Ok(true)
    }

    /// Of those who refuse, the first in the caller's order.
    fn first_refusal(
        &mut self,
        check: impl Fn(&Held<'a>) -> Result<(), ConsumeError>,
    ) -> Result<(), (usize, ConsumeError)> {
        let refusing = self.held.iter_mut().filter_map(|line| check(line).err().map(|error| (line, error)));
        let Some((line, error)) = refusing.min_by_key(|(line, _)| line.index) else { return Ok(()) };
        line.state.totals.refused += 1;
        Err((line.index, error))
    }

    /// Takes every cost, if all are there.
    pub(super) fn grant_all(&mut self, members: &mut [Member<'a>]) -> bool {
        let fits = |line: &Held<'_>| line.state.can_admit(&line.shared.rovers, members[line.index].cost);
        if !self.held.iter().all(fits) {
            return false;
        }
        for Held { index, shared, state, .. } in &mut self.held {
            let cost = members[*index].cost;
            let rovers = &shared.rovers;
            let remaining = if cost == 0 { Some(state.available(rovers)) } else { state.admit(rovers, cost) };
            members[*index].granted = Some(remaining.expect("it fits, and the fast path is closed"));
        }
        true
    }

    /// Enters every line that has something to grant.
    pub(super) fn wait(&mut self, members: &mut [Member<'a>], knot: &Arc<Knot>, wakers: &mut Vec<Waker>) {
        // One reading of the clock for all of them: a thread that is held up between two would put them out of step. That
        // of the oldest limiter, which is before its beginning last if the clock steps back.
        let Some(first) = self.held.first().map(|line| line.shared) else { return };
        let oldest = self.held.iter().min_by_key(|line| first.time.translate(&line.shared.time, 0));
        let Some((reference, entered)) = oldest.map(|line| (line.shared, line.sample.now)) else { return };
        for Held { index, shared, state, sample } in &mut self.held {
            let member = &mut members[*index];
            // How long it will take, one line alone cannot tell.
            member.outlook = Outlook { since: sample.now, ahead: state.line.len(), estimate: None };
            if member.cost == 0 {
                member.granted = Some(state.available(&shared.rovers));
            } else if let Some(waker) = wakers.pop() {
                let entered = shared.time.translate(&reference.time, entered);
                let strand = Strand::new(Arc::clone(knot), *index, entered);
                state.catch_up(&shared.rovers, sample.now);
                member.part = Some(state.enter_part(&shared.rovers, member.cost, waker, strand));
            }
        }
    }

    /// Of those that refuse, the one whose wait is longest: for ever, unknown, then by time; then the first.
    pub(super) fn worst_refusal(&mut self, members: &[Member<'a>]) -> Option<(usize, TryAcquireError)> {
        let mut worst = None;
        for Held { index, shared, state, sample } in &mut self.held {
            let cost = members[*index].cost;
            if state.can_admit(&shared.rovers, cost) {
                continue;
            }
            if let Err(error) = state.try_acquire(&shared.rovers, cost, sample.now) {
                let rank = match error {
                    TryAcquireError::Denied(denied) => denied.retry_after.map_or(u128::MAX - 1, |wait| wait.as_nanos()),
                    // Too large, or closed.
                    _ => u128::MAX,
                };
                if worst.is_none_or(|(most, first, _)| (rank, first) > (most, *index)) {
                    worst = Some((rank, *index, error));
                }
            }
        }
        worst.map(|(_, index, error)| (index, error))
    }

    pub(super) fn leave(self) {
        let Self { mut held, mut wakes } = self;
        held.retain_mut(|line| line.state.finish(&line.shared.rovers, line.sample.now, &mut wakes) == Progress::Again);
        // Where the batch was too small, the line is served on once no lock is held.
        let unfinished: Vec<&Shared> = held.into_iter().map(|line| line.shared).collect();
        wakes.wake_all();
        for shared in unfinished {
            shared.serve_into(&mut wakes);
        }
        Shared::leave(&mut wakes);
    }
}

impl Held<'_> {
    /// Brings the line up to date and closes its fast path. False if `wakes` was too small for that.
    fn settle(&mut self, wakes: &mut Wakes) -> bool {
        let rovers = &self.shared.rovers;
        if self.state.settle(rovers, self.sample.now, Reach::Held, wakes) == Progress::Again {
            return false;
        }
        self.state.observe(rovers, self.sample);
        self.state.retract(rovers);
        true
    }
}
