//! Changes of the map itself, room by room.

use super::{Entered, Map};
use crate::Quota;
use crate::keyed::seat;
use crate::shared::Shared;
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// How many quotas that were set for all a room may have to make up for, beside the last one. At each change one room in so
/// many catches up.
const MOST_PENDING: usize = 16;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Sets a checked quota for all keys from now on. Each room notes it, and brings its keys to it when a call comes there: so
    /// this costs a short lock for each room, and a look at each seat.
    pub(in crate::keyed) fn set_quota(&self, quota: Quota) {
        let rate = self.rate(quota);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        let now = self.now();
        for number in 0..self.rooms.len() {
            let (seats, edition) = self.in_room(number, |room, house, trash| {
                let seats = room.set_quota(Arc::clone(&rate), version, now, house, trash);
                (seats, room.edition())
            });
            for seat in seats {
                seat::set_quota(&seat, &rate, edition);
            }
            // By the new quota a key may be full earlier.
            self.bound.idle_now(number);
        }
        // Rooms to which no call comes must not be left with ever more changes to make up for.
        for number in (version as usize % MOST_PENDING..self.rooms.len()).step_by(MOST_PENDING) {
            self.in_room(number, |room, house, trash| room.catch_up_if_behind(house, trash));
        }
    }

    /// Gives `key` a quota of its own; or the common one, with `None`. False if the map is full.
    pub(in crate::keyed) fn set_quota_for(&self, key: &K, quota: Option<Quota>) -> bool {
        let own = quota.map(|quota| self.rate(quota));
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            let told = room.set_quota_for(ask, own.clone(), house, trash)?;
            Ok(told.map(|(seat, rate)| (seat, rate, room.edition())))
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
            seats.iter().for_each(|seat| seat.close_anyway());
            drop(seats);
            self.bound.idle_now(number);
        }
        if let Some(overflow) = &self.overflow {
            overflow.close_anyway();
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
