//! Writing a state, piece by piece.

use super::{First, INDEX, LAST, PAUSED, PINNED, SHARD, put_quotas};
use crate::error::StateError;
use crate::keyed::KeyedLimiter;
use crate::keyed::keys::Keys;
use crate::keyed::map::Map;
use crate::keyed::rates::Rates;
use crate::keyed::shard::{SavedKey, SavedShard};
use crate::saved::StateKey;
use crate::saved::bytes::{self, Put, Type};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// The state of a keyed limiter, piece by piece; returned by [`KeyedLimiter::save`].
///
/// An iterator over byte strings, which together are the state. Each piece takes one shard's lock; in a map of a
/// million keys it has some thousand keys. Between two pieces any time may pass, and calls on the limiter go on: each
/// key is saved as it is when its shard is reached. The wall clock is read once, at the beginning.
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
    /// Saves the levels of all keys, to [restore](crate::KeyedBuilder::restore) them in another process; see
    /// [`state`](crate::state). A [parent](crate::KeyedBuilder::parent) is not included: save it separately. Waiters
    /// and tokens in flight are not a part of the state.
    ///
    /// The file is some 8 to 16 bytes per key larger than the keys.
    ///
    /// # Errors
    ///
    /// Returns [`StateError::Distributed`] for a distributed limiter: its stores keep the tokens.
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
    /// drop(users.try_acquire(&"ann".to_owned(), 9)?);
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
    /// Returns the first error of `to`. The bytes written until then are not a complete state, and are refused when
    /// they are read.
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
