//! The state of a keyed limiter: its format, its public types, and restoring.
//!
//! After the head of every state follow, each in a frame:
//!
//! | frame | contents |
//! |---|---|
//! | the first | `0`, the common quotas, the overflow bucket, when the state was saved by the map's time and by the wall clock |
//! | each shard with keys | `1`, the number of the frame, its instant, its pause, its quotas, its keys |
//! | the last | `2`, the number of frames, the number of keys |
//!
//! A key is its bytes and, for each of its quotas, the units that are missing to a full bucket. That is a small number
//! for most keys, and does not depend on any clock.
//!
//! All frames are read and checked before the first key is restored. They are kept as bytes, so that a state in memory
//! is no larger than in the file.

use super::keys::Keys;
use super::map::Map;
use super::quotas::Quotas;
use super::rates::{Levels, Rates};
use super::shard::{SavedKey, SavedShard};
use super::{KeyedBuilder, KeyedLimiter};
use crate::clock::Time;
use crate::core::schedule::gcd;
use crate::error::{ConfigError, StateError};
use crate::state::bytes::{self, Contents, Put, Type};
use crate::state::{StateKey, WallTime};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

const FIRST: u8 = 0;
const SHARD: u8 = 1;
const LAST: u8 = 2;

/// Bits of the first number of a key, below the index of its quotas.
const PAUSED: u64 = 1;
const PINNED: u64 = 2;
const INDEX: u32 = 2;

// ---- saving -----------------------------------------------------------------------------------------------------------

/// The state of a keyed limiter, piece by piece; returned by [`KeyedLimiter::save`].
///
/// An iterator over byte strings, which together are the state. Each piece takes one shard's lock, for some thousand
/// keys at a million keys. Between two pieces any time may pass, and calls on the limiter go on: each key is saved as it
/// is when its shard is reached. The wall clock is read once, at the beginning.
///
/// The order of the keys has no meaning.
pub struct KeyedSave<K, S = RandomState> {
    map: Arc<Map<K, S>>,
    /// The first piece, until it is taken.
    first: Option<Vec<u8>>,
    /// The next shard; `None` at the end.
    next: Option<usize>,
    frames: u64,
    keys: u64,
}

impl<K, S> KeyedLimiter<K, S>
where
    K: StateKey + Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Saves the levels of all keys, to [restore](KeyedBuilder::restore) them in another process; see
    /// [`state`](crate::state). A [parent](KeyedBuilder::parent) is saved by itself. Waiters and tokens in flight are
    /// not a part of the state.
    ///
    /// The file is some 8 to 16 bytes per key larger than the keys.
    ///
    /// # Errors
    ///
    /// Returns [`StateError::Distributed`] for a distributed limiter, whose stores keep the tokens.
    ///
    /// # Panics
    ///
    /// The iterator panics if `Clone` of a key panics.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tollgate::{KeyedLimiter, Quota, state::KeyedState};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// let _ = users.try_acquire(&"ann".to_owned(), 9)?;
    /// let mut file = Vec::new();
    /// users.save()?.write_to(&mut file)?;
    ///
    /// let state = KeyedState::read_from(&mut &file[..])?;
    /// let users = KeyedLimiter::builder().quota(Quota::per_hour(10)).restore(state, SystemTime::now()).build()?;
    /// assert_eq!((users.available(&"ann".to_owned()), users.available(&"bob".to_owned())), (1, 10));
    /// # Ok(()) }
    /// ```
    pub fn save(&self) -> Result<KeyedSave<K, S>, StateError> {
        self.save_at(SystemTime::now())
    }

    /// Like [`save`](Self::save), when the wall clock shows `wall_clock`: for tests, and for another source of time.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`save`](Self::save).
    pub fn save_at(&self, wall_clock: SystemTime) -> Result<KeyedSave<K, S>, StateError> {
        match &self.keys {
            Keys::Local(map) => {
                let mut first = bytes::head(Type::KeyedLimiter).to_vec();
                first.extend(bytes::frame(&First::of(map, wall_clock).contents()));
                Ok(KeyedSave { map: Arc::clone(map), first: Some(first), next: Some(0), frames: 0, keys: 0 })
            }
            Keys::Distributed(_) => Err(StateError::Distributed),
        }
    }
}

