use super::*;
use std::time::Duration;

#[test]
fn a_ceiling_by_the_instant_of_a_slower_one_is_at_worst_empty() {
    let fast = Quota::new(1_000, Duration::from_secs(1));
    for full in [3_600_000_000_000, u64::MAX] {
        assert_eq!(Ceiling::full_at(full, fast, 0).level(), 0);
    }
}

#[test]
fn a_ceiling_by_the_instant_at_which_another_is_full_has_no_more_tokens_than_it() {
    let second = Duration::from_secs(1);
    for (quota, step) in [(Quota::new(7, second).burst(20), 1), (Quota::new(7, second).burst(20).stepped(), 7)] {
        for (used, now) in (0..40).flat_map(|used| (0..30).map(move |tenth| (used, tenth * 100_000_001))) {
            let mut known = Ceiling::new(quota, 0);
            known.take_debt(used);
            known.mint(now);
            let level = Ceiling::full_at(known.full(), quota, now).level();
            let most = known.level().max(0);
            assert!((most - step..=most).contains(&level), "{used}, {now}: {level}, {known:?}");
        }
    }
}
