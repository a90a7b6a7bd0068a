//! Parts of classes and nodes, by hand and for random demand.

use super::*;

const A: u64 = 1;
const B: u64 = 2;

/// The claims that wait on each node, by class, are reported and divided until nothing changes. Returns the parts of
/// the nodes, and how many rounds of reports it took.
fn settle(tokens: f64, weights: &[(u64, u64, u64)], waiting: &[Vec<u64>]) -> (Vec<Parts>, usize) {
    let own = |node: &Vec<u64>| -> Vec<OwnClass> {
        let classes = weights.iter().zip(node);
        classes
            .map(|((number, parent, weight), waiting)| OwnClass {
                number: *number,
                parent: *parent,
                weight: *weight,
                waiting: *waiting,
                used: 0.0,
                usable: 0.0,
            })
            .collect()
    };
    let mut all: Vec<Parts> = waiting.iter().map(|node| divide(tokens, &[], &own(node))).collect();
    for round in 1..100 {
        let next: Vec<Parts> = (0..waiting.len())
            .map(|me| {
                let others = weights.iter().enumerate().map(|(class, (number, parent, weight))| {
                    let others = (0..waiting.len()).filter(|node| *node != me);
                    let (mut heavy, mut light, mut tokens) = (0, 0, 0);
                    for node in others {
                        if all[node].classes[class].is_heavy {
                            heavy += 1;
                        } else if waiting[node][class] > 0 {
                            light += 1;
                            tokens += waiting[node][class];
                        }
                    }
                    ClassDemand::from_numbers([*number, *parent, *weight, heavy, light, 1_000 * tokens])
                });
                divide(tokens, &others.collect::<Vec<_>>(), &own(&waiting[me]))
            })
            .collect();
        if next == all {
            return (all, round);
        }
        all = next;
    }
    panic!("the parts do not settle: {all:?}");
}

/// What a class gets on a node.
fn got(parts: &Parts, class: usize, waiting: u64) -> f64 {
    let part = parts.classes[class];
    if part.is_heavy { part.level } else { waiting as f64 }
}

fn own(number: u64, weight: u64, waiting: u64) -> OwnClass {
    OwnClass { number, parent: 0, weight, waiting, used: 0.0, usable: 0.0 }
}

fn totals(weights: &[(u64, u64, u64)], waiting: &[Vec<u64>]) -> Vec<f64> {
    let (parts, rounds) = settle(100.0, weights, waiting);
    assert!(rounds <= 6, "{rounds} rounds");
    for (parts, node) in parts.iter().zip(waiting) {
        let sum: f64 = (0..node.len()).map(|class| got(parts, class, node[class])).sum();
        assert!((parts.sum - sum).abs() < 1e-9, "{parts:?}");
    }
    let class = |class: usize| parts.iter().zip(waiting).map(|(parts, node)| got(parts, class, node[class])).sum();
    (0..weights.len()).map(class).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
    assert!(found.len() == expected.len() && is_near, "{found:?} instead of {expected:?}");
}

#[test]
fn classes_get_their_shares_whichever_nodes_their_claims_are_on() {
    let weights = [(A, 0, 4), (B, 0, 1)];
    let balanced = vec![vec![1_000, 1_000]; 16];
    let mut skewed = vec![vec![0, 1_000]; 15];
    skewed.push(vec![1_000, 1]);
    let mut one_sided = vec![vec![0, 1_000]; 8];
    one_sided.extend(vec![vec![1_000, 0]; 8]);
    let different = (1..=16).map(|node| vec![node * 100, 2_000 / node]).collect();
    for waiting in [balanced, skewed, one_sided, different] {
        assert_near(&totals(&weights, &waiting), &[80.0, 20.0]);
    }
}

#[test]
fn classes_whose_numbers_collide_are_divided_all_the_same() {
    let within = |number, parent| OwnClass { parent, ..own(number, 1, 1_000) };
    let parts = divide(100.0, &[], &[own(0, 1, 0), own(A, 1, 0), within(A, A)]);
    assert!((parts.sum - 100.0).abs() < 1e-9, "{parts:?}");
    let circle = [ClassDemand::from_numbers([A, B, 1, 1, 0, 0]), ClassDemand::from_numbers([B, A, 1, 1, 0, 0])];
    assert_eq!(divide(100.0, &circle, &[own(0, 1, 0), own(7, 1, 1_000)]).sum, 100.0);
    let heavy = ClassDemand::from_numbers([A, 0, u64::MAX, 1, 0, 0]);
    assert!(divide(100.0, &[heavy], &[own(0, 1, 0), own(7, MAX_WEIGHT, 1_000)]).sum > 49.0);
}

#[test]
fn what_a_class_does_not_need_goes_to_the_others() {
    let weights = [(A, 0, 4), (B, 0, 1)];
    assert_near(&totals(&weights, &[vec![0, 1_000], vec![0, 500]]), &[0.0, 100.0]);
    assert_near(&totals(&weights, &[vec![7, 1_000], vec![3, 500]]), &[10.0, 90.0]);
    assert_near(&totals(&weights, &[vec![70, 10], vec![3, 5]]), &[73.0, 15.0]);
    let (parts, _) = settle(100.0, &weights, &[vec![70, 10], vec![3, 5]]);
    assert!(parts.iter().all(|parts| (parts.spare - 12.0).abs() < 1e-9), "{parts:?}");
}

