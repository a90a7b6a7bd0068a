//! The candidates for the map underneath: the same claim on a packed level, a million keys, the same hasher.

use crate::calls::on_threads;
use crate::groups::Groups;
use crate::heap::alive;
use ahash::RandomState;
use hashbrown::HashTable;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

const KEYS: u64 = 1_000_000;

/// A claim as a limiter makes it: read the time, then change the packed level.
fn swap(packed: &AtomicU64) {
    let mut old = packed.load(Relaxed);
    while let Err(now) = packed.compare_exchange_weak(old, old + 1, AcqRel, Relaxed) {
        old = now;
    }
}

struct Sharded<M> {
    shards: Vec<M>,
    hasher: RandomState,
}

impl<M> Sharded<M> {
    fn new(shards: usize, make: impl Fn() -> M) -> Self {
        Self { shards: (0..shards).map(|_| make()).collect(), hasher: RandomState::new() }
    }

    fn find(&self, key: u64) -> (u64, &M) {
        let hash = self.hasher.hash_one(key);
        (hash, &self.shards[((super::mix(hash) as u128 * self.shards.len() as u128) >> 64) as usize])
    }
}

fn claim(table: &mut HashTable<(u64, u64)>, hash: u64, key: u64, hasher: &RandomState) {
    match table.find_mut(hash, |entry| entry.0 == key) {
        Some(entry) => entry.1 += 1,
        None => {
            table.insert_unique(hash, (key, 1), |entry| hasher.hash_one(entry.0));
        }
    }
}

/// Keys and packed levels in one array, with nothing else: one slot for each key, or the next one if that is taken. A
/// limiter would have to add a tag for keys that are expensive to compare.
struct Linear {
    slots: Vec<Option<(u64, NonZeroU64)>>,
    len: usize,
}

impl Linear {
    fn claim(&mut self, hash: u64, key: u64, hasher: &RandomState) {
        if self.len * 8 >= self.slots.len() * 7 {
            let more = (self.len * 3 / 2).max(8);
            let old = std::mem::replace(&mut self.slots, vec![None; more]);
            for entry in old.into_iter().flatten() {
                *self.slot(hasher.hash_one(entry.0), entry.0) = Some(entry);
            }
        }
        match self.slot(hash, key) {
            Some((_, packed)) => *packed = packed.saturating_add(1),
            free => {
                *free = Some((key, NonZeroU64::MIN));
                self.len += 1;
            }
        }
    }

    /// The slot of the key, or the one where it belongs.
    fn slot(&mut self, hash: u64, key: u64) -> &mut Option<(u64, NonZeroU64)> {
        let size = self.slots.len();
        let mut at = ((super::mix(hash).rotate_left(32) as u128 * size as u128) >> 64) as usize;
        while self.slots[at].is_some_and(|(other, _)| other != key) {
            at = if at + 1 == size { 0 } else { at + 1 };
        }
        &mut self.slots[at]
    }
}

/// The limiter's own table.
type PackedLevels = Groups<(u64, NonZeroU64), 7>;

fn claim_in_groups(table: &mut PackedLevels, hash: u64, key: u64, hasher: &RandomState) {
    match table.find_mut(hash, |(own, _)| *own == key) {
        Some((_, packed)) => *packed = packed.saturating_add(1),
        None => {
            table.make_space(|(key, _)| hasher.hash_one(key));
            table.insert(hash, (key, NonZeroU64::MIN));
        }
    }
}

type Work = Box<dyn Fn(&[u64]) + Sync>;

fn contenders() -> Vec<(&'static str, Box<dyn Fn() -> Work>)> {
    vec![
        (
            "960 x std Mutex<HashTable>",
            Box::new(|| {
                let map = Sharded::new(960, || Mutex::new(HashTable::new()));
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        let (hash, shard) = map.find(key);
                        claim(&mut shard.lock().expect("no panic"), hash, key, &map.hasher);
                    }
                })
            }),
        ),
        (
            "960 x parking_lot Mutex<HashTable>",
            Box::new(|| {
                let map = Sharded::new(960, || parking_lot::Mutex::new(HashTable::new()));
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        let (hash, shard) = map.find(key);
                        claim(&mut shard.lock(), hash, key, &map.hasher);
                    }
                })
            }),
        ),
        (
            "960 x parking_lot Mutex<linear probing>",
            Box::new(|| {
                let map = Sharded::new(960, || parking_lot::Mutex::new(Linear { slots: Vec::new(), len: 0 }));
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        let (hash, shard) = map.find(key);
                        shard.lock().claim(hash, key, &map.hasher);
                    }
                })
            }),
        ),
        (
            "960 x parking_lot Mutex<groups of seven>",
            Box::new(|| {
                let map = Sharded::new(960, || parking_lot::Mutex::new(PackedLevels::new()));
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        let (hash, shard) = map.find(key);
                        claim_in_groups(&mut shard.lock(), hash, key, &map.hasher);
                    }
                })
            }),
        ),
        (
            "dashmap",
            Box::new(|| {
                let map = dashmap::DashMap::<u64, AtomicU64, RandomState>::with_hasher(RandomState::new());
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        match map.get(&key) {
                            Some(packed) => swap(&packed),
                            None => drop(map.entry(key).or_default()),
                        }
                    }
                })
            }),
        ),
        (
            "papaya",
            Box::new(|| {
                let map = papaya::HashMap::<u64, AtomicU64, RandomState>::with_hasher(RandomState::new());
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        swap(map.pin().get_or_insert_with(key, AtomicU64::default));
                    }
                })
            }),
        ),
        (
            "scc",
            Box::new(|| {
                let map = scc::HashMap::<u64, AtomicU64, RandomState>::with_hasher(RandomState::new());
                Box::new(move |keys| {
                    for &key in keys {
                        black_box(Instant::now());
                        if map.read_sync(&key, |_, packed| swap(packed)).is_none() {
                            let _ = map.insert_sync(key, AtomicU64::default());
                        }
                    }
                })
            }),
        ),
    ]
}

pub fn report() {
    let random: Vec<u64> = (0..200_000).map(|_| fastrand::u64(0..KEYS)).collect();
    let hot = vec![7_u64; 200_000];
    let all: Vec<u64> = (0..KEYS).collect();
    println!("\nmaps: a claim on a packed level, ahash, with Instant::now()\n");
    println!("| map | bytes per key of 1M | random ns, 1 / 2 threads | hot ns, 1 / 2 threads |\n|---|---|---|---|");
    for (name, make) in contenders() {
        let before = alive();
        let work = make();
        work(&all);
        let bytes = (alive() - before) as f64 / KEYS as f64;
        let figure = |keys: &[u64], threads| {
            let mut rounds: Vec<f64> = (0..9).map(|_| on_threads(threads, keys, &*work)).collect();
            rounds.sort_by(f64::total_cmp);
            rounds[4]
        };
        println!(
            "| {name} | {bytes:.1} | {:.0} / {:.0} | {:.0} / {:.0} |",
            figure(&random, 1),
            figure(&random, 2),
            figure(&hot, 1),
            figure(&hot, 2)
        );
    }
}
