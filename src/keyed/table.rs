//! Growing and shrinking of hash tables whose hasher may panic.
//!
//! hashbrown rehashes in place while it grows; a hasher that panics there takes the entries with it that were not moved
//! yet. Here a forgotten key is a reset limit, so all hashes are computed before the first entry is moved.

use hashbrown::HashTable;

/// Sees to it that one entry can be inserted without rehashing.
pub(super) fn make_room<T>(table: &mut HashTable<T>, hash_of: impl Fn(&T) -> u64) {
    if table.len() < table.capacity() {
        return;
    }
    // What was removed leaves marks behind, which count as entries until the table is rebuilt.
    let is_crowded = table.len() >= table.num_buckets() / 4 * 3;
    let want = if is_crowded { table.num_buckets() } else { table.len() + table.len() / 8 };
    rebuild(table, want.max(table.len() + 1), hash_of);
}

/// Shrinks a table of which more than three quarters are empty, down to `least` entries.
pub(super) fn shrink<T>(table: &mut HashTable<T>, least: usize, hash_of: impl Fn(&T) -> u64) {
    if table.capacity() > least && table.len() < table.capacity() / 4 {
        rebuild(table, (table.len() * 2).max(least / 2), hash_of);
    }
}

fn rebuild<T>(table: &mut HashTable<T>, capacity: usize, hash_of: impl Fn(&T) -> u64) {
    let hashes: Vec<u64> = table.iter().map(&hash_of).collect();
    let mut next = HashTable::with_capacity(capacity);
    for (entry, hash) in table.drain().zip(hashes) {
        next.insert_unique(hash, entry, &hash_of);
    }
    *table = next;
}
