//! One shard of the map: its keys, what each of them holds, and when who may be forgotten. Everything here happens under
//! the shard's lock.
//!
//! | a key is | kept as | while |
//! |---|---|---|
//! | absent | nothing | its bucket is full and nobody waits: as if it were new |
//! | a word | itself and 8 bytes | it owes, by the quota that all have in common |
//! | seated | itself and its [seat](super::seat) | somebody waits or holds tokens in flight; of that quota too |
//! | special | a [`Special`] | its quota is its own, whether it has a seat or not, or its debt fits no word |
//!
//! # User code under the lock
//!
//! `Eq` has to run here, `Hash` when a table is rebuilt, `Clone` when a key is kept; each may panic. So each runs before
//! the first change of what it is for: a panic leaves everything as it was. `Drop` never runs here: keys on their way
//! out are put into the [`Trash`], which is dropped after the lock.
//!
//! # A quota that is set for all
//!
//! [`set_quota`](Room::set_quota) only notes the change and its instant: one call must not go through the keys of all shards.
//! Seats are told at once, since their waiters have to be timed anew. The first call that comes to the room afterwards
//! [catches up](Room::catch_up), before it acts on any level: each key is led to the instant of the change by its old quota, and
//! from there by the new one. A pending change keeps `calls_left` at 0, so that no quick call overlooks it.
//!
//! # Forgetting
//!
//! A [sweep](Room::sweep) of the room forgets who is full and gives up seats that nobody needs. One is made before a table
//! grows, once in four times as many calls as the room has slots, when the window in which words can be read ends, and when a
//! newcomer finds the map full. So it costs each call less than a slot's worth, and no call more than one room's; a newcomer
//! goes through several small rooms, but no more slots than one large room has.

mod changing;
mod keeping;
mod locked;
mod sweeping;
mod taking;

pub(super) use locked::Locked;

use super::bound::Bound;
use super::groups::{Groups, Place};
use super::rate::{Left, Level, Rate};
use super::seat::{self, Seating};
use super::seats::Seats;
use super::words::Words;
use crate::shared::{Shared, drop_quietly};
use std::num::NonZeroU64;
use std::sync::Arc;

/// A room smaller than this is not worth sweeping or shrinking.
const SMALL: usize = 64;
/// In a group: with keys of 8 bytes on four neighbouring cache lines.
const SPECIALS: usize = 5;

/// In this order, with the lock's byte in front, what a call writes is on one cache line, and what it only reads of the room
/// on the next: where threads meet on one key, each line that is written travels.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Room<K> {
    /// The latest time any call brought. Never moves back, whatever the clock does.
    synced: u64,
    /// When it was swept last: no word was full then. All words can be read until `window` after that.
    swept: u64,
    window: u64,
    /// How many calls remain until the next sweep.
    calls_left: u32,
    pub(super) closed: bool,
    /// Newcomers bring a quota of their own.
    by_key: bool,
    /// The quota of all words, and of whoever comes if `by_key` is not set.
    rate: Arc<Rate>,
    pub(super) refused: u64,
    /// Tokens granted, those charged by `settle` included: to words, and to seats that were given up. One addition to a line
    /// that the call writes anyway.
    granted: u64,
    /// How many of those granted came back unused.
    refunded: u64,
    words: Words<K>,
    seats: Seats<K>,
    /// Made when it is first needed.
    aside: Option<Box<Aside<K>>>,
}

/// What few rooms have.
#[derive(Debug)]
struct Aside<K> {
    specials: Groups<Special<K>, SPECIALS>,
    /// How many changes of quotas were made here: seats are told in this order, whoever tells them.
    edition: u32,
    /// The last quota for all that was set here, in the order in which they were set in the map.
    version: u32,
    /// Quotas for all to which the keys have not been brought yet, the oldest first.
    pending: Vec<Change>,
    /// How many of the specials have a seat.
    seated: usize,
}

/// A quota that was set for all.
#[derive(Clone, Debug)]
struct Change {
    rate: Arc<Rate>,
    at: u64,
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
    Word(NonZeroU64),
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

impl<K: Clone> Ask<'_, K> {
    /// Counts one more key, if there may be one, and clones it.
    fn take_place(&self, bound: &Bound, trash: &mut Trash<K>) -> Result<K, Stop> {
        // Whoever churns through keys while the map is full is not to have them cloned.
        if !self.must && !bound.has_place() {
            return Err(Stop::NoRoom);
        }
        // It may panic: so it comes before the count.
        let key = self.key.clone();
        if self.must {
            bound.force_place();
        } else if !bound.take_place() {
            trash.keys.push(key);
            return Err(Stop::NoRoom);
        }
        Ok(key)
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

impl<K> Drop for Trash<K> {
    /// Keys are the user's: what was done is not undone by a drop that panics. Each by itself, since two that panic on their
    /// way out of one vector would abort the process; and so would one, on the way to the panic of another key.
    fn drop(&mut self) {
        self.keys.drain(..).for_each(drop_quietly);
    }
}

impl<K> Default for Trash<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), seats: Vec::new() }
    }
}

