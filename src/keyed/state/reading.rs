//! Reading a state, and checking all of it.

use super::{First, INDEX, LAST, PAUSED, PINNED, SHARD, read_rates};
use crate::core::schedule::gcd;
use crate::error::StateError;
use crate::keyed::quotas::Quotas;
use crate::keyed::rates::Rates;
use crate::keyed::shard::SavedKey;
use crate::saved::StateKey;
use crate::saved::bytes::{self, Contents, Type};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

/// The saved state of a keyed limiter, read and checked; see [`state`](crate::state).
pub struct KeyedState<K> {
    pub(super) first: First,
    /// The contents of the frames of shards, all of which were checked.
    pub(super) shards: Vec<Vec<u8>>,
    keys: u64,
    /// The instant of the map's time up to which the state is known: that of saving, or that of the key that was saved
    /// last.
    pub(super) known: u64,
    /// The smallest common multiple of the periods of all stepped quotas; `None` if there are none.
    pub(super) steps: Option<u64>,
    converts: bool,
    key: PhantomData<fn() -> K>,
}

/// The keys of a frame.
pub(super) struct Frame<'a, K> {
    number: u64,
    pub(super) at: u64,
    pub(super) gate: u64,
    rates: Vec<Arc<Rates>>,
    pub(super) left: u64,
    contents: Contents<'a>,
    key: PhantomData<fn() -> K>,
}

impl<'a, K: StateKey> Frame<'a, K> {
    pub(super) fn read(contents: &'a [u8]) -> Option<Self> {
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
    pub(super) fn key(&mut self) -> Option<SavedKey<K>> {
        let first: u64 = self.contents.small()?;
        let rates = self.rates.get(usize::try_from(first >> INDEX).ok()?)?;
        let key = K::read(self.contents.bytes()?)?;
        let levels = rates.with_missing(self.at, || self.contents.signed())?;
        let gate = if first & PAUSED == 0 { 0 } else { self.at.checked_add(self.contents.small()?)? };
        let levels = levels.paused_until(gate);
        self.left -= 1;
        Some(SavedKey { key, rates: Arc::clone(rates), levels: Ok(levels), pinned: first & PINNED != 0 })
    }

    /// Reads all keys; `None` if one is impossible, or if something follows them.
    fn check(mut self) -> Option<()> {
        while self.left > 0 {
            self.key()?;
        }
        self.contents.is_empty().then_some(())
    }
}

impl<K: StateKey> KeyedState<K> {
    /// Reads what [`KeyedSave`](crate::state::KeyedSave) wrote, and checks all of it. Reads nothing beyond its end.
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
                Some(&SHARD) => state
                    .add(contents)
                    .ok_or(StateError::Damaged { part: "a key, or its keys are not of this type" })?,
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
        frame.check()?;
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

    /// Allows to restore the state to other quotas. As with [`set_quota`](crate::KeyedLimiter::set_quota), each quota of a key
    /// keeps the tokens of the saved one with the same index, up to its burst, and a quota without a saved one starts
    /// full.
    #[must_use = "this returns the changed state"]
    pub fn convert(self) -> Self {
        Self { converts: true, ..self }
    }

    /// Records the quotas of levels that were saved at `at`.
    fn note(&mut self, rates: &Rates, at: u64) {
        self.known = self.known.max(at);
        for quota in rates.quotas.iter().filter(|quota| quota.is_stepped()) {
            let (period, steps) = (quota.period_nanos(), self.steps.unwrap_or(1));
            // Beyond the end of time: the steps of the restored limiter then come later, and none earlier.
            self.steps = Some((steps / gcd(steps, period)).checked_mul(period).unwrap_or(1));
        }
    }

    /// Checks that the state belongs to these quotas, or converts.
    pub(super) fn check(&self, common: Option<&Quotas>, overflow: Option<&Quotas>) -> Result<(), StateError> {
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
                let other = if which == "overflow" { "none" } else { "quota_by" };
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
