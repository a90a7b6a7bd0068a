use super::*;

#[test]
fn each_key_with_its_share_of_the_events_has_a_counter() {
    let mut top = SpaceSaving::new(32);
    for other in 0..100_000_u64 {
        top.count(Hashed { form: &(other + 10), hash: other + 10 }, (1 + other % 3) as f64);
        if other % 10 == 0 {
            top.count(Hashed { form: &7, hash: 7 }, 1.0);
            top.count(Hashed { form: &8, hash: 8 }, 1.0);
        }
        if other % 20 == 0 {
            top.count(Hashed { form: &7, hash: 7 }, 1.0);
        }
    }
    let list: Vec<_> = top.iter().collect();
    assert!(top.counters.len() == 32 && list.is_sorted_by_key(|top| Reverse(top.count)));
    assert_eq!(list.iter().map(|top| top.key).take(2).collect::<Vec<_>>(), [7, 8]);
    assert!(list[0].count >= 15_000 && list[0].count - list[0].error <= 15_000);
}

#[test]
fn keys_with_one_hash_have_a_counter_each_and_none_is_said_to_have_more_than_its_events() {
    let mut top = SpaceSaving::new(2);
    // The last one takes over two events.
    for (key, times) in [("a", 4), ("b", 2), ("c", 3)] {
        (0..times).for_each(|_| _ = top.count(Hashed { form: &key, hash: 9 }, 1.0));
    }
    assert_eq!(top.at_least(), [("a", 4), ("c", 3)]);
}

#[test]
fn a_constant_rate_counts_as_one_window_and_fades_once_it_ends() {
    let window = Duration::from_secs(80);
    let mut ranks = Ranks::new(window, 1, 0);
    let read = |ranks: &mut Ranks<u64>, now: u64| {
        let mut top = KeyedTop { granted: Vec::new(), refused: Vec::new(), waited: Vec::new() };
        ranks.add_to(&mut top, now * 1_000_000_000);
        top.granted.first().map_or(0, |top| top.count)
    };
    for second in 0..1_000 {
        ranks.count(Rank::Granted, Hashed { form: &1, hash: 1 }, 10, second * 1_000_000_000);
        let count = read(&mut ranks, second);
        assert!(second < 400 || (690..=810).contains(&count), "{count} after {second} s");
    }
    assert!((200..=300).contains(&read(&mut ranks, 1_080)), "a third, after a window");
    assert_eq!(read(&mut ranks, 100_000), 0);
}
