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
//! upgrade it without the lock: they only serve waiters, and a retired entry has none. All but handles of users hold it
//! as [`InUse`](crate::core::in_use::InUse), which tells the map when it is dropped.

use super::dry_run::KeyedDryRun;
use super::periods::Calendars;
use super::rate::Level;
use super::rates::{Levels, Rates};
use crate::clock::Time;
use crate::core::classes::KeyName;
use crate::core::parent::Parent;
use crate::core::rovers::{Rovers, ahead};
use crate::core::schedule::Schedule;
use crate::core::state::State;
use crate::core::supply::Supply;
use crate::core::wakes::Wakes;
use crate::core::{Core, QueueDriver};
use crate::observe::Observers;
use crate::sync::{AtomicU64, Ordering::Acquire};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The settings that all live entries of a map share.
#[derive(Debug)]
pub(super) struct LiveTemplate {
    pub(super) time: Time,
    pub(super) calendars: Calendars,
    /// The in-flight cap, which may change but not come or go.
    pub(super) cap: Option<AtomicU64>,
    /// The end of the pause of all keys, in nanoseconds; 0 if it was ended.
    pub(super) gate: AtomicU64,
    pub(super) max_waiting: u64,
    /// The largest cost that the user allows.
    pub(super) max_cost: u64,
    pub(super) driver: Arc<dyn QueueDriver>,
    /// The parent of all keys, which has to grant each call too.
    pub(super) parent: Option<Parent>,
    /// The number of the keyed limiter, which distinguishes its keys from those of other keyed limiters with the same
    /// parent.
    pub(super) number: u64,
    /// The observers of waits and refusals, for all keys together.
    pub(super) observers: Observers,
    pub(super) dry_run: KeyedDryRun,
}

impl LiveTemplate {
    pub(super) fn cap(&self) -> Option<u64> {
        // Acquire: a call that learns under a shard's lock that a change has visited the shard sees the change.
        self.cap.as_ref().map(|cap| cap.load(Acquire))
    }

    /// The instant until which all keys are paused.
    pub(super) fn gate(&self) -> u64 {
        // Acquire: as for the cap.
        self.gate.load(Acquire)
    }

    /// The name under which the key with this hash has a class in the parent.
    pub(super) fn key_name(&self, hash: u64) -> KeyName {
        KeyName { limiter: self.number, hash }
    }

    /// A limiter that continues from `levels`.
    pub(super) fn state(&self, rates: &Rates, levels: &Levels) -> (State, Rovers) {
        // Another call, with a later reading of the time, may have found that a period has begun.
        let begun = rates.each.iter().filter_map(|rate| Some(rate.periods.as_ref()?.begun(levels.at))).max();
        let levels = &begun.filter(|begun| *begun > levels.at).map_or(*levels, |begun| rates.advance(levels, begun));
        let schedules = rates.each.iter().enumerate().map(|(index, rate)| {
            let Level { units, at } = levels.level(index);
            let mut schedule = Schedule::from_level(rate.quota, rate.tokens(units) as u64, rate.fraction(units), at);
            if let Some(periods) = &rate.periods {
                let (calendar, next) = periods.of_live_entry(at);
                schedule.set_periods(calendar, next);
            }
            schedule
        });
        let cap = self.cap();
        let mut supply = Supply::from_schedules(schedules, cap, 0, levels.at);
        if levels.is_paused() {
            supply.set_gate(levels.gate);
        }
        let mut state = State::new(supply, cap, 0);
        state.queue.limit_to(self.max_waiting);
        // A stride of 0 makes the core read the time for each grant, so live entries are as exact as levels are. A
        // longer stride would save little: the shard's lock has already cost more than reading the clock.
        state.stride.fix(0);
        if self.max_cost < u64::MAX {
            state.set_max_cost(self.max_cost);
        }
        let gate = self.gate();
        if levels.at < gate {
            state.begin_in_common(gate);
        }
        state.name_quotas(Arc::clone(&rates.names));
        let rovers = Rovers::new(0);
        if self.dry_run.is_on() {
            // Not supported under a parent, which the keyed limiter has checked.
            _ = state.set_dry_run_of_all(&rovers, true);
        }
        (state, rovers)
    }

    /// Creates a core that continues from `levels`, for the key with this hash. `quota_version` is the last quota
    /// change that `rates` include.
    pub(super) fn live(&self, rates: &Rates, levels: &Levels, quota_version: u32, hash: u64) -> Arc<Core> {
        let (mut state, rovers) = self.state(rates, levels);
        state.quota_version = quota_version;
        Arc::new_cyclic(|weak| {
            let observers = self.observers.clone();
            let core = Core::new(rovers, state, self.time.clone(), false, observers, weak.clone());
            core.one_of_many(Arc::clone(&self.driver), self.key_name(hash), self.parent.clone())
        })
    }
}

