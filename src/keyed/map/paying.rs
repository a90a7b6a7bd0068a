//! What comes after a grant: its real cost, and its release.

use super::{Entered, MOST_SPAN, Map};
use crate::error::ReleaseError;
use crate::keyed::rate::{Level, Rate};
use crate::keyed::room::Ask;
use crate::state::MOST_COST;
use std::hash::{BuildHasher, Hash};

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Changes what a grant of `key` cost, and says what it costs now.
    pub(in crate::keyed) fn resettle(&self, key: &K, hash: u64, cost: u64, actual: u64) -> u64 {
        let entered = self.enter(key, hash, true, |room, ask, house, trash| {
            let settled = room.at_level(ask, house, trash, |rate, level| {
                if actual < cost {
                    refund(rate, level, cost - actual);
                    return actual;
                }
                let room = (MOST_SPAN + rate.tokens(level.units)).max(0) as u64;
                let more = (actual - cost).min(MOST_COST).min(room);
                level.units -= rate.units(more);
                cost + more
            })?;
            if settled < cost {
                room.count_refunded(cost - settled);
            } else {
                room.count_granted(settled - cost);
            }
            Ok(settled)
        });
        match entered {
            Entered::Done(cost) => cost,
            Entered::Seat(seat) => {
                let cost = seat.resettle(cost, actual);
                self.let_go(hash, seat);
                cost
            }
            Entered::Full => cost,
        }
    }

    /// Releases from the key, if it has a cap, and from the limiter above, if that has one: from both or neither.
    pub(in crate::keyed) fn release(&self, key: &K, tokens: u64) -> Result<(), ReleaseError> {
        let Some(roof) = self.roof.as_ref().filter(|roof| roof.capped) else { return self.release_own(key, tokens) };
        roof.take_owed(tokens)?;
        if self.seating.cap.is_some()
            && let Err(error) = self.release_own(key, tokens)
        {
            roof.forget(tokens);
            return Err(error);
        }
        roof.release(tokens);
        Ok(())
    }

    fn release_own(&self, key: &K, tokens: u64) -> Result<(), ReleaseError> {
        if self.seating.cap.is_none() {
            return Err(ReleaseError::NotCapped);
        }
        let hash = self.hash(key);
        let ask = Ask { key, hash, now: 0, offered: None, must: false };
        let result = match self.in_room(self.room_of(hash), |room, _, _| room.find_seat(&ask)) {
            Some(seat) => {
                let result = seat.release_owed(tokens);
                self.let_go(hash, seat);
                result
            }
            None if tokens == 0 => Ok(()),
            None => Err(ReleaseError::TooMuch { asked: tokens, owed: 0 }),
        };
        match &self.overflow {
            // It may have been granted while the map was full.
            Some(overflow) if result.is_err() && overflow.release_owed(tokens).is_ok() => Ok(()),
            _ => result,
        }
    }
}

/// `tokens` go back, as far as the burst.
fn refund(rate: &Rate, level: &mut Level, tokens: u64) {
    let room = (rate.burst() as i64).wrapping_sub(rate.tokens(level.units)).max(0) as u64;
    level.units = rate.clip(level.units + rate.units(tokens.min(room)));
}
