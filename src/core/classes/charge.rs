//! What a service costs the classes on its path: tags, ceilings and floors.

use super::limits::Limits;
use super::offer::{ClassId, NO_CLASS, Pick, ROOT};
use super::tags::{MAX_TAG, RESTING, StartTag, Turn};
use super::tree::Tree;
use std::num::NonZeroU64;

impl Tree {
    /// The installment in service was served at `at`: charges the classes on its path. The owner then tells what the
    /// front claim of the leaf [lacks](Self::set_front) now.
    #[inline]
    pub(crate) fn pay(&mut self, at: u64) {
        if let Some(pick) = self.picked.take() {
            self.charge(pick.leaf, pick, at);
        }
    }

    /// Does [`pay`](Self::pay) and [`set_front`](Self::set_front) for an installment that was all that the front claim lacked:
    /// from now on the front claim of the leaf lacks `front` tokens.
    #[inline]
    pub(crate) fn pay_claim(&mut self, front: Option<u64>, at: u64) {
        let Some(pick) = self.picked.take() else { return };
        let node = &mut self.nodes[pick.leaf as usize];
        let front = front.and_then(NonZeroU64::new);
        let Some(front) = front.filter(|_| node.is_plain() && pick.leaf != ROOT) else {
            self.charge(pick.leaf, pick, at);
            return self.set_front(pick.leaf, front.map(NonZeroU64::get), at);
        };
        // Most leaves are plain, and then this is a part of each grant: the node and its parent are looked up once.
        let parent = &mut self.rare[node.parent as usize];
        let tag = { node.start.tag }.max(parent.virtual_time) + node.exact_span(pick.tokens);
        parent.largest = tag.max(parent.largest);
        (node.start.tag, node.front) = (tag, Some(front));
        if parent.largest > MAX_TAG {
            let parent = node.parent;
            self.set_tags_back(parent);
            self.refresh(pick.leaf, at);
        } else {
            let span = node.exact_span(node.installment(front).get());
            let turn = Turn { start: tag, span, since: node.since, class: pick.leaf };
            node.by_tag_slot = parent.by_tag.set(node.by_tag_slot, turn);
        }
        let parent = self.parent(pick.leaf);
        if parent != ROOT {
            self.charge(parent, pick, at);
            self.refresh(parent, at);
        }
    }

    /// Charges a class and those around it for an installment.
    #[inline]
    fn charge(&mut self, class: ClassId, pick: Pick, at: u64) {
        let mut child = class;
        while child != ROOT {
            let node = &mut self.nodes[child as usize];
            let parent = node.parent;
            if !node.is_plain() || pick.by_floor {
                self.charge_specially(child, pick, at);
            } else {
                let virtual_time = self.rare[parent as usize].virtual_time;
                node.start.tag = { node.start.tag }.max(virtual_time) + node.exact_span(pick.tokens);
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
        let (node, rare) = (&mut self.nodes[child as usize], &mut self.rare[child as usize]);
        if let Some(ceiling) = &mut rare.ceiling {
            ceiling.mint(at);
            ceiling.take(pick.tokens);
        }
        rare.idle_start = None;
        node.start.raise(virtual_time);
        let begun = node.start.tag;
        node.start.charge(pick.tokens, &rare.weight);
        if pick.by_floor {
            // A service by floor is not held against the class for long.
            let most = virtual_time.saturating_add(rare.weight.span(burst.saturating_mul(2)));
            if node.start.tag > most {
                node.start = StartTag::at(begun.max(most));
            }
        }
        if let Some(floor) = rare.floor.as_mut().filter(|_| child == pick.leaf) {
            floor.serve(pick.tokens, at, arrears);
        }
    }

    /// Sets the virtual time of a class back to 0, and the tags of its children by as much.
    #[cold]
    fn set_tags_back(&mut self, parent: ClassId) {
        let rare = self.rare_mut(parent);
        let by = std::mem::take(&mut rare.virtual_time);
        rare.largest -= by;
        rare.by_tag.map(|turn| {
            let resting = turn.start & RESTING;
            Turn { start: (turn.start - resting).saturating_sub(by) | resting, ..turn }
        });
        let mut child = rare.first_child;
        while child != NO_CLASS {
            let (node, rare) = (&mut self.nodes[child as usize], &mut self.rare[child as usize]);
            for start in rare.idle_start.iter_mut().chain([&mut node.start]) {
                start.tag = start.tag.saturating_sub(by);
            }
            child = rare.next;
        }
    }

    /// A debt is charged to the ceilings above a class at once, and delays nothing else in the tree.
    pub(crate) fn charge_ceilings(&mut self, leaf: ClassId, tokens: u64, now: u64) {
        let mut id = leaf;
        while id != ROOT {
            if let Some(ceiling) = &mut self.rare_mut(id).ceiling {
                ceiling.mint(now);
                ceiling.take_debt(tokens);
            }
            id = self.parent(id);
        }
    }

    /// Tokens of a grant made in a class come back: raises the ceilings above it, and lets the classes go that these held
    /// back and hold back no more.
    pub(crate) fn refund_ceilings(&mut self, leaf: ClassId, tokens: u64, now: u64) {
        let (mut id, mut lowest) = (leaf, ROOT);
        while id != ROOT {
            if let Some(ceiling) = &mut self.rare_mut(id).ceiling {
                ceiling.mint(now);
                ceiling.refund(tokens);
                lowest = if lowest == ROOT { id } else { lowest };
            }
            id = self.parent(id);
        }
        self.refresh(lowest, now);
    }
}
