//! What a key looks like from outside.

use super::taking::most_claimable;
use super::{Entered, Map, wait};
use crate::Quota;
use crate::keyed::rate::{Level, Rate};
use crate::shared::Shared;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Looks at a level or at a seat; `closed` is what a closed limiter shows instead. A newcomer's level is a full one, and
    /// is not kept.
    fn look<R>(
        &self,
        key: &K,
        at_level: impl Fn(&Rate, Level, u64) -> R,
        at_seat: impl Fn(&Shared) -> R,
        closed: Option<R>,
    ) -> R {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            let level = room.at_level(ask, house, trash, |rate, level| at_level(rate, *level, ask.now))?;
            Ok((level, room.closed))
        });
        match entered {
            Entered::Done((level, is_closed)) => closed.filter(|_| is_closed).unwrap_or(level),
            Entered::Seat(seat) => {
                let result = at_seat(&seat);
                self.let_go(hash, seat);
                result
            }
            Entered::Full => unreachable!("who looks is not kept"),
        }
    }

    pub(in crate::keyed) fn available(&self, key: &K) -> u64 {
        let cap = self.seating.cap.unwrap_or(u64::MAX);
        let at_level = |rate: &Rate, level: Level, _| (rate.tokens(level.units).max(0) as u64).min(cap);
        let own = self.look(key, at_level, |seat| seat.look_at(|state, rovers, _| state.available(rovers)), Some(0));
        let above = self.roof.as_ref().map(|roof| roof.look_at(|state, rovers, _| state.available(rovers)));
        own.min(above.unwrap_or(u64::MAX))
    }

    pub(in crate::keyed) fn deficiency(&self, key: &K) -> u64 {
        let at_level = |rate: &Rate, level: Level, _| rate.tokens(level.units).min(0).unsigned_abs();
        self.look(key, at_level, |seat| seat.look_at(|state, rovers, _| state.deficiency(rovers)), None)
    }

    pub(in crate::keyed) fn quota(&self, key: &K) -> Quota {
        let at_seat = |seat: &Shared| seat.look_at(|state, _, _| state.supply.quotas()[0].quota);
        self.look(key, |rate: &Rate, _, _| rate.quota, at_seat, None)
    }

    pub(in crate::keyed) fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let cap = self.seating.cap.unwrap_or(u64::MAX);
        let at_level = |rate: &Rate, level: Level, now| {
            if cost > most_claimable(rate, level).min(cap) {
                return None;
            }
            if cost == 0 {
                return Some(Duration::ZERO);
            }
            rate.reached(level, cost).map(|at| wait(at, level, now))
        };
        let at_seat = |seat: &Shared| seat.look_at(|state, rovers, sample| state.estimate(rovers, cost, sample.now));
        let own = self.look(key, at_level, at_seat, Some(None))?;
        self.roof.as_ref().map_or(Some(own), |roof| roof.estimate_later(cost, own))
    }
}
