//! Changing quotas: of all keys, and of one.

use super::{Ask, House, Level, Rate, Room, Special, Standing, Stop, Trash, span};
use crate::shared::Shared;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K: Clone + Eq> Room<K> {
    /// Gives `key` a quota of its own, or with `pinned` unset the common one again. What it holds stays. A seat that has to be told
    /// is returned.
    pub(in crate::keyed) fn set_quota_for(
        &mut self,
        ask: &Ask<'_, K>,
        rate: Arc<Rate>,
        pinned: bool,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Option<Arc<Shared>>, Stop> {
        self.come_to(ask.now, house, trash);
        self.aside().edition += 1;
        self.expect(&rate, house, trash);
        // What the sweep has come to that this may have made: a seat may have seen a later time.
        let now = self.synced;
        // After the sweep that this may have made, which does not know of the change.
        house.bound.idle_now(house.number);
        if let Some((key, seat)) = self.seats.remove(ask.hash, ask.key) {
            let standing = Standing::Seat(Arc::clone(&seat));
            self.push_seat(Special { key, hash: ask.hash, rate, standing, pinned });
            return Ok(Some(seat));
        }
        if let Some(special) = self.aside().specials.find_mut(ask.hash, |special| special.key == *ask.key) {
            special.pinned = pinned;
            return Ok(special.go_on_as(rate, now));
        }
        if let Some((key, word)) = self.words.remove(ask.hash, ask.key) {
            let (old, standing) = (Arc::clone(&self.rate), Standing::Word(word));
            let mut special = Special { key, hash: ask.hash, rate: old, standing, pinned };
            special.go_on_as(rate, now);
            self.push_special(special);
            return Ok(None);
        }
        if !pinned {
            return Ok(None);
        }
        let old = self.rate_for(ask)?;
        let key = ask.take_place(house.bound, trash)?;
        let standing = Standing::of(&old, Level { units: old.full(), at: now });
        let mut special = Special { key, hash: ask.hash, rate: old, standing, pinned };
        special.go_on_as(rate, now);
        self.push_special(special);
        Ok(None)
    }
}

impl<K> Room<K> {
    /// Gives everybody without a quota of their own this one, from what they hold now. The seats that have to be told are
    /// returned.
    pub(in crate::keyed) fn set_quota(
        &mut self,
        rate: Arc<Rate>,
        version: u32,
        now: u64,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Vec<Arc<Shared>> {
        if version <= self.aside().version {
            return Vec::new();
        }
        self.sweep_at(now, house, trash);
        let (now, old) = (self.synced, Arc::clone(&self.rate));
        self.forget_full(now, house, trash);
        let change =
            |word: NonZeroU64| Level { units: rate.adopt(&old, old.clip(old.of_word(word, now) as i128)), at: now };
        // User code first: the hashes of those whose level does not fit into a word any more.
        let unfit = |word: NonZeroU64| rate.word(change(word)).is_none();
        let hashes: Vec<u64> =
            self.words.iter().filter(|(_, word)| unfit(*word)).map(|(key, _)| (house.hash_of)(key)).collect();
        let mut seats: Vec<_> = self.seats.iter().map(|(_, seat)| Arc::clone(seat)).collect();
        let specials = self.aside().specials.iter_mut().filter(|special| !special.pinned);
        seats.extend(specials.filter_map(|special| special.go_on_as(Arc::clone(&rate), now)));
        let mut leaving = Vec::with_capacity(hashes.len());
        self.words.extract(unfit, |key, word| leaving.push((key, word)));
        for (_, word) in self.words.iter_mut() {
            *word = rate.word(change(*word)).unwrap_or(*word);
        }
        for ((key, word), hash) in leaving.into_iter().zip(hashes) {
            let standing = Standing::of(&rate, change(word));
            self.push_special(Special { key, hash, rate: Arc::clone(&rate), standing, pinned: false });
        }
        self.window = self.specials().map(|special| span(&special.rate)).fold(span(&rate), u64::min);
        (self.rate, self.by_key) = (rate, false);
        let aside = self.aside();
        (aside.version, aside.edition) = (version, aside.edition + 1);
        house.bound.idle_now(house.number);
        seats
    }
}

impl<K> Special<K> {
    /// Goes on by another quota, from what it holds at `now`. A seat that has to be told is returned.
    fn go_on_as(&mut self, rate: Arc<Rate>, now: u64) -> Option<Arc<Shared>> {
        let old = std::mem::replace(&mut self.rate, rate);
        let units = match &self.standing {
            Standing::Seat(seat) => return Some(Arc::clone(seat)),
            Standing::Word(word) => old.clip(old.of_word(*word, now) as i128),
            Standing::Wide(level) => old.advance(**level, now),
        };
        self.standing = Standing::of(&self.rate, Level { units: self.rate.adopt(&old, units), at: now });
        None
    }
}
