use super::*;

#[test]
fn a_quota_takes_eight_bytes_beside_the_key() {
    assert_eq!(size_of::<Option<(u64, NonZeroU64)>>(), 16);
    assert_eq!(Groups::<(u64, NonZeroU64), PER_GROUP>::group_bytes(), 2 * 64);
    assert_eq!(size_of::<Own>(), 32);
}

#[test]
fn the_list_of_owns_shrinks_with_the_table() {
    let mut slots = Slots::<u64>::new(false);
    let rates = Arc::new(Rates::new(crate::Quota::per_second(1).into(), None));
    let own = |at| Slot::of_levels(&rates, &rates.full(at), false);
    for key in 0..1_000 {
        slots.make_space(|key| *key);
        slots.insert(key, key, own(key));
    }
    for key in 0..990 {
        let index = slots.index_of(crate::keyed::Hashed { form: &key, hash: key }).unwrap();
        assert_eq!(slots.take(index).unwrap(), key);
    }
    slots.shrink(64, |key| *key);
    assert!(slots.owns.as_ref().unwrap().capacity() < 64, "{}", slots.owns.as_ref().unwrap().capacity());
    for key in 990..1_000 {
        let SlotRef::Own(own) = slots.at(slots.index_of(crate::keyed::Hashed { form: &key, hash: key }).unwrap())
        else {
            panic!("not an own")
        };
        assert!(matches!(&own.state, OwnState::Levels(levels) if levels.at == key));
    }
    assert_eq!(slots.owns().count(), 10);
}
