//! The rules of service: which class is served next. `charge.rs` has what a service costs.
//!
//! Every class caches its *offer*: the leaf below it that would be served next. A change at a leaf refreshes the offers
//! on its path, so a pick reads one of the root's children, and each event costs O(depth x log children). Two kinds of
//! change come with time: a floor falls due, and a ceiling lets a class go. [`Tree::pick`] looks for them first.

use super::floor::nanos;
use super::node::RareNode;
use super::offer::{ClassId, Offer, Pick, ROOT};
use super::tags::Turn;
use super::tournament::{Entry, NOWHERE, Tournament};
use super::tree::Tree;
use std::num::NonZeroU64;

impl Tree {
    /// The leaf that is served next, as of the instant up to which the offers were [refreshed](Self::refresh_due). `None` if
    /// no claim waits or ceilings hold all back. It binds nothing: each change below can make another leaf the next one.
    #[inline]
    pub(crate) fn pick(&self) -> Option<Pick> {
        // Without a child, the limiter has no classes yet.
        let first = self.rare(ROOT).first_child_in_turn().unwrap_or(ROOT);
        let node = self.node(first);
        match node.front {
            Some(front) if node.is_bare => {
                Some(Pick { leaf: first, tokens: node.installment(front).get(), by_floor: false })
            }
            _ => {
                let offer = self.rare(first).offer?;
                Some(Pick { leaf: offer.leaf, tokens: offer.tokens.get(), by_floor: offer.is_by_floor() })
            }
        }
    }

    /// The next installment of a leaf, by its weight.
    pub(crate) fn installment(&self, leaf: ClassId) -> Option<Pick> {
        let node = self.node(leaf);
        Some(Pick { leaf, tokens: node.installment(node.front?).get(), by_floor: false })
    }

    /// Computes the offers anew that have changed by `now`: floors that are due, and ceilings that let their classes go.
    #[inline]
    pub(crate) fn refresh_due(&mut self, now: u64) {
        if self.next_recheck() <= now {
            self.refresh_all_due(now);
        }
    }

    #[cold]
    fn refresh_all_due(&mut self, now: u64) {
        while let Some((_, id)) = self.rechecks.first().copied().filter(|(at, _)| *at <= now) {
            self.refresh(id, now);
        }
    }

    /// What could be served next below a class other than the root, or in it.
    #[inline]
    pub(super) fn offer_of(&self, id: ClassId) -> Option<Offer> {
        let node = self.node(id);
        match node.front {
            Some(front) if node.is_bare => Some(Offer::by_weight(id, node.installment(front))),
            _ => self.rare(id).offer,
        }
    }

