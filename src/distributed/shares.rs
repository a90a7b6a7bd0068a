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
mod tests;
