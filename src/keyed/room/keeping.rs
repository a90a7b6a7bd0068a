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
        if let Some(special) = self.specials.find_mut(ask.hash, |special| special.key == *ask.key) {
            let level = match &special.standing {
                Standing::Seat(seat) => return Ok(Arc::clone(seat)),
                Standing::Word(word) => Self::read(&special.rate, *word, now),
                Standing::Wide(level) => Level { units: special.rate.advance(**level, now), at: now },
            };
            let seat = house.seating.seat(&special.rate, level, edition, ask.hash);
            special.standing = Standing::Seat(Arc::clone(&seat));
            return Ok(seat);
        }
        self.specials.make_room(|special| special.hash);
        if let Some((key, word)) = self.words.remove(ask.hash, ask.key) {
            let level = Self::read(&self.rate, word, now);
            let seat = house.seating.seat(&self.rate, level, edition, ask.hash);
            let (rate, standing) = (Arc::clone(&self.rate), Standing::Seat(Arc::clone(&seat)));
            self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
            return Ok(seat);
        }
        let rate = self.rate_for(ask)?;
        self.expect(&rate, house, trash);
        self.specials.make_room(|special| special.hash);
        let key = ask.take_place(house.bound, trash)?;
        let seat = house.seating.seat(&rate, Level { units: rate.full(), at: now }, edition, ask.hash);
        let standing = Standing::Seat(Arc::clone(&seat));
        self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
        Ok(seat)
    }

    /// The quota that the key has if none was given to it alone.
    pub(in crate::keyed) fn common_rate(&self, ask: &Ask<'_, K>) -> Result<Arc<Rate>, Stop> {
        self.rate_for(ask)
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
        self.expect(&rate, house, trash);
        let word = rate.word(level).filter(|_| !self.by_key);
        if word.is_some() && self.words.len() == self.words.capacity() {
            self.sweep(house, trash);
            self.words.make_room(house.hash_of);
        } else if word.is_none() {
            if self.specials.len() == self.specials.capacity() {
                self.sweep(house, trash);
            }
            self.specials.make_room(|special| special.hash);
        }
        let key = ask.take_place(house.bound, trash)?;
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
        self.specials.make_room(|special| special.hash);
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

    /// There is room for it, and its rate is expected.
    pub(super) fn push_special(&mut self, special: Special<K>) {
        self.specials.insert(special.hash, special);
    }
}
