//! The scheduler of a limiter with classes: the tree, and what was set aside for claims that are paid in installments.
//!
//! Pure: the owner has the queues, the supply of tokens and the time. The same code serves the limiter for real and, on
//! a copy, computes estimates. The owner works in steps:
//!
//! 1. [`next_step`](Scheduler::next_step) says what happens next, and when.
//! 2. If that is an installment, [`pay`](Scheduler::pay) takes the tokens and charges the classes.
//! 3. If the installment was the last of its claim, the owner removes the claim from its queue and tells the scheduler
//!    which claim is the [next](Scheduler::advance).
//!
//! Positions: a claim has no position of its own here. `base` is the position at which the tokens taken so far end: of
//! claims granted, and of installments served. A head that has reached `base + n` has `n` tokens.

use super::Pick;
use super::limits::Limits;
use super::node::Leaf;
use super::offer::{ClassId, NO_CLASS};
use super::tree::Tree;
use crate::Quota;
use crate::core::steps;
use crate::core::supply::Supply;
use std::collections::VecDeque;

/// What the limiter does next, if nothing else happens before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextStep {
    /// When it does that; `u64::MAX` if no clock can tell.
    pub(crate) at: u64,
    /// What it serves next.
    pub(crate) pick: Option<Pick>,
    /// Whether that is the last installment of a claim.
    pub(crate) is_last: bool,
    /// Whether it serves that then. If not, a floor falls due or a ceiling lets a class go: it picks again.
    pub(crate) serves: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    pub(crate) tree: Tree,
    /// The leaves with a debt, and some that have paid theirs.
    pub(super) debtors: Vec<ClassId>,
    /// All debts were charged to the limiter. Nothing is served until they are taken off the leaves.
    pub(super) are_debts_charged: bool,
    /// In a limiter with a source of tokens, the leaf that is next stays so: tokens are requested and saved for it that could
    /// not be kept for others. Tokens of other quotas can all be kept.
    pub(crate) saves_for: Option<ClassId>,
    /// In such a limiter, for which leaves the source gave how many tokens, in the order in which they come. These leaves are
    /// served in this order, and the others by their shares.
    pub(crate) turns: VecDeque<(ClassId, u64)>,
    /// The quotas with the levels that they would have if no divided claim had taken from them. Present while something is
    /// set aside.
    ///
    /// A divided claim that leaves gives back what was set aside for it. The bucket may have filled up again since, so
    /// giving back up to the burst would let other claims pass beyond the rate law. Up to the shadow level it does not: by
    /// themselves, the claims that are paid in one piece are bounded by the shadow's bucket. The shadow begins as the level
    /// before the first installment, which is at most that of a bucket that no divided claim ever took from.
    pub(super) shadow: Option<Box<Supply>>,
}

impl Scheduler {
    pub(crate) fn new(supply: &Supply) -> Self {
        let tree = Tree::new(Self::limits(supply));
        Self {
            tree,
            debtors: Vec::new(),
            are_debts_charged: false,
            saves_for: None,
            turns: VecDeque::new(),
            shadow: None,
        }
    }

    fn limits(supply: &Supply) -> Limits {
        Limits::of(supply.quotas().iter().map(|schedule| schedule.quota))
    }

    /// Whether neither a claim nor a debt waits in a leaf.
    pub(crate) fn is_idle(&self, leaf: ClassId) -> bool {
        self.tree.front(leaf) == 0
    }

    #[inline(always)]
    pub(super) fn leaf(&self, id: ClassId) -> Leaf {
        let node = self.tree.node(id);
        if node.is_divided { self.tree.rare(id).leaf } else { Leaf { cost: node.lacks(), paid: 0, owed: 0 } }
    }

    #[inline]
    pub(super) fn set_leaf(&mut self, id: ClassId, leaf: Leaf, now: u64) {
        self.tree.node_mut(id).is_divided = leaf.is_divided();
        self.tree.rare_mut(id).leaf = leaf;
        self.tree.set_front(id, leaf.front(), now);
    }

    /// Adds a leaf below `parent`. If `parent` was a leaf, its own claims become those of a first child, which is
    /// returned too.
    pub(crate) fn add(&mut self, parent: ClassId, weight: u64, now: u64) -> (ClassId, Option<ClassId>) {
        let own = self.tree.is_leaf(parent).then(|| self.tree.split(parent, now));
        let id = self.tree.add(parent, weight);
        if let Some(own) = own.filter(|own| self.debt(*own) > 0) {
            self.list_debtor(own);
        }
        (id, own)
    }

