//! One shard of the map: its keys, the state of each key, and the rules for forgetting keys. All code here runs under
//! the shard's lock.
//!
//! | a key is | stored as | while |
//! |---|---|---|
//! | absent | nothing | it has neither waiters nor tokens in flight, and its bucket is full or the limiter has no quota: the same state as a new key |
//! | packed | the key and 8 bytes per quota | it owes tokens, under one or two common quotas |
//! | live | the key and its [core](super::live) | it has waiters, also those of a [dry run](super::dry_run), tokens in flight, or a sliding quota with tokens in its window |
//! | levels | the key and its [levels](Levels) | it has quotas of its own, more than two quotas, a large debt, or a pause |
//!
//! The *common quotas* are those that all keys without quotas of their own have. All four are in one table,
//! [`Slots`].
//!
//! # User code under the lock
//!
//! `Eq` has to run under the lock, `Hash` runs when a table is rebuilt, and `Clone` runs when a key is stored. Each of
//! them may panic. Each therefore runs before the first change that depends on it: a panic leaves the shard as it was.
//! Counting for `top` is the exception: it runs after the tokens are taken. A panic there is caught, and the event is
//! not counted. `Drop` of a key never runs under the lock: keys that leave are moved to [`DeferredDrops`], which the
//! caller drops after the lock is released.
//!
//! # Changing the common quotas
//!
//! [`set_quotas`](Shard::set_quotas) only records the change and its instant, because one call must not visit the keys
//! of all shards. Live entries get the new quotas at once, since their waiters have to be timed anew. The first call
//! that comes to the shard afterwards [catches up](Shard::catch_up) before it acts on any level: it advances each key
//! by the old quotas to the instant of the change, and by the new ones from there. A pending change keeps `calls_left`
//! at 0, so that the fast path cannot miss it.
//!
//! # Pauses
//!
//! The pause of a key is a part of its [levels](Levels), or of its core. A key that is paused is not full, so it is not
//! forgotten, and its levels are not packed. The pause of all keys is kept once, in the map, and closes the fast path.
//! It is independent of the pauses of single keys: the end of one leaves the others.
//!
//! # Forgetting
//!
//! A [sweep](Shard::sweep) forgets the keys that are full and retires the live entries that are no longer needed. A
//! shard is swept:
//!
//! * before a table grows;
//! * once in four times as many calls as the shard has slots;
//! * when the window in which packed levels can be read ends;
//! * when a new key finds the map full.
//!
//! A full key is also forgotten when its live entry retires, and when a change of the common quotas is applied.
//!
//! It visits no slot if no key can be full yet (see [`KeyLimit`]) and that window goes on. Amortized, it costs each call
//! less than one slot, and no call visits more than one shard. A new key that finds the map full is the exception: it
//! may visit several small shards, but no more slots than one large shard has.

mod ahead;
mod changes;
mod keeping;
mod locked;
mod sweeping;
mod taking;
mod view;

pub(super) use changes::Assigned;
pub(super) use locked::Locked;
pub(super) use view::{ListedKey, Listing};

use super::Hashed;
use super::groups::EntryIndex;
use super::key_limit::KeyLimit;
use super::live::{self, LiveTemplate};
use super::rate::Left;
use super::rates::{Kind, Levels, Packed, Rates};
use super::slots::{Change, Own, OwnState, Slot, SlotRef, Slots};
use super::top::Ranks;
use crate::core::in_use::InUse;
use crate::core::{Core, drop_quietly, quietly};
use crate::error::{ConfigError, TryAcquireError};
use ahead::Ahead;
use std::sync::Arc;

/// A shard with fewer slots than this is not worth sweeping or shrinking.
const SMALL: usize = 64;
/// If a new key finds the map full, a shard with handles in the hands of users is swept again after this time, in
/// nanoseconds.
const NEXT_LOOK: u64 = 1_000_000_000;

