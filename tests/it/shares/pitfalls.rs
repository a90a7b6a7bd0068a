//! Changes of a share or of a quota while a class is picked: nothing is served by the old one, or by a part of the new
//! one. The histories beside this file compare all else with the model.

use super::fixture::{Fixture, share};
use super::fraction::Fraction;
use super::model::{Int, Model};
use crate::oracle::Rule;
use crate::oracle::conversions::quota;
use crate::oracle::ops::continuous;

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;

fn hundred() -> Rule {
    continuous(100, SECOND, 10, 0)
}

#[test]
fn a_pick_is_not_kept_over_a_larger_burst() {
    let small = continuous(100, SECOND, 2, 0);
    let mut fixture = Fixture::new(&[small], None);
    let ceiling = continuous(20, SECOND, 10, 3);
    let a = fixture.add(0, share(1, None, Some(ceiling))).expect("valid");
    fixture.arrive(a, 10);
    fixture.limiter.set_quota(0, quota(continuous(100, SECOND, 20, 0))).expect("valid");
    for step in 1..=100 {
        fixture.at(step * 10 * MS);
        fixture.look();
        let level = fixture.class(a).snapshot().ceiling_level;
        assert!(level.is_some_and(|level| level >= 0), "{level:?} at {step}");
    }
    assert_eq!(fixture.granted_to(a), 1);
}

/// With the new weight alone, `y` would be first and pass at once. With the floor too, `x` is first: it waits for the
/// shared ceiling, and `y` waits behind it.
#[test]
fn no_claim_is_served_by_a_part_of_a_new_share() {
    let full = Rule { initial: 10, ..hundred() };
    let ceiling = continuous(20, SECOND, 10, 3);
    let (mut fixture, mut model) = (Fixture::new(&[full], None), Model::new(&[full], None));
    let [outer, x, y] = [(0, 1, Some(ceiling)), (1, 2, None), (1, 1, None)].map(|(parent, weight, ceiling)| {
        let class = model.add_class(0, parent, weight, None, ceiling);
        assert_eq!(fixture.add(parent, share(weight, None, ceiling)).expect("valid"), class);
        class
    });
    assert_eq!(outer, 1);
    for (class, cost) in [(x, 5), (y, 3)] {
        assert_eq!(fixture.arrive(class, cost), model.arrive(0, class, cost));
    }
    fixture.class(x).set_share(share(1, Some((10, SECOND)), None)).expect("valid");
    model.set_share(0, x, 1, Some((Some(Fraction::new(10, SECOND)), None)));
    fixture.walk(SECOND);
    model.serve(SECOND);
    assert_eq!(fixture.instants, [(0, 100 * MS), (1, 250 * MS)]);
    assert_eq!(model.log.iter().map(|granted| (granted.id, granted.at)).collect::<Vec<_>>(), fixture.instants);
}
