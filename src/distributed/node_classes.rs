//! The classes of a node: what they report to the store, and the weights that follow from what other nodes report.
//!
//! The rules are in `shares.rs`. The weight that is applied to a class is its part of the tokens of all nodes, in
//! millionths, so that classes here share what comes as their parts are to each other.

use super::accounts::ClassState;
use super::shares::{OwnClass, Parts, divide};
use super::{ClassDemand, ClassReport, LeaseRequest, RefillPlanner, Usage, View, Wanted};
use crate::core::classes::weights::ClassLack;
use crate::core::classes::{ClassId, MAX_WEIGHT, ROOT};
use crate::core::rovers::{Rovers, ahead};
use crate::core::state::State;
use std::collections::{HashMap, HashSet};

/// How many tokens may be requested for a class now.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassLimit {
    pub(super) number: u64,
    most: f64,
    /// Whether a claim may take more.
    may_exceed: bool,
    /// What is requested.
    pub(super) wanted: f64,
}

/// The limits of all classes of a node; empty if the demand on other nodes is not known.
pub(super) type ClassLimits = HashMap<ClassId, ClassLimit>;

impl ClassLimit {
    fn allows(&self, need: f64) -> bool {
        self.wanted + need <= self.most || self.may_exceed && self.wanted == 0.0
    }
}

impl State {
    /// The classes of this node, and what is due to them; `None` if the demand on other nodes is not known.
    fn parts(&self, planner: &RefillPlanner, now: u64) -> Option<(Vec<(ClassId, OwnClass)>, Parts)> {
        let accounts = planner.accounts.as_ref()?;
        let others = accounts.others(now)?;
        let (ids, own) = self.own_classes(&accounts.usage);
        let parts = divide(planner.shared(), others, &own);
        Some((ids.into_iter().zip(own).collect(), parts))
    }

    fn own_classes(&self, usage: &Usage) -> (Vec<ClassId>, Vec<OwnClass>) {
        let (mut numbers, mut taken) = (HashMap::new(), HashSet::new());
        let own = self.class_lacks().map(|ClassLack { class, parent, name, weight, tokens, .. }| {
            let parent = numbers.get(&parent).copied().unwrap_or(0);
            let number = if class == ROOT { 0 } else { free_number(&mut taken, parent, &name.to_string()) };
            numbers.insert(class, number);
            let (used, usable) = usage.of(class);
            (class, OwnClass { number, parent, weight, waiting: tokens, used, usable })
        });
        own.unzip()
    }

