//! One shard of the map: its keys, what each of them holds, and when who may be forgotten. Everything here happens under
//! the shard's lock.
//!
//! | a key is | kept as | while |
//! |---|---|---|
//! | absent | nothing | its bucket is full and nobody waits: as if it were new |
//! | a word | itself and 8 bytes | it owes, by the quota that all have in common |
//! | seated | itself and its [seat](super::seat) | somebody waits or holds tokens in flight; of that quota too |
//! | special | a [`CustomEntry`] | its quota is its own, whether it has a seat or not, or its debt fits no word |
//!
//! # User code under the lock
//!
//! `Eq` has to run here, `Hash` when a table is rebuilt, `Clone` when a key is kept; each may panic. So each runs before
//! the first change of what it is for: a panic leaves everything as it was. `Drop` never runs here: keys on their way
//! out are put into the [`Deferred`], which is dropped after the lock.
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

mod changes;
mod keeping;
mod locked;
mod sweeping;
mod taking;

pub(super) use locked::Locked;

use super::groups::{Groups, Place};
use super::key_limit::KeyLimit;
use super::live::{self, LiveTemplate};
use super::live_entries::LiveEntries;
use super::packed_levels::PackedLevels;
use super::rate::{Left, Level, Rate};
use crate::core::{Core, drop_quietly};
use std::num::NonZeroU64;
use std::sync::Arc;

/// A room smaller than this is not worth sweeping or shrinking.
const SMALL: usize = 64;
/// In a group: with keys of 8 bytes on four neighbouring cache lines.
const CUSTOM_PER_GROUP: usize = 5;

/// In this order, with the lock's byte in front, what a call writes is on one cache line, and what it only reads of the room
/// on the next: where threads meet on one key, each line that is written travels.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard<K> {
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
    packed_levels: PackedLevels<K>,
    live_entries: LiveEntries<K>,
    /// Made when it is first needed.
    rare_fields: Option<Box<RareFields<K>>>,
}

/// What few rooms have.
#[derive(Debug)]
struct RareFields<K> {
    custom_entries: Groups<CustomEntry<K>, CUSTOM_PER_GROUP>,
    /// How many changes of quotas were made here: seats are told in this order, whoever tells them.
    quota_version: u32,
    /// The last quota for all that was set here, in the order in which they were set in the map.
    version: u32,
    /// Quotas for all to which the keys have not been brought yet, the oldest first.
    pending: Vec<Change>,
    /// How many of the specials have a seat.
    live_entry: usize,
}

/// A quota that was set for all.
#[derive(Clone, Debug)]
struct Change {
    rate: Arc<Rate>,
    at: u64,
}

#[derive(Debug)]
struct CustomEntry<K> {
    key: K,
    hash: u64,
    rate: Arc<Rate>,
    entry_state: EntryState,
    /// Its quota was given to it alone, and must not be forgotten.
    pinned: bool,
}

#[derive(Debug)]
enum EntryState {
    PackedLevel(NonZeroU64),
    /// A level that does not fit into a word.
    Wide(Box<Level>),
    Live(Arc<Core>),
}

/// A call that is about `key`.
pub(super) struct EntryRequest<'a, K> {
    pub(super) key: &'a K,
    pub(super) hash: u64,
    pub(super) now: u64,
    /// What `quota_by` says of the key, once it was asked.
    pub(super) offered: Option<Arc<Rate>>,
    /// It has to be written down, whether the map is full or not.
    pub(super) must: bool,
}

impl<K: Clone> EntryRequest<'_, K> {
    /// Counts one more key, if there may be one, and clones it.
    fn take_place(&self, key_limit: &KeyLimit, deferred: &mut Deferred<K>) -> Result<K, Stop> {
        // Whoever churns through keys while the map is full is not to have them cloned.
        if !self.must && !key_limit.has_place() {
            return Err(Stop::NoSpace);
        }
        // It may panic: so it comes before the count.
        let key = self.key.clone();
        if self.must {
            key_limit.force_place();
        } else if !key_limit.take_place() {
            deferred.keys.push(key);
            return Err(Stop::NoSpace);
        }
        Ok(key)
    }
}

/// What all rooms have in common.
pub(super) struct ShardContext<'a, K> {
    pub(super) key_limit: &'a KeyLimit,
    /// Which of the bound's rooms this is.
    pub(super) number: usize,
    pub(super) template: &'a LiveTemplate,
    pub(super) hash_of: &'a dyn Fn(&K) -> u64,
}

/// What leaves a room, to be dropped after its lock.
#[derive(Debug)]
pub(super) struct Deferred<K> {
    pub(super) keys: Vec<K>,
    pub(super) live_entries: Vec<Arc<Core>>,
}

impl<K> Drop for Deferred<K> {
    /// Keys are the user's: what was done is not undone by a drop that panics. Each by itself, since two that panic on their
    /// way out of one vector would abort the process; and so would one, on the way to the panic of another key.
    fn drop(&mut self) {
        self.keys.drain(..).for_each(drop_quietly);
    }
}

impl<K> Default for Deferred<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), live_entries: Vec::new() }
    }
}

/// What [`Shard::take_quickly`] did.
pub(super) enum Quick {
    /// Took the tokens.
    Taken(Left),
    /// Found somebody's seat.
    Live(Arc<Core>),
}

