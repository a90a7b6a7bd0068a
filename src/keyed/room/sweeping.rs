//! Forgetting: who is full, and seats that nobody needs.
//!
//! A word must not be read outside of the [window](super::Room) after the last sweep: so everything here leaves `swept` and
//! `window` such that whoever is kept as a word can be read from now on.

use super::{House, Level, Rate, Room, SMALL, Special, Standing, Trash, seat, span};
use crate::keyed::seat::Idle;
use crate::keyed::seats::hash_of;
use crate::shared::Shared;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K> Room<K> {
    /// [Sweeps](Self::sweep) at `now`.
    pub(in crate::keyed) fn sweep_at(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) {
        self.catch_up(house, trash);
        self.synced = self.synced.max(now);
        self.sweep(house, trash);
    }

    /// Forgets whoever is full and gives up the seats that nobody needs.
    pub(in crate::keyed) fn sweep(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        let had = self.len();
        house.bound.begin_sweep(house.number);
        // Beyond the window words cannot be read, but the levels at its end can be led on.
        let readable = self.synced.min(self.swept.saturating_add(self.window));
        let freed = self.give_up_seats(trash);
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
        if let Some(aside) = &mut self.aside {
            aside.specials.extract(is_full, |special| trash.keys.push(special.key));
        }
        (self.swept, self.window) = (synced, window);
        for (key, hash, level) in freed {
            let level = Level { units: self.rate.advance(level, synced), at: synced };
            if self.rate.is_full(level.units) {
                trash.keys.push(key);
            } else {
                next = next.min(first(&self.rate, level.units));
                self.push_level(key, hash, level);
            }
        }
        let calls = 4 * self.slots().max(SMALL);
        self.calls_left = u32::try_from(calls).unwrap_or(u32::MAX);
        house.bound.end_sweep(house.number, had - self.len(), next);
    }

    /// Turns seats that nobody needs into levels. Those of the quota that all have in common come back, with the hashes of
    /// their keys, and are to be kept as soon as words can be read again: the window may have gone by.
    fn give_up_seats(&mut self, trash: &mut Trash<K>) -> Vec<(K, u64, Level)> {
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        // A seat may have seen a later time.
        let mut look = |seat: &Arc<Shared>, rate: &Rate| {
            let Idle { level, granted, refunded } = seat::look_at_idle(seat, rate, synced)?;
            totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
            synced = synced.max(level.at);
            Some(level)
        };
        let freed = self.seats.extract(|seat| look(seat, &self.rate));
        let mut given_up = 0;
        let aside = self.aside.iter_mut().filter(|aside| aside.seated > 0);
        for special in aside.flat_map(|aside| aside.specials.iter_mut()) {
            let Some(level) = special.standing.seat().and_then(|seat| look(seat, &special.rate)) else { continue };
            let seat = std::mem::replace(&mut special.standing, Standing::Wide(Box::new(level)));
            trash.seats.extend(seat.into_seat());
            given_up += 1;
        }
        if let Some(aside) = &mut self.aside {
            aside.seated -= given_up;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        let keep = |((key, seat), level): ((K, Arc<Shared>), Level)| {
            let hash = hash_of(&seat);
            trash.seats.push(seat);
            (key, hash, level)
        };
        freed.into_iter().map(keep).collect()
    }

    /// Keeps a level of the quota that all have in common, and that is not full: as a word, if there is room. No user code
    /// runs.
    fn push_level(&mut self, key: K, hash: u64, level: Level) {
        match self.rate.word(level) {
            Some(word) if self.words.len() < self.words.capacity() => self.words.insert(hash, key, word),
            _ => {
                let (rate, standing) = (Arc::clone(&self.rate), Standing::of(&self.rate, level));
                self.push_special(Special { key, hash, rate, standing, pinned: false });
            }
        }
    }

    /// Lets go of the memory that a crowd has left behind.
    pub(super) fn shrink(&mut self, house: &House<'_, K>) {
        self.words.shrink(SMALL, house.hash_of);
        self.seats.shrink(SMALL);
        if let Some(aside) = &mut self.aside {
            aside.specials.shrink(SMALL, |special| special.hash);
        }
    }

    /// Gives up `seat`, the one at this address, if nobody needs it; true if it is not there any more. No user code runs but that
    /// of [`catch_up`](Self::catch_up).
    pub(in crate::keyed) fn retire(
        &mut self,
        hash: u64,
        seat: *const Shared,
        now: u64,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> bool {
        self.catch_up(house, trash);
        self.synced = self.synced.max(now);
        let Some(special) = self.take_seat(hash, seat) else { return true };
        let look = |seat: &Arc<Shared>| seat::look_at_idle(seat, &special.rate, self.synced);
        let Some(Idle { level, granted, refunded }) = special.standing.seat().and_then(look) else {
            self.push_seat(special);
            return false;
        };
        self.synced = self.synced.max(level.at);
        if self.synced - self.swept > self.window {
            // Nobody called for so long that no word can be read: the sweep gives up this seat with all others.
            self.push_seat(special);
            self.sweep(house, trash);
            return true;
        }
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
        let Special { key, hash, rate, standing, pinned } = special;
        trash.seats.extend(standing.into_seat());
        if !pinned && rate.is_full(level.units) {
            trash.keys.push(key);
            house.bound.give_back(1);
            return true;
        }
        house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
        if !pinned && self.is_common(&rate) {
            self.push_level(key, hash, level);
        } else {
            let standing = Standing::of(&rate, level);
            self.push_special(Special { key, hash, rate, standing, pinned });
        }
        true
    }

    /// Takes out whoever has this very seat.
    fn take_seat(&mut self, hash: u64, seat: *const Shared) -> Option<Special<K>> {
        if let Some(place) = self.seats.place(hash, seat) {
            let (key, seat) = self.seats.take(place)?;
            return Some(Special {
                key,
                hash,
                rate: Arc::clone(&self.rate),
                standing: Standing::Seat(seat),
                pinned: false,
            });
        }
        let is_it = |special: &Special<K>| special.standing.seat().is_some_and(|it| Arc::as_ptr(it) == seat);
        let aside = self.aside.as_mut()?;
        let place = aside.specials.place(hash, is_it)?;
        aside.take(place)
    }
}