    fn class_lacks(&self) -> impl Iterator<Item = ClassLack<'_>> {
        self.classes().into_iter().flat_map(|classes| classes.lacks(self.queue.tokens(), self.supply.synced()))
    }

    /// Computes how much is due to the classes of this node, by the claims that wait now, and lets those rest that took more.
    /// Returns what each may take now; nothing if the demand on other nodes is not known.
    pub(super) fn take_part(&mut self, rovers: &Rovers, planner: &mut RefillPlanner, now: u64) -> ClassLimits {
        if self.queue.is_empty() {
            let share_time = planner.share_time();
            planner.accounts.iter_mut().for_each(|accounts| accounts.pause(share_time, now));
        }
        if planner.accounts.is_none() || self.queue.is_empty() {
            return ClassLimits::new();
        }
        let parts = self.parts(planner, now);
        let (shared, busy, share_time) = (planner.shared(), planner.busy(), planner.share_time());
        let outstanding = self.outstanding(rovers, planner.quota);
        let served: Vec<u64> = self.class_lacks().map(|lack| lack.served).collect();
        let Some(accounts) = &mut planner.accounts else { return ClassLimits::new() };
        let Some((own, parts)) = parts else {
            accounts.forget();
            self.classes_mut().into_iter().for_each(|classes| classes.apply_own_weights(now));
            return ClassLimits::new();
        };
        // What no class on any node needs goes to the classes in which claims wait.
        let waiting: f64 =
            own.iter().zip(&parts.classes).filter(|((_, own), _)| own.waiting > 0).map(|(_, part)| part.level).sum();
        let more = if waiting > 0.0 { 1.0 + parts.spare / busy as f64 / waiting } else { 1.0 };
        let states: Vec<ClassState> = own
            .iter()
            .zip(&parts.classes)
            .zip(served)
            .map(|(((_, own), part), served)| ClassState {
                number: own.number,
                parent: own.parent,
                part: part.level * more,
                due: part.due,
                served,
                is_waiting: own.waiting > 0,
            })
            .collect();
        accounts.update(&states, outstanding, share_time, now);
        let weight = |tokens: f64| ((tokens / shared * MAX_WEIGHT as f64).round() as u64).clamp(1, MAX_WEIGHT);
        let mut limits = ClassLimits::new();
        for ((class, own), part) in own.into_iter().zip(parts.classes) {
            let Some(classes) = self.classes_mut() else { return limits };
            classes.apply_weights(class, weight(part.whole), weight(part.level), now);
            classes.set_resting(class, accounts.rests(own.number), now);
            if let Some((most, may_exceed)) = accounts.limit(own.number) {
                limits.insert(class, ClassLimit { number: own.number, most, may_exceed, wanted: 0.0 });
            }
        }
        self.pass_stuck(rovers);
        limits
    }

    /// The tokens that are here or promised, and that no claim was served.
    fn outstanding(&self, rovers: &Rovers, quota: usize) -> u64 {
        let covered = self.cover(quota).pieces.fold(self.supply.quotas()[quota].head, u64::wrapping_add);
        let base = if self.has_classes() { self.base(rovers) } else { covered };
        ahead(covered, base).max(0) as u64
    }

    /// What the classes of this node need: for the store, to be sent with each request.
    pub(crate) fn class_report(&mut self, now: u64) -> Option<ClassReport> {
        self.planner_mut()?.accounts.as_ref()?;
        let mut planner = self.take_planner()?;
        let (shared, share_time) = (planner.shared(), planner.share_time());
        let accounts = planner.accounts.as_mut()?;
        let served = self.class_lacks().map(|lack| (lack.class, lack.served, lack.waited));
        accounts.usage.measure(served, share_time, now);
        let (ids, own) = self.own_classes(&accounts.usage);
        let parts = divide(shared, accounts.others(now).unwrap_or_default(), &own);
        for ((id, class), part) in ids.into_iter().zip(&own).zip(&parts.classes) {
            let is_used = !part.is_heavy && part.needs <= class.used;
            accounts.usage.note_report(id, is_used.then_some(part.needs));
        }
        let mut with_needs: HashSet<u64> = HashSet::new();
        let mut classes = Vec::new();
        // Here children come before their parents.
        for (class, part) in own.iter().zip(parts.classes).rev() {
            if part.is_heavy || part.needs > 0.0 || with_needs.contains(&class.number) {
                with_needs.insert(class.parent);
                let &OwnClass { number, parent, weight, .. } = class;
                let light = u64::from(!part.is_heavy && part.needs > 0.0);
                let (heavy, millis) = if part.is_heavy { (1, 0) } else { (0, (1e3 * part.needs) as u64) };
                classes.push(ClassDemand { class: number, parent, weight, heavy, light, millis });
            }
        }
        // A store that knows too many classes leaves out the last ones: a class is no use without those around it.
        classes.reverse();
        // The row of the limiter itself is sent only if claims wait outside all classes.
        classes.retain(|row| row.class != 0 || row.heavy + row.light > 0);
        let ttl = LeaseRequest::LEASE_TIME.as_micros() as u64;
        let report = ClassReport::new(planner.node(), ttl, classes);
        if let Some(accounts) = &mut planner.accounts {
            accounts.has_reported = !report.classes.is_empty();
        }
        self.put_planner(planner);
        Some(report)
    }

    /// The store has answered `report` with the demand on all nodes.
    pub(crate) fn learn_demand(&mut self, report: &ClassReport, mut all: Vec<ClassDemand>, now: u64) {
        for row in &mut all {
            if let Some(own) = report.classes.iter().find(|own| own.class == row.class) {
                row.heavy = row.heavy.saturating_sub(own.heavy);
                row.light = row.light.saturating_sub(own.light);
                row.millis = row.millis.saturating_sub(own.millis);
            }
        }
        if let Some(accounts) = self.planner_mut().and_then(|planner| planner.accounts.as_mut()) {
            accounts.learn(all, now);
        }
    }

    /// What [`whole_claims`](Self::whole_claims) is with classes: whole installments, in the order in which they are served.
    pub(super) fn whole_installments(
        &self,
        rovers: &Rovers,
        quota: usize,
        view: &View,
        share: u64,
        soon: u64,
        limits: &mut ClassLimits,
    ) -> Wanted {
        limits.values_mut().for_each(|limit| limit.wanted = 0.0);
        // The store serves the node that has waited longest, whichever of its classes is next.
        let mut wanted = Wanted { age: view.in_vain_for, useful: u64::MAX, ..Wanted::default() };
        let Some(classes) = self.classes() else { return wanted };
        let mut cover = self.cover(quota);
        for next in self.next_installments(rovers) {
            let need = cover.lacks(next.start, next.end);
            if need > 0 {
                let limit = limits.get_mut(&classes.owner(next.leaf));
                let is_enough = match &limit {
                    Some(limit) => !limit.allows(need as f64),
                    None => wanted.want > 0 && wanted.want.saturating_add(need) > share,
                };
                if is_enough || !next.fits || !self.supply.others_pass(next.end, quota, soon) {
                    return wanted;
                }
                limit.into_iter().for_each(|limit| limit.wanted += need as f64);
                if wanted.want == 0 {
                    wanted.first = need;
                }
                wanted.want += need;
                cover.at = next.end;
            }
        }
        // The rest comes after more installments than are looked at.
        let all = wanted.or_debts(view.lack.min(share.max(1)), view.in_vain_for);
        limits.values_mut().for_each(|limit| limit.wanted *= all.want as f64 / wanted.want.max(1) as f64);
        all
    }

    /// What [`counted_on`](Self::counted_on) is with classes.
    pub(super) fn installments_count_on(&self, rovers: &Rovers, quota: usize) -> u64 {
        let mut cover = self.cover(quota);
        _ = self.next_installments(rovers).find(|next| cover.lacks(next.start, next.end) > 0);
        cover.counts_on
    }
}

/// The number of a class with this name in the class with the number `parent`: FNV-1a of 64 bits, the same on all machines
/// and in all releases.
fn number_of(parent: u64, name: &str) -> u64 {
    let bytes = parent.to_be_bytes().into_iter().chain(name.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash.max(1)
}

/// The number of a class, beside those that are `taken` by the classes before it on this node. Names can be made to have one
/// number, and two classes with one number would have one account.
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
        let names = ["VrB6UyEohQH", "FphdPwL9YrN"];
        assert_eq!(number_of(0, names[0]), number_of(0, names[1]));
        let mut taken = HashSet::new();
        let numbers = names.map(|name| free_number(&mut taken, 0, name));
        assert_eq!(numbers[0], number_of(0, names[0]));
        assert_ne!(numbers[0], numbers[1]);
    }

    /// Nodes of several releases share a store: these numbers never change.
    #[test]
    fn the_number_of_a_class_is_fixed() {
        let batch = number_of(0, "batch");
        assert_eq!(
            [batch, number_of(batch, "tenant-7"), number_of(0, "")],
            [0xdf38_c992_6f9c_985b, 0xbf21_d58a_a1ce_089b, 0xa8c7_f832_281a_39c5]
        );
    }
}
