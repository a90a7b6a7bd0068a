//! Who comes to be kept here, and as what.

use super::{Ask, House, Level, Rate, Room, Special, Standing, Stop, Trash, span};
use crate::shared::Shared;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Somebody who has a place, and only needs to be written down.
pub(super) struct Newcomer<K> {
    pub(super) key: K,
    hash: u64,
    rate: Arc<Rate>,
    level: Level,
    /// What it is kept as; else it is special.
    word: Option<NonZeroU64>,
}

impl<K: Clone + Eq> Room<K> {
    /// The key's seat, made if there is none.
    pub(in crate::keyed) fn seat(
        &mut self,
        ask: &Ask<'_, K>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Arc<Shared>, Stop> {
        let now = self.come_to(ask.now, house, trash);
        let edition = self.edition();
        if let Some(seat) = self.find_seat(ask) {
            return Ok(seat);
        }
        let new = |rate: &Rate, level| house.seating.seat(rate, level, edition, ask.hash);
        if let Some(Special { key, hash, rate, standing, pinned }) = self.take_special(ask) {
            let seat = standing.level(&rate, now).map_or_else(Arc::clone, |level| new(&rate, level));
            self.push_seat(Special { key, hash, rate, standing: Standing::Seat(Arc::clone(&seat)), pinned });
            return Ok(seat);
        }
        if let Some((key, word)) = self.words.remove(ask.hash, ask.key) {
            let rate = Arc::clone(&self.rate);
            let seat = new(&rate, Self::read(&rate, word, now));
            let standing = Standing::Seat(Arc::clone(&seat));
            self.push_seat(Special { key, hash: ask.hash, rate, standing, pinned: false });
            return Ok(seat);
        }
        let rate = self.rate_for(ask)?;
        self.expect(&rate, house, trash);
        let key = ask.take_place(house.bound, trash)?;
        let seat = new(&rate, Level { units: rate.full(), at: now });
        let standing = Standing::Seat(Arc::clone(&seat));
        self.push_seat(Special { key, hash: ask.hash, rate, standing, pinned: false });
        Ok(seat)
    }

    fn take_special(&mut self, ask: &Ask<'_, K>) -> Option<Special<K>> {
        let aside = self.aside.as_mut()?;
        let place = aside.specials.place(ask.hash, |special| special.key == *ask.key)?;
        aside.take(place)
    }

    /// The quota of a newcomer.
    pub(super) fn rate_for(&self, ask: &Ask<'_, K>) -> Result<Arc<Rate>, Stop> {
        if self.by_key { ask.offered.clone().ok_or(Stop::AskQuota) } else { Ok(Arc::clone(&self.rate)) }
    }

    /// Does all that may fail before a newcomer is kept, user code first, and takes its place.
    pub(super) fn prepare(
        &mut self,
        ask: &Ask<'_, K>,
        rate: Arc<Rate>,
        level: Level,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Newcomer<K>, Stop> {
        let word = rate.word(level).filter(|_| !self.by_key);
        if word.is_some() && self.words.len() == self.words.capacity() {
            self.sweep(house, trash);
            self.words.make_room(house.hash_of);
        } else if word.is_none() {
            let specials = &self.aside().specials;
            if specials.len() == specials.capacity() {
                self.sweep(house, trash);
            }
        }
        // After the sweeps: each computes the window from the keys that are kept here, and the newcomer is not one of them yet.
        self.expect(&rate, house, trash);
        let key = ask.take_place(house.bound, trash)?;
        // A sweep may have come to a later time, from which on words can be read.
        let level = Level { units: rate.advance(level, self.synced), at: self.synced };
        let word = word.and_then(|_| rate.word(level));
        Ok(Newcomer { key, hash: ask.hash, rate, level, word })
    }

    pub(super) fn keep(&mut self, newcomer: Newcomer<K>, house: &House<'_, K>) {
        let Newcomer { key, hash, rate, level, word } = newcomer;
        house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
        if let Some(word) = word {
            self.words.insert(hash, key, word);
        } else {
            let standing = Standing::of(&rate, level);
            self.push_special(Special { key, hash, rate, standing, pinned: false });
        }
    }

    /// The level of a word does not fit into a word any more.
    pub(super) fn make_special(&mut self, ask: &Ask<'_, K>, level: Level) {
        if let Some((key, _)) = self.words.remove(ask.hash, ask.key) {
            let rate = Arc::clone(&self.rate);
            let standing = Standing::of(&rate, level);
            self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
        }
    }
}

impl<K> Room<K> {
    /// Words of `rate` are going to be kept here.
    pub(super) fn expect(&mut self, rate: &Rate, house: &House<'_, K>, trash: &mut Trash<K>) {
        if span(rate) < self.window {
            if self.synced - self.swept > span(rate) {
                self.sweep(house, trash);
            }
            self.window = self.window.min(span(rate));
        }
    }

    /// Its rate is expected.
    pub(super) fn push_special(&mut self, special: Special<K>) {
        self.aside().insert(special);
    }

    /// The same for somebody with a seat, who is not special by that alone.
    pub(super) fn push_seat(&mut self, special: Special<K>) {
        match special {
            Special { key, rate, standing: Standing::Seat(seat), pinned: false, .. } if self.is_common(&rate) => {
                self.seats.insert(key, seat);
            }
            special => self.push_special(special),
        }
    }

    /// Whether this is the quota that all have in common.
    pub(super) fn is_common(&self, rate: &Arc<Rate>) -> bool {
        !self.by_key && Arc::ptr_eq(rate, &self.rate)
    }
}
