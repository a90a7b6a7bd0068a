//! What is due to the classes of one node: its part of the tokens of all nodes. Pure: no lock, no clock, no network.
//!
//! All nodes know the same sums of demand, and each computes its own part by the same function. Two divisions follow one
//! another, and both are max-min fair: what a party does not need goes to the others.
//!
//! * **Among classes**, from the root down: a class in which claims wait gets its share by weight of what its parent gets.
//! * **Among the nodes of a class**: those that need less than others get what they need (they are *light* there), and the
//!   others (*heavy*) get the same each, their *level*.
//!
//! A heavy node reports only that it is heavy, and a light one what it needs. So the sums do not depend on how long the
//! queues of heavy nodes are, and the parts of all nodes add up to what there is.

use super::ClassDemand;
use crate::core::classes::MAX_WEIGHT;
use std::collections::HashMap;

/// A class that used less than this in a share time was not served lately.
pub(crate) const LEAST_USED: f64 = 0.1;

/// Few passes are needed. A class that would be found light later counts as heavy: its part is then a little lower than it
/// could be, until the next report.
const MOST_PASSES: usize = 10;

/// A class of this node, and the tokens that claims of the class itself lack here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OwnClass {
    pub(crate) number: u64,
    pub(crate) parent: u64,
    pub(crate) weight: u64,
    pub(crate) waiting: u64,
    /// What these claims were served in a share time lately. Few callers that come again at once use more than waits at a time.
    pub(crate) used: f64,
    /// What they could use, by how long they have waited.
    pub(crate) usable: f64,
}

/// What is due to a class on this node, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClassPart {
    /// For claims of the class itself: what it gets if that many wait.
    pub(crate) level: f64,
    /// Whether more than that wait.
    pub(crate) is_heavy: bool,
    /// What such claims need, if it is light.
    pub(crate) needs: f64,
    /// For all claims in the class and in the classes in it: what it needs, as far as it is due.
    pub(crate) whole: f64,
    /// For claims of the class itself on all nodes.
    pub(crate) due: f64,
}

/// What is due to a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    /// In the order of the node's classes.
    pub(crate) classes: Vec<ClassPart>,
    /// For all of them together.
    pub(crate) sum: f64,
    /// What no class on any node needs.
    pub(crate) spare: f64,
}

/// A class on all nodes.
#[derive(Clone, Debug, Default)]
struct Class {
    weight: f64,
    /// The heavy nodes, and what the light ones need.
    heavy: f64,
    light: f64,
    needs: f64,
    children: Vec<usize>,
    /// What all claims in it need on all nodes; infinite if a node is heavy.
    demand: f64,
    /// What it gets, and of that what is due to claims of the class itself, on all nodes.
    gets: f64,
    due: f64,
}

impl Class {
    fn own_demand(&self) -> f64 {
        if self.heavy > 0.0 { f64::INFINITY } else { self.needs }
    }
}

/// Divides `tokens` among the classes of all nodes: `others` is the demand on the other nodes, `own` that of this one.
pub(crate) fn divide(tokens: f64, others: &[ClassDemand], own: &[OwnClass]) -> Parts {
    let mut tree = ClassTree::new(others, own);
    let mut parts = vec![ClassPart { is_heavy: true, ..ClassPart::default() }; own.len()];
    tree.classes[..own.len()].iter_mut().for_each(|class| class.heavy += 1.0);
    // The first pass is for the classes in which no claim waits here: what they would get. Each further pass finds classes
    // that are light here, which raises the level of the others: so there are few passes.
    let mut passes = 0;
    let spare = loop {
        let spare = tree.pour(tokens);
        let idle_only = passes == 0;
        let mut is_final = !idle_only;
        passes += 1;
        for (at, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.is_heavy) {
            let class = &mut tree.classes[at];
            // At least an equal part: as long as nodes do not know of each other, the light ones may seem to need
            // everything.
            part.level = ((class.due - class.needs) / class.heavy).max(class.due / (class.heavy + class.light));
            let OwnClass { waiting, used, usable, .. } = own[at];
            let is_idle = waiting == 0 && used < LEAST_USED;
            if waiting as f64 <= part.level && (is_idle || !idle_only) {
                part.is_heavy = false;
                // Of a class that was not served lately, nothing is known but what waits.
                part.needs = if used < LEAST_USED { waiting as f64 } else { used.min(part.level) };
                // If the class gets its share whatever is reported here, what is reported and not used would be lost to the heavy
                // nodes of the class. If it does not, its part would not rise above what it is without being asked for.
                if class.heavy < 2.0 && used >= LEAST_USED {
                    part.needs = usable.min(part.level);
                }
                class.heavy -= 1.0;
                class.light += if part.needs > 0.0 { 1.0 } else { 0.0 };
                class.needs += part.needs;
                is_final = false;
            }
        }
        if is_final || passes == MOST_PASSES {
            break spare;
        }
    };
    let gets = |at: usize| if parts[at].is_heavy { parts[at].level } else { parts[at].needs };
    let sum = (0..own.len()).map(gets).sum();
    tree.add_wholes(&mut parts);
    parts.iter_mut().zip(&tree.classes).for_each(|(part, class)| part.due = class.due);
    Parts { classes: parts, sum, spare }
}