/// What the fast path needs comes first, down to the address of the table: with the lock's byte in front it is one cache
/// line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard<K> {
    /// The latest time that any call has passed in, in nanoseconds. Never decreases, even if the clock steps back.
    pub(super) synced: u64,
    /// The end of the window in which all packed levels can be read. It began at the last sweep, when none of them was
    /// full.
    readable_until: u64,
    /// The number of calls until the next sweep. 0 while a quota change is pending.
    calls_left: u32,
    fast_path: FastPath,
    /// Whether a busy key may be granted tokens without a reading of the time: only if the clock is no user code, and a
    /// grant does nothing but take tokens.
    may_run_ahead: bool,
    /// Whether a key [runs ahead](ahead).
    runs_ahead: bool,
    /// The common quotas: those of all packed levels and of new keys.
    pub(super) rates: Arc<Rates>,
    /// Tokens granted, including those charged by `settle`, from levels and from live entries that were retired.
    /// Counted here because the call writes this cache line anyway.
    pub(super) granted: u64,
    pub(super) slots: Slots<K>,
    /// The number of granted tokens that came back unused.
    pub(super) refunded: u64,
    /// The ranks of the keys, if the limiter was built with them.
    pub(super) ranks: Option<Box<Ranks<K>>>,
    /// Allocated on first use.
    rare_fields: Option<Box<RareFields>>,
}

/// Whether the fast path may grant tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastPath {
    Open,
    /// All keys were paused: the next call that advances the shard finds out whether they still are.
    Paused,
    /// The limiter is closed: calls are refused.
    Closed,
}

/// The fields that few shards need.
#[derive(Debug, Default)]
struct RareFields {
    /// The number of quota changes made in this shard. Live entries apply changes in this order, whichever thread
    /// delivers them.
    quota_version: u32,
    /// The map-wide version of the last common quotas that were set here.
    version: u32,
    /// Changes of the common quotas that the keys have not caught up with yet, oldest first.
    pending: Vec<QuotaChange>,
    /// Whether users may hold limiters of keys. The map is not notified when such a handle is dropped, so the shard has
    /// to be swept to find out.
    has_handles: bool,
    ahead: Ahead,
}

/// A change of the common quotas, at instant `at`.
#[derive(Clone, Debug)]
struct QuotaChange {
    rates: Arc<Rates>,
    at: u64,
}

/// The part of a call on `key` that a shard needs.
pub(super) struct EntryRequest<'a, Q: ?Sized> {
    pub(super) key: Hashed<'a, Q>,
    pub(super) now: u64,
    /// The rates that `quota_by` returned for the key, once the map has called it.
    pub(super) offered: Option<Arc<Rates>>,
    /// The key has to be stored even if the map is full.
    pub(super) forced: bool,
}

/// The parts of the map that a shard needs.
pub(super) struct ShardContext<'a, K> {
    pub(super) key_limit: &'a KeyLimit,
    /// The index of this shard.
    pub(super) number: usize,
    pub(super) template: &'a LiveTemplate,
    pub(super) hash_of: &'a dyn Fn(&K) -> u64,
    pub(super) deferred: DeferredDrops<K>,
}

/// Keys and live entries that left a shard. The caller drops them after releasing the lock.
#[derive(Debug)]
pub(super) struct DeferredDrops<K> {
    pub(super) keys: Vec<K>,
    pub(super) live_entries: Vec<Arc<Core>>,
}

impl<K> Drop for DeferredDrops<K> {
    /// A panic in the `Drop` of a user's key must not undo what the call did. Each key is dropped separately: two
    /// panics while one vector is dropped would abort the process, and so would a panic here while another panic
    /// unwinds.
    fn drop(&mut self) {
        self.keys.drain(..).for_each(drop_quietly);
    }
}

/// Why the fast path grants nothing.
#[derive(Debug)]
pub(super) enum Missed {
    /// The key has a live entry.
    Live(InUse),
    /// These packed levels of the key have too few tokens. With the reading of the time.
    Short(Packed, u64),
    /// The key is not in the table at this instant of the shard.
    Absent(u64),
    /// The call is refused.
    Refused(TryAcquireError),
    /// A less common case, which [`Shard::at_levels`] handles.
    Other,
}