impl<K, S> KeyedSave<K, S>
where
    K: StateKey + Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Writes all pieces that are left.
    ///
    /// # Errors
    ///
    /// Returns the first error of `to`. What was written until then is no complete state, and is refused when it is
    /// read.
    pub fn write_to(self, to: &mut impl io::Write) -> io::Result<()> {
        for piece in self {
            to.write_all(&piece)?;
        }
        Ok(())
    }

    fn shard(&mut self, number: usize) -> Option<Vec<u8>> {
        let saved = self.map.saved_shard(number);
        if saved.keys.is_empty() && saved.gate <= saved.at {
            return None;
        }
        let contents = shard_contents(self.frames, &saved);
        self.frames += 1;
        self.keys += saved.keys.len() as u64;
        Some(bytes::frame(&contents))
    }
}

impl<K, S> Iterator for KeyedSave<K, S>
where
    K: StateKey + Hash + Eq + Clone,
    S: BuildHasher,
{
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let mut number = self.next?;
        while number < self.map.shards.len() {
            let piece = self.shard(number);
            number += 1;
            self.next = Some(number);
            if piece.is_some() {
                return piece;
            }
        }
        self.next = None;
        let mut last = vec![LAST];
        last.put(self.frames.into());
        last.put(self.keys.into());
        Some(bytes::frame(&last))
    }
}

impl<K, S> fmt::Debug for KeyedSave<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedSave").field("next", &self.next).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The contents of the first frame.
#[derive(Clone, Debug)]
struct First {
    /// The common quotas; `None` if they come from `quota_by`.
    common: Option<Quotas>,
    /// The quotas of the overflow bucket and its levels, if there is one.
    overflow: Option<(Arc<Rates>, Levels)>,
    /// When the state was saved, by the map's time.
    at: u64,
    saved_at: WallTime,
}

impl First {
    fn of<K: Hash + Eq + Clone, S: BuildHasher>(map: &Map<K, S>, wall_clock: SystemTime) -> Self {
        let at = map.now();
        let overflow = map.overflow.as_ref().zip(map.saved_overflow());
        Self {
            common: map.common_quotas(),
            overflow: overflow.map(|(core, levels)| (Arc::new(super::live::rates_of(core)), levels)),
            at,
            saved_at: WallTime::of(wall_clock),
        }
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![FIRST];
        let common = self.common.clone().unwrap_or_default();
        put_quotas(&mut contents, &common);
        contents.put(self.overflow.is_some().into());
        if let Some((rates, levels)) = &self.overflow {
            put_quotas(&mut contents, &rates.quotas);
            contents.put(levels.at.into());
            contents.put(levels.gate.into());
            rates.missing(levels).for_each(|missing| contents.put_signed(missing));
        }
        contents.put(self.at.into());
        contents.put(self.saved_at.0.into());
        contents
    }

    fn read(contents: &[u8]) -> Option<Self> {
        let mut contents = Contents(contents);
        if contents.number()? != FIRST.into() {
            return None;
        }
        let common = Some(read_quotas(&mut contents)?).filter(|common| !common.is_empty());
        common.as_ref().map_or(Some(()), |common| common.check().ok())?;
        let overflow = if contents.number()? == 0 {
            None
        } else {
            let rates = read_rates(&mut contents)?;
            let (at, gate) = (contents.small()?, contents.small()?);
            let levels = rates.with_missing(at, || contents.signed())?.paused_until(gate);
            Some((rates, levels))
        };
        let (at, saved_at) = (contents.small()?, WallTime(contents.small()?));
        contents.is_empty().then_some(Self { common, overflow, at, saved_at })
    }
}

fn put_quotas(contents: &mut Vec<u8>, quotas: &Quotas) {
    contents.put(quotas.len() as u128);
    for (name, quota) in quotas.named() {
        contents.put(name.is_some().into());
        if let Some(name) = name {
            contents.put_bytes(name.as_bytes());
        }
        contents.put_quota(quota);
    }
}

fn read_quotas(contents: &mut Contents<'_>) -> Option<Quotas> {
    let count: usize = contents.small()?;
    let mut quotas = Quotas::default();
    for _ in 0..count {
        let name = if contents.number()? == 0 { None } else { Some(contents.text()?.into()) };
        quotas = quotas.and((name, contents.quota()?));
    }
    Some(quotas)
}

fn read_rates(contents: &mut Contents<'_>) -> Option<Arc<Rates>> {
    let quotas = read_quotas(contents)?;
    quotas.check().ok().map(|()| Arc::new(Rates::new(quotas)))
}

