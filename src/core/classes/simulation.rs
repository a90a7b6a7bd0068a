//! Estimates: the limiter is served ahead of time, on a copy, as if no caller did anything from now on.

use super::scheduler::{Paid, Scheduler, Step};
use super::tree::ClassId;
use crate::core::supply::Supply;
use std::collections::VecDeque;

/// A claim that waits: its cost, and the debt that was noted behind it.
pub(crate) type Waiting = (u64, u64);

pub(crate) struct Simulation {
    scheduler: Scheduler,
    supply: Supply,
    base: u64,
    /// By number of the leaf.
    queues: Vec<VecDeque<Waiting>>,
}

impl Simulation {
    /// A copy of a limiter, without its in-flight cap: no clock can tell when tokens are released.
    pub(crate) fn new(
        scheduler: &Scheduler,
        supply: &Supply,
        base: u64,
        queue: impl Fn(ClassId) -> VecDeque<Waiting>,
    ) -> Self {
        let mut supply = supply.clone();
        supply.uncap();
        let queues = (0..scheduler.tree.len() as ClassId).map(queue).collect();
        Self { scheduler: scheduler.clone(), supply, base, queues }
    }

    /// The instant at which a claim of `cost` tokens made now in `leaf` is granted; `None` if no clock can tell.
    pub(crate) fn grants(mut self, leaf: ClassId, cost: u64) -> Option<u64> {
        let queue = &mut self.queues[leaf as usize];
        queue.push_back((cost, 0));
        let is_first = queue.len() == 1;
        self.scheduler.arrive(leaf, cost, is_first, self.supply.synced());
        loop {
            match self.scheduler.next_step(&self.supply, self.base) {
                Step::Pay { at, ticket } => {
                    self.supply.mint(at, Some(ticket));
                    let paid = self.scheduler.pay(&mut self.supply, self.base);
                    self.base = ticket;
                    if let Paid::Claim(granted) = paid {
                        let queue = &mut self.queues[granted as usize];
                        let (_, debt) = queue.pop_front()?;
                        let next = queue.front().map(|(cost, _)| *cost);
                        if granted == leaf && next.is_none() {
                            return Some(at);
                        }
                        self.scheduler.advance(granted, next, debt, at);
                    }
                }
                Step::Recheck { at: u64::MAX } | Step::Wait { .. } => return None,
                Step::Recheck { at } => self.supply.mint(at, None),
            }
        }
    }
}
