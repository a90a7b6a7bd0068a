//! A key's seat: a whole limiter core, for as long as somebody waits on the key or holds its tokens in flight.
//!
//! Waiting, leaving, settling, deadlines, in-flight tokens and closing are the core's, with all it promises; nothing of
//! that is written a second time for keyed limiters. What is done here is the conversion, exact to the unit: a level
//! becomes a core, and a core that nobody needs becomes a level.
//!
//! A seat may be given up when only the map holds it. Whoever waits, holds tokens in flight or is about to act holds
//! it too, and gets it under the room's lock only; so under that lock "nobody else holds it" cannot stop being true.

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

/// What all seats of a map have in common.
#[derive(Debug)]
pub(super) struct LiveTemplate {
    pub(super) time: Time,
    pub(super) cap: Option<u64>,
    pub(super) max_waiting: usize,
    pub(super) driver: Arc<dyn QueueDriver>,
    /// A limiter above all keys.
    pub(super) parent: Option<Arc<Core>>,
    /// Who is told of waits and refusals, of all keys together.
    pub(super) observers: Observers,
}

impl LiveTemplate {
    /// A core that goes on from `level`, for the key of this hash; `quota_version` is the last change of quotas that `rate` knows
    /// of.
    pub(super) fn live(&self, rate: &Rate, level: Level, quota_version: u32, hash: u64) -> Arc<Core> {
        let head = rate.tokens(level.units) as u64;
        let schedule = Schedule::resume(rate.quota, head, rate.fraction(level.units), level.at);
        let supply = Supply::resume(schedule, self.cap, 0, level.at);
        let mut state = State::new(supply, self.cap, 0);
        state.max_waiting = self.max_waiting;
        // Levels are exact, and so are seats: the room's lock has cost more by then than the clock.
        state.stride.fix(0);
        state.quota_version = quota_version;
        Arc::new_cyclic(|weak| {
            let core = Core::new(Rovers::new(0), state, self.time.clone(), false, weak.clone());
            core.one_of_many(Arc::clone(&self.driver), hash, self.observers.clone(), self.parent.clone())
        })
    }
}

/// What a seat leaves behind that nobody needs any more.
pub(super) struct Idle {
    /// As of the instant it was asked for, or of the later one that the seat has come to.
    pub(super) level: Level,
    /// Tokens that the seat has granted, and how many of them came back.
    pub(super) granted: u64,
    pub(super) refunded: u64,
}

/// What `live` leaves behind if nobody needs it any more; `None` if somebody does. To be called under the lock of the room
/// that it is in.
pub(super) fn look_at_idle(live: &Arc<Core>, rate: &Rate, now: u64) -> Option<Idle> {
    if Arc::strong_count(live) > 1 {
        return None;
    }
    // With the Release of whoever let go of it last: what it released before that is seen below.
    fence(Ordering::Acquire);
    let mut state = live.state.lock();
    let mut wakes = Wakes::default();
    let flying = state.in_flight(&live.rovers).map_or(0, |(tokens, _)| tokens);
    // What is owed of forgotten grants flies, too.
    if !state.queue.is_empty() || flying > 0 {
        return None;
    }
    // Nobody waits: there is nobody to wake.
    let _done = state.finish(&live.rovers, now, &mut wakes);
    let schedule = &state.supply.quotas()[0];
    let tokens = ahead(schedule.head, live.rovers.tail());
    let units = if schedule.quota == rate.quota {
        units(rate, tokens, schedule.fraction())
    } else {
        // The clock has panicked before the seat was told of a change.
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

/// Makes the quota of `rate` the seat's, unless the seat knows of a later change.
pub(super) fn set_quota(live: &Core, rate: &Rate, quota_version: u32) {
    live.with(|state, rovers, _| {
        if state.quota_version < quota_version {
            state.quota_version = quota_version;
            state.set_quota(rovers, 0.into(), rate.quota).expect("it was checked, and there is one quota");
            state.supply.step_from_origin();
        }
    });
}