#[test]
fn nodes_of_a_class_that_need_little_get_it_and_the_others_get_the_same_each() {
    let weights = [(A, 0, 1)];
    let waiting = [vec![5], vec![1_000], vec![20], vec![45], vec![60]];
    let (parts, _) = settle(100.0, &weights, &waiting);
    let parts: Vec<f64> = parts.iter().zip(&waiting).map(|(parts, node)| got(parts, 0, node[0])).collect();
    assert_near(&parts, &[5.0, 25.0, 20.0, 25.0, 25.0]);
}

#[test]
fn nested_classes_share_what_their_parent_gets() {
    let [x, y, own] = [3, 4, B];
    // Half of the tokens are for B: one part for its own claims, three for `x`, one for `y`.
    let weights = [(A, 0, 2), (own, 0, 2), (x, B, 3), (y, B, 1)];
    let everything = [vec![1_000; 4], vec![1_000; 4]];
    assert_near(&totals(&weights, &everything), &[50.0, 10.0, 30.0, 10.0]);
    let without_y = [vec![1_000, 0, 1_000, 0], vec![1_000, 1_000, 0, 1]];
    assert_near(&totals(&weights, &without_y), &[50.0, 12.25, 36.75, 1.0]);
}

#[test]
fn an_idle_class_has_its_place_on_this_node_when_claims_come() {
    let own = [own(A, 4, 0), own(B, 1, 500)];
    let parts = divide(100.0, &[], &own);
    assert_near(&[parts.classes[0].whole, parts.classes[1].whole, parts.sum], &[80.0, 100.0, 100.0]);
}

#[test]
fn a_class_has_what_is_due_to_the_classes_in_it_until_claims_wait_in_one_of_them() {
    for (waiting, expected) in [(0, [50.0, 10.0, 30.0, 100.0]), (500, [50.0, 10.0, 50.0, 50.0])] {
        let within = |number, weight, waiting| OwnClass { parent: A, ..own(number, weight, waiting) };
        let own = [own(A, 1, 0), within(7, 1, 0), within(8, 3, waiting), own(B, 1, 500)];
        let parts = divide(100.0, &[], &own);
        assert_near(&parts.classes.iter().map(|part| part.whole).collect::<Vec<_>>(), &expected);
    }
}

/// Their claims do not wait for long, so few wait at a time.
#[test]
fn few_callers_need_what_they_used_and_get_no_more_than_is_due_to_them() {
    for (used, needs) in [(0.0, 4.0), (3.5, 3.5), (30.5, 30.5), (90.0, 80.0)] {
        let parts = divide(100.0, &[], &[OwnClass { used, usable: used, ..own(A, 4, 4) }, own(B, 1, 500)]);
        assert_eq!((parts.classes[0].is_heavy, parts.classes[0].needs), (false, needs), "{used}");
        assert_near(&[parts.classes[1].level], &[100.0 - needs]);
    }
    let idle = divide(100.0, &[], &[OwnClass { used: 30.0, usable: 30.0, ..own(A, 4, 0) }]);
    assert_eq!(idle.classes[0].needs, 30.0, "its callers come again");
    let idle = divide(100.0, &[], &[OwnClass { used: 0.05, ..own(A, 4, 0) }]);
    assert_eq!(idle.classes[0].needs, 0.0);
}

#[test]
fn classes_that_this_node_does_not_have_count_by_the_weight_that_others_report() {
    let own = [own(A, 3, 500)];
    let other = |class, parent, weight, heavy| ClassDemand::from_numbers([class, parent, weight, heavy, 0, 0]);
    let parts = divide(100.0, &[other(7, 0, 1, 0), other(8, 7, 5, 2), other(A, 0, 99, 1)], &own);
    assert_near(&[parts.classes[0].level], &[37.5]);
    // Its parent is unknown, and so is what lies below a circle.
    let parts = divide(100.0, &[other(8, 7, 1, 2), other(9, 10, 5, 1), other(10, 9, 5, 1)], &own);
    assert_near(&[parts.classes[0].level], &[75.0]);
}

#[test]
fn demand_that_is_out_of_date_leaves_no_node_without_a_part() {
    let own = [own(A, 1, 500)];
    let parts = divide(100.0, &[ClassDemand::from_numbers([A, 0, 1, 3, 6, 1_000_000])], &own);
    assert_near(&[parts.sum], &[10.0]);
}

/// Sums near 2^64, circles of classes, one class twice: no node reports that, but a store that is damaged may answer it.
#[test]
fn whatever_a_store_reports_parts_are_numbers_and_add_up_to_no_more_than_there_is() {
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let number = |random: &mut fastrand::Rng| match random.u32(..6) {
            0 => u64::MAX - random.u64(..3),
            1 => 1 << random.u32(..64),
            2 => 0,
            _ => random.u64(..8),
        };
        let others: Vec<ClassDemand> = (0..random.usize(..9))
            .map(|_| ClassDemand::from_numbers(std::array::from_fn(|_| number(&mut random))))
            .collect();
        let own: Vec<OwnClass> = (0..random.u64(..6))
            .map(|class| OwnClass {
                parent: random.u64(..=class),
                used: random.f64() * 100.0,
                usable: random.f64() * 200.0,
                ..own(1 + class, random.u64(1..=MAX_WEIGHT), number(&mut random))
            })
            .collect();
        let Parts { classes, sum, spare } = divide(100.0, &others, &own);
        let is_amount = |tokens: f64| (0.0..100.000_001).contains(&tokens);
        let are_amounts = classes.iter().all(|part| {
            let is_weight = part.whole.is_finite() && part.whole >= 0.0;
            is_weight && [part.level, part.needs, part.due].into_iter().all(is_amount)
        });
        assert!(are_amounts && is_amount(sum) && is_amount(spare), "{seed}: {others:?}, {own:?}: {classes:?}");
    }
}
