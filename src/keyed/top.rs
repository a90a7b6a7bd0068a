//! The keys with the most refusals: a fixed number of counters, for any number of keys.
//!
//! These are the counters of Misra and Gries. If a key has no counter while all are in use, all counters are lowered by
//! one, and the key takes the first counter that is at zero. Every key with more than `n/(COUNTERS+1)` of `n` refusals
//! has a counter. Lowering all counters is implemented by raising the value that counts as zero.

/// Enough to find the clients that abuse a service, and few enough to search at each refusal.
pub(super) const COUNTERS: usize = 16;

#[derive(Debug)]
pub(super) struct Top<K> {
    counters: Vec<Counter<K>>,
    /// The count that stands for zero.
    zero: u64,
}

#[derive(Debug)]
struct Counter<K> {
    key: K,
    hash: u64,
    /// Refusals counted, plus the value of `zero` when counting began.
    count: u64,
}

impl<K> Default for Top<K> {
    fn default() -> Self {
        Self { counters: Vec::new(), zero: 0 }
    }
}

impl<K: Clone + Eq> Top<K> {
    /// Counts a refusal of `key`. Returns the key that lost its counter, if any: the caller drops it after releasing
    /// the lock.
    pub(super) fn count(&mut self, key: &K, hash: u64) -> Option<K> {
        if let Some(own) = self.counters.iter_mut().find(|counter| counter.hash == hash && counter.key == *key) {
            own.count += 1;
            return None;
        }
        if self.counters.len() < COUNTERS {
            let count = self.zero + 1;
            self.counters.push(Counter { key: key.clone(), hash, count });
            return None;
        }
        let zero = self.zero;
        match self.counters.iter_mut().find(|counter| counter.count <= zero) {
            Some(free) => {
                let own = Counter { key: key.clone(), hash, count: zero + 1 };
                Some(std::mem::replace(free, own).key)
            }
            None => {
                self.zero += 1;
                None
            }
        }
    }

    /// The keys, and a lower bound of their refusals, most first.
    pub(super) fn list(&self) -> Vec<(K, u64)> {
        let mut list: Vec<_> = self
            .counters
            .iter()
            .filter(|counter| counter.count > self.zero)
            .map(|counter| (counter.key.clone(), counter.count - self.zero))
            .collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        list
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_most_refused_keys_are_found_among_a_million_others() {
        let mut top = Top::default();
        for other in 0..1_000_000_u64 {
            top.count(&(other + 10), other + 10);
            if other % 10 == 0 {
                top.count(&7, 7);
                top.count(&8, 8);
            }
            if other % 20 == 0 {
                top.count(&7, 7);
            }
        }
        let list = top.list();
        assert_eq!(list.iter().map(|(key, _)| *key).take(2).collect::<Vec<_>>(), [7, 8]);
        assert!(list.len() <= COUNTERS && list[0].1 <= 150_000);
    }

    #[test]
    fn a_few_are_counted_exactly() {
        let mut top = Top::default();
        for (key, times) in [(1, 5), (2, 9), (3, 1)] {
            (0..times).for_each(|_| _ = top.count(&key, key));
        }
        assert_eq!(top.list(), [(2, 9), (1, 5), (3, 1)]);
    }
}
