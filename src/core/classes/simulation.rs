//! Estimates: the limiter is served ahead of time, on a copy, as if no caller did anything from now on.

use super::floor::Rate;
use super::offer::{Backlog, ClassId};
use super::scheduler::Scheduler;
use super::tree::Tree;
use crate::core::supply::Supply;
use std::collections::BTreeMap;

/// How many steps of the scheduler are simulated. What is left then is estimated from the shares.
pub(crate) const MAX_STEPS: usize = 1_024;

/// The most classes that are copied for a simulation. With more of them, every estimate is made from the shares.
pub(crate) const MOST_SIMULATED: ClassId = 1_024;

/// A claim that waits: its cost, and the debt that was noted behind it.
pub(crate) type Waiting = (u64, u64);

impl Scheduler {
    /// The instant at which a claim of `cost` tokens made now in `leaf` is granted; `None` if no clock can tell. Exact if
    /// that takes up to [`MAX_STEPS`] steps. `backlog` includes the claim; `queue` lists the claims that wait in a leaf.
    /// Copies the classes.
    pub(crate) fn granted_at<I: Iterator<Item = Waiting>>(
        &self,
        supply: &Supply,
        mut base: u64,
        leaf: ClassId,
        cost: u64,
        mut backlog: Backlog,
        queue: impl Fn(ClassId) -> I,
    ) -> Option<u64> {
        let (mut scheduler, mut supply) = (self.clone(), supply.clone());
        // No clock can tell when tokens are released.
        supply.uncap();
        scheduler.arrive(leaf, cost, supply.synced());
        let mut queues = BTreeMap::new();
        for _ in 0..MAX_STEPS {
            let next = scheduler.next_step(&supply, base);
            let at = Some(next.at).filter(|at| *at < u64::MAX)?;
            let pick = next.pick.filter(|_| next.serves);
            supply.mint(at, next.pick.map(|pick| base.wrapping_add(pick.tokens)));
            let Some(pick) = pick else { continue };
            scheduler.pay(pick, &mut supply, base);
            base = base.wrapping_add(pick.tokens);
            backlog.all = backlog.all.saturating_sub(pick.tokens);
            backlog.own = backlog.own.saturating_sub(if pick.leaf == leaf { pick.tokens } else { 0 });
            if next.is_last {
                let granted = pick.leaf;
                let own = (granted == leaf).then_some((cost, 0));
                let queue = queues.entry(granted).or_insert_with(|| queue(granted).chain(own).peekable());
                let (_, debt) = queue.next()?;
                let next = queue.peek().map_or(0, |(cost, _)| *cost);
                if granted == leaf && next == 0 {
                    return Some(at);
                }
                scheduler.advance(granted, next, debt, &supply);
            }
        }
        scheduler.tree.served_by_share(leaf, backlog, &supply, base)
    }
}

impl Tree {
    /// About when `backlog.own` tokens in a leaf are served; see [`time_to_serve`](Self::time_to_serve).
    pub(crate) fn served_by_share(&self, leaf: ClassId, backlog: Backlog, supply: &Supply, base: u64) -> Option<u64> {
        let wait = self.time_to_serve(leaf, backlog)?;
        let least = supply.scheduled(base.wrapping_add(backlog.own))?;
        Some(supply.synced().max(supply.gate()).checked_add(wait)?.max(least))
    }

    /// About how many nanoseconds it takes to serve `backlog.own` tokens in a leaf, if the classes that are backlogged now
    /// stay so: at the share of the leaf, or at its floor if that is more, and at most as long as serving everything; but
    /// not above the rate of a ceiling. `None` if no clock can tell.
    fn time_to_serve(&self, leaf: ClassId, backlog: Backlog) -> Option<u64> {
        let rate = self.limits.rate.map_or(f64::INFINITY, Rate::as_f64);
        let mut share = rate;
        for id in self.path(leaf) {
            let own = self.weight(id);
            let others = self.rare(self.parent(id)).weights - if self.is_backlogged(id) { own } else { 0 };
            share *= own as f64 / (own + others) as f64;
        }
        let ceilings = self.ceilings(leaf).filter_map(|(_, ceiling)| Rate::of(ceiling.quota()));
        let most = ceilings.map(Rate::as_f64).fold(f64::INFINITY, f64::min);
        let floor = self.rare(leaf).floor.as_ref().map_or(0.0, |floor| floor.applied.as_f64());
        let (own, all) = (backlog.own as f64, backlog.all as f64);
        let wait = (own / share.max(floor)).min(all / rate).max(own / most).ceil();
        (wait < u64::MAX as f64).then_some(wait as u64)
    }
}
