//! Acting on the level of a key.

use super::{Ask, House, Level, Quick, Rate, Room, Special, Standing, Stop, Trash};
use crate::keyed::entries::Listed;
use crate::shared::Shared;
use std::sync::Arc;

impl<K: Clone + Eq> Room<K> {
    /// Takes `cost` tokens from a word, also of a quota of its own, and says what remains, if all is as it mostly is; or finds
    /// the key's seat. `also` takes what has to be taken elsewhere too. `None` leaves it to [`at_level`](Self::at_level).
    #[inline]
    pub(in crate::keyed) fn take_quickly(
        &mut self,
        key: &K,
        hash: u64,
        cost: u64,
        now: u64,
        also: impl FnOnce() -> bool,
    ) -> Option<Quick> {
        let now = self.synced.max(now);
        if self.closed || self.calls_left <= 1 || now - self.swept > self.window || cost == 0 {
            return None;
        }
        let has_specials = !self.specials.is_empty();
        let special = has_specials.then(|| self.specials.find_mut(hash, |special| special.key == *key)).flatten();
        let (rate, word) = match special {
            Some(Special { standing: Standing::Seat(seat), .. }) => return Some(Quick::Seat(Arc::clone(seat))),
            Some(Special { standing: Standing::Wide(_), .. }) => return None,
            Some(Special { standing: Standing::Word(word), rate, .. }) => (&**rate, word),
            None => (&*self.rate, self.words.find_mut(hash, key)?),
        };
        let (next, left) = rate.take_from_word(*word, cost, now)?;
        if !also() {
            return None;
        }
        *word = next;
        self.synced = now;
        self.calls_left -= 1;
        self.count_granted(cost);
        Some(Quick::Taken(left))
    }

    /// Shows `act` the level of a key that has no seat, and keeps what it makes of it. Whoever is full is not kept.
    pub(in crate::keyed) fn at_level<R>(
        &mut self,
        ask: &Ask<'_, K>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
        act: impl FnOnce(&Rate, &mut Level) -> R,
    ) -> Result<R, Stop> {
        self.at_level_if(ask, house, trash, act, Ok)
    }

    /// The same, if `confirm` agrees at last, when nothing is left that could fail: an `Err` leaves all as it was.
    pub(in crate::keyed) fn at_level_if<R>(
        &mut self,
        ask: &Ask<'_, K>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
        act: impl FnOnce(&Rate, &mut Level) -> R,
        confirm: impl FnOnce(R) -> Result<R, R>,
    ) -> Result<R, Stop> {
        let now = self.come_to(ask.now, house, trash);
        if !self.specials.is_empty()
            && let Some(special) = self.specials.find_mut(ask.hash, |special| special.key == *ask.key)
        {
            let rate = &special.rate;
            let before = match &special.standing {
                Standing::Seat(seat) => return Err(Stop::Seat(Arc::clone(seat))),
                Standing::Word(word) => Self::read(rate, *word, now),
                Standing::Wide(level) => Level { units: rate.advance(**level, now), at: now },
            };
            let mut level = before;
            let result = match confirm(act(rate, &mut level)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            if level.units > before.units {
                house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
            }
            special.standing = Standing::of(rate, level);
            return Ok(result);
        }
        if let Some(word) = self.words.find_mut(ask.hash, ask.key) {
            let rate = &self.rate;
            let before = Self::read(rate, *word, now);
            let mut level = before;
            let result = match confirm(act(rate, &mut level)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            if level.units > before.units {
                house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
            }
            match rate.word(level) {
                Some(next) => *word = next,
                None => self.make_special(ask, level),
            }
            return Ok(result);
        }
        let rate = self.rate_for(ask)?;
        let mut level = Level { units: rate.full(), at: now };
        let result = act(&rate, &mut level);
        if rate.is_full(level.units) {
            return Ok(result);
        }
        let newcomer = self.prepare(ask, rate, level, house, trash)?;
        match confirm(result) {
            Ok(result) => {
                self.keep(newcomer, house);
                Ok(result)
            }
            Err(refusal) => {
                house.bound.give_back(1);
                trash.keys.push(newcomer.key);
                Ok(refusal)
            }
        }
    }

    /// Everybody who is here.
    pub(in crate::keyed) fn list(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) -> Vec<(K, Listed)> {
        let now = self.come_to(now, house, trash);
        let words = self.words.iter().map(|(key, word)| {
            (key.clone(), Listed::Level(Arc::clone(&self.rate), Self::read(&self.rate, *word, now)))
        });
        let specials = self.specials.iter().map(|Special { key, rate, standing, .. }| {
            let level = match standing {
                Standing::Seat(seat) => return (key.clone(), Listed::Seat(Arc::clone(seat))),
                Standing::Word(word) => Self::read(rate, *word, now),
                Standing::Wide(level) => Level { units: rate.advance(**level, now), at: now },
            };
            (key.clone(), Listed::Level(Arc::clone(rate), level))
        });
        words.chain(specials).collect()
    }

    /// The key's seat, if it has one.
    pub(in crate::keyed) fn find_seat(&self, ask: &Ask<'_, K>) -> Option<Arc<Shared>> {
        match &self.specials.find(ask.hash, |special| special.key == *ask.key)?.standing {
            Standing::Seat(seat) => Some(Arc::clone(seat)),
            _ => None,
        }
    }
}
