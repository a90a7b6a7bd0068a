//! Classes with few callers, and callers that use less than they claim.

use super::fixture::{Fixture, Rate, share};
use super::model::{ClassId, Int};
use crate::oracle::ops::continuous;

const SECOND: Int = 1_000_000_000;

/// Each caller claims `cost` again as soon as it is granted, and settles the grant for `used`. Counts the grants of each
/// class in the last `seconds` of one more.
fn grants(fixture: &mut Fixture, rate: Int, seconds: Int, callers: &[(ClassId, usize, Int, Int)]) -> Vec<usize> {
    let claim_of = |class| *callers.iter().find(|(its, ..)| *its == class).expect("a class with callers");
    for (class, count, cost, _) in callers {
        (0..*count).for_each(|_| _ = fixture.arrive(*class, *cost));
    }
    let mut before = Vec::new();
    let (mut seen, mut counts) = (0, vec![0; callers.len() + 1]);
    for step in 1..=rate * (seconds + 1) {
        fixture.at(SECOND / rate * step);
        fixture.look();
        while let Some((id, class, _)) = fixture.held.get(seen).map(|(id, class, grant)| (*id, *class, grant.cost())) {
            let (_, _, cost, used) = claim_of(class);
            counts[class] += 1;
            if used < cost {
                fixture.settle(id, used);
            }
            seen += 1;
            fixture.arrive(class, cost);
            fixture.look();
        }
        fixture.held.clear();
        seen = 0;
        if step == rate {
            before.clone_from(&counts);
        }
    }
    counts.iter().zip(before).map(|(count, before)| count - before).collect()
}

fn beside_32(rate: Int, weight: Int, floor: Option<Rate>) -> Vec<usize> {
    let mut fixture = Fixture::new(&[continuous(rate, SECOND, 1, 0)], None);
    let a = fixture.add(0, share(weight, floor, None)).expect("valid");
    let b = fixture.add(0, share(1, None, None)).expect("valid");
    grants(&mut fixture, rate, 2, &[(a, 1, 1, 1), (b, 32, 1, 1)])
}

/// The pick is made when the tokens are there: a caller that asks again at once is always in time for it.
#[test]
fn a_class_with_one_caller_has_its_share_and_its_floor_beside_32() {
    for rate in [100, 1_000, 10_000] {
        let seconds = 2 * rate as usize;
        let by_weight = beside_32(rate, 3, None);
        assert!(by_weight[1].abs_diff(seconds * 3 / 4) <= 1, "{by_weight:?} of {seconds}, weights of 3 and 1");
        let by_floor = beside_32(rate, 1, Some((rate * 8 / 10, SECOND)));
        assert!(by_floor[1].abs_diff(seconds * 8 / 10) <= 1, "{by_floor:?} of {seconds}, a floor of 80 %");
    }
}

#[test]
fn classes_that_settle_for_less_have_the_same_net_shares() {
    let mut fixture = Fixture::new(&[continuous(1_000, SECOND, 10, 0)], None);
    let [a, b] = [(); 2].map(|()| fixture.add(0, share(1, None, None)).expect("valid"));
    let counts = grants(&mut fixture, 1_000, 4, &[(a, 4, 10, 2), (b, 4, 10, 10)]);
    let (of_a, of_b) = (2 * counts[1], 10 * counts[2]);
    assert!(of_a.abs_diff(of_b) <= 40, "{of_a} and {of_b} tokens");
}

/// A sixteenth of each grant stays charged.
#[test]
fn a_class_whose_grants_are_all_refunded_leaves_the_others_their_shares() {
    for (weight, cost) in [(1, 16), (3, 10), (1, 1)] {
        let mut fixture = Fixture::new(&[continuous(100, SECOND, 16, 0)], None);
        let failing = fixture.add(0, share(weight, None, None)).expect("valid");
        let other = fixture.add(0, share(1, None, None)).expect("valid");
        let counts = grants(&mut fixture, 100, 20, &[(failing, 8, cost, 0), (other, 8, 1, 1)]);
        let due = 20 * 100 / (weight as usize + 1);
        assert!(counts[2] * 10 >= due * 8, "{} of {due} beside weight {weight} and a cost of {cost}", counts[2]);
    }
}

/// The refund of a debt that is not paid yet is not lost to the ceiling, which was charged for the debt at once.
#[test]
fn a_refund_reaches_a_debt_that_is_not_paid_yet() {
    let mut fixture = Fixture::new(&[continuous(1, SECOND, 10, 10)], None);
    let a = fixture.add(0, share(1, None, Some(continuous(1, 1_000 * SECOND, 10, 10)))).expect("valid");
    let b = fixture.add(0, share(1, None, None)).expect("valid");
    let id = fixture.arrive(a, 2);
    fixture.look();
    fixture.arrive(b, 10);
    let level = |fixture: &Fixture| fixture.class(a).snapshot().ceiling_level;
    fixture.settle(id, 7);
    assert_eq!(level(&fixture), Some(3));
    fixture.settle(id, 2);
    fixture.at(100 * SECOND);
    fixture.look();
    assert_eq!((level(&fixture), fixture.granted_to(b)), (Some(8), 1));
}