fn shard_contents<K: StateKey>(number: u64, saved: &SavedShard<K>) -> Vec<u8> {
    let mut indices = HashMap::new();
    let mut quotas = Vec::new();
    let index_of = |rates: &Arc<Rates>| {
        let next = indices.len();
        *indices.entry(Arc::as_ptr(rates)).or_insert_with(|| {
            put_quotas(&mut quotas, &rates.quotas);
            next
        })
    };
    let indices_of_keys: Vec<usize> = saved.keys.iter().map(|key| &key.rates).map(index_of).collect();
    let mut contents = vec![SHARD];
    contents.put(number.into());
    contents.put(saved.at.into());
    contents.put(saved.gate.into());
    contents.put(indices.len() as u128);
    contents.extend(quotas);
    contents.put(saved.keys.len() as u128);
    let mut bytes = Vec::new();
    for (SavedKey { key, rates, levels, pinned }, index) in saved.keys.iter().zip(indices_of_keys) {
        let Ok(levels) = levels else { unreachable!("a saved shard has levels only") };
        let gate = levels.gate.saturating_sub(levels.at);
        let flags = if gate > 0 { PAUSED } else { 0 } | if *pinned { PINNED } else { 0 };
        contents.put(((index as u64) << INDEX | flags).into());
        bytes.clear();
        key.write(&mut bytes);
        contents.put_bytes(&bytes);
        rates.missing(levels).for_each(|missing| contents.put_signed(missing));
        if gate > 0 {
            contents.put(gate.into());
        }
    }
    contents
}

// ---- reading ----------------------------------------------------------------------------------------------------------

/// The saved state of a keyed limiter, read and checked; see [`state`](crate::state).
pub struct KeyedState<K> {
    first: First,
    /// The contents of the frames of shards, all of which were checked.
    shards: Vec<Vec<u8>>,
    keys: u64,
    /// The instant of the map's time up to which all of it is known: that of saving, or of the last key that was saved.
    known: u64,
    /// The smallest common multiple of the periods of all stepped quotas; `None` if there are none.
    steps: Option<u64>,
    converts: bool,
    key: PhantomData<fn() -> K>,
}

/// The keys of a frame.
struct Frame<'a, K> {
    number: u64,
    at: u64,
    gate: u64,
    rates: Vec<Arc<Rates>>,
    left: u64,
    contents: Contents<'a>,
    key: PhantomData<fn() -> K>,
}

impl<'a, K: StateKey> Frame<'a, K> {
    fn read(contents: &'a [u8]) -> Option<Self> {
        let mut contents = Contents(contents);
        if contents.number()? != SHARD.into() {
            return None;
        }
        let (number, at, gate) = (contents.small()?, contents.small()?, contents.small()?);
        let count: u64 = contents.small()?;
        let mut rates = Vec::new();
        for _ in 0..count {
            rates.push(read_rates(&mut contents)?);
        }
        let left = contents.small()?;
        Some(Self { number, at, gate, rates, left, contents, key: PhantomData })
    }

    /// The next key. `None` if it is impossible.
    fn key(&mut self) -> Option<SavedKey<K>> {
        let first: u64 = self.contents.small()?;
        let rates = self.rates.get(usize::try_from(first >> INDEX).ok()?)?;
        let key = K::read(self.contents.bytes()?)?;
        let levels = rates.with_missing(self.at, || self.contents.signed())?;
        let gate = if first & PAUSED == 0 { 0 } else { self.at.checked_add(self.contents.small()?)? };
        let levels = levels.paused_until(gate);
        self.left -= 1;
        Some(SavedKey { key, rates: Arc::clone(rates), levels: Ok(levels), pinned: first & PINNED != 0 })
    }

    /// Whether all keys are possible, and nothing follows them.
    fn is_possible(mut self) -> bool {
        while self.left > 0 {
            if self.key().is_none() {
                return false;
            }
        }
        self.contents.is_empty()
    }
}

