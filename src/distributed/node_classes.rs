//! The classes of a node: what they request, and in which order they are served what the store gives them.
//!
//! The store gives tokens to classes, and the node serves its classes in that order: their *turns*. So the tokens of a claim
//! are those that were promised for it, in one piece. A class that was served tokens of another one has a *debt*, which it
//! requests too; so each class pays for what it is served. Tokens for which no class has a turn are shared by weight.

use super::{Answered, ClassClaims, LEAST_SLEEP, MARGIN, RefillPlanner, View, Wanted};
use crate::core::classes::lacks::ClassLack;
use crate::core::classes::{ClassId, Classes, ROOT};
use crate::core::rovers::{Rovers, ahead, later};
use crate::core::state::State;
use std::collections::{HashMap, HashSet, VecDeque};

/// What a node knows of its classes, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeClasses {
    known: HashMap<u64, NodeClass>,
    /// The tokens that classes were given and not served yet, in the order in which they were given.
    turns: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeClass {
    debt: u64,
    /// All tokens that it was served so far.
    served: u64,
    /// The part of the class on this node, by the last answer.
    part: u64,
    /// If the last answer gave nothing: when the class asks again.
    retry_at: u64,
}

/// What all classes request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassRequests {
    pub(crate) rows: Vec<ClassClaims>,
    /// The sums of the rows that ask now.
    pub(crate) wanted: Wanted,
    /// When the first class that lacks tokens asks.
    pub(crate) due: Option<u64>,
}

impl NodeClasses {
    /// Forgets all but what the classes were served.
    pub(crate) fn clear(&mut self) {
        self.turns.clear();
        self.known.values_mut().for_each(|class| *class = NodeClass { served: class.served, ..NodeClass::default() });
    }

    fn given_to(&self, class: u64) -> u64 {
        self.turns.iter().filter(|(number, _)| *number == class).map(|(_, tokens)| tokens).sum()
    }

    /// Takes what a class was served from its turns. The rest is its debt, of `most` tokens.
    fn take(&mut self, class: u64, mut served: u64, most: u64) {
        for (_, tokens) in self.turns.iter_mut().filter(|(number, _)| *number == class) {
            let taken = served.min(*tokens);
            *tokens -= taken;
            served -= taken;
        }
        let debt = &mut self.known.entry(class).or_default().debt;
        *debt = debt.saturating_add(served).min(most);
    }

    /// A class was given tokens, which pay its debt first.
    fn give(&mut self, class: u64, given: u64) {
        let debt = &mut self.known.entry(class).or_default().debt;
        let paid = given.min(*debt);
        *debt -= paid;
        self.turns.push_back((class, given - paid));
    }

    /// Ends turns until no more tokens have one than are `here` and promised.
    fn cut(&mut self, here: u64) {
        let all: u64 = self.turns.iter().map(|(_, tokens)| tokens).sum();
        let mut over = all.saturating_sub(here);
        for (_, tokens) in self.turns.iter_mut().rev() {
            let ended = over.min(*tokens);
            *tokens -= ended;
            over -= ended;
        }
        self.turns.retain(|(_, tokens)| *tokens > 0);
    }
}

impl State {
    /// The classes of this node with their numbers and those of the classes around them, each before the classes in it.
    fn numbered_classes(&self) -> Vec<(u64, u64, ClassLack<'_>)> {
        let (mut numbers, mut taken) = (HashMap::new(), HashSet::new());
        let classes = self.classes().into_iter().flat_map(Classes::lacks);
        let numbered = classes.map(|lack| {
            let parent = numbers.get(&lack.parent).copied().unwrap_or(0);
            let number = if lack.class == ROOT { 0 } else { free_number(&mut taken, parent, &lack.name.to_string()) };
            numbers.insert(lack.class, number);
            (number, parent, lack)
        });
        numbered.collect()
    }

