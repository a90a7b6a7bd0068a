use crate::keyed::shard::Listing;
use crate::{KeyedLimiter, ManualClock, Quota};

#[test]
fn keys_are_listed_in_pieces_and_anew_after_the_table_was_rebuilt() {
    let builder = KeyedLimiter::builder().quota(Quota::per_hour(9)).clock(ManualClock::new()).shards(1);
    let keyed = builder.build().unwrap();
    let owe = |keys: std::ops::Range<u64>| keys.for_each(|key| drop(keyed.try_acquire(&key, 1).unwrap()));
    let next = |listing: &mut Listing| {
        let list = keyed.map.in_shard(0, |shard, context| shard.list(listing, 0, context));
        list.into_iter().map(|listed| listed.key).collect::<Vec<u64>>()
    };
    owe(0..3_000);
    let mut listing = Listing::default();
    let mut listed = next(&mut listing);
    assert!((100..=448).contains(&listed.len()), "{}", listed.len());
    listed.extend(next(&mut listing));
    // No rebuild: nothing is listed twice.
    assert!(!listing.begins_anew && !listing.is_complete);
    owe(3_000..6_000);
    listed = next(&mut listing);
    assert!(listing.begins_anew);
    while !listing.is_complete {
        listed.extend(next(&mut listing));
        assert!(!listing.begins_anew);
    }
    listed.sort_unstable();
    assert_eq!(listed, (0..6_000).collect::<Vec<_>>());
}