impl<K: StateKey> KeyedState<K> {
    /// Reads what [`KeyedSave`] wrote, and checks all of it. Reads nothing beyond its end.
    ///
    /// # Errors
    ///
    /// Returns a [`StateError`] if it cannot be read, is not the state of a keyed limiter, is truncated or damaged.
    pub fn read_from(from: &mut impl io::Read) -> Result<Self, StateError> {
        bytes::read_head(from, Type::KeyedLimiter)?;
        let first = First::read(&bytes::read_frame(from)?).ok_or(StateError::Damaged { part: "its first part" })?;
        let mut state = Self {
            known: first.at,
            first,
            shards: Vec::new(),
            keys: 0,
            steps: None,
            converts: false,
            key: PhantomData,
        };
        let overflow = state.first.overflow.clone();
        overflow.iter().for_each(|(rates, levels)| state.note(rates, levels.at));
        loop {
            let contents = bytes::read_frame(from)?;
            match contents.first() {
                Some(&SHARD) => state.add(contents).ok_or(StateError::Damaged { part: "a key" })?,
                Some(&LAST) => {
                    let mut last = Contents(&contents[1..]);
                    let (frames, keys) = (last.number(), last.number());
                    let is_whole = frames == Some(state.shards.len() as u128) && keys == Some(state.keys.into());
                    let wrong = StateError::Damaged { part: "the number of its keys" };
                    return if is_whole && last.is_empty() { Ok(state) } else { Err(wrong) };
                }
                _ => return Err(StateError::Damaged { part: "the type of a part" }),
            }
        }
    }

    /// Adds a frame after checking it.
    fn add(&mut self, contents: Vec<u8>) -> Option<()> {
        let frame = Frame::<K>::read(&contents)?;
        if frame.number != self.shards.len() as u64 {
            return None;
        }
        frame.rates.iter().for_each(|rates| self.note(rates, frame.at));
        self.known = self.known.max(frame.at);
        self.keys = self.keys.checked_add(frame.left)?;
        if !frame.is_possible() {
            return None;
        }
        self.shards.push(contents);
        Some(())
    }
}

impl<K> KeyedState<K> {
    /// Returns when the state was saved, by the wall clock.
    pub fn saved_at(&self) -> SystemTime {
        self.first.saved_at.time()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.keys
    }

    /// Returns true if no key is in the state: none owed tokens.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Returns the common quotas that the state belongs to; `None` if `quota_by` chose the quotas of each key.
    pub fn quotas(&self) -> Option<&Quotas> {
        self.first.common.as_ref()
    }

    /// Allows to restore the state to other quotas. As with [`set_quota`](KeyedLimiter::set_quota), each quota of a key
    /// keeps the tokens of the saved one with the same index, up to its burst, and a quota without a saved one starts
    /// full.
    #[must_use = "this returns the changed state"]
    pub fn convert(self) -> Self {
        Self { converts: true, ..self }
    }

    /// Notes quotas of which levels were saved at `at`.
    fn note(&mut self, rates: &Rates, at: u64) {
        self.known = self.known.max(at);
        for quota in rates.quotas.iter().filter(|quota| quota.is_stepped()) {
            let (period, steps) = (quota.period_nanos(), self.steps.unwrap_or(1));
            // Beyond the end of time: the steps of the restored limiter then come later, and none earlier.
            self.steps = Some((steps / gcd(steps, period)).checked_mul(period).unwrap_or(1));
        }
    }

    /// Checks that the state belongs to these quotas, or converts.
    fn check(&self, common: Option<&Quotas>, overflow: Option<&Quotas>) -> Result<(), StateError> {
        if self.converts {
            return Ok(());
        }
        let pairs = [
            ("the common quota", self.first.common.as_ref(), common),
            ("overflow", self.first.overflow.as_ref().map(|(rates, _)| &rates.quotas), overflow),
        ];
        for (which, saved, built) in pairs {
            let is_same = match (saved, built) {
                (Some(saved), Some(built)) => {
                    saved.len() == built.len()
                        && saved.iter().zip(built.iter()).all(|(own, other)| own.is_same_limit(&other))
                }
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                let other = if which == "overflow" { "none" } else { "chosen by `quota_by`" };
                let text = |quotas: Option<&Quotas>| quotas.map_or(other.to_owned(), Quotas::to_string);
                return Err(StateError::OtherQuota { which: which.to_owned(), saved: text(saved), built: text(built) });
            }
        }
        Ok(())
    }
}

