//! The classes of one limiter: the scheduler, and beside each class its queue, its name and its children.
//!
//! A class that has children also has a leaf of its own among them, for the claims made in the class itself. The
//! limiter's own queue counts the waiters of all classes, and has none.

use super::entry::{ClassEntry, RareEntry};
use super::name::{ClassName, KeyName};
use super::offer::{ClassId, ROOT};
use super::parts::Parts;
use super::retained::AllRetained;
use super::{Pick, Scheduler, Waiting};
use crate::core::claim_scope::ClaimScope;
use crate::core::state::SharePlan;
use crate::core::supply::Supply;
use crate::name::Name;
use crate::observe::ClassLabel;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The deepest class: the limiter's own classes have depth 1.
pub(crate) const MAX_DEPTH: usize = 16;

#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) scheduler: Scheduler,
    entries: Parts<ClassEntry>,
    /// The rest of each entry.
    rare: Parts<RareEntry>,
    /// Classes without handles that still owed a debt when it was looked for last.
    indebted: VecDeque<ClassId>,
    /// How many classes were made.
    made: u64,
    pub(super) retained: AllRetained,
    /// Classes that were removed, or all classes of a limiter that was closed, in which claims may wait that are not turned
    /// away yet.
    pub(crate) closing: Vec<Range<ClassId>>,
    /// The instant of the next step, as of when the limiter was last served.
    pub(crate) due: u64,
}