/// Why a shard cannot act on the level of a key.
#[derive(Debug)]
pub(super) enum Stop {
    /// The key has a live entry: the caller acts on that, without the shard's lock.
    Live(InUse),
    /// The key is new, and `quota_by` has to be asked for its quota.
    AskQuota,
    /// The key is new, and the map is full.
    NoSpace,
    /// The call is refused.
    Refused(Box<ConfigError>),
}

impl<K> Shard<K> {
    pub(super) fn new(rates: Arc<Rates>, may_run_ahead: bool) -> Self {
        Self {
            slots: Slots::new(rates.each.len() == 2),
            ranks: None,
            rare_fields: None,
            may_run_ahead,
            runs_ahead: false,
            synced: 0,
            readable_until: readable_until(&rates, 0),
            rates,
            calls_left: SMALL as u32,
            fast_path: FastPath::Open,
            granted: 0,
            refunded: 0,
        }
    }

    fn rare_fields(&mut self) -> &mut RareFields {
        self.rare_fields.get_or_insert_default()
    }

    pub(super) fn quota_version(&self) -> u32 {
        self.rare_fields.as_ref().map_or(0, |rare_fields| rare_fields.quota_version)
    }

    /// Records that a level was charged with `tokens`.
    #[inline]
    pub(super) fn count_granted(&mut self, tokens: u64) {
        self.granted = self.granted.wrapping_add(tokens);
    }

    /// Counts in the ranks, if keys are ranked. If `Eq` or `Clone` of a key panics there, the event is not counted: its
    /// tokens are taken already, and would be lost.
    #[inline]
    pub(super) fn count_rank<R>(&mut self, count: impl FnOnce(&mut Ranks<K>) -> R) -> Option<R> {
        let ranks = self.ranks.as_mut()?;
        quietly(|| count(ranks))
    }

    /// The live entries. Visits nothing but them and levels that are not packed.
    pub(super) fn in_use(&self) -> impl Iterator<Item = InUse> {
        self.slots.owns().filter_map(Own::in_use)
    }

    /// Advances the shard to `now`, and sweeps it if that is due.
    #[inline]
    fn advance_to(&mut self, now: u64, context: &mut ShardContext<'_, K>) {
        self.calls_left = self.calls_left.saturating_sub(1);
        if self.calls_left == 0 {
            self.catch_up(context);
        }
        self.synced = self.synced.max(now);
        self.end_stride(&context.template.time);
        if self.calls_left == 0 || self.synced > self.readable_until {
            self.sweep(context);
            // Frees the memory of a past burst of keys.
            self.slots.shrink(SMALL, context.hash_of);
        }
        if self.fast_path == FastPath::Paused && self.gate(context) == 0 {
            self.fast_path = FastPath::Open;
        }
    }

    /// A user holds the limiter of a key.
    pub(super) fn expect_handles(&mut self, context: &ShardContext<'_, K>) {
        self.rare_fields().has_handles = true;
        context.key_limit.idle_no_later_than(context.number, self.synced.saturating_add(NEXT_LOOK));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.fast_path == FastPath::Closed
    }

    pub(super) fn close(&mut self) {
        self.fast_path = FastPath::Closed;
    }

    /// The pause of all keys has changed. The next call looks at it, and opens the fast path again if it is over.
    pub(super) fn close_fast_path(&mut self) {
        if self.fast_path == FastPath::Open {
            self.fast_path = FastPath::Paused;
        }
    }

    /// The instant until which all keys are paused; 0 if they are not.
    pub(super) fn gate(&self, context: &ShardContext<'_, K>) -> u64 {
        let gate = if self.fast_path != FastPath::Open { context.template.gate() } else { 0 };
        if self.synced < gate { gate } else { 0 }
    }
}

/// The end of the window in which packed levels of `rates` can be read, if none was full at `since`.
fn readable_until(rates: &Rates, since: u64) -> u64 {
    rates.window.map_or(u64::MAX, |window| since.saturating_add(window))
}
