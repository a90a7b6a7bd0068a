//! Giving a saved state to a new limiter.

use super::reading::{Frame, KeyedState};
use crate::clock::Time;
use crate::error::{ConfigError, StateError};
use crate::keyed::KeyedBuilder;
use crate::keyed::map::Map;
use crate::keyed::quotas::Quotas;
use crate::keyed::rates::{Levels, Rates};
use crate::keyed::shard::{SavedKey, SavedShard};
use crate::saved::StateKey;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::SystemTime;

/// The overflow bucket: its quotas, and its levels, if they are not full.
type Overflow = (Arc<Rates>, Option<Levels>);

/// A state that a builder restores, and the instant at which the new limiter continues.
pub(in crate::keyed) struct Restore<K> {
    state: KeyedState<K>,
    /// By the time of the saved map: all levels are advanced to this instant.
    until: u64,
    /// Reads a frame; a function so that only `restore` needs keys that can be read.
    read: fn(&[u8]) -> SavedShard<K>,
}

impl<K: StateKey, S> KeyedBuilder<K, S> {
    /// Continues from `state`, when the wall clock shows `wall_clock`: the buckets of all keys are as full as when they
    /// were saved, plus what the time between has refilled; see [`state`](crate::state).
    ///
    /// [`build`](Self::build) then fails if the quotas, or those of [`overflow`](Self::overflow), are not those of the
    /// state, in the same order, unless the state [converts](KeyedState::convert). All other settings may differ. A key
    /// with quotas of its own gets them again. [`quota_by`](Self::quota_by) is asked for the quotas of each saved key,
    /// which keeps its tokens if they have changed. All keys are restored, even if they are more than
    /// [`max_keys`](Self::max_keys).
    ///
    /// # Panics
    ///
    /// `build` panics if `quota_by` does, or `Hash`, `Eq` or `Clone` of a key.
    pub fn restore(mut self, state: KeyedState<K>, wall_clock: SystemTime) -> Self {
        let until = state.first.at.saturating_add(state.first.saved_at.offline(wall_clock)).max(state.known);
        let read = |contents: &[u8]| {
            let mut frame = Frame::read(contents).expect("the frame was checked");
            let keys = (0..frame.left).map(|_| frame.key().expect("the key was checked")).collect();
            SavedShard { at: frame.at, gate: frame.gate, keys }
        };
        self.set_restore(Restore { state, until, read });
        self
    }
}

impl<K> Restore<K> {
    pub(in crate::keyed) fn check(&self, common: Option<&Quotas>, overflow: Option<&Quotas>) -> Result<(), StateError> {
        self.state.check(common, overflow)
    }

    /// The time of the new map and its overflow bucket, from those without a state. The new map's time continues that of
    /// the saved one, so that stepped quotas step when they would have. If the clock has no instant that is early
    /// enough, the new time differs from the saved one by a multiple of all periods of saved keys; if that is not
    /// possible either, the steps come later, and none earlier.
    pub(in crate::keyed) fn begin(&self, time: Time, overflow: Option<Overflow>) -> (Time, Option<Overflow>) {
        let by_steps = || time.begun_earlier(self.state.steps.map_or(0, |steps| self.until % steps));
        let time = time.begun_earlier(self.until).or_else(by_steps).unwrap_or(time);
        let now = time.now();
        let continued = |(rates, _): Overflow| {
            let levels = self.overflow(&rates, now);
            (rates, levels)
        };
        (time, overflow.map(continued))
    }

    /// The levels of the overflow bucket at `now`, under `rates`.
    fn overflow(&self, rates: &Rates, now: u64) -> Option<Levels> {
        let (saved, levels) = self.state.first.overflow.as_ref()?;
        let levels = rates.continued(saved, &self.advanced(saved, levels));
        let gate = if levels.is_paused() { now.saturating_add(levels.gate - levels.at) } else { 0 };
        Some(levels.at(now, gate))
    }

    fn advanced(&self, rates: &Rates, levels: &Levels) -> Levels {
        rates.advance(levels, self.until)
    }

    /// Gives all keys to a new map.
    pub(in crate::keyed) fn apply<S: BuildHasher>(self, map: &Map<K, S>) -> Result<(), ConfigError>
    where
        K: Hash + Eq + Clone,
    {
        let mut gate = 0;
        for contents in &self.state.shards {
            let shard = (self.read)(contents);
            gate = gate.max(shard.gate);
            for saved in shard.keys {
                let levels = saved.levels.map(|levels| self.advanced(&saved.rates, &levels));
                if !map.restore(&SavedKey { levels, ..saved }) {
                    return Err(ConfigError::TooManyKeys { most: map.key_limit.most().unwrap_or(u64::MAX) });
                }
            }
        }
        if gate > self.until {
            map.pause_all_for(gate - self.until);
        }
        Ok(())
    }
}
