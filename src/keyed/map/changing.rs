//! Changes of the map itself, room by room.

use super::{Entered, Map};
use crate::Quota;
use crate::keyed::seat;
use crate::shared::Shared;
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// One room after the other gets the new quota, a checked one.
    pub(in crate::keyed) fn set_quota(&self, quota: Quota) {
        let rate = self.rate(quota);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        for number in 0..self.rooms.len() {
            let now = self.now();
            let (seats, edition) = self.in_room(number, |room, house, trash| {
                let seats = room.set_quota(Arc::clone(&rate), version, now, house, trash);
                (seats, room.edition())
            });
            for seat in seats {
                seat::set_quota(&seat, &rate, edition);
            }
            self.bound.idle_now(number);
        }
    }

    /// Gives `key` a quota of its own; or the common one, with `None`. False if the map is full.
    pub(in crate::keyed) fn set_quota_for(&self, key: &K, quota: Option<Quota>) -> bool {
        let own = quota.map(|quota| self.rate(quota));
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            let rate = match &own {
                Some(rate) => Arc::clone(rate),
                None => room.common_rate(ask)?,
            };
            let seat = room.set_quota_for(ask, Arc::clone(&rate), own.is_some(), house, trash)?;
            Ok(seat.map(|seat| (seat, rate, room.edition())))
        });
        match entered {
            Entered::Done(Some((seat, rate, edition))) => {
                seat::set_quota(&seat, &rate, edition);
                self.let_go(hash, seat);
                true
            }
            Entered::Done(None) => true,
            Entered::Seat(_) | Entered::Full => false,
        }
    }

    pub(in crate::keyed) fn close(&self) {
        for number in 0..self.rooms.len() {
            let seats: Vec<Arc<Shared>> = self.in_room(number, |room, _, _| {
                room.closed = true;
                room.seats().cloned().collect()
            });
            // Some keys are closed already: a clock that panics is no reason to leave the waiters of the others.
            seats.iter().for_each(|seat| seat.close());
            drop(seats);
            self.bound.idle_now(number);
        }
        if let Some(overflow) = &self.overflow {
            overflow.close();
        }
    }

    /// Serves all lines and forgets who may be forgotten: what the attendants and the calls do, for the user's own hands.
    pub(in crate::keyed) fn tick(&self) {
        if let Some(roof) = &self.roof {
            roof.tick();
        }
        for number in 0..self.rooms.len() {
            let seats: Vec<Arc<Shared>> = self.in_room(number, |room, _, _| room.seats().cloned().collect());
            seats.iter().for_each(|seat| seat.tick());
            drop(seats);
            let now = self.now();
            self.in_room(number, |room, house, trash| room.sweep_at(now, house, trash));
        }
        if let Some(overflow) = &self.overflow {
            overflow.tick();
        }
    }
}