/// Why a level cannot be acted on here and now.
#[derive(Debug)]
pub(super) enum Stop {
    /// The key has a seat: act on that, without the room's lock.
    Live(Arc<Core>),
    /// The key is new, and its quota has to be asked for.
    AskQuota,
    /// The key is new, and as many as may be are here.
    NoSpace,
}

impl<K> Shard<K> {
    pub(super) fn new(rate: Arc<Rate>, by_key: bool) -> Self {
        let window = span(&rate);
        Self {
            packed_levels: PackedLevels::new(),
            live_entries: LiveEntries::new(),
            rare_fields: None,
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
        let custom_entries = self.rare_fields.as_ref().map_or(0, |rare_fields| rare_fields.custom_entries.slots());
        self.packed_levels.slots() + self.live_entries.slots() + custom_entries
    }

    pub(super) fn len(&self) -> usize {
        self.packed_levels.len()
            + self.live_entries.len()
            + self.rare_fields.as_ref().map_or(0, |rare_fields| rare_fields.custom_entries.len())
    }

    fn rare_fields(&mut self) -> &mut RareFields<K> {
        self.rare_fields.get_or_insert_with(|| {
            let custom_entries = Groups::new();
            Box::new(RareFields { custom_entries, quota_version: 0, version: 0, pending: Vec::new(), live_entry: 0 })
        })
    }

    fn custom_entries(&self) -> impl Iterator<Item = &CustomEntry<K>> {
        self.rare_fields.iter().flat_map(|rare_fields| rare_fields.custom_entries.iter())
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    pub(super) fn quota_version(&self) -> u32 {
        self.rare_fields.as_ref().map_or(0, |rare_fields| rare_fields.quota_version)
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

    pub(super) fn live_entries(&self) -> impl Iterator<Item = &Arc<Core>> {
        let own = self.live_entry().filter_map(|custom| custom.entry_state.live());
        self.live_entries.iter().map(|(_, live)| live).chain(own)
    }

    /// The specials that have a seat. Nothing is gone through if there are none.
    fn live_entry(&self) -> impl Iterator<Item = &CustomEntry<K>> {
        let rare_fields = self.rare_fields.iter().filter(|rare_fields| rare_fields.live_entry > 0);
        rare_fields
            .flat_map(|rare_fields| rare_fields.custom_entries.iter())
            .filter(|custom| custom.entry_state.live().is_some())
    }

    /// Brings the room to `now`, and sweeps it if that is due.
    #[inline]
    fn come_to(&mut self, now: u64, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) -> u64 {
        self.calls_left = self.calls_left.saturating_sub(1);
        if self.calls_left == 0 {
            self.catch_up(context, deferred);
        }
        self.synced = self.synced.max(now);
        if self.calls_left == 0 || self.synced - self.swept > self.window {
            self.sweep(context, deferred);
            self.shrink(context);
        }
        self.synced
    }

    /// What the level of a word is now, if the room [has come to](Self::come_to) now.
    #[inline]
    fn read(rate: &Rate, packed: NonZeroU64, now: u64) -> Level {
        Level { units: rate.clip(rate.of_packed(packed, now) as i128), at: now }
    }
}

/// For how long the words of `rate` can be read.
fn span(rate: &Rate) -> u64 {
    rate.window().unwrap_or(u64::MAX)
}

impl<K> RareFields<K> {
    fn insert(&mut self, custom: CustomEntry<K>) {
        self.live_entry += usize::from(custom.entry_state.live().is_some());
        self.custom_entries.make_space(|custom| custom.hash);
        self.custom_entries.insert(custom.hash, custom);
    }

    fn take(&mut self, place: Place) -> Option<CustomEntry<K>> {
        let custom = self.custom_entries.take(place)?;
        self.live_entry -= usize::from(custom.entry_state.live().is_some());
        Some(custom)
    }
}

impl EntryState {
    fn of(rate: &Rate, level: Level) -> Self {
        rate.packed(level).map_or_else(|| Self::Wide(Box::new(level)), Self::PackedLevel)
    }

    /// What it holds at `now`, to which the room [has come](Room::come_to); or the seat, which knows.
    fn level(&self, rate: &Rate, now: u64) -> Result<Level, &Arc<Core>> {
        let units = match self {
            Self::Live(live) => return Err(live),
            Self::PackedLevel(packed) => rate.clip(rate.of_packed(*packed, now) as i128),
            Self::Wide(level) => rate.advance(**level, now),
        };
        Ok(Level { units, at: now })
    }

    /// What it held last, as of `readable` or of an earlier instant; `None` for a seat. Words can be read until `readable`.
    fn level_by(&self, rate: &Rate, readable: u64) -> Option<Level> {
        match self {
            Self::Live(_) => None,
            Self::PackedLevel(packed) => {
                Some(Level { units: rate.clip(rate.of_packed(*packed, readable) as i128), at: readable })
            }
            Self::Wide(level) => Some(**level),
        }
    }

    fn live(&self) -> Option<&Arc<Core>> {
        if let Self::Live(live) = self { Some(live) } else { None }
    }

    fn into_live(self) -> Option<Arc<Core>> {
        if let Self::Live(live) = self { Some(live) } else { None }
    }
}
