//! The pitfalls of the specification: what a naive scheduler does wrong, with the figures of this one. 100 tokens per
//! second with a burst of 10, empty at 0, unless a test says otherwise.

use super::bucket::Rule;
use super::fixture::{Fixture, share};
use super::fraction::Fraction;
use super::model::{ClassId, Id, Int, Model};

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;

fn hundred() -> Rule {
    Rule::continuous(100, SECOND, 10, 0)
}

fn fixture() -> Fixture {
    Fixture::new(&[hundred()], None)
}

fn class(fixture: &mut Fixture, weight: Int, floor: Option<Int>) -> ClassId {
    fixture.add(0, share(weight, floor.map(|floor| (floor, SECOND)), None)).expect("a valid share")
}

fn come(fixture: &mut Fixture, class: ClassId, count: usize, cost: Int) -> Vec<Id> {
    (0..count).map(|_| fixture.arrive(class, cost)).collect()
}

fn serve(fixture: &mut Fixture, to: Int) {
    fixture.at(to);
    fixture.look();
}

#[test]
fn a_small_claim_beside_a_giant_waits_for_one_installment() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, None), class(&mut fixture, 1, None));
    come(&mut fixture, a, 1, 10_000);
    come(&mut fixture, b, 1, 1);
    serve(&mut fixture, 110 * MS - 1);
    assert_eq!(fixture.granted_to(b), 0);
    serve(&mut fixture, 110 * MS);
    assert_eq!(fixture.granted_to(b), 1);
}

#[test]
fn a_class_gets_no_credit_for_idle_time() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, None), class(&mut fixture, 1, None));
    come(&mut fixture, a, 1_300, 1);
    serve(&mut fixture, 10 * SECOND);
    let before = fixture.granted_to(a);
    come(&mut fixture, b, 300, 1);
    serve(&mut fixture, 12 * SECOND);
    assert_eq!((fixture.granted_to(a) - before, fixture.granted_to(b)), (100, 100));
}

#[test]
fn a_class_that_sends_one_claim_at_a_time_gets_its_share_and_no_more() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 9, None), class(&mut fixture, 1, None));
    come(&mut fixture, a, 1_200, 1);
    come(&mut fixture, b, 1, 1);
    let mut served = 0;
    for step in 1..=1_000 {
        serve(&mut fixture, step * 10 * MS);
        if fixture.granted_to(b) > served {
            served += 1;
            come(&mut fixture, b, 1, 1);
        }
    }
    assert!((99..=101).contains(&served), "{served}");
}

#[test]
fn a_divided_claim_that_leaves_gives_back_no_more_than_the_rate_law_allows() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, None), class(&mut fixture, 1, None));
    let giant = come(&mut fixture, a, 1, 35)[0];
    come(&mut fixture, b, 25, 1);
    serve(&mut fixture, 100 * MS);
    fixture.limiter.pause_for(std::time::Duration::from_millis(200));
    serve(&mut fixture, 300 * MS);
    assert_eq!(fixture.granted_to(b), 10);
    fixture.cancel(giant);
    serve(&mut fixture, 300 * MS);
    assert_eq!(fixture.granted_to(b), 10, "another 10 had been set aside, but the bucket has filled up since");
    serve(&mut fixture, 310 * MS);
    assert_eq!(fixture.granted_to(b), 11);
}

#[test]
fn claims_that_were_cancelled_are_not_charged() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, None), class(&mut fixture, 1, None));
    come(&mut fixture, b, 500, 1);
    for id in come(&mut fixture, a, 500, 1) {
        fixture.cancel(id);
    }
    come(&mut fixture, a, 20, 1);
    serve(&mut fixture, 2 * SECOND);
    assert_eq!(fixture.granted_to(a), 20);
}

