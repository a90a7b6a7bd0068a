use super::*;
use crate::Quota;

#[test]
fn the_window_of_a_pair_is_the_shorter_one() {
    let windows =
        [Quota::per_second(10), Quota::per_second(1_000_003)].map(|quota| Rates::new(quota.into(), None).window);
    let both = Rates::new([Quota::per_second(10), Quota::per_second(1_000_003)].into(), None);
    assert_eq!(both.window, windows.into_iter().min().unwrap());
    assert!(both.pack(&both.full(7)).is_some());
    let none = Rates::new([Quota::per_second(10), Quota::per_day(1_000_003)].into(), None);
    assert_eq!((none.window, none.pack(&none.full(0))), (None, None));
}
