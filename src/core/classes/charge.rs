//! What a service costs the classes on its path: tags, ceilings and floors.

use super::limits::Limits;
use super::node::RareNode;
use super::offer::{ClassId, NO_CLASS, Pick, ROOT};
use super::tags::{MAX_TAG, StartTag, Turn};
use super::tree::Tree;
use std::num::NonZeroU64;

impl Tree {
    /// Charges an installment that was all that the front claim lacked. From now on the front claim of the leaf lacks `front`
    /// tokens; 0: no claim waits there.
    #[inline]
    pub(crate) fn pay_claim(&mut self, pick: Pick, front: u64, at: u64) {
        let node = &mut self.nodes[pick.leaf as usize];
        let Some(front) = NonZeroU64::new(front).filter(|_| node.is_plain() && pick.leaf != ROOT) else {
            self.charge(pick.leaf, pick, at);
            return self.set_front(pick.leaf, front, at);
        };
        // Most leaves are plain, and then this is a part of each grant: the node and its parent are looked up once.
        let parent_id = node.parent;
        let parent = &mut self.rare[parent_id as usize];
        parent.virtual_time = { node.start.tag }.max(parent.virtual_time);
        let tag = parent.virtual_time + node.exact_span(pick.tokens);
        parent.largest = tag.max(parent.largest);
        (node.start.tag, node.front) = (tag, Some(front));
        if parent.largest > MAX_TAG {
            self.set_tags_back(parent_id);
            self.refresh(pick.leaf, at);
        } else {
            let span = node.exact_span(node.installment(front).get());
            let turn = Turn { start: tag, span, since: node.since, class: pick.leaf };
            node.by_tag_slot = parent.by_tag.set(node.by_tag_slot, turn);
        }
        if parent_id != ROOT {
            self.charge(parent_id, pick, at);
            self.refresh(parent_id, at);
        }
    }

    /// An installment was served at `at`: charges a class, which is the leaf or one around it, and those around that. Served by
    /// weight, it moves the virtual time at each level up to its start tag. The owner then tells what the front claim of the leaf
    /// [lacks](Self::set_front) now.
    #[inline]
    pub(crate) fn charge(&mut self, class: ClassId, pick: Pick, at: u64) {
        let mut child = class;
        while child != ROOT {
            let node = &mut self.nodes[child as usize];
            let parent = node.parent;
            let virtual_time = &mut self.rare[parent as usize].virtual_time;
            if !pick.by_floor {
                *virtual_time = { node.start.tag }.max(*virtual_time);
            }
            if !node.is_plain() || pick.by_floor {
                self.charge_specially(child, pick, at);
            } else {
                node.start.tag = *virtual_time + node.exact_span(pick.tokens);
            }
            let tag = self.nodes[child as usize].start.tag;
            let largest = &mut self.rare[parent as usize].largest;
            *largest = tag.max(*largest);
            if *largest > MAX_TAG {
                self.set_tags_back(parent);
            }
            child = parent;
        }
    }

    /// Charges a class on the path of `pick`, of any kind.
    // Never inlined: most classes have none of this, and the caller is a part of each grant.
    #[inline(never)]
    fn charge_specially(&mut self, child: ClassId, pick: Pick, at: u64) {
        let Limits { burst, arrears, .. } = self.limits;
        let virtual_time = self.rare(self.parent(child)).virtual_time;
        let is_debt = self.rare(pick.leaf).leaf.owed > 0;
        let (node, rare) = (&mut self.nodes[child as usize], &mut self.rare[child as usize]);
        if let Some(ceiling) = rare.ceiling.as_mut().filter(|_| !is_debt) {
            ceiling.mint(at);
            ceiling.take(pick.tokens);
        }
        rare.idle_start = None;
        node.start.raise(virtual_time);
        let begun = node.start.tag;
        node.start.charge(pick.tokens, &rare.weight);
        // A service by floor is not held against the class for long. One by weight never goes so far: it begins at the virtual
        // time, and is a burst at most.
        let most = virtual_time.saturating_add(rare.weight.span(burst.saturating_mul(2)));
        if node.start.tag > most {
            node.start = StartTag::at(begun.max(most));
        }
        if let Some(floor) = &mut rare.floor {
            floor.serve(pick.tokens, at, arrears);
        }
    }

    /// Sets the virtual time of a class back to 0, and the tags of its children by as much.
    #[cold]
    fn set_tags_back(&mut self, parent: ClassId) {
        let rare = self.rare_mut(parent);
        let by = std::mem::take(&mut rare.virtual_time);
        rare.largest -= by;
        rare.by_tag.map(|turn| Turn { start: turn.start.saturating_sub(by), ..turn });
        let mut child = rare.first_child;
        while child != NO_CLASS {
            let (node, rare) = (&mut self.nodes[child as usize], &mut self.rare[child as usize]);
            for start in rare.idle_start.iter_mut().chain([&mut node.start]) {
                start.tag = start.tag.saturating_sub(by);
            }
            child = rare.next;
        }
    }

    /// A debt is charged to the ceilings above a class at once. When it is paid, they are not charged again.
    pub(crate) fn charge_ceilings(&mut self, leaf: ClassId, tokens: u64, now: u64) {
        let mut id = leaf;
        while id != ROOT {
            if let Some(ceiling) = &mut self.rare_mut(id).ceiling {
                ceiling.mint(now);
                ceiling.take_debt(tokens);
            }
            id = self.parent(id);
        }
        self.refresh(leaf, now);
    }

    /// `tokens` of a grant made in a class come back: to the ceilings above it, and `uncharged` of them to its floor and to
    /// the tags on its path, so that shares are net of refunds.
    pub(crate) fn refund(&mut self, leaf: ClassId, tokens: u64, uncharged: u64, now: u64) {
        // Refunds of keys lower no tags: the class of a key may be gone by then.
        let uncharged = if self.node(leaf).is_key { 0 } else { uncharged };
        let mut id = leaf;
        while id != ROOT {
            let parent = self.parent(id);
            let least = self.rare(parent).virtual_time;
            let RareNode { ceiling, floor, weight, .. } = &mut self.rare[id as usize];
            if let Some(ceiling) = ceiling {
                ceiling.mint(now);
                ceiling.refund(tokens);
            }
            if let Some(floor) = floor {
                floor.refund(uncharged, now);
            }
            self.nodes[id as usize].start.refund(uncharged, weight, least);
            id = parent;
        }
        self.refresh(leaf, now);
    }
}
