//! One shard of the map: its keys, what each of them holds, and when who may be forgotten. Everything here happens under
//! the shard's lock.
//!
//! | a key is | kept as | while |
//! |---|---|---|
//! | absent | nothing | its bucket is full and nobody waits: as if it were new |
//! | a word | itself and 8 bytes | it owes, by the quota that all have in common |
//! | special | a [`Special`] | somebody waits or holds tokens in flight ([seat](super::seat)), or its quota is its own |
//!
//! # User code under the lock
//!
//! `Eq` has to run here, `Hash` when a table is rebuilt, `Clone` when a key is kept; each may panic. So each runs before
//! the first change of what it is for: a panic leaves everything as it was. `Drop` never runs here: keys on their way
//! out are put into the [`Trash`], which is emptied after the lock.
//!
//! # Forgetting
//!
//! A [sweep](Room::sweep) of the room forgets who is full and gives up seats that nobody needs. One is made before a table
//! grows, once in as many calls as the room has slots, when the window in which words can be read ends, and when a
//! newcomer finds the map full. So it costs each call a slot's worth, and no call more than one room's.

use super::bound::Bound;
use super::rate::{Level, Rate};
use super::seat::{self, Seating};
use super::table;
use crate::shared::Shared;
use hashbrown::HashTable;
use std::sync::Arc;

/// A room smaller than this is not worth sweeping or shrinking.
const SMALL: usize = 64;

#[derive(Debug)]
pub(super) struct Room<K> {
    words: HashTable<(K, u64)>,
    specials: HashTable<Special<K>>,
    /// The quota of all words, and of whoever comes if `by_key` is not set.
    rate: Arc<Rate>,
    /// Newcomers bring a quota of their own.
    by_key: bool,
    /// The latest time any call brought. Never moves back, whatever the clock does.
    synced: u64,
    /// When it was swept last: no word was full then. All words can be read until `window` after that.
    swept: u64,
    window: u64,
    /// How many calls remain until the next sweep.
    calls_left: usize,
    pub(super) closed: bool,
    /// How many changes of quotas were made here: seats are told in this order, whoever tells them.
    edition: u64,
    /// The last quota for all that was set here, in the order in which they were set in the map.
    version: u64,
    pub(super) refused: u64,
}

#[derive(Debug)]
struct Special<K> {
    key: K,
    hash: u64,
    rate: Arc<Rate>,
    standing: Standing,
    /// Its quota was given to it alone, and must not be forgotten.
    pinned: bool,
}

#[derive(Debug)]
enum Standing {
    Word(u64),
    /// A level that does not fit into a word.
    Wide(Box<Level>),
    Seat(Arc<Shared>),
}

/// A call that is about `key`.
pub(super) struct Ask<'a, K> {
    pub(super) key: &'a K,
    pub(super) hash: u64,
    pub(super) now: u64,
    /// What `quota_by` says of the key, once it was asked.
    pub(super) offered: Option<Arc<Rate>>,
    /// It has to be written down, whether the map is full or not.
    pub(super) must: bool,
}

impl<K> Ask<'_, K> {
    fn take_place(&self, bound: &Bound) -> Result<(), Stop> {
        if self.must {
            bound.force_place();
            return Ok(());
        }
        if bound.take_place() { Ok(()) } else { Err(Stop::NoRoom) }
    }
}

/// What all rooms have in common.
pub(super) struct House<'a, K> {
    pub(super) bound: &'a Bound,
    /// Which of the bound's rooms this is.
    pub(super) number: usize,
    pub(super) seating: &'a Seating,
    pub(super) hash_of: &'a dyn Fn(&K) -> u64,
}

/// What leaves a room, to be dropped after its lock.
#[derive(Debug)]
pub(super) struct Trash<K> {
    pub(super) keys: Vec<K>,
    pub(super) seats: Vec<Arc<Shared>>,
}

impl<K> Trash<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.seats.is_empty()
    }
}

impl<K> Default for Trash<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), seats: Vec::new() }
    }
}

/// What [`Room::take_quickly`] did.
pub(super) enum Quick {
    /// Took the tokens; so many remain.
    Taken(u64),
    /// Found somebody's seat.
    Seat(Arc<Shared>),
}

