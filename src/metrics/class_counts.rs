//! The counts that a meter keeps of the classes of its limiter.

use super::names::{self, OTHERS, RESULTS};
use crate::core::state::ClassTotals;
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
pub(crate) struct ClassCounts {
    pub(super) name: SharedString,
    refused: AtomicU64,
    served: Mutex<Served>,
    /// The series of waits, by [result](RESULTS).
    waits: [Key; 3],
}

/// How many tokens the classes of a path were served, one after the other.
#[derive(Debug, Default)]
struct Served {
    total: u64,
    /// The present class, by address, and how many tokens it had been served when it was last read.
    present: usize,
    seen: u64,
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
        Self { name, refused: AtomicU64::new(0), served: Mutex::default(), waits }
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

    /// Counts the tokens that a class of this path was served since it was last read. Never called for `(others)`,
    /// which stands for many classes at once.
    pub(super) fn count_served(&self, class: &ClassTotals) {
        if &*self.name == OTHERS {
            return;
        }
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let present = Arc::as_ptr(&class.label).addr();
        if served.present != present || class.served < served.seen {
            (served.present, served.seen) = (present, 0);
        }
        served.total += class.served - served.seen;
        served.seen = class.served;
    }

    /// Returns how many tokens the classes of this path were served; `None` of all others together.
    pub(super) fn served(&self) -> Option<u64> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        (&*self.name != OTHERS).then_some(served.total)
    }
}