    /// The next instant at which time alone changes an offer; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next_recheck(&self) -> u64 {
        self.rechecks.first().map_or(u64::MAX, |(at, _)| *at)
    }

    /// The front claim of the queue of `leaf` lacks `front` tokens from now on; 0: no claim waits there.
    #[inline]
    pub(crate) fn set_front(&mut self, leaf: ClassId, front: u64, now: u64) {
        let front = NonZeroU64::new(front);
        let before = std::mem::replace(&mut self.node_mut(leaf).front, front);
        match (before, front) {
            (None, None) => return,
            (None, Some(_)) => self.enter(leaf, now),
            (Some(_), None) => {
                self.leave(leaf);
                if self.node(leaf).is_bare {
                    return self.withdraw_offer(leaf, now);
                }
            }
            (Some(_), Some(_)) => {}
        }
        self.refresh(leaf, now);
    }

    /// The leaf is backlogged again, and with it all classes on its path that were not.
    ///
    /// The class of a key begins an installment behind the virtual time. Virtual time stands still while a class waits at
    /// it; if each new key began there, a stream of new keys could keep it from ever reaching the others. So a key that was
    /// idle waits for the classes that were there before it, once each.
    fn enter(&mut self, leaf: ClassId, now: u64) {
        self.count += 1;
        let since = self.count;
        if !self.node(leaf).is_bare {
            if let Some(floor) = &mut self.rare_mut(leaf).floor {
                floor.restart(now);
            }
        }
        let mut child = leaf;
        while child != ROOT {
            let parent = self.node(child).parent;
            let mut least = self.rare(parent).virtual_time;
            let node = &mut self.nodes[child as usize];
            if node.is_key {
                let rare = &mut self.rare[child as usize];
                rare.idle_start = Some(node.start);
                least = least.saturating_add(rare.weight.span(node.front.map_or(0, NonZeroU64::get).min(node.most)));
            }
            node.start.raise(least);
            node.since = since;
            let weight = self.weight(child);
            let parent_node = self.rare_mut(parent);
            parent_node.backlogged += 1;
            parent_node.weights += weight;
            if parent_node.backlogged > 1 {
                break;
            }
            child = parent;
        }
    }

    /// No claim waits in the leaf any more. All children of a class without claims are even again.
    ///
    /// A key that was not served has not used anything. Its tag must not tell it from a new key: otherwise each key that
    /// comes and leaves would be remembered until the virtual time gets there.
    fn leave(&mut self, leaf: ClassId) {
        let node = &mut self.nodes[leaf as usize];
        node.start = self.rare[leaf as usize].idle_start.take().unwrap_or(node.start);
        let mut child = leaf;
        while child != ROOT {
            let parent = self.node(child).parent;
            let weight = self.weight(child);
            let parent_node = self.rare_mut(parent);
            parent_node.backlogged -= 1;
            parent_node.weights -= weight;
            if parent_node.backlogged > 0 {
                break;
            }
            parent_node.virtual_time = parent_node.virtual_time.max(parent_node.largest);
            child = parent;
        }
    }

    /// Computes the offers of a class and of its ancestors anew, as of `now`. That of the root is computed by each pick.
    pub(super) fn refresh(&mut self, id: ClassId, now: u64) {
        let mut id = id;
        while id != ROOT {
            let node = self.node(id);
            id = match node.front {
                Some(front) if node.is_bare => self.offer_front(id, front),
                _ => self.offer_anew(id, now),
            };
        }
    }

    /// Updates the offers on the path of a class after a change of its floor or its ceiling.
    pub(super) fn refresh_fully(&mut self, id: ClassId, now: u64) {
        if id != ROOT {
            let parent = self.offer_anew(id, now);
            self.refresh(parent, now);
        }
    }

    /// Does one step of [`refresh`](Self::refresh). Returns the parent.
    // Never inlined, as `charge_specially`.
    #[inline(never)]
    fn offer_anew(&mut self, id: ClassId, now: u64) -> ClassId {
        let (offer, due) = self.offer(id, now);
        let (offer, free) = self.under_ceiling(id, offer, now);
        let rare = &mut self.rare[id as usize];
        rare.offer = offer;
        // At `u64::MAX` time has ended, and the offer stays as it is.
        let at = due.min(free);
        set(&mut self.rechecks, &mut rare.slots.recheck, (at < u64::MAX).then_some((at, id)));
        self.enter_offer(id, offer)
    }

    /// Enters the offer of a backlogged leaf that has neither floor nor ceiling, and returns the parent. Most leaves have
    /// neither, and this is a part of each grant.
    #[inline]
    fn offer_front(&mut self, id: ClassId, front: NonZeroU64) -> ClassId {
        let node = &mut self.nodes[id as usize];
        let parent = &mut self.rare[node.parent as usize];
        let tokens = node.installment(front).get();
        node.start.raise(parent.virtual_time);
        let span = match node.is_exact {
            true => node.exact_span(tokens),
            false => self.rare[id as usize].weight.span(tokens),
        };
        let turn = Turn { start: node.start.tag, span, since: node.since, class: id };
        node.by_tag_slot = self.rare[node.parent as usize].by_tag.set(node.by_tag_slot, turn);
        node.parent
    }

    /// Withdraws the offer of a leaf that has neither floor nor ceiling: no claim waits in it any more.
    fn withdraw_offer(&mut self, id: ClassId, now: u64) {
        let node = self.node_mut(id);
        let parent = node.parent;
        let slot = std::mem::replace(&mut node.by_tag_slot, NOWHERE);
        // While the limiter has no classes, the root is a leaf.
        if slot != NOWHERE {
            self.rare_mut(parent).by_tag.remove(slot);
        }
        self.refresh(parent, now);
    }

    /// What could be served next in a class, whatever its own ceiling says, and when its floor falls due.
    fn offer(&self, id: ClassId, now: u64) -> (Option<Offer>, u64) {
        let node = self.node(id);
        let Some(front) = node.front else {
            let next = self.rare(id).first_child_in_turn();
            return (next.and_then(|next| self.offer_of(next)), u64::MAX);
        };
        let tokens = node.installment(front);
        match &self.rare(id).floor {
            Some(floor) if floor.is_due(now) => {
                (Some(Offer::by_floor(id, tokens, floor.deadline(tokens.get()))), u64::MAX)
            }
            Some(floor) => (Some(Offer::by_weight(id, tokens)), nanos(floor.next)),
            None => (Some(Offer::by_weight(id, tokens)), u64::MAX),
        }
    }

    /// The `offer` of a class, or `None` and until when the ceiling of the class holds it back. A debt is never held back: the
    /// ceiling was charged for it already.
    fn under_ceiling(&mut self, id: ClassId, offer: Option<Offer>, now: u64) -> (Option<Offer>, u64) {
        let Some(tokens) = offer.filter(|offer| self.rare(offer.leaf).leaf.owed == 0).map(|offer| offer.tokens.get())
        else {
            return (offer, u64::MAX);
        };
        let Some(ceiling) = &mut self.rare_mut(id).ceiling else { return (offer, u64::MAX) };
        ceiling.mint(now);
        let is_held = ceiling.level() < i64::try_from(tokens).unwrap_or(i64::MAX);
        if is_held { (None, ceiling.has(tokens)) } else { (offer, u64::MAX) }
    }

    /// Enters the offer of a class in its parent's tournaments. Returns the parent.
    fn enter_offer(&mut self, id: ClassId, offer: Option<Offer>) -> ClassId {
        let node = &mut self.nodes[id as usize];
        let (parent, since) = (node.parent, node.since);
        let deadline = offer.and_then(|offer| offer.deadline()).map(|deadline| (deadline, since, id));
        let turn = offer.filter(|offer| !offer.is_by_floor()).map(|offer| {
            // Also if a ceiling has let the class go: no credit for the time in which it was held back.
            node.start.raise(self.rare[parent as usize].virtual_time);
            let span = self.rare[id as usize].weight.span(offer.tokens.get());
            Turn { start: node.start.tag, span, since, class: id }
        });
        let mut by_deadline = self.rare[id as usize].slots.by_deadline;
        let RareNode { by_tag, by_deadline: deadlines, .. } = &mut self.rare[parent as usize];
        set(by_tag, &mut node.by_tag_slot, turn);
        set(deadlines, &mut by_deadline, deadline);
        self.rare[id as usize].slots.by_deadline = by_deadline;
        parent
    }
}

/// Enters a class in a tournament, or removes it. `slot` is where its slot is kept.
#[inline]
fn set<E: Entry>(tournament: &mut Tournament<E>, slot: &mut u32, entry: Option<E>) {
    match entry {
        Some(entry) => *slot = tournament.set(*slot, entry),
        None if *slot != NOWHERE => tournament.remove(std::mem::replace(slot, NOWHERE)),
        None => {}
    }
}