impl Classes {
    pub(crate) fn new(supply: &Supply) -> Self {
        Self {
            scheduler: Scheduler::new(supply),
            entries: Parts::new(ClassEntry::new(ROOT)),
            rare: Parts::new(RareEntry::default()),
            indebted: VecDeque::new(),
            made: 0,
            retained: AllRetained::default(),
            closing: Vec::new(),
            due: u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn entry(&self, id: ClassId) -> &ClassEntry {
        &self.entries[id as usize]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, id: ClassId) -> &mut ClassEntry {
        &mut self.entries[id as usize]
    }

    pub(super) fn rare(&self, id: ClassId) -> &RareEntry {
        &self.rare[id as usize]
    }

    pub(super) fn rare_mut(&mut self, id: ClassId) -> &mut RareEntry {
        &mut self.rare[id as usize]
    }

    pub(crate) fn weight(&self, id: ClassId) -> u64 {
        self.scheduler.tree.weight(id)
    }

    /// Tokens of the installments that the floor of a class served.
    pub(crate) fn served_by_floor(&self, id: ClassId) -> u64 {
        self.rare(id).by_floor
    }

    /// The number and the cost of the first front of a joint set that waits in a class for its turn.
    pub(crate) fn first_joint(&self, id: ClassId) -> Option<(u64, u64)> {
        self.rare(id).joint.first_key_value().map(|(number, cost)| (*number, *cost))
    }

    /// Whether an older front than number `number` had its turn in a class and is not granted yet.
    pub(crate) fn is_turn_taken_before(&self, id: ClassId, number: u64) -> bool {
        self.rare(id).turned.first().is_some_and(|first| *first < number)
    }

    pub(crate) fn add_joint(&mut self, id: ClassId, number: u64, cost: u64) {
        self.rare_mut(id).joint.insert(number, cost);
    }

    /// Sets which front of a joint set is the front claim of a class that the scheduler knows.
    pub(crate) fn offer_joint(&mut self, id: ClassId, number: Option<u64>) {
        self.entry_mut(id).offers_joint = number.is_some();
        self.rare_mut(id).offered = number;
    }

    /// The front of a joint set that is the front claim of a class that the scheduler knows, and its cost.
    pub(crate) fn offered_joint(&self, id: ClassId) -> Option<(u64, u64)> {
        let (rare, number) = (self.rare(id), self.rare(id).offered?);
        Some((number, *rare.joint.get(&number)?))
    }

    pub(crate) fn take_joint_turn(&mut self, id: ClassId, number: u64) {
        let rare = self.rare_mut(id);
        rare.joint.remove(&number);
        rare.turned.insert(number);
    }

    pub(crate) fn remove_joint(&mut self, id: ClassId, number: u64) {
        let rare = self.rare_mut(id);
        rare.joint.remove(&number);
        rare.turned.remove(&number);
    }

    pub(crate) fn len(&self) -> ClassId {
        self.entries.len() as ClassId
    }

    /// The class of the claims that wait in `leaf`.
    pub(crate) fn owner(&self, leaf: ClassId) -> ClassId {
        self.entry(leaf).owner
    }

    /// The claims that wait in a leaf.
    pub(crate) fn waiting_in_leaf(&self, leaf: ClassId) -> impl Iterator<Item = Waiting> {
        let queue = &self.entry(self.owner(leaf)).queue;
        queue.iter().map(|waiter| (waiter.cost, waiter.debt_after))
    }

    /// The class has handles, which share `scope`.
    pub(crate) fn set_scope(&mut self, class: ClassId, scope: Weak<dyn ClaimScope + Send + Sync>) {
        self.entry_mut(class).scope = Some(scope);
    }

    /// Sets how observers name a class that a user made.
    pub(crate) fn set_label(&mut self, class: ClassId, label: Arc<ClassLabel>) {
        self.rare_mut(class).label = Some(label);
    }

    /// How observers name a class, if a user made it and it was not removed.
    pub(crate) fn label(&self, class: ClassId) -> Option<&Arc<ClassLabel>> {
        self.rare(class).label.as_ref()
    }

    /// Counts an installment that a class was served.
    #[inline]
    pub(crate) fn count_served(&mut self, class: ClassId, pick: Pick) {
        let entry = self.entry_mut(class);
        entry.served = entry.served.saturating_add(pick.tokens);
        if pick.by_floor {
            self.count_served_by_floor(class, pick.tokens);
        }
    }

    #[cold]
    fn count_served_by_floor(&mut self, class: ClassId, tokens: u64) {
        let by_floor = &mut self.rare_mut(class).by_floor;
        *by_floor = by_floor.saturating_add(tokens);
    }

    /// The largest claim of a class that its ceilings can let pass at once.
    pub(crate) fn most_at_once(&self, class: ClassId) -> u64 {
        self.scheduler.tree.most(self.entry(class).leaf)
    }

    pub(crate) fn has_child(&self, parent: ClassId, name: &ClassName) -> bool {
        self.rare(parent).children.contains_key(name)
    }

    /// The class of a key in `group`, for one more user of it: an existing one, or a new one.
    pub(crate) fn join_key(&mut self, group: ClassId, key: KeyName, weight: u64, now: u64) -> ClassId {
        let name = ClassName::Key(key);
        let id = match self.rare(group).children.get(&name) {
            Some(id) => *id,
            None => {
                let id = self.insert(group, name, weight, now);
                self.scheduler.tree.mark_as_key(id);
                id
            }
        };
        self.scheduler.tree.set_weight(id, weight, now);
        self.add_user(id);
        id
    }

    /// Counts one more user of a class: a joint claim, or a link of a key.
    pub(crate) fn add_user(&mut self, id: ClassId) {
        self.rare_mut(id).users += 1;
    }

    /// A user of a class is gone, and has no claim there. The last one ends the class of a key.
    pub(crate) fn remove_user(&mut self, id: ClassId, now: u64) {
        self.rare_mut(id).users -= 1;
        if self.is_of_key(id) {
            self.free_key(id, now);
        }
    }

    /// Whether this is the class of a key.
    pub(crate) fn is_of_key(&self, id: ClassId) -> bool {
        self.rare(id).name.is_key()
    }

    /// Ends the class of a key, unless it is used. While it owes a debt it keeps its name: with a class for each debt, a
    /// key would have the share of all of them together.
    fn free_key(&mut self, id: ClassId, now: u64) {
        let is_idle = self.scheduler.is_idle(id);
        if self.rare(id).users > 0 || self.entry(id).is_indebted {
            return;
        }
        if is_idle {
            self.free(id, now);
        } else {
            self.entry_mut(id).is_indebted = true;
            self.indebted.push_back(id);
        }
    }

    /// Adds a class of a name that is free.
    pub(crate) fn insert(&mut self, parent: ClassId, name: ClassName, weight: u64, now: u64) -> ClassId {
        self.free_indebted(now);
        let (id, own) = self.scheduler.add(parent, weight, now);
        for id in self.len()..self.scheduler.tree.len() as ClassId {
            self.entries.push(ClassEntry::new(id));
            self.rare.push(RareEntry::default());
        }
        if let Some(own) = own {
            *self.entry_mut(own) = ClassEntry { owner: parent, ..ClassEntry::new(own) };
            *self.rare_mut(own) = RareEntry::default();
            self.entry_mut(parent).leaf = own;
        }
        self.made += 1;
        *self.entry_mut(id) = ClassEntry::new(id);
        *self.rare_mut(id) = RareEntry { name: name.clone(), made: self.made, ..RareEntry::default() };
        self.rare_mut(parent).children.insert(name, id);
        self.restore(id);
        id
    }

    /// Whether a class has no classes in it that have a name, and is the parent of no keys.
    pub(crate) fn has_no_classes(&self, id: ClassId) -> bool {
        self.rare(id).children.is_empty() && !self.entry(id).has_keys
    }

    pub(crate) fn name(&self, id: ClassId) -> String {
        self.rare(id).name.to_string()
    }

    /// The names of the classes around a class and its own, with `/` between them.
    fn path(&self, id: ClassId) -> String {
        let mut path = self.name(id);
        let mut around = self.scheduler.tree.parent(id);
        while around != ROOT {
            path = format!("{}/{path}", self.name(around));
            around = self.scheduler.tree.parent(around);
        }
        path
    }

    /// The name of the ceiling of a class, which is the path of the class.
    pub(crate) fn ceiling_name(&self, id: ClassId) -> Name {
        self.rare(id).ceiling_name
    }

    /// Applies a share that was checked.
    pub(crate) fn set_share(&mut self, id: ClassId, share: &SharePlan, now: u64) {
        let tree = &mut self.scheduler.tree;
        tree.set_weight(id, share.weight, now);
        tree.set_floor(self.entries[id as usize].leaf, share.floor, now);
        let had_ceiling = tree.ceiling(id);
        if had_ceiling != share.ceiling {
            tree.set_ceiling(id, share.ceiling, now);
            self.rare_mut(id).ceiling_name = Name::of_path(&self.path(id));
        }
        self.entry_mut(id).max_waiting = share.max_waiting;
        if share.is_key {
            self.scheduler.tree.mark_as_key(id);
        }
    }

    /// The root and all classes in it, the innermost last; without the classes of keys.
    pub(crate) fn all(&self) -> Vec<ClassId> {
        let mut found = vec![ROOT];
        let mut next = 0;
        while let Some(id) = found.get(next) {
            let children = self.rare(*id).children.iter().filter(|(name, _)| !name.is_key());
            found.extend(children.map(|(_, id)| *id));
            next += 1;
        }
        found
    }

    /// A class in this one, or this one itself, in which there are no classes. Those of keys do not count.
    pub(crate) fn innermost(&self, id: ClassId) -> ClassId {
        let child = |id: &ClassId| {
            let (name, child) = self.rare(*id).children.first_key_value()?;
            // The names of users come before keys.
            (!name.is_key()).then_some(*child)
        };
        std::iter::successors(Some(id), child).last().unwrap_or(id)
    }

    /// Takes the name of a class away: it is removed, and another class may have the name. The classes in it have been
    /// removed.
    pub(crate) fn unlist(&mut self, id: ClassId, now: u64) {
        let parent = self.scheduler.tree.parent(id);
        let name = self.rare(id).name.clone();
        self.rare_mut(parent).children.remove(&name);
        self.retain(id, now);
        let rare = self.rare_mut(id);
        rare.label = None;
        let entry = self.entry_mut(id);
        (entry.is_removed, entry.scope) = (true, None);
        let leaf = entry.leaf;
        self.scheduler.tree.set_floor(leaf, None, now);
    }

    /// The last handle of a class was dropped: no claim waits in it, and no class in it has a handle.
    pub(crate) fn free(&mut self, id: ClassId, now: u64) {
        if !self.entry(id).is_removed {
            self.unlist(id, now);
        }
        let leaf = self.entry(id).leaf;
        // A class in it may still owe a debt, as this one itself.
        let is_bare = self.scheduler.tree.children(id) == u32::from(leaf != id);
        // If a joint claim was forgotten, that and the claims behind it may still have their turns.
        if is_bare && !self.entry(id).has_joint && self.scheduler.is_idle(leaf) {
            if leaf != id {
                self.scheduler.tree.remove(leaf);
            }
            self.scheduler.tree.remove(id);
        } else {
            self.indebted.push_back(id);
        }
    }

    /// Frees classes without handles that have paid their debts. Looks at two, so that they cannot pile up: one class is
    /// added meanwhile.
    fn free_indebted(&mut self, now: u64) {
        for _ in 0..2 {
            let Some(id) = self.indebted.pop_front() else { return };
            self.entry_mut(id).is_indebted = false;
            if self.is_of_key(id) { self.free_key(id, now) } else { self.free(id, now) }
        }
    }
}