    /// A class with a ceiling below which floors could not be kept if quota number `index` were `quota`: the burst of the
    /// ceiling, the least that it should be, and the class.
    pub(crate) fn conflict_with(&self, supply: &Supply, index: usize, quota: Quota) -> Option<(u64, u64, ClassId)> {
        let known = supply.quotas().iter().map(|schedule| schedule.quota).enumerate();
        let limits = Limits::of(known.map(|(at, known)| if at == index { quota } else { known }));
        self.tree.conflict_with(&limits).map(|(burst, class)| (burst, limits.burst, class))
    }

    /// The quotas of the limiter have changed at `now`.
    pub(crate) fn requote(&mut self, supply: &Supply, index: usize, now: u64) {
        self.with_shadow(now, |shadow| shadow.set_quota(index, supply.quotas()[index].quota, None));
        self.tree.set_limits(Self::limits(supply), now);
    }

    /// A claim of `cost` tokens joins the end of the queue of `leaf`.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, leaf: ClassId, cost: u64, now: u64) {
        let known = self.leaf(leaf);
        if known.cost == 0 {
            self.set_leaf(leaf, Leaf { cost, ..known }, now);
        }
    }

    /// Serves a claim of `cost` tokens at once, if it is picked before all that wait and no ceiling holds it back. `take`
    /// takes the tokens from the limiter's quotas, if they are there. No claim waits in `leaf`. Returns the pick, if it was
    /// served.
    pub(crate) fn serve_at_once(
        &mut self,
        leaf: ClassId,
        cost: u64,
        supply: &mut Supply,
        base: u64,
        take: impl FnOnce() -> bool,
    ) -> Option<Pick> {
        let now = supply.synced();
        self.arrive(leaf, cost, now);
        let served = self.tree.pick().filter(|pick| (pick.leaf, pick.tokens) == (leaf, cost) && take());
        if let Some(pick) = served {
            self.pay(pick, supply, base);
        }
        self.advance(leaf, 0, 0, supply);
        served
    }

    /// What is served next, unless something changes before.
    #[inline(always)]
    pub(crate) fn pick(&self) -> Option<Pick> {
        if self.are_debts_charged {
            return None;
        }
        let saves_for = self.saves_for.and_then(|leaf| self.tree.installment(leaf));
        let in_turn = || self.turns.iter().find_map(|(leaf, _)| self.tree.installment(*leaf));
        let pick = saves_for.or_else(in_turn).or_else(|| self.tree.pick())?;
        // A burst that has just become smaller may not have reached the leaf yet.
        Some(Pick { tokens: pick.tokens.min(self.tree.limits.burst), ..pick })
    }

    /// What happens next, as of the instant of `supply`.
    #[inline(always)]
    pub(crate) fn next_step(&mut self, supply: &Supply, base: u64) -> NextStep {
        steps::count();
        self.tree.refresh_due(supply.synced());
        let pick = self.pick();
        let is_last = pick.is_some_and(|pick| self.is_last_installment(pick));
        let again = self.tree.next_recheck();
        // Without a cap the cost is not looked up.
        let is_capped = |pick: &Pick| {
            is_last && supply.ceiling().is_some() && supply.is_capped_below(base.wrapping_add(self.cost(pick.leaf)))
        };
        let scheduled = |pick: Pick| supply.scheduled(base.wrapping_add(pick.tokens));
        let at = pick.filter(|pick| !is_capped(pick)).and_then(scheduled).unwrap_or(u64::MAX);
        NextStep { at: at.min(again), pick, is_last, serves: at < again }
    }

    /// Whether a claim is granted with this installment.
    #[inline]
    pub(crate) fn is_last_installment(&self, pick: Pick) -> bool {
        let node = self.tree.node(pick.leaf);
        node.lacks() == pick.tokens && (!node.is_divided || self.tree.rare(pick.leaf).leaf.owed == 0)
    }

    /// What the front claim of a leaf costs; 0 if there is none.
    #[inline]
    pub(crate) fn cost(&self, leaf: ClassId) -> u64 {
        self.leaf(leaf).cost
    }

    /// Serves an installment at the instant of `supply`, which has the tokens.
    // Never inlined into the loop that serves, where nearly all payments are whole claims.
    #[inline(never)]
    pub(crate) fn pay(&mut self, pick: Pick, supply: &mut Supply, base: u64) {
        let Pick { leaf: id, tokens, .. } = pick;
        let at = supply.synced();
        self.end_turn(pick);
        let leaf = self.leaf(id);
        if leaf.owed > 0 || tokens == leaf.cost {
            self.note_taken(tokens, at);
        } else {
            self.shadow.get_or_insert_with(|| Box::new(supply.copied_at(base)));
        }
        self.tree.charge(id, pick, at);
        if leaf.owed > 0 {
            supply.pass(0, tokens);
            self.set_leaf(id, Leaf { owed: leaf.owed - tokens, ..leaf }, at);
        } else if leaf.cost - leaf.paid == tokens {
            supply.claim(tokens);
            supply.grant_aside(leaf.paid);
        } else {
            supply.set_aside(tokens);
            self.set_leaf(id, Leaf { paid: leaf.paid + tokens, ..leaf }, at);
        }
    }

    /// Pays the last installment of a claim, and puts the next claim of its leaf in front. `next` is the cost of the
    /// claim that is in front now, or 0, and `debt` the debt that was noted between the two.
    #[inline]
    pub(crate) fn pay_claim(&mut self, pick: Pick, next: u64, debt: u64, supply: &mut Supply, base: u64) {
        let Pick { leaf: id, tokens, .. } = pick;
        let at = supply.synced();
        if debt == 0 && !self.tree.is_divided(id) {
            self.end_turn(pick);
            self.note_taken(tokens, at);
            supply.claim(tokens);
            self.tree.pay_claim(pick, next, at);
            self.drop_shadow(supply);
        } else {
            self.pay(pick, supply, base);
            self.advance(id, next, debt, supply);
        }
    }

    /// Whether tokens are saved for a leaf that has no turn, while others have one.
    pub(crate) fn is_out_of_turn(&self) -> bool {
        let is_out = |saved: ClassId| self.turns.iter().all(|(leaf, _)| *leaf != saved);
        !self.turns.is_empty() && self.saves_for.is_some_and(is_out)
    }

    /// What is served is taken from the turns of its leaf.
    #[inline]
    fn end_turn(&mut self, pick: Pick) {
        if self.turns.is_empty() {
            return;
        }
        let mut tokens = pick.tokens;
        for (_, left) in self.turns.iter_mut().filter(|(leaf, _)| *leaf == pick.leaf) {
            let taken = tokens.min(*left);
            *left -= taken;
            tokens -= taken;
        }
        self.turns.retain(|(_, left)| *left > 0);
    }

    /// The front claim of `leaf` was granted or has left. `next` is the cost of the claim that is in front now, or 0,
    /// and `debt` the debt that was noted between the two.
    #[inline]
    pub(crate) fn advance(&mut self, leaf: ClassId, next: u64, debt: u64, supply: &Supply) {
        let now = supply.synced();
        if debt == 0 && !self.tree.is_divided(leaf) {
            self.tree.set_front(leaf, next, now);
        } else {
            let owed = self.debt(leaf) + debt;
            if debt > 0 {
                self.list_debtor(leaf);
            }
            self.set_leaf(leaf, Leaf { cost: next, paid: 0, owed }, now);
        }
        self.drop_shadow(supply);
    }

    /// Whether a change has left something for [`finish_changes`](Self::finish_changes).
    #[inline]
    pub(crate) fn is_changing(&self) -> bool {
        self.are_debts_charged || self.tree.stale_from != NO_CLASS
    }

    /// Does a bounded part of what changes have left. Returns whether nothing is left.
    pub(crate) fn finish_changes(&mut self, now: u64) -> bool {
        (!self.are_debts_charged || self.take_debts_off(now)) && self.tree.limit_more_classes(now)
    }

    /// `tokens` of a grant made in `leaf` come back; see [`Tree::refund`].
    pub(crate) fn refund(&mut self, leaf: ClassId, tokens: u64, uncharged: u64, now: u64, granted_at: Option<u64>) {
        self.with_shadow(now, |shadow| shadow.refund(tokens, granted_at));
        self.tree.refund(leaf, tokens, uncharged, now);
    }

    /// What is set aside for the front claim of a leaf.
    #[inline]
    pub(crate) fn paid(&self, leaf: ClassId) -> u64 {
        self.leaf(leaf).paid
    }
}
