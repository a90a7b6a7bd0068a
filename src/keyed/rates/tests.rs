use super::*;
use crate::Quota;

fn pair() -> Rates {
    Rates::new([Quota::per_second(10), Quota::per_day(1_000)].into(), None)
}

#[test]
fn a_pair_takes_from_both_or_from_none() {
    let rates = pair();
    let full = rates.pack(&rates.full(7)).unwrap();
    let (packed, left) = rates.take_from_packed(full, 9, 7).unwrap();
    assert_eq!(left.tokens(), 1);
    let levels = rates.unpack(packed, 7);
    assert_eq!([0, 1].map(|index| rates.rates[index].tokens(levels.level(index).units)), [1, 991]);
    assert!(rates.take_from_packed(packed, 2, 7).is_none(), "the first has one token");
    let mut low = levels;
    low.units[1] = rates.rates[1].units(1) - 1;
    let low = rates.pack(&low).unwrap();
    assert!(rates.take_from_packed(low, 1, 7).is_none(), "the second has less than one token");
}

#[test]
fn what_a_pair_has_left_is_the_smaller_of_both() {
    let rates = Rates::new([Quota::per_second(3).burst(9), Quota::per_hour(7).burst(8)].into(), None);
    for cost in 1..=8 {
        let mut levels = rates.full(0);
        let packed = rates.pack(&levels).unwrap();
        let (next, left) = rates.take_from_packed(packed, cost, 0).unwrap();
        assert_eq!(Some(left.tokens()), rates.take(&mut levels, cost).map(Left::tokens));
        assert_eq!(rates.unpack(next, 0), levels);
    }
}

#[test]
fn a_quota_that_is_new_starts_full_and_the_others_keep_their_tokens() {
    let (one, two) = (Rates::new(Quota::per_second(20).into(), None), pair());
    let mut levels = one.full(5);
    one.charge(&mut levels, 17);
    let adopted = two.adopt(&one, &levels);
    assert_eq!(adopted.units[..2], [two.rates[0].units(3), two.rates[1].full]);
    assert_eq!(one.tokens(&one.adopt(&two, &adopted)), 3);
}

#[test]
fn the_window_of_a_pair_is_the_shorter_one() {
    let windows =
        [Quota::per_second(10), Quota::per_second(1_000_003)].map(|quota| Rates::new(quota.into(), None).window);
    let both = Rates::new([Quota::per_second(10), Quota::per_second(1_000_003)].into(), None);
    assert_eq!(both.window, windows.into_iter().min().unwrap());
    let none = Rates::new([Quota::per_second(10), Quota::per_day(1_000_003)].into(), None);
    assert_eq!((none.window, none.pack(&none.full(0))), (None, None));
}