#[test]
fn a_class_is_not_penalized_for_long_for_what_its_floor_gave_it() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, Some(90)), class(&mut fixture, 1, None));
    come(&mut fixture, a, 6_000, 1);
    come(&mut fixture, b, 1_500, 1);
    serve(&mut fixture, 60 * SECOND);
    let before = (fixture.granted_to(a), fixture.granted_to(b));
    assert!((5_398..=5_402).contains(&before.0), "{before:?}");
    fixture.class(a).set_share(share(1, None, None)).expect("valid");
    serve(&mut fixture, 62 * SECOND);
    let (a, b) = (fixture.granted_to(a) - before.0, fixture.granted_to(b) - before.1);
    assert!((88..=92).contains(&a) && a + b == 200, "{a} and {b}");
}

#[test]
fn what_a_class_got_beyond_its_floor_is_not_held_against_it() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, Some(20)), class(&mut fixture, 1_000, None));
    come(&mut fixture, a, 6_300, 1);
    serve(&mut fixture, 60 * SECOND);
    let before = fixture.granted_to(a);
    come(&mut fixture, b, 1_000, 1);
    serve(&mut fixture, 70 * SECOND);
    let served = fixture.granted_to(a) - before;
    assert!((199..=203).contains(&served), "{served}");
}

#[test]
fn a_floor_makes_up_for_two_bursts_of_missed_time_at_most() {
    let mut fixture = fixture();
    let (a, b) = (class(&mut fixture, 1, Some(80)), class(&mut fixture, 1_000, None));
    come(&mut fixture, a, 300, 1);
    come(&mut fixture, b, 300, 1);
    fixture.limiter.pause_for(std::time::Duration::from_secs(60));
    serve(&mut fixture, 62 * SECOND);
    let served = fixture.granted_to(a);
    assert!((160..=180).contains(&served), "{served}");
}

#[test]
fn smaller_siblings_do_not_overtake_under_a_shared_ceiling() {
    let mut fixture = fixture();
    let outer = fixture.add(0, share(1, None, Some(Rule::continuous(20, SECOND, 8, 0)))).expect("valid");
    let (x, y) = [(); 2].map(|()| fixture.add(outer, share(1, None, None)).expect("valid")).into();
    come(&mut fixture, y, 100, 1);
    come(&mut fixture, x, 1, 8);
    serve(&mut fixture, 450 * MS - 1);
    assert_eq!(fixture.granted_to(x), 0);
    serve(&mut fixture, 450 * MS);
    assert_eq!(fixture.granted_to(x), 1, "one claim of the sibling, then this one");
}

#[test]
fn nothing_is_saved_above_the_burst_for_a_giant() {
    let slow = Rule::continuous(50, SECOND, 10, 0);
    let mut fixture = Fixture::new(&[hundred(), slow], None);
    let (a, b) = (class(&mut fixture, 1, None), class(&mut fixture, 1, None));
    let giant = come(&mut fixture, a, 1, 60)[0];
    come(&mut fixture, b, 40, 1);
    for step in 1..=200 {
        serve(&mut fixture, step * 10 * MS);
        assert!(fixture.levels().iter().all(|level| *level <= 10), "{:?} at {step}", fixture.levels());
        if step == 90 {
            let before = fixture.granted_to(b);
            fixture.cancel(giant);
            serve(&mut fixture, step * 10 * MS);
            assert!(fixture.granted_to(b) - before <= 10);
        }
    }
}

#[test]
fn a_pick_is_not_kept_over_a_larger_burst() {
    let small = Rule::continuous(100, SECOND, 2, 0);
    let mut fixture = Fixture::new(&[small], None);
    let ceiling = Rule::continuous(20, SECOND, 10, 3);
    let a = fixture.add(0, share(1, None, Some(ceiling))).expect("valid");
    come(&mut fixture, a, 1, 10);
    fixture.limiter.set_quota(0, Rule::continuous(100, SECOND, 20, 0).quota()).expect("valid");
    for step in 1..=100 {
        serve(&mut fixture, step * 10 * MS);
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
    let ceiling = Rule::continuous(20, SECOND, 10, 3);
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
