use super::*;
use std::collections::HashMap;

type Entry = (u64, u64);

/// Inserts and removes at random and compares with a `HashMap`, with hashes that are good, few, or all equal.
fn check_against_hash_map<const SLOTS: usize>() {
    for hashes in [u64::MAX, 0xff, 3, 0] {
        let hash_of = |entry: &Entry| entry.0.wrapping_mul(0x2545_f491_4f6c_dd1d) & hashes;
        let (mut table, mut map) = (Groups::<Entry, SLOTS>::new(), HashMap::new());
        let mut random = 88_172_645_463_325_252_u64;
        for step in 0..30_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // In waves: the table fills and empties again.
            let (key, comes) = (random % 500, (random >> 32) % 100 < if step / 3_000 % 2 == 0 { 70 } else { 20 });
            let (entry, hash) = ((key, step), hash_of(&(key, 0)));
            let index = table.index_of(hash, |own| own.0 == key);
            let found = index.and_then(|index| table.at(index)).map(|own| own.1);
            assert_eq!(found, map.get(&key).copied());
            match (index, comes) {
                (None, true) => {
                    table.make_space(hash_of);
                    table.insert(hash, entry);
                    map.insert(key, step);
                }
                (Some(index), true) => {
                    *table.at_mut(index).unwrap() = entry;
                    map.insert(key, step);
                }
                (_, false) => {
                    let gone = index.and_then(|index| table.take(index));
                    assert_eq!(gone.map(|own| own.1), map.remove(&key));
                }
            }
            if step % 5_000 == 4_999 {
                let mut gone = Vec::new();
                table.extract(|own| own.1 % 3 == 0, |own| gone.push(own.0));
                gone.into_iter().for_each(|key| assert_eq!(map.remove(&key).unwrap() % 3, 0));
                table.shrink(8, hash_of);
            }
            assert_eq!(table.len(), map.len());
        }
        let listed: HashMap<u64, u64> = table.iter().copied().collect();
        assert_eq!(listed, map);
        let passed = |group: &Group<_, SLOTS>| usize::from(group.passed());
        let kept = table.groups.iter().filter(|group| passed(group) == usize::from(MANY)).count();
        assert!(hashes < 4 || kept == 0, "a count of passing entries is not exact");
        table.extract(|_| true, |_| {});
        assert!(
            hashes < 4 || table.groups.iter().map(passed).sum::<usize>() == 0,
            "an empty table counts passing entries"
        );
    }
}

#[test]
fn the_table_agrees_with_a_map() {
    check_against_hash_map::<7>();
    check_against_hash_map::<5>();
    check_against_hash_map::<2>();
}
