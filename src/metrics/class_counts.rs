//! The counts that a meter keeps of the classes of its limiter.

use super::names::{self, OTHERS, RESULTS};
use metrics::{Key, KeyName, Label, SharedString};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A meter names this many classes in its lifetime: a recorder keeps a series for each name that it ever saw.
const NAMES: usize = 64;

/// The classes that a meter has named, by path. Removed classes stay, as their series do.
#[derive(Debug, Default)]
pub(super) struct ClassTallies(Mutex<BTreeMap<Arc<str>, Arc<ClassCounts>>>);

/// The counts that a meter keeps of the classes of one path.
#[derive(Debug)]
pub(super) struct ClassCounts {
    pub(super) name: SharedString,
    refused: AtomicU64,
    /// How many tokens the classes of the path were served.
    served: AtomicU64,
    /// The series of waits, by [result](RESULTS).
    waits: [Key; 3],
}

/// One class, and the counts of its path.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) counts: Arc<ClassCounts>,
    /// How many tokens the class had been served when it was last read.
    seen: AtomicU64,
}

impl Counted {
    pub(super) fn new(counts: Arc<ClassCounts>) -> Self {
        Self { counts, seen: AtomicU64::new(0) }
    }

    /// Counts the tokens that the class was served since it was last read.
    pub(super) fn count_served(&self, served: u64) {
        let seen = self.seen.fetch_max(served, Ordering::Relaxed);
        self.counts.served.fetch_add(served.saturating_sub(seen), Ordering::Relaxed);
    }
}

impl ClassTallies {
    /// The counts of a path; the counts of `(others)` if the meter has named too many paths.
    pub(super) fn of(&self, key: &SharedString, path: &Arc<str>) -> Arc<ClassCounts> {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = named.get(path) {
            return Arc::clone(counts);
        }
        let path = if named.len() < NAMES { Arc::clone(path) } else { Arc::from(OTHERS) };
        let counts = named.entry(Arc::clone(&path)).or_insert_with(|| Arc::new(ClassCounts::new(key, &path)));
        Arc::clone(counts)
    }

    pub(super) fn all(&self) -> Vec<Arc<ClassCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }
}

impl ClassCounts {
    fn new(key: &SharedString, path: &Arc<str>) -> Self {
        let name = SharedString::from(Arc::clone(path));
        let waits = RESULTS.map(|result| {
            let labels = [("key", key.clone()), ("class", name.clone()), ("result", result.into())];
            let labels = labels.map(|(name, value)| Label::new(name, value)).to_vec();
            Key::from_parts(KeyName::from_const_str(names::CLASS_DURATION), labels)
        });
        Self { name, refused: AtomicU64::new(0), served: AtomicU64::new(0), waits }
    }

    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn waits(&self) -> &[Key; 3] {
        &self.waits
    }

    /// Returns how many tokens the classes of this path were served; `None` of all others together.
    pub(super) fn served(&self) -> Option<u64> {
        (&*self.name != OTHERS).then(|| self.served.load(Ordering::Relaxed))
    }
}
