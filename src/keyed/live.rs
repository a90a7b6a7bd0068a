//! Live entries: a key with waiters or with tokens in flight is a complete limiter [`Core`].
//!
//! Waiting, cancellation, settling, deadlines, in-flight tokens and closing are implemented by the core, with all its
//! guarantees; no part of them is written again for keyed limiters. This module only converts, exactly to the unit: a
//! level becomes a core, and a core that is no longer needed becomes a level.
//!
//! # When a live entry may be retired
//!
//! A live entry may be retired when the map holds the only `Arc` of it. Every waiter, every grant with tokens in flight
//! and every call that is about to act holds an `Arc` too, and can obtain one only under the shard's lock. Under that
//! lock, "none of them holds an `Arc`" therefore stays true once it has been observed. Drivers hold a `Weak` and may
//! upgrade it without the lock: they only serve waiters, and a retired entry has none.

use super::rate::{Level, Rate};
use crate::clock::Time;
use crate::core::rovers::{Rovers, ahead};
use crate::core::schedule::Schedule;
use crate::core::state::State;
use crate::core::supply::Supply;
use crate::core::wakes::Wakes;
use crate::core::{Core, QueueDriver};
use crate::observe::Observers;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What all live entries of a map have in common.
#[derive(Debug)]
pub(super) struct LiveTemplate {
    pub(super) time: Time,
    pub(super) cap: Option<u64>,
    pub(super) max_waiting: usize,
    pub(super) driver: Arc<dyn QueueDriver>,
    /// The parent limiter of all keys.
    pub(super) parent: Option<Arc<Core>>,
    /// The observers of waits and refusals, for all keys together.
    pub(super) observers: Observers,
}

impl LiveTemplate {
    /// Creates a core that continues from `level`, for the key with this hash. `quota_version` is the last quota change
    /// that `rate` includes.
    pub(super) fn live(&self, rate: &Rate, level: Level, quota_version: u32, hash: u64) -> Arc<Core> {
        let head = rate.tokens(level.units) as u64;
        let schedule = Schedule::resume(rate.quota, head, rate.fraction(level.units), level.at);
        let supply = Supply::resume(schedule, self.cap, 0, level.at);
        let mut state = State::new(supply, self.cap, 0);
        state.max_waiting = self.max_waiting;
        // A stride of 0 makes the core read the time for each grant, so live entries are as exact as levels are. A
        // longer stride would save little: the shard's lock has already cost more than reading the clock.
        state.stride.fix(0);
        state.quota_version = quota_version;
        Arc::new_cyclic(|weak| {
            let observers = self.observers.clone();
            let core = Core::new(Rovers::new(0), state, self.time.clone(), false, observers, weak.clone());
            core.one_of_many(Arc::clone(&self.driver), hash, self.parent.clone())
        })
    }
}

/// What remains of a live entry that is no longer needed.
pub(super) struct Idle {
    /// As of the requested instant, or of the later one that the live entry has reached.
    pub(super) level: Level,
    /// Tokens that the live entry has granted, and how many of them came back.
    pub(super) granted: u64,
    pub(super) refunded: u64,
}

/// Returns what remains of `live`, or `None` if it is still needed: it has waiters or tokens in flight, or another
/// `Arc` of it exists. The caller must hold the lock of the shard that contains `live`.
pub(super) fn look_at_idle(live: &Arc<Core>, rate: &Rate, now: u64) -> Option<Idle> {
    if Arc::strong_count(live) > 1 {
        return None;
    }
    // Pairs with the Release of the drop of the last other `Arc`: everything that its holder released before is visible
    // below.
    fence(Ordering::Acquire);
    let mut state = live.state.lock();
    let mut wakes = Wakes::default();
    let flying = state.in_flight(&live.rovers).map_or(0, |(tokens, _)| tokens);
    // Includes what is owed for grants that were forgotten.
    if !state.queue.is_empty() || flying > 0 {
        return None;
    }
    // There are no waiters, so no waker is collected.
    let _done = state.finish(&live.rovers, now, &mut wakes);
    let schedule = &state.supply.quotas()[0];
    let tokens = ahead(schedule.head, live.rovers.tail());
    let units = if schedule.quota == rate.quota {
        units(rate, tokens, schedule.fraction())
    } else {
        // A panic of the clock kept a quota change from reaching this live entry.
        let own = Rate::new(schedule.quota);
        rate.adopt(&own, units(&own, tokens, schedule.fraction()))
    };
    let level = Level { units, at: state.supply.synced() };
    Some(Idle { level, granted: state.granted(&live.rovers), refunded: state.totals.refunded })
}

fn units(rate: &Rate, tokens: i64, fraction: u64) -> i128 {
    let whole = rate.units(tokens.unsigned_abs());
    fraction as i128 + if tokens < 0 { -whole } else { whole }
}

/// Gives `live` the quota of `rate`, unless it already has a later one.
pub(super) fn set_quota(live: &Core, rate: &Rate, quota_version: u32) {
    live.with(|state, rovers, _| {
        if state.quota_version < quota_version {
            state.quota_version = quota_version;
            state
                .set_quota(rovers, 0.into(), rate.quota)
                .expect("the quota was checked, and a live entry has exactly one quota");
            state.supply.step_from_origin();
        }
    });
}
