//! Acting on the level of a key.

use super::{Aside, Ask, House, Level, Quick, Rate, Room, Special, Standing, Stop, Trash};
use crate::keyed::entries::Listed;
use crate::shared::Shared;
use std::num::NonZeroU64;
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
        let mut special = None;
        if let Some(seat) = self.seats.find(hash, key) {
            return Some(Quick::Seat(Arc::clone(seat)));
        }
        if let Some(aside) = &mut self.aside {
            special = aside.specials.find_mut(hash, |special| special.key == *key);
        }
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
        if let Some(seat) = self.seats.find(ask.hash, ask.key) {
            return Err(Stop::Seat(Arc::clone(seat)));
        }
        if let Some((rate, kept)) = self.find_level(ask) {
            let before = match &kept {
                Kept::Word(word) => Self::read(rate, **word, now),
                Kept::Special(standing) => standing.level(rate, now).map_err(|seat| Stop::Seat(Arc::clone(seat)))?,
            };
            let mut level = before;
            let result = match confirm(act(rate, &mut level)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            if level.units > before.units {
                house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
            }
            match (kept, rate.word(level)) {
                (Kept::Special(standing), _) => *standing = Standing::of(rate, level),
                (Kept::Word(word), Some(next)) => *word = next,
                (Kept::Word(_), None) => self.make_special(ask, level),
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
        let seats = self.seats.iter().map(|(key, seat)| (key.clone(), Listed::Seat(Arc::clone(seat))));
        let specials = self.specials().map(|Special { key, rate, standing, .. }| match standing.level(rate, now) {
            Ok(level) => (key.clone(), Listed::Level(Arc::clone(rate), level)),
            Err(seat) => (key.clone(), Listed::Seat(Arc::clone(seat))),
        });
        words.chain(seats).chain(specials).collect()
    }

    /// The key's seat, if it has one.
    pub(in crate::keyed) fn find_seat(&self, ask: &Ask<'_, K>) -> Option<Arc<Shared>> {
        let own = |aside: &Aside<K>| {
            aside.specials.find(ask.hash, |special| special.key == *ask.key)?.standing.seat().cloned()
        };
        self.seats.find(ask.hash, ask.key).cloned().or_else(|| self.aside.as_deref().and_then(own))
    }

    /// Where a key is kept that is not among the seats, and its quota.
    fn find_level(&mut self, ask: &Ask<'_, K>) -> Option<(&Rate, Kept<'_>)> {
        let specials = self.aside.as_mut().map(|aside| &mut aside.specials);
        match specials.and_then(|specials| specials.find_mut(ask.hash, |special| special.key == *ask.key)) {
            Some(Special { rate, standing, .. }) => Some((rate, Kept::Special(standing))),
            None => Some((&self.rate, Kept::Word(self.words.find_mut(ask.hash, ask.key)?))),
        }
    }
}

/// Where a level is kept.
enum Kept<'a> {
    Word(&'a mut NonZeroU64),
    Special(&'a mut Standing),
}