/// The classes of all nodes: those of this node first, then others, then the root.
struct ClassTree {
    classes: Vec<Class>,
    root: usize,
    /// The root and all classes below it, each before the classes in it.
    order: Vec<usize>,
    /// The parties among which the tokens of a class are divided at a time.
    open: Vec<Open>,
}

impl ClassTree {
    fn new(others: &[ClassDemand], own: &[OwnClass]) -> Self {
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut classes = Vec::new();
        let mut parents = Vec::new();
        for class in own {
            // Of two classes with one number, which names can be made to have, the first counts.
            numbers.entry(class.number).or_insert(classes.len());
            parents.push(class.parent);
            classes.push(Class { weight: class.weight as f64, ..Class::default() });
        }
        for demand in others {
            let at = *numbers.entry(demand.class).or_insert_with(|| {
                parents.push(demand.parent);
                classes.push(Class { weight: demand.weight.clamp(1, MAX_WEIGHT) as f64, ..Class::default() });
                classes.len() - 1
            });
            (classes[at].heavy, classes[at].light) = (demand.heavy as f64, demand.light as f64);
            classes[at].needs = demand.millis as f64 / 1e3;
        }
        let root = *numbers.entry(0).or_insert_with(|| {
            parents.push(0);
            classes.push(Class::default());
            classes.len() - 1
        });
        for (at, parent) in parents.iter().enumerate().filter(|(at, _)| *at != root) {
            // The store may have no space for the parent. A class of this node comes behind its parent, so the classes that
            // are linked here form a tree, whatever their numbers are.
            let parent = numbers.get(parent).copied().filter(|parent| at >= own.len() || *parent < at).unwrap_or(root);
            classes[parent].children.push(at);
        }
        let mut order = vec![root];
        let mut next = 0;
        while let Some(at) = order.get(next) {
            order.extend(&classes[*at].children);
            next += 1;
        }
        Self { classes, root, order, open: Vec::new() }
    }

    /// Divides `tokens` among all classes, and returns what none of them needs.
    fn pour(&mut self, tokens: f64) -> f64 {
        for at in (0..self.order.len()).rev().map(|nth| self.order[nth]) {
            let class = &self.classes[at];
            let within: f64 = class.children.iter().map(|child| self.classes[*child].demand).sum();
            self.classes[at].demand = class.own_demand() + within;
        }
        self.classes[self.root].gets = tokens;
        let mut spare = 0.0;
        for nth in 0..self.order.len() {
            let at = self.order[nth];
            let left = self.pour_into(at);
            if at == self.root {
                spare = left;
            }
        }
        spare
    }

    /// Divides what a class gets between its own claims and the classes in it, and returns what none of them needs.
    fn pour_into(&mut self, at: usize) -> f64 {
        let class = &self.classes[at];
        let (mut left, own_demand) = (class.gets, class.own_demand());
        self.open.clear();
        // Claims of a class that has classes in it share with these by a weight of 1.
        self.open.push(Open::new(None, 1.0, own_demand));
        self.open.extend(class.children.iter().map(|child| {
            let &Class { weight, demand, .. } = &self.classes[*child];
            Open::new(Some(*child), weight, demand)
        }));
        // Those that need the least for their weight are filled first, and what they leave raises the level of the others.
        self.open.sort_unstable_by(|one, other| one.filled_at.total_cmp(&other.filled_at));
        let mut weights: f64 = self.open.iter().map(|open| open.weight).sum();
        for &Open { child, weight, demand, .. } in &self.open {
            let part = demand.min(left * weight / weights);
            match child {
                None => self.classes[at].due = part,
                Some(child) => self.classes[child].gets = part,
            }
            (left, weights) = ((left - part).max(0.0), weights - weight);
        }
        left
    }

    /// What each class and the classes in it get on this node. If none of them is heavy, its weight is what is due to it, and not
    /// what it uses, so that a new claim is not held back.
    fn add_wholes(&self, parts: &mut [ClassPart]) {
        let mut due = vec![0.0; parts.len()];
        let mut have_heavy = vec![false; parts.len()];
        // Those in a class come behind it.
        for at in (0..parts.len()).rev() {
            let ClassPart { level, is_heavy, needs, .. } = parts[at];
            let own = self.classes[at].children.iter().filter(|child| **child < parts.len());
            (have_heavy[at], due[at]) = (is_heavy, level);
            let mut gets = if is_heavy { level } else { needs };
            for child in own {
                have_heavy[at] |= have_heavy[*child];
                due[at] += due[*child];
                gets += parts[*child].whole;
            }
            parts[at].whole = gets;
        }
        for (at, part) in parts.iter_mut().enumerate().filter(|(at, _)| !have_heavy[*at]) {
            part.whole = due[at];
        }
    }
}

/// A party to which tokens are given: the claims of a class itself, or a class in it.
struct Open {
    child: Option<usize>,
    weight: f64,
    demand: f64,
    /// At how many tokens for a weight of 1 it has what it needs.
    filled_at: f64,
}

impl Open {
    fn new(child: Option<usize>, weight: f64, demand: f64) -> Self {
        Self { child, weight, demand, filled_at: demand / weight }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
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
}
