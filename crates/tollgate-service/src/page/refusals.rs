//! The values that were refused most in the last minutes, in bounded memory.
//!
//! There is one table for all rules. If it is full, a new value takes the place of the one with the fewest refusals and
//! goes on from their number (the algorithm SpaceSaving), so each value with more than a 128th of all refusals is found.

use crate::bucket::Reason;
use crate::rule::Rule;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long one table counts. There are two: the answer is about the last five to ten minutes.
const PERIOD: Duration = Duration::from_secs(300);
/// The most values of a table. A value has at most 256 bytes, so both tables have at most 128 KiB.
const MOST: usize = 128;

/// The refused values of the last minutes.
#[derive(Debug, Default)]
pub struct Refusals {
    tables: Mutex<Tables>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Tables {
    began: Duration,
    now: HashMap<u64, Counter>,
    before: HashMap<u64, Counter>,
}

/// The refusals of one value.
#[derive(Debug)]
struct Counter {
    rule: Arc<Rule>,
    key: Box<[u8]>,
    /// Its rank: its refusals, and those of the values whose place it took.
    rank: u64,
    seen: Refused,
}

/// What is known of a refused value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The title of the rule.
    pub rule: String,
    /// The value; empty if the rule counts all values together.
    pub value: String,
    /// Its refusals by reason; there may have been more.
    pub reasons: [u64; Reason::ALL.len()],
    /// The time of the last one since 1970.
    pub last: Duration,
}

impl Refusals {
    /// Counts a refusal. It is not counted if another thread counts just now, so no request waits for it.
    pub fn note(&self, rule: &Arc<Rule>, key: &[u8], reason: Reason, now: Duration) {
        let Ok(mut tables) = self.tables.try_lock() else { return };
        tables.turn(now);
        // Its seeds are secret, so a client cannot make two values with one hash.
        let hash = self.hasher.hash_one((Arc::as_ptr(rule) as usize, key));
        let mut rank = 0;
        if tables.now.len() >= MOST && !tables.now.contains_key(&hash) {
            let least = tables.now.iter().min_by_key(|(_, counter)| counter.rank).map(|(hash, _)| *hash);
            rank = least.and_then(|least| tables.now.remove(&least)).map_or(0, |counter| counter.rank);
        }
        let begin = || Counter { rule: Arc::clone(rule), key: key.into(), rank, seen: Refused::default() };
        let counter = tables.now.entry(hash).or_insert_with(begin);
        counter.rank += 1;
        counter.seen.reasons[reason as usize] += 1;
        counter.seen.last = now;
    }

    /// Returns when the count began, and the rules and values that were refused most, at most `most` of them.
    pub fn top(&self, most: usize, now: Duration) -> (Duration, Vec<Refused>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.turn(now);
        let mut top: Vec<Refused> = Vec::new();
        for Counter { rule, key, seen, .. } in tables.now.values().chain(tables.before.values()) {
            let named = Refused { rule: rule.title(), value: rule.show_key(key), ..seen.clone() };
            // A rule that was loaded again is another one with the same title.
            match top.iter_mut().find(|other| (&other.rule, &other.value) == (&named.rule, &named.value)) {
                None => top.push(named),
                Some(other) => {
                    other.reasons.iter_mut().zip(named.reasons).for_each(|(sum, n)| *sum += n);
                    other.last = other.last.max(named.last);
                }
            }
        }
        let began = tables.began.saturating_sub(PERIOD);
        drop(tables);
        // By name in the end, so that equals keep their places from one look to the next.
        top.sort_by_cached_key(|refused| {
            (Reverse(refused.reasons.iter().sum::<u64>()), refused.rule.clone(), refused.value.clone())
        });
        top.truncate(most);
        (began, top)
    }
}

impl Tables {
    /// Begins a new table if the present one is full of time.
    fn turn(&mut self, now: Duration) {
        let age = now.saturating_sub(self.began);
        if age >= PERIOD {
            self.before = mem::take(&mut self.now);
            self.began = now;
        }
        if age >= 2 * PERIOD {
            self.before.clear();
        }
    }
}