/// The state of a live entry that is no longer needed.
pub(super) struct Idle {
    /// The levels at the requested instant, or at the later instant that the live entry has reached.
    pub(super) levels: Levels,
    /// Tokens that the live entry has granted. `refunded`: how many of these tokens came back.
    pub(super) granted: u64,
    pub(super) refunded: u64,
}

/// Returns what remains of `live`, or `None` if it is still needed: it has waiters, tokens in flight or in the window of a
/// sliding quota, or another `Arc` of it exists. The caller must hold the lock of the shard that contains `live`.
pub(super) fn look_at_idle(live: &Arc<Core>, rates: &Rates, now: u64) -> Option<Idle> {
    if Arc::strong_count(live) > 1 {
        return None;
    }
    // Pairs with the Release of the drop of the last other `Arc`: everything that its holder released before is visible
    // below.
    fence(Ordering::Acquire);
    let mut state = live.state.lock();
    let mut wakes = Wakes::default();
    let in_flight = state.in_flight(&live.rovers).map_or(0, |(tokens, _)| tokens);
    // Includes the tokens of forgotten grants that are not released yet.
    if !state.queue.is_empty() || in_flight > 0 {
        return None;
    }
    // There are no waiters, so no waker is collected.
    let _done = state.finish(&live.rovers, now, &mut wakes);
    let synced = state.supply.synced();
    state.served_dry_run(synced);
    // In dry run the levels of the key are those of the simulation, once no claim waits there.
    let (tail, supply) = match state.dry_run() {
        Some(dry_run) if dry_run.is_idle() => (dry_run.tail(), &dry_run.supply),
        Some(_) => return None,
        None => (live.rovers.tail(), &state.supply),
    };
    // Tokens in a window come back at their own instants, which levels do not know.
    let mut sliding = supply.quotas().iter().filter(|schedule| schedule.is_sliding());
    if sliding.any(|schedule| ahead(schedule.head, tail) < schedule.burst as i64) {
        return None;
    }
    let part = |index: usize| {
        let schedule = &supply.quotas()[index];
        (ahead(schedule.head, tail), schedule.fraction())
    };
    let levels = Levels { gate: state.pauses().own, ..levels_of(rates, supply, part) };
    Some(Idle { levels, granted: state.granted(&live.rovers), refunded: state.totals.refunded })
}

/// The levels of `live` under `rates`, as they would be if all waiters had left.
pub(super) fn saved(live: &Core, rates: &Rates) -> Levels {
    live.with(|state, rovers, _| {
        let saved = state.saved(rovers).expect("no quota of a key is distributed here");
        let part = |index: usize| (saved.quotas[index].1.tokens, saved.quotas[index].1.fraction);
        Levels { gate: state.pauses().own, ..levels_of(rates, &state.supply, part) }
    })
}

/// The levels under `rates` of a supply whose levels have these parts.
fn levels_of(rates: &Rates, supply: &Supply, parts: impl Fn(usize) -> (i64, u64)) -> Levels {
    for (rate, schedule) in rates.each.iter().zip(supply.quotas()) {
        if let (Some(periods), Some(calendar)) = (&rate.periods, schedule.calendar()) {
            // It may have been the first to find that a period has begun, which then has begun for all keys.
            periods.catch_up(calendar, schedule.next_period(), supply.synced());
        }
    }
    let quotas = supply.quotas().iter().map(|schedule| schedule.quota);
    if quotas.clone().eq(rates.quotas.iter()) {
        return rates.of_parts(supply.synced(), parts);
    }
    // The clock panicked when a quota change was to be applied to this live entry.
    let own = Rates::new(quotas.collect(), None);
    rates.adopt(&own, &own.of_parts(supply.synced(), parts))
}

/// Gives `live` the quotas of `rates`, unless it already has later ones.
pub(super) fn set_quotas(live: &Core, rates: &Rates, quota_version: u32) {
    live.with(|state, rovers, sample| {
        if state.quota_version < quota_version {
            state.quota_version = quota_version;
            state.replace_quotas(rovers, &rates.quotas.iter().collect::<Vec<_>>());
            for (index, rate) in rates.each.iter().enumerate() {
                let Some(periods) = &rate.periods else { continue };
                let at = state.supply.synced();
                let (calendar, next) = periods.of_live_entry(at);
                state.set_periods(index, &calendar, next);
            }
            state.note_calendars(&live.time, sample.now);
            state.name_quotas(Arc::clone(&rates.names));
        }
    });
}
