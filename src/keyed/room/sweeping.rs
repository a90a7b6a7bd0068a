//! Forgetting: who is full, and seats that nobody needs.
//!
//! A word must not be read outside of the [window](super::Room) after the last sweep: so everything here leaves `swept` and
//! `window` such that whoever is kept as a word can be read from now on.

use super::{House, Level, Rate, Room, SMALL, Special, Standing, Trash, seat, span};
use crate::keyed::seat::Idle;
use crate::shared::Shared;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K> Room<K> {
    /// [Sweeps](Self::sweep) at `now`.
    pub(in crate::keyed) fn sweep_at(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) {
        self.synced = self.synced.max(now);
        self.sweep(house, trash);
    }

    /// Forgets whoever is full and gives up the seats that nobody needs.
    pub(in crate::keyed) fn sweep(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        let had = self.len();
        house.bound.begin_sweep(house.number);
        // Beyond the window words cannot be read, but the levels at its end can be led on.
        let readable = self.synced.min(self.swept.saturating_add(self.window));
        self.give_up_seats(trash);
        let (synced, rate) = (self.synced, &self.rate);
        let read = |rate: &Rate, word: NonZeroU64| {
            let level = Level { units: rate.clip(rate.of_word(word, readable) as i128), at: readable };
            rate.advance(level, synced)
        };
        let mut fullest = None;
        let is_full = |word| {
            let units = read(rate, word);
            let is_full = rate.is_full(units);
            fullest = if is_full { fullest } else { fullest.max(Some(units)) };
            is_full
        };
        self.words.extract(is_full, |key, _| trash.keys.push(key));
        // At the next instant for those who are full but for a fraction of a token on top.
        let first = |rate: &Rate, units| {
            let at = rate.reached(Level { units, at: synced }, rate.burst()).unwrap_or(u64::MAX);
            at.max(synced.saturating_add(1))
        };
        let mut next = fullest.map_or(u64::MAX, |units| first(rate, units));
        let mut window = span(rate);
        let is_full = |special: &mut Special<K>| {
            let rate = &special.rate;
            let units = match &special.standing {
                Standing::Seat(_) => None,
                Standing::Word(word) => Some(read(rate, *word)),
                Standing::Wide(level) => Some(rate.advance(**level, synced)),
            };
            if let Some(units) = units {
                if rate.is_full(units) && !special.pinned {
                    return true;
                }
                next = if special.pinned { next } else { next.min(first(rate, units)) };
                special.standing = Standing::of(rate, Level { units, at: synced });
            }
            window = window.min(span(rate));
            false
        };
        self.specials.extract(is_full, |special| trash.keys.push(special.key));
        (self.swept, self.window) = (synced, window);
        let calls = 4 * (self.words.slots() + self.specials.slots()).max(SMALL);
        self.calls_left = u32::try_from(calls).unwrap_or(u32::MAX);
        house.bound.end_sweep(house.number, had - self.len(), next);
    }

    /// Forgets, after a sweep at `now`, also those who have a fraction of a token on top: for a change of what full is.
    pub(super) fn forget_full(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) {
        let (had, rate) = (self.len(), &self.rate);
        self.words.extract(|word| Self::read(rate, word, now).units >= rate.full(), |key, _| trash.keys.push(key));
        let is_full = |special: &mut Special<K>| {
            let units = match &special.standing {
                Standing::Seat(_) => return false,
                Standing::Word(word) => Self::read(&special.rate, *word, now).units,
                Standing::Wide(level) => special.rate.advance(**level, now),
            };
            !special.pinned && units >= special.rate.full()
        };
        self.specials.extract(is_full, |special| trash.keys.push(special.key));
        house.bound.give_back(had - self.len());
    }

    /// Turns seats that nobody needs into levels.
    fn give_up_seats(&mut self, trash: &mut Trash<K>) {
        for special in self.specials.iter_mut() {
            let Standing::Seat(seat) = &special.standing else { continue };
            let Some(Idle { level, granted, refunded }) = seat::look_at_idle(seat, &special.rate, self.synced) else {
                continue;
            };
            self.granted = self.granted.wrapping_add(granted);
            self.refunded = self.refunded.wrapping_add(refunded);
            // The seat may have seen a later time. Words cannot be read yet, with the window perhaps gone by: hence wide.
            self.synced = self.synced.max(level.at);
            let seat = std::mem::replace(&mut special.standing, Standing::Wide(Box::new(level)));
            trash.seats.extend(seat.into_seat());
        }
    }

    /// Lets go of the memory that a crowd has left behind.
    pub(super) fn shrink(&mut self, house: &House<'_, K>) {
        self.words.shrink(SMALL, house.hash_of);
        self.specials.shrink(SMALL, |special| special.hash);
    }

    /// Gives up `seat`, the one at this address, if nobody needs it; true if it is not there any more. No user code runs.
    pub(in crate::keyed) fn retire(
        &mut self,
        hash: u64,
        seat: *const Shared,
        now: u64,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> bool {
        self.synced = self.synced.max(now);
        let is_it = |special: &Special<K>| matches!(&special.standing, Standing::Seat(it) if Arc::as_ptr(it) == seat);
        let Some(place) = self.specials.place(hash, is_it) else { return true };
        let Some(special) = self.specials.at_mut(place) else { return true };
        let Standing::Seat(seat) = &special.standing else { return true };
        let Some(Idle { level, granted, refunded }) = seat::look_at_idle(seat, &special.rate, self.synced) else {
            return false;
        };
        self.synced = self.synced.max(level.at);
        if self.synced - self.swept > self.window {
            // Nobody called for so long that no word can be read: the sweep gives up this seat with all others.
            self.sweep(house, trash);
            return true;
        }
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
        let standing = Standing::of(&special.rate, level);
        trash.seats.extend(std::mem::replace(&mut special.standing, standing).into_seat());
        house.bound.idle_no_later_than(house.number, || special.rate.reached(level, special.rate.burst()));
        if special.pinned {
            return true;
        }
        let is_full = special.rate.is_full(level.units);
        let is_common = !self.by_key && Arc::ptr_eq(&special.rate, &self.rate);
        let has_room = self.words.len() < self.words.capacity() && self.synced - self.swept <= self.window;
        match &special.standing {
            _ if is_full => {
                trash.keys.extend(self.specials.take(place).map(|special| special.key));
                house.bound.give_back(1);
            }
            Standing::Word(word) if is_common && has_room => {
                let word = *word;
                if let Some(special) = self.specials.take(place) {
                    self.words.insert(hash, special.key, word);
                }
            }
            _ => {}
        }
        true
    }
}