/// What [`Room::take_quickly`] did.
pub(super) enum Quick {
    /// Took the tokens.
    Taken(Left),
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
            words: Words::new(),
            seats: Seats::new(),
            aside: None,
            rate,
            by_key,
            synced: 0,
            swept: 0,
            window,
            calls_left: SMALL as u32,
            closed: false,
            refused: 0,
            granted: 0,
            refunded: 0,
        }
    }

    /// How many slots a sweep goes through.
    pub(super) fn slots(&self) -> usize {
        let specials = self.aside.as_ref().map_or(0, |aside| aside.specials.slots());
        self.words.slots() + self.seats.slots() + specials
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() + self.seats.len() + self.aside.as_ref().map_or(0, |aside| aside.specials.len())
    }

    fn aside(&mut self) -> &mut Aside<K> {
        self.aside.get_or_insert_with(|| {
            let specials = Groups::new();
            Box::new(Aside { specials, edition: 0, version: 0, pending: Vec::new(), seated: 0 })
        })
    }

    fn specials(&self) -> impl Iterator<Item = &Special<K>> {
        self.aside.iter().flat_map(|aside| aside.specials.iter())
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    pub(super) fn edition(&self) -> u32 {
        self.aside.as_ref().map_or(0, |aside| aside.edition)
    }

    /// Tokens granted, and how many of them came back unused: without those of its [seats](Self::seats).
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.granted, self.refunded)
    }

    /// A level was charged with `tokens`.
    #[inline]
    pub(super) fn count_granted(&mut self, tokens: u64) {
        self.granted = self.granted.wrapping_add(tokens);
    }

    /// `tokens` that were granted came back.
    pub(super) fn count_refunded(&mut self, tokens: u64) {
        self.refunded = self.refunded.wrapping_add(tokens);
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = &Arc<Shared>> {
        let own = self.seated().filter_map(|special| special.standing.seat());
        self.seats.iter().map(|(_, seat)| seat).chain(own)
    }

    /// The specials that have a seat. Nothing is gone through if there are none.
    fn seated(&self) -> impl Iterator<Item = &Special<K>> {
        let aside = self.aside.iter().filter(|aside| aside.seated > 0);
        aside.flat_map(|aside| aside.specials.iter()).filter(|special| special.standing.seat().is_some())
    }

    /// Brings the room to `now`, and sweeps it if that is due.
    #[inline]
    fn come_to(&mut self, now: u64, house: &House<'_, K>, trash: &mut Trash<K>) -> u64 {
        self.calls_left = self.calls_left.saturating_sub(1);
        if self.calls_left == 0 {
            self.catch_up(house, trash);
        }
        self.synced = self.synced.max(now);
        if self.calls_left == 0 || self.synced - self.swept > self.window {
            self.sweep(house, trash);
            self.shrink(house);
        }
        self.synced
    }

    /// What the level of a word is now, if the room [has come to](Self::come_to) now.
    #[inline]
    fn read(rate: &Rate, word: NonZeroU64, now: u64) -> Level {
        Level { units: rate.clip(rate.of_word(word, now) as i128), at: now }
    }
}

/// For how long the words of `rate` can be read.
fn span(rate: &Rate) -> u64 {
    rate.window().unwrap_or(u64::MAX)
}

impl<K> Aside<K> {
    fn insert(&mut self, special: Special<K>) {
        self.seated += usize::from(special.standing.seat().is_some());
        self.specials.make_room(|special| special.hash);
        self.specials.insert(special.hash, special);
    }

    fn take(&mut self, place: Place) -> Option<Special<K>> {
        let special = self.specials.take(place)?;
        self.seated -= usize::from(special.standing.seat().is_some());
        Some(special)
    }
}

impl Standing {
    fn of(rate: &Rate, level: Level) -> Self {
        rate.word(level).map_or_else(|| Self::Wide(Box::new(level)), Self::Word)
    }

    /// What it holds at `now`, to which the room [has come](Room::come_to); or the seat, which knows.
    fn level(&self, rate: &Rate, now: u64) -> Result<Level, &Arc<Shared>> {
        let units = match self {
            Self::Seat(seat) => return Err(seat),
            Self::Word(word) => rate.clip(rate.of_word(*word, now) as i128),
            Self::Wide(level) => rate.advance(**level, now),
        };
        Ok(Level { units, at: now })
    }

    /// What it held last, as of `readable` or of an earlier instant; `None` for a seat. Words can be read until `readable`.
    fn level_by(&self, rate: &Rate, readable: u64) -> Option<Level> {
        match self {
            Self::Seat(_) => None,
            Self::Word(word) => Some(Level { units: rate.clip(rate.of_word(*word, readable) as i128), at: readable }),
            Self::Wide(level) => Some(**level),
        }
    }

    fn seat(&self) -> Option<&Arc<Shared>> {
        if let Self::Seat(seat) = self { Some(seat) } else { None }
    }

    fn into_seat(self) -> Option<Arc<Shared>> {
        if let Self::Seat(seat) = self { Some(seat) } else { None }
    }
}