    /// Takes what the classes were served from their turns, and has the others served in turn.
    pub(super) fn settle_classes(&mut self, rovers: &Rovers, planner: &mut RefillPlanner) {
        let Some(mut classes) = planner.classes.take() else { return };
        let mut known = std::mem::take(&mut classes.known);
        let mut leaves = HashMap::new();
        for (number, _, lack) in self.numbered_classes() {
            let class = known.remove(&number).unwrap_or(NodeClass { served: lack.served, ..NodeClass::default() });
            // A class that was made anew counts from 0.
            let served = lack.served.checked_sub(class.served).unwrap_or(lack.served);
            classes.known.insert(number, NodeClass { served: lack.served, ..class });
            classes.take(number, served, planner.terms.burst());
            leaves.insert(number, self.classes().map_or(ROOT, |classes| classes.entry(lack.class).leaf));
        }
        if self.queue.is_empty() {
            classes.clear();
        }
        let promised = self.cover().pieces.fold(self.quota().head, u64::wrapping_add);
        classes.cut(ahead(promised, self.base(rovers)).max(0) as u64);
        let turns = classes.turns.iter().filter_map(|(number, tokens)| Some((*leaves.get(number)?, *tokens))).collect();
        planner.classes = Some(classes);
        if let Some(classes) = self.classes_mut() {
            classes.scheduler.turns = turns;
        }
        self.pass_stuck(rovers);
    }

    /// What the classes lack, and what those of them request that ask now.
    pub(super) fn class_requests(&self, planner: &RefillPlanner, view: &View, rovers: &Rovers) -> ClassRequests {
        let mut requests = ClassRequests::default();
        let (Some(known), Some(classes)) = (&planner.classes, self.classes()) else { return requests };
        if view.lack == 0 || view.gate > view.now {
            return requests;
        }
        let numbered = self.numbered_classes();
        let in_service = classes.scheduler.pick().map(|pick| (classes.owner(pick.leaf), pick.tokens));
        let scattered = self.in_service(rovers).map_or(0, |(start, end)| self.cover().lacks(start, end));
        let base = self.base(rovers);
        let from = if scattered > 0 { base } else { later(base, view.covered) };
        let mut with_lacks = HashSet::new();
        // Here children come before their parents.
        for (number, parent, lack) in numbered.iter().rev() {
            let mut given = known.given_to(*number);
            let class = known.known.get(number).copied().unwrap_or_default();
            let mut debt = class.debt;
            let mut lacks = (lack.tokens + class.debt).saturating_sub(given);
            let next = in_service.filter(|(class, _)| *class == lack.class);
            if let Some((_, tokens)) = next.filter(|(_, tokens)| scattered > 0 && given + scattered > *tokens) {
                // The tokens of its turns come in pieces that do not complete the claim: it asks for all of it, and for what the
                // limiter owes.
                (lacks, given) = (lacks.max(scattered), 0);
                debt += scattered.saturating_sub(tokens);
            }
            let leaf = classes.entry(lack.class).leaf;
            let covered = given + classes.scheduler.paid(leaf);
            let claims = (lack.class, covered, classes.scheduler.tree.most(leaf), class.part);
            let before = (from, requests.wanted.want);
            let (mut wanted, is_all) = self.request_claims(view, before, claims);
            if !is_all {
                // Nobody waits for the store's tokens with claims that something else holds back.
                lacks = lacks.min(wanted.want);
            }
            if lacks == 0 && !with_lacks.contains(number) {
                continue;
            }
            with_lacks.insert(*parent);
            let ends = view.ends.filter(|_| given > 0);
            let due = ends.map_or(0, |ends| ends.saturating_sub(planner.round_trip + MARGIN)).max(class.retry_at);
            if lacks > 0 {
                requests.due = Some(requests.due.map_or(due, |first| first.min(due)));
            }
            if lacks == 0 || due > view.now {
                wanted = Wanted::default();
            } else {
                // The rest of the part is for debts.
                let rest = if wanted.want == 0 { lacks } else { debt.min(lacks.saturating_sub(wanted.want)) };
                let rest = rest.min(class.part.max(1).saturating_sub(wanted.want));
                wanted = wanted.or_debts(wanted.want + rest, view.in_vain_for);
            }
            let Wanted { want, first, age, useful, .. } = wanted;
            requests.wanted.want += want;
            let (class, parent, weight, age, useful) = (*number, *parent, lack.weight, age / 1_000, useful / 1_000);
            requests.rows.push(ClassClaims { class, parent, weight, want, first, lack: lacks, age, useful });
        }
        requests.rows.reverse();
        let firsts = requests.rows.iter().filter(|row| row.want > 0).map(|row| row.first);
        requests.wanted.first = firsts.min().unwrap_or(0);
        requests
    }