impl<K> fmt::Debug for KeyedState<K> {
    /// Prints no keys: they may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedState")
            .field("quotas", &self.first.common)
            .field("saved_at", &self.saved_at())
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

// ---- restoring --------------------------------------------------------------------------------------------------------

/// The overflow bucket: its quotas, and its levels, if they are not full.
type Overflow = (Arc<Rates>, Option<Levels>);

/// A state that a builder restores, and the instant at which the new limiter continues.
pub(super) struct Restore<K> {
    state: KeyedState<K>,
    /// By the time of the saved map: all levels are advanced to this instant.
    until: u64,
    /// Puts the keys of a frame into a map; a function so that only `restore` needs keys that can be read.
    each: fn(&[u8], &mut dyn FnMut(u64, u64, SavedKey<K>) -> bool) -> bool,
}

impl<K: StateKey, S> KeyedBuilder<K, S> {
    /// Continues from `state`, when the wall clock shows `wall_clock`: the buckets of all keys are as full as when they
    /// were saved, plus what the time between has refilled; see [`state`](crate::state).
    ///
    /// [`build`](Self::build) then fails if the quotas, or those of [`overflow`](Self::overflow), are not those of the
    /// state, in the same order, unless the state [converts](KeyedState::convert). All other settings may differ. A key
    /// with quotas of its own gets them again. [`quota_by`](Self::quota_by) is asked for the quotas of each saved key,
    /// which keeps its tokens if they have changed. All keys are restored, even if they are more than
    /// [`max_keys`](Self::max_keys).
    ///
    /// # Panics
    ///
    /// `build` panics if `quota_by` does, or `Hash`, `Eq` or `Clone` of a key.
    pub fn restore(mut self, state: KeyedState<K>, wall_clock: SystemTime) -> Self {
        let until = state.first.at.saturating_add(state.first.saved_at.offline(wall_clock)).max(state.known);
        let each = |contents: &[u8], act: &mut dyn FnMut(u64, u64, SavedKey<K>) -> bool| {
            let mut frame = Frame::<K>::read(contents).expect("the frame was checked");
            (0..frame.left).all(|_| act(frame.at, frame.gate, frame.key().expect("the key was checked")))
        };
        self.set_restore(Restore { state, until, each });
        self
    }
}

impl<K> Restore<K> {
    pub(super) fn check(&self, common: Option<&Quotas>, overflow: Option<&Quotas>) -> Result<(), StateError> {
        self.state.check(common, overflow)
    }

    /// The time of the new map and its overflow bucket, from those without a state. The new map's time continues that of
    /// the saved one, so that stepped quotas step when they would have. If the clock has no instant that is early enough,
    /// it is the same by the periods of all saved keys; and otherwise the steps come later, and none earlier.
    pub(super) fn begin(&self, time: Time, overflow: Option<Overflow>) -> (Time, Option<Overflow>) {
        let by_steps = || time.begun_earlier(self.state.steps.map_or(0, |steps| self.until % steps));
        let time = time.begun_earlier(self.until).or_else(by_steps).unwrap_or(time);
        let now = time.now();
        let continued = |(rates, _): Overflow| {
            let levels = self.overflow(&rates, now);
            (rates, levels)
        };
        (time, overflow.map(continued))
    }

    /// The levels of the overflow bucket at `now`, under `rates`.
    fn overflow(&self, rates: &Rates, now: u64) -> Option<Levels> {
        let (saved, levels) = self.state.first.overflow.as_ref()?;
        let levels = rates.continued(saved, &self.advanced(saved, levels));
        let gate = if levels.is_paused() { now.saturating_add(levels.gate - levels.at) } else { 0 };
        Some(levels.at(now, gate))
    }

    fn advanced(&self, rates: &Rates, levels: &Levels) -> Levels {
        rates.advance(levels, self.until)
    }

    /// Gives all keys to a new map.
    pub(super) fn apply<S: BuildHasher>(self, map: &Map<K, S>) -> Result<(), ConfigError>
    where
        K: Hash + Eq + Clone,
    {
        let mut gate = 0;
        for contents in &self.state.shards {
            let has_place = (self.each)(contents, &mut |_, paused_until, saved| {
                gate = gate.max(paused_until);
                let levels = saved.levels.map(|levels| self.advanced(&saved.rates, &levels));
                map.restore(&SavedKey { levels, ..saved })
            });
            if !has_place {
                return Err(ConfigError::TooManyKeys { most: map.key_limit.most().unwrap_or(u64::MAX) });
            }
        }
        if gate > self.until {
            map.pause_all_for(gate - self.until);
        }
        Ok(())
    }
}
