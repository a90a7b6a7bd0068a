//! Changing quotas: of all keys, and of one.

use super::{Ask, Change, House, Level, Rate, Room, Special, Standing, Stop, Trash, span};
use crate::keyed::seat::{self, Idle};
use crate::shared::Shared;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A seat that has to be told of its new quota.
type Untold = (Arc<Shared>, Arc<Rate>);

impl<K: Clone + Eq> Room<K> {
    /// Gives `key` the quota `own`, or with `None` the common one again. What it holds stays. A seat that has to be told is
    /// returned, with its quota.
    pub(in crate::keyed) fn set_quota_for(
        &mut self,
        ask: &Ask<'_, K>,
        own: Option<Arc<Rate>>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Option<Untold>, Stop> {
        self.come_to(ask.now, house, trash);
        let pinned = own.is_some();
        let rate = own.map_or_else(|| self.rate_for(ask), Ok)?;
        self.aside().edition += 1;
        self.expect(&rate, house, trash);
        // What the sweep has come to that this may have made: a seat may have seen a later time.
        let now = self.synced;
        // After the sweep that this may have made, which does not know of the change.
        house.bound.idle_now(house.number);
        if let Some((key, seat)) = self.seats.remove(ask.hash, ask.key) {
            let standing = Standing::Seat(Arc::clone(&seat));
            self.push_seat(Special { key, hash: ask.hash, rate: Arc::clone(&rate), standing, pinned });
            return Ok(Some((seat, rate)));
        }
        if let Some(special) = self.aside().specials.find_mut(ask.hash, |special| special.key == *ask.key) {
            special.pinned = pinned;
            return Ok(special.go_on_as(Arc::clone(&rate), now).map(|seat| (seat, rate)));
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
    /// Notes that everybody without a quota of their own has this one from `now` on. The seats that have to be told are
    /// returned; all other keys are left as they are, to [catch up](Self::catch_up) later.
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
        // Calls that read the time later than the change, and came to the lock before it, have moved the room on.
        self.synced = self.synced.max(now);
        self.forget_full_seats(house, trash);
        let change = Change { rate, at: self.synced };
        // The quick calls see this, and leave the rest to `come_to`.
        self.calls_left = 0;
        let aside = self.aside();
        aside.pending.push(change);
        (aside.version, aside.edition) = (version, aside.edition + 1);
        let own = self.seated().filter(|special| !special.pinned).filter_map(|special| special.standing.seat());
        self.seats.iter().map(|(_, seat)| seat).chain(own).cloned().collect()
    }

    /// Forgets keys that owe nothing and have a seat that nobody needs: by the next quota they are full too, as those without a
    /// seat are.
    fn forget_full_seats(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        let had = self.len();
        let Some(aside) = &mut self.aside else { return };
        let last = aside.pending.last().map(|change| &*change.rate);
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        let mut is_full = |seat: &Arc<Shared>, rate: &Rate| {
            let idle = seat::look_at_idle(seat, rate, synced).filter(|idle| idle.level.units >= rate.full());
            idle.map(|Idle { level, granted, refunded }| {
                totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
                synced = synced.max(level.at);
            })
        };
        let common = last.unwrap_or(&self.rate);
        for ((key, seat), ()) in self.seats.extract(|seat| is_full(seat, common)) {
            trash.keys.push(key);
            trash.seats.push(seat);
        }
        if aside.seated > 0 {
            let mut gone = 0;
            let leaves = |special: &mut Special<K>| {
                let own = if special.pinned { None } else { special.standing.seat() };
                own.is_some_and(|seat| is_full(seat, last.unwrap_or(&special.rate)).is_some())
            };
            aside.specials.extract(leaves, |special| {
                gone += 1;
                trash.keys.push(special.key);
                trash.seats.extend(special.standing.into_seat());
            });
            aside.seated -= gone;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        house.bound.give_back(had - self.len());
    }

    /// Brings all keys to the quotas that were set for all, each from the instant at which it was set: to be called before the
    /// room comes to a later time. Seats have been told already. If the `Hash` of a key panics, nothing has changed.
    #[inline]
    pub(in crate::keyed) fn catch_up(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        if self.aside.as_ref().is_some_and(|aside| !aside.pending.is_empty()) {
            self.adopt_pending(house, trash);
        }
    }

    /// The same if more than one quota is waiting for it.
    pub(in crate::keyed) fn catch_up_if_behind(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        if self.aside.as_ref().is_some_and(|aside| aside.pending.len() > 1) {
            self.adopt_pending(house, trash);
        }
    }

    #[cold]
    fn adopt_pending(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        let Some(changes) = self.aside.as_ref().map(|aside| aside.pending.clone()) else { return };
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return };
        let (had, old, rate) = (self.len(), Arc::clone(&self.rate), &last.rate);
        // Beyond the window words cannot be read, but the levels at its end can be led on.
        let readable = first.at.min(self.swept.saturating_add(self.window));
        // User code first: the hashes of those whose level does not fit into a word any more.
        let mut unfit = Vec::new();
        let become_of = |(key, word): &(K, NonZeroU64)| {
            let level = Level { units: old.clip(old.of_word(*word, readable) as i128), at: readable };
            let Some(level) = lead(&old, level, &changes) else { return Became::Full };
            rate.word(level).map_or_else(
                || {
                    unfit.push(((house.hash_of)(key), level));
                    Became::Unfit
                },
                Became::Word,
            )
        };
        let became: Vec<Became> = self.words.iter().map(become_of).collect();
        for ((_, word), became) in self.words.iter_mut().zip(&became) {
            *word = if let Became::Word(next) = became { *next } else { *word };
        }
        let (mut of_word, mut leaving) = (became.iter(), Vec::new());
        let leaves = |_| matches!(of_word.next(), Some(Became::Full | Became::Unfit));
        self.words.extract(leaves, |key, _| leaving.push(key));
        if let Some(aside) = &mut self.aside {
            let is_full = |special: &mut Special<K>| special.catch_up(readable, &changes);
            aside.specials.extract(is_full, |special| trash.keys.push(special.key));
            aside.pending = Vec::new();
        }
        let mut unfit = unfit.into_iter();
        let is_leaving = |became: &&Became| !matches!(became, Became::Word(_));
        for (key, became) in leaving.into_iter().zip(became.iter().filter(is_leaving)) {
            match if matches!(became, Became::Unfit) { unfit.next() } else { None } {
                Some((hash, level)) => {
                    let standing = Standing::of(rate, level);
                    self.push_special(Special { key, hash, rate: Arc::clone(rate), standing, pinned: false });
                }
                None => trash.keys.push(key),
            }
        }
        self.swept = last.at;
        self.window = self.specials().map(|special| span(&special.rate)).fold(span(rate), u64::min);
        (self.rate, self.by_key) = (Arc::clone(rate), false);
        house.bound.give_back(had - self.len());
    }
}

/// What becomes of a word when its room catches up.
enum Became {
    Word(NonZeroU64),
    /// It does not fit into a word any more.
    Unfit,
    /// It is forgotten.
    Full,
}

/// What a `level` of `rate` has become at the last of `changes`. `None` if it was full at one of them: then it is as good as
/// a newcomer's, and full by the new quota too.
fn lead(rate: &Rate, mut level: Level, changes: &[Change]) -> Option<Level> {
    let mut rate = rate;
    for change in changes {
        let units = rate.advance(level, change.at);
        if units >= rate.full() {
            return None;
        }
        level = Level { units: change.rate.adopt(rate, units), at: change.at };
        rate = &change.rate;
    }
    Some(level)
}

impl<K> Special<K> {
    /// Brings it to the last of `changes`; true if it can be forgotten. Its word can be read until `readable`.
    fn catch_up(&mut self, readable: u64, changes: &[Change]) -> bool {
        let Some(last) = changes.last() else { return false };
        let level = self.standing.level_by(&self.rate, readable);
        let level = match level {
            // Of another quota, and so not changed; but its word may have to be written anew to be read from now on.
            Some(level) if self.pinned => Level { units: self.rate.advance(level, last.at), at: last.at },
            Some(level) => match lead(&self.rate, level, changes) {
                Some(level) => level,
                None => return true,
            },
            None => {
                self.rate = if self.pinned { Arc::clone(&self.rate) } else { Arc::clone(&last.rate) };
                return false;
            }
        };
        if !self.pinned {
            self.rate = Arc::clone(&last.rate);
        }
        self.standing = Standing::of(&self.rate, level);
        false
    }

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