    /// Whole claims of a class, up to its `part`, beyond the `covered` tokens that it has been given; of one that is larger
    /// than its largest installment, the next installment. Other classes request the `before` tokens that come after `from`.
    /// False if it stopped at a claim that another quota or a cap still holds back when an answer comes.
    fn request_claims(
        &self,
        view: &View,
        (from, before): (u64, u64),
        (class, mut covered, most, part): (ClassId, u64, u64, u64),
    ) -> (Wanted, bool) {
        let (leases, mut wanted) = (self.promised_leases(), Wanted::default());
        // Debts are served in one piece too: that before the front claim, and those between claims.
        let owed = self.classes().map_or(0, |classes| classes.scheduler.debt(classes.entry(class).leaf));
        let first = self.claims_of(class).next().map_or(0, |(number, ..)| number);
        let claims = self.claims_of(class).flat_map(|(number, cost, debt)| [(number, cost), (number, debt)]);
        for (number, tokens) in std::iter::once((first, owed)).chain(claims) {
            let lacks = tokens.saturating_sub(covered);
            covered = covered.saturating_sub(tokens);
            if lacks == 0 {
                continue;
            }
            let need = lacks.min(most);
            let all = before + wanted.want + need;
            if !self.supply.others_pass(from.wrapping_add(all), view.soon) {
                return (wanted, false);
            }
            if wanted.want > 0 && (wanted.want + need > part || all > view.lack) {
                break;
            }
            wanted.add(view, number, need, leases.and_then(|leases| leases.wait_of(number)));
            if need < lacks {
                break;
            }
        }
        (wanted, true)
    }

    /// Records what an answer gave to the classes.
    pub(super) fn give_classes(&mut self, rovers: &Rovers, planner: &mut RefillPlanner, answered: &Answered, now: u64) {
        let Answered { ask, answer, .. } = answered;
        let is_outdated = answer.terms.is_some() && answer.now + answer.promised == 0;
        if let Some(classes) = &mut planner.classes {
            for (row, grant) in ask.classes.iter().zip(&answer.classes) {
                classes.give(row.class, grant.given);
                let class = classes.known.entry(row.class).or_default();
                class.part = grant.part.max(1);
                if row.want > 0 {
                    let is_sent_away = grant.given == 0 && !is_outdated;
                    let sleep = grant.sleep.saturating_mul(1_000).max(LEAST_SLEEP);
                    class.retry_at = if is_sent_away { now.saturating_add(sleep) } else { 0 };
                }
                // While this class lacks tokens, the store gives nothing to classes that are ahead of it.
                planner.placed |= row.lack > grant.given && !is_outdated;
            }
        }
        self.settle_classes(rovers, planner);
    }
}

/// The number of a class with this name in the class with the number `parent`: FNV-1a of 64 bits, folded to 52, the same on all
/// machines and in all releases.
fn number_of(parent: u64, name: &str) -> u64 {
    let bytes = parent.to_be_bytes().into_iter().chain(name.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    ((hash ^ hash >> 52) % (1 << 52)).max(1)
}

/// The number of a class, beside those that are `taken` by the classes before it on this node. Names can be made to have one
/// number, and two classes with one number would share as one.
fn free_number(taken: &mut HashSet<u64>, parent: u64, name: &str) -> u64 {
    let mut number = number_of(parent, name);
    while !taken.insert(number) {
        number = number_of(number, name);
    }
    number
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_classes_never_have_one_number_on_a_node() {
        let mut taken = HashSet::from([number_of(0, "batch")]);
        let number = free_number(&mut taken, 0, "batch");
        assert_eq!(number, number_of(number_of(0, "batch"), "batch"));
        assert!(taken.contains(&number) && number != number_of(0, "batch"));
    }

    /// Nodes of several releases share a store: these numbers never change.
    #[test]
    fn the_number_of_a_class_is_fixed() {
        let batch = number_of(0, "batch");
        assert_eq!(
            [batch, number_of(batch, "tenant-7"), number_of(0, "")],
            [0x8_c992_6f9c_95a8, 0x3_ca7d_9222_ab85, 0x7_f832_281a_3349]
        );
    }
}