/// Why a level cannot be acted on here and now.
#[derive(Debug)]
pub(super) enum Stop {
    /// The key has a seat: act on that, without the room's lock.
    Seat(Arc<Shared>),
    /// The key is new, and its quota has to be asked for.
    AskQuota,
    /// The key is new, and as many as may be are here.
    NoRoom,
}

impl<K> Room<K> {
    pub(super) fn new(rate: Arc<Rate>, by_key: bool) -> Self {
        let window = span(&rate);
        Self {
            words: HashTable::new(),
            specials: HashTable::new(),
            rate,
            by_key,
            synced: 0,
            swept: 0,
            window,
            calls_left: SMALL,
            closed: false,
            edition: 0,
            version: 0,
            refused: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() + self.specials.len()
    }

    pub(super) fn edition(&self) -> u64 {
        self.edition
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = &Arc<Shared>> {
        self.specials.iter().filter_map(|special| match &special.standing {
            Standing::Seat(seat) => Some(seat),
            _ => None,
        })
    }

    /// Brings the room to `now`, and sweeps it if that is due.
    #[inline]
    fn come_to(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) -> u64 {
        self.synced = self.synced.max(now);
        self.calls_left = self.calls_left.saturating_sub(1);
        if self.calls_left == 0 || self.synced - self.swept > self.window {
            self.sweep(house, trash);
            self.shrink(house);
        }
        self.synced
    }

    /// What the level of a word is now, if the room [has come to](Self::come_to) now.
    #[inline]
    fn read(rate: &Rate, word: u64, now: u64) -> Level {
        Level { units: rate.clip(rate.of_word(word, now) as i128), at: now }
    }
}

impl<K: Clone + Eq> Room<K> {
    /// Takes `cost` tokens from a word, and says what remains, if all is as it mostly is; or finds the key's seat. `None`
    /// leaves it to [`at_level`](Self::at_level).
    #[inline]
    pub(super) fn take_quickly(&mut self, key: &K, hash: u64, cost: u64, now: u64) -> Option<Quick> {
        let now = self.synced.max(now);
        if self.closed || self.calls_left <= 1 || now - self.swept > self.window || cost == 0 {
            return None;
        }
        if !self.specials.is_empty()
            && let Some(special) = self.specials.find(hash, |special| special.key == *key)
        {
            let Standing::Seat(seat) = &special.standing else { return None };
            return Some(Quick::Seat(Arc::clone(seat)));
        }
        let (_, word) = self.words.find_mut(hash, |(other, _)| other == key)?;
        let left = self.rate.take_from_word(word, cost, now)?;
        self.synced = now;
        self.calls_left -= 1;
        Some(Quick::Taken(self.rate.whole(left)))
    }

    /// Shows `act` the level of a key that has no seat, and keeps what it makes of it. Whoever is full is not kept.
    pub(super) fn at_level<R>(
        &mut self,
        ask: &Ask<'_, K>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
        act: impl FnOnce(&Rate, &mut Level) -> R,
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
            let result = act(rate, &mut level);
            if level.units > before.units {
                house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
            }
            special.standing = Standing::of(rate, level);
            return Ok(result);
        }
        if let Some((_, word)) = self.words.find_mut(ask.hash, |(key, _)| key == ask.key) {
            let rate = &self.rate;
            let before = Self::read(rate, *word, now);
            let mut level = before;
            let result = act(rate, &mut level);
            if level.units > before.units {
                house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
            }
            if rate.fits_word(level.units) {
                *word = rate.to_word(level);
            } else {
                self.make_special(ask, level);
            }
            return Ok(result);
        }
        let rate = self.rate_for(ask)?;
        let mut level = Level { units: rate.full(), at: now };
        let result = act(&rate, &mut level);
        if !rate.is_full(level.units) {
            self.insert(ask, rate, level, house, trash)?;
        }
        Ok(result)
    }

    /// The key's seat, if it has one.
    pub(super) fn find_seat(&self, ask: &Ask<'_, K>) -> Option<Arc<Shared>> {
        match &self.specials.find(ask.hash, |special| special.key == *ask.key)?.standing {
            Standing::Seat(seat) => Some(Arc::clone(seat)),
            _ => None,
        }
    }

    /// The key's seat, made if there is none.
    pub(super) fn seat(
        &mut self,
        ask: &Ask<'_, K>,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Arc<Shared>, Stop> {
        let now = self.come_to(ask.now, house, trash);
        let edition = self.edition;
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
        table::make_room(&mut self.specials, |special| special.hash);
        if let Ok(found) = self.words.find_entry(ask.hash, |(key, _)| key == ask.key) {
            let level = Self::read(&self.rate, found.get().1, now);
            let seat = house.seating.seat(&self.rate, level, edition, ask.hash);
            let ((key, _), _) = found.remove();
            let (rate, standing) = (Arc::clone(&self.rate), Standing::Seat(Arc::clone(&seat)));
            self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
            return Ok(seat);
        }
        let rate = self.rate_for(ask)?;
        self.expect(&rate, house, trash);
        table::make_room(&mut self.specials, |special| special.hash);
        let key = ask.key.clone();
        ask.take_place(house.bound)?;
        let seat = house.seating.seat(&rate, Level { units: rate.full(), at: now }, edition, ask.hash);
        let standing = Standing::Seat(Arc::clone(&seat));
        self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
        Ok(seat)
    }

    /// The quota that the key has if none was given to it alone.
    pub(super) fn common_rate(&self, ask: &Ask<'_, K>) -> Result<Arc<Rate>, Stop> {
        self.rate_for(ask)
    }

    /// The quota of a newcomer.
    fn rate_for(&self, ask: &Ask<'_, K>) -> Result<Arc<Rate>, Stop> {
        if self.by_key { ask.offered.clone().ok_or(Stop::AskQuota) } else { Ok(Arc::clone(&self.rate)) }
    }

    /// Keeps a newcomer.
    fn insert(
        &mut self,
        ask: &Ask<'_, K>,
        rate: Arc<Rate>,
        level: Level,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<(), Stop> {
        self.expect(&rate, house, trash);
        let as_word = !self.by_key && rate.fits_word(level.units);
        if as_word && self.words.len() == self.words.capacity() {
            self.sweep(house, trash);
            table::make_room(&mut self.words, |(key, _)| (house.hash_of)(key));
        } else if !as_word {
            if self.specials.len() == self.specials.capacity() {
                self.sweep(house, trash);
            }
            table::make_room(&mut self.specials, |special| special.hash);
        }
        let key = ask.key.clone();
        ask.take_place(house.bound)?;
        house.bound.idle_no_later_than(house.number, || rate.reached(level, rate.burst()));
        if as_word {
            self.words.insert_unique(ask.hash, (key, rate.to_word(level)), |(key, _)| (house.hash_of)(key));
        } else {
            let standing = Standing::of(&rate, level);
            self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
        }
        Ok(())
    }

    /// The level of a word does not fit into a word any more.
    fn make_special(&mut self, ask: &Ask<'_, K>, level: Level) {
        table::make_room(&mut self.specials, |special| special.hash);
        if let Ok(found) = self.words.find_entry(ask.hash, |(key, _)| key == ask.key) {
            let ((key, _), _) = found.remove();
            let rate = Arc::clone(&self.rate);
            let standing = Standing::of(&rate, level);
            self.push_special(Special { key, hash: ask.hash, rate, standing, pinned: false });
        }
    }

    /// Gives `key` a quota of its own, or with `pinned` unset the common one again. What it holds stays. A seat that has to be told
    /// is returned.
    pub(super) fn set_quota_for(
        &mut self,
        ask: &Ask<'_, K>,
        rate: Arc<Rate>,
        pinned: bool,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Result<Option<Arc<Shared>>, Stop> {
        let now = self.come_to(ask.now, house, trash);
        self.edition += 1;
        house.bound.idle_now(house.number);
        self.expect(&rate, house, trash);
        if let Some(special) = self.specials.find_mut(ask.hash, |special| special.key == *ask.key) {
            special.pinned = pinned;
            return Ok(special.go_on_as(rate, now));
        }
        table::make_room(&mut self.specials, |special| special.hash);
        if let Ok(found) = self.words.find_entry(ask.hash, |(key, _)| key == ask.key) {
            let ((key, word), _) = found.remove();
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
        table::make_room(&mut self.specials, |special| special.hash);
        let key = ask.key.clone();
        ask.take_place(house.bound)?;
        let standing = Standing::of(&old, Level { units: old.full(), at: now });
        let mut special = Special { key, hash: ask.hash, rate: old, standing, pinned };
        special.go_on_as(rate, now);
        self.push_special(special);
        Ok(None)
    }
}

impl<K> Room<K> {
    /// Words of `rate` are going to be kept here.
    fn expect(&mut self, rate: &Rate, house: &House<'_, K>, trash: &mut Trash<K>) {
        if span(rate) < self.window {
            if self.synced - self.swept > span(rate) {
                self.sweep(house, trash);
            }
            self.window = self.window.min(span(rate));
        }
    }

    /// There is room for it, and its rate is expected.
    fn push_special(&mut self, special: Special<K>) {
        self.specials.insert_unique(special.hash, special, |special| special.hash);
    }

    /// [Sweeps](Self::sweep) at `now`.
    pub(super) fn sweep_at(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) {
        self.synced = self.synced.max(now);
        self.sweep(house, trash);
    }

    /// Forgets whoever is full and gives up the seats that nobody needs.
    pub(super) fn sweep(&mut self, house: &House<'_, K>, trash: &mut Trash<K>) {
        let had = self.len();
        house.bound.begin_sweep(house.number);
        // Beyond the window words cannot be read, but the levels at its end can be led on.
        let readable = self.synced.min(self.swept.saturating_add(self.window));
        self.give_up_seats(trash);
        let (synced, rate) = (self.synced, &self.rate);
        let read = |rate: &Rate, word: u64| {
            let level = Level { units: rate.clip(rate.of_word(word, readable) as i128), at: readable };
            rate.advance(level, synced)
        };
        let mut fullest = None;
        let full = self.words.extract_if(|(_, word)| {
            let units = read(rate, *word);
            let is_full = rate.is_full(units);
            fullest = if is_full { fullest } else { fullest.max(Some(units)) };
            is_full
        });
        trash.keys.extend(full.map(|(key, _)| key));
        // At the next instant for those who are full but for a fraction of a token on top.
        let first = |rate: &Rate, units| {
            let at = rate.reached(Level { units, at: synced }, rate.burst()).unwrap_or(u64::MAX);
            at.max(synced.saturating_add(1))
        };
        let mut next = fullest.map_or(u64::MAX, |units| first(rate, units));
        let mut window = span(rate);
        let full = self.specials.extract_if(|special| {
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
        });
        trash.keys.extend(full.map(|special| special.key));
        (self.swept, self.window) = (synced, window);
        self.calls_left = (self.words.num_buckets() + self.specials.num_buckets()).max(SMALL);
        house.bound.end_sweep(house.number, had - self.len(), next);
    }

    /// Forgets, after a sweep at `now`, also those who have a fraction of a token on top: for a change of what full is.
    fn forget_full(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) {
        let (had, rate) = (self.len(), &self.rate);
        let full = self.words.extract_if(|(_, word)| Self::read(rate, *word, now).units >= rate.full());
        trash.keys.extend(full.map(|(key, _)| key));
        let full = self.specials.extract_if(|special| {
            let units = match &special.standing {
                Standing::Seat(_) => return false,
                Standing::Word(word) => Self::read(&special.rate, *word, now).units,
                Standing::Wide(level) => special.rate.advance(**level, now),
            };
            !special.pinned && units >= special.rate.full()
        });
        trash.keys.extend(full.map(|special| special.key));
        house.bound.give_back(had - self.len());
    }

    /// Turns seats that nobody needs into levels.
    fn give_up_seats(&mut self, trash: &mut Trash<K>) {
        for special in self.specials.iter_mut() {
            let Standing::Seat(seat) = &special.standing else { continue };
            let Some(level) = seat::level_of_idle(seat, &special.rate, self.synced) else { continue };
            // The seat may have seen a later time. Words cannot be read yet, with the window perhaps gone by: hence wide.
            self.synced = self.synced.max(level.at);
            let seat = std::mem::replace(&mut special.standing, Standing::Wide(Box::new(level)));
            trash.seats.extend(seat.into_seat());
        }
    }

    /// Lets go of the memory that a crowd has left behind.
    fn shrink(&mut self, house: &House<'_, K>) {
        table::shrink(&mut self.words, SMALL, |(key, _)| (house.hash_of)(key));
        table::shrink(&mut self.specials, SMALL, |special| special.hash);
    }

    /// Gives up `seat`, the one at this address, if nobody needs it; true if it is not there any more. No user code runs.
    pub(super) fn retire(
        &mut self,
        hash: u64,
        seat: *const Shared,
        now: u64,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> bool {
        self.synced = self.synced.max(now);
        let is_it = |special: &Special<K>| matches!(&special.standing, Standing::Seat(it) if Arc::as_ptr(it) == seat);
        let Ok(mut found) = self.specials.find_entry(hash, is_it) else { return true };
        let special = found.get_mut();
        let Standing::Seat(seat) = &special.standing else { return true };
        let Some(level) = seat::level_of_idle(seat, &special.rate, self.synced) else { return false };
        self.synced = self.synced.max(level.at);
        if self.synced - self.swept > self.window {
            // Nobody called for so long that no word can be read: the sweep gives up this seat with all others.
            self.sweep(house, trash);
            return true;
        }
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
                trash.keys.push(found.remove().0.key);
                house.bound.give_back(1);
            }
            Standing::Word(word) if is_common && has_room => {
                let word = *word;
                let key = found.remove().0.key;
                // There is room: nothing is rehashed.
                self.words.insert_unique(hash, (key, word), |_| unreachable!("there is room"));
            }
            _ => {}
        }
        true
    }
}

/// For how long the words of `rate` can be read.
fn span(rate: &Rate) -> u64 {
    rate.window().unwrap_or(u64::MAX)
}

impl Standing {
    fn of(rate: &Rate, level: Level) -> Self {
        if rate.fits_word(level.units) { Self::Word(rate.to_word(level)) } else { Self::Wide(Box::new(level)) }
    }

    fn into_seat(self) -> Option<Arc<Shared>> {
        if let Self::Seat(seat) = self { Some(seat) } else { None }
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

impl<K> Room<K> {
    /// Gives everybody without a quota of their own this one, from what they hold now. The seats that have to be told are
    /// returned.
    pub(super) fn set_quota(
        &mut self,
        rate: Arc<Rate>,
        version: u64,
        now: u64,
        house: &House<'_, K>,
        trash: &mut Trash<K>,
    ) -> Vec<Arc<Shared>> {
        if version <= self.version {
            return Vec::new();
        }
        self.sweep_at(now, house, trash);
        let (now, old) = (self.synced, Arc::clone(&self.rate));
        self.forget_full(now, house, trash);
        let change = |word: u64| Level { units: rate.adopt(&old, old.clip(old.of_word(word, now) as i128)), at: now };
        // User code first: the hashes of those whose level does not fit into a word any more.
        let unfit = |word: &u64| !rate.fits_word(change(*word).units);
        let hashes: Vec<u64> =
            self.words.iter().filter(|(_, word)| unfit(word)).map(|(key, _)| (house.hash_of)(key)).collect();
        let seats = self.specials.iter_mut().filter(|special| !special.pinned);
        let seats: Vec<_> = seats.filter_map(|special| special.go_on_as(Arc::clone(&rate), now)).collect();
        let leaving: Vec<(K, u64)> = self.words.extract_if(|(_, word)| unfit(word)).collect();
        for (_, word) in self.words.iter_mut() {
            *word = rate.to_word(change(*word));
        }
        for ((key, word), hash) in leaving.into_iter().zip(hashes) {
            let standing = Standing::of(&rate, change(word));
            table::make_room(&mut self.specials, |special| special.hash);
            self.specials.insert_unique(
                hash,
                Special { key, hash, rate: Arc::clone(&rate), standing, pinned: false },
                |special| special.hash,
            );
        }
        self.window = self.specials.iter().map(|special| span(&special.rate)).fold(span(&rate), u64::min);
        (self.rate, self.by_key, self.version) = (rate, false, version);
        self.edition += 1;
        house.bound.idle_now(house.number);
        seats
    }
}
