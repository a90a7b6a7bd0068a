//! What a keyed limiter looks like from outside.

use super::map::Map;
use crate::shared::Shared;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// A picture of a keyed limiter; from [`KeyedLimiter::snapshot`](super::KeyedLimiter::snapshot). Of each key it is
/// consistent; the keys are looked at one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedSnapshot<K> {
    /// Keys in memory: those that owe tokens, and those that do not and have not been forgotten yet.
    pub keys: usize,
    /// Keys that somebody waits on.
    pub keys_waiting: usize,
    /// How many callers wait, on all keys.
    pub waiting_tasks: usize,
    /// How many tokens they wait for.
    pub waiting_tokens: u64,
    /// Tokens granted and not yet released, of all keys; `None` without a cap.
    pub in_flight: Option<u64>,
    /// Tokens granted since the limiter was built, of all keys, those charged by `settle` included.
    pub granted: u64,
    /// Tokens that came back unused: settled below the grant, or granted to somebody who had left.
    pub refunded: u64,
    /// Calls that were refused, denials of `try_acquire` among them.
    pub refused: u64,
    /// The keys refused most, and how often at least. Up to 16, whatever the number of keys: each that had more than a 17th of
    /// all refusals is among them.
    pub most_refused: Vec<(K, u64)>,
    /// The longest time between the instant at which the schedule granted somebody in line and the moment the timer let
    /// it be delivered, among keys that are waited on.
    pub lateness: Duration,
    /// True once the limiter was closed.
    pub closed: bool,
}

impl<K: Hash + Eq + Clone> KeyedSnapshot<K> {
    pub(super) fn of<S: BuildHasher>(map: &Map<K, S>) -> Self {
        let mut snapshot = Self {
            keys: 0,
            keys_waiting: 0,
            waiting_tasks: 0,
            waiting_tokens: 0,
            in_flight: map.seating.cap.map(|_| 0),
            granted: 0,
            refunded: 0,
            refused: 0,
            most_refused: map.top.lock().list(),
            lateness: Duration::ZERO,
            closed: false,
        };
        for number in 0..map.rooms.len() {
            let seats: Vec<Arc<Shared>> = map.in_room(number, |room, _, _| {
                snapshot.keys += room.len();
                snapshot.refused += room.refused;
                snapshot.count(room.totals());
                snapshot.closed |= room.closed;
                room.seats().cloned().collect()
            });
            if seats.is_empty() {
                continue;
            }
            seats.iter().for_each(|seat| snapshot.add(seat));
            // Whoever swept meanwhile found them held.
            drop(seats);
            map.bound.idle_now(number);
        }
        if let Some(overflow) = &map.overflow {
            snapshot.add(overflow);
        }
        snapshot
    }

    fn add(&mut self, seat: &Shared) {
        let (waiting, tokens, flying, lateness, totals) = seat.look_at(|state, rovers, _| {
            let flying = state.in_flight(rovers).map_or(0, |(tokens, _)| tokens);
            let totals = (state.granted(rovers), state.totals.refunded);
            (state.line.len(), state.line.tokens() + state.line.part_tokens(), flying, state.totals.lateness, totals)
        });
        self.count(totals);
        self.keys_waiting += usize::from(waiting > 0);
        self.waiting_tasks += waiting;
        self.waiting_tokens += tokens;
        self.in_flight = self.in_flight.map(|sum| sum + flying);
        self.lateness = self.lateness.max(Duration::from_nanos(lateness));
    }

    /// The tokens granted and refunded of a room, which a seat takes along when it is given up. Those of a seat that is held
    /// here are not among its room's.
    fn count(&mut self, (granted, refunded): (u64, u64)) {
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
    }
}
