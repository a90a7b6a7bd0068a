//! The classes of one limiter: the scheduler, and beside each class its queue, its name and its children.
//!
//! A class that has children also has a leaf of its own among them, for the claims made in the class itself. The
//! waiters of the limiter itself (the root class) are in the limiter's own queue, which also counts those of all
//! classes.

use super::name::{ClassName, KeyName};
use super::offer::{ClassId, ROOT};
use super::retained::Retained;
use super::{Pick, Scheduler};
use crate::core::class_stats::ClassStats;
use crate::core::queue::Queue;
use crate::core::state::SharePlan;
use crate::core::supply::Supply;
use crate::core::wakes::Peer;
use crate::name::Name;
use crate::sync::{AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Weak};

/// The deepest class: the limiter's own classes have depth 1.
pub(crate) const MAX_DEPTH: usize = 16;

/// What a caller may know of its class without the lock. Written under the lock.
#[derive(Debug, Default)]
pub struct ClassFlags(AtomicU64);

impl ClassFlags {
    const CEILING: u64 = 1;
    const REMOVED: u64 = 2;

    /// Whether claims of the class may be granted without the lock: no ceiling is above them.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        // A claim that is granted without the lock reads this again afterwards, and `published` with Acquire between
        // the two. So either it took tokens published before the flags were written, or it sees the new flags.
        self.0.load(Ordering::Relaxed) == 0
    }

    fn set(&self, bits: u64) {
        if self.0.load(Ordering::Relaxed) != bits {
            self.0.store(bits, Ordering::Relaxed);
        }
    }
}

/// A class, or the leaf for the claims made in a class with children.
///
/// The order, fixed by `repr(C)`, puts what each wait reads and writes first, as in the tree's nodes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ClassEntry {
    /// The waiters of the class. Empty in the root's entry.
    pub(crate) queue: Queue,
    /// The leaf of the tree for the claims made in this class: the class itself, or a child.
    pub(crate) leaf: ClassId,
    /// The class of the claims that wait in this leaf.
    pub(crate) owner: ClassId,
    /// Tokens of the installments that the class was served, and the part of them that was served by the floor.
    pub(crate) served: u64,
    pub(crate) by_floor: u64,
    pub(crate) max_waiting: usize,
    pub(super) name: ClassName,
    pub(crate) is_removed: bool,
    /// Keys of keyed limiters have classes in this one.
    pub(crate) has_keys: bool,
    /// The class of a key: it is among the `indebted`.
    is_indebted: bool,
    /// The class of a key: how many links to the parent use it.
    users: u32,
    /// The number of the joint claim of the class that had its turn and is not granted yet.
    pub(crate) reserved: Option<u64>,

    flags: Arc<ClassFlags>,
    /// The classes in this one by name. A class that was removed is not among them.
    children: BTreeMap<ClassName, ClassId>,
    /// What classes that were dropped still owe, by name.
    retained: BTreeMap<ClassName, Retained>,
    /// The last of them that was looked at, in the order of their names, to find those that are worth nothing any more.
    swept: Option<ClassName>,
    /// The path of a class that has, or had, a ceiling.
    ceiling_name: Name,
    /// As configured. The tree has the weight that is applied.
    pub(crate) weight: u64,
    /// For how long claims have waited in the class so far, in nanoseconds, until the last of them left; and since when claims
    /// wait now, if they do.
    pub(crate) waited: u64,
    pub(crate) waits_since: u64,
}

impl ClassEntry {
    fn new(id: ClassId, name: ClassName) -> Self {
        Self {
            queue: Queue::new(),
            leaf: id,
            owner: id,
            name,
            flags: Arc::default(),
            children: BTreeMap::new(),
            retained: BTreeMap::new(),
            swept: None,
            is_removed: false,
            reserved: None,
            has_keys: false,
            users: 0,
            is_indebted: false,
            ceiling_name: Name::NONE,
            weight: 1,
            waited: 0,
            waits_since: 0,
            max_waiting: usize::MAX,
            served: 0,
            by_floor: 0,
        }
    }

    fn count(&mut self, pick: Pick) {
        self.served = self.served.saturating_add(pick.tokens);
        if pick.by_floor {
            self.by_floor = self.by_floor.saturating_add(pick.tokens);
        }
    }
}

fn unnamed() -> ClassName {
    ClassName::Text("".into())
}

/// A parent ticket has left its class, most often granted. Until the child says which of its claims is next, the class
/// counts as backlogged, and nothing else is picked: otherwise no key would ever be served twice in a row, whatever its
/// weight is.
#[derive(Debug)]
pub(crate) struct AwaitedChild {
    pub(crate) child: Weak<dyn Peer>,
    pub(crate) class: ClassId,
    /// The debt noted behind the ticket.
    pub(crate) skip: u64,
}

#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) scheduler: Scheduler,
    entries: Vec<ClassEntry>,
    /// The sum of the costs of the claims that wait in classes other than the root.
    pub(crate) waiting: u64,
    /// Classes without handles that still owed a debt when it was looked for last.
    indebted: VecDeque<ClassId>,
    /// Removed classes with waiters that are not turned away yet.
    pub(crate) closing: Vec<ClassId>,
    /// Joint claims that had their turn in a class that was removed since, and are not turned away yet.
    pub(crate) closing_parts: Vec<u64>,
    /// The limiter was closed, and the queues of the classes before this one are empty.
    pub(crate) closed_before: ClassId,
    /// The instant of the next step, as of when the limiter was last served.
    pub(crate) due: u64,
    pub(crate) awaited: Option<AwaitedChild>,
    pub(crate) stats: ClassStats,
}

impl Classes {
    pub(crate) fn new(supply: &Supply) -> Self {
        let entries = vec![ClassEntry::new(ROOT, unnamed())];
        Self {
            scheduler: Scheduler::new(supply),
            entries,
            waiting: 0,
            indebted: VecDeque::new(),
            closing: Vec::new(),
            closing_parts: Vec::new(),
            closed_before: 0,
            due: u64::MAX,
            awaited: None,
            stats: ClassStats::default(),
        }
    }

    pub(crate) fn entry(&self, id: ClassId) -> &ClassEntry {
        &self.entries[id as usize]
    }

    pub(crate) fn entry_mut(&mut self, id: ClassId) -> &mut ClassEntry {
        &mut self.entries[id as usize]
    }

    pub(crate) fn len(&self) -> ClassId {
        self.entries.len() as ClassId
    }

    /// The class of the claims that wait in `leaf`.
    pub(crate) fn owner(&self, leaf: ClassId) -> ClassId {
        self.entry(leaf).owner
    }

    /// Counts an installment that a class was served.
    #[inline]
    pub(crate) fn count_served(&mut self, class: ClassId, pick: Pick, now: u64) {
        self.entry_mut(class).count(pick);
        self.stats.count_served(self.counted(class), pick.tokens, now);
    }

    /// Counts the wait of a claim that was granted in a class, in nanoseconds. Of the claims of a key, that of the front one since
    /// its key was ready.
    #[inline]
    pub(crate) fn count_wait(&mut self, class: ClassId, nanos: u64) {
        self.stats.count_wait(self.counted(class), nanos);
    }

    /// What `class` is served counts in the statistics of this class: keys have none of their own.
    fn counted(&self, class: ClassId) -> ClassId {
        if self.entry(class).name.is_key() { self.scheduler.tree.parent(class) } else { class }
    }

    /// The largest claim of a class that its ceilings can let pass at once.
    pub(crate) fn most_at_once(&self, class: ClassId) -> u64 {
        self.scheduler.tree.most(self.entry(class).leaf)
    }

    pub(crate) fn has_child(&self, parent: ClassId, name: &ClassName) -> bool {
        self.entry(parent).children.contains_key(name)
    }

    /// Adds a class of a name that is free. The pick is made anew.
    pub(crate) fn add(
        &mut self,
        parent: ClassId,
        name: ClassName,
        weight: u64,
        now: u64,
    ) -> (ClassId, Arc<ClassFlags>) {
        self.scheduler.tree.unpick();
        let id = self.insert(parent, name, weight, now);
        (id, Arc::clone(&self.entry(id).flags))
    }

    /// The class of a key in `group`, for one more user of it: an existing one, or a new one.
    pub(crate) fn join_key(&mut self, group: ClassId, key: KeyName, weight: u64, now: u64) -> ClassId {
        let name = ClassName::Key(key);
        let id = match self.entry(group).children.get(&name) {
            Some(id) => *id,
            None => {
                let id = self.insert(group, name, weight, now);
                self.scheduler.tree.mark_as_key(id);
                id
            }
        };
        if self.scheduler.tree.weight(id) != weight {
            self.scheduler.tree.set_weight(id, weight, now);
        }
        self.entry_mut(id).users += 1;
        id
    }

    /// A user of the class of a key is gone, and has no claim there. The last one ends the class.
    pub(crate) fn leave_key(&mut self, id: ClassId, now: u64) {
        self.entry_mut(id).users -= 1;
        self.free_key(id, now);
    }

    /// Ends the class of a key, unless it is used. While it owes a debt it keeps its name: with a class for each debt, a
    /// key would have the share of all of them together.
    fn free_key(&mut self, id: ClassId, now: u64) {
        let is_idle = self.scheduler.is_idle(id);
        let entry = self.entry_mut(id);
        if entry.users > 0 || entry.is_indebted {
            return;
        }
        if is_idle {
            self.free(id, now);
        } else {
            entry.is_indebted = true;
            self.indebted.push_back(id);
        }
    }

    /// Adds a class of a name that is free.
    fn insert(&mut self, parent: ClassId, name: ClassName, weight: u64, now: u64) -> ClassId {
        self.free_indebted(now);
        let (id, own) = self.scheduler.add(parent, weight, now);
        for id in self.len()..self.scheduler.tree.len() as ClassId {
            self.entries.push(ClassEntry::new(id, unnamed()));
        }
        if let Some(own) = own {
            *self.entry_mut(own) = ClassEntry { owner: parent, ..ClassEntry::new(own, unnamed()) };
            self.entry_mut(parent).leaf = own;
        }
        let mut entry = ClassEntry { weight, ..ClassEntry::new(id, name.clone()) };
        if let Some(mut retained) = self.entry_mut(parent).retained.remove(&name) {
            entry.retained = std::mem::take(&mut retained.children);
            self.scheduler.tree.restore(id, retained);
        }
        *self.entry_mut(id) = entry;
        self.entry_mut(parent).children.insert(name, id);
        self.update_flags(id);
        id
    }

    /// Whether a class has no classes in it that have a name, and is the parent of no keys.
    pub(crate) fn has_no_classes(&self, id: ClassId) -> bool {
        self.entry(id).children.is_empty() && !self.entry(id).has_keys
    }

    #[cfg(all(test, not(tollgate_loom)))]
    pub(super) fn retained(&self, parent: ClassId) -> usize {
        self.entry(parent).retained.len()
    }

    pub(crate) fn name(&self, id: ClassId) -> String {
        self.entry(id).name.to_string()
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
        self.entry(id).ceiling_name
    }

    /// Applies a share that was checked.
    pub(crate) fn set_share(&mut self, id: ClassId, share: &SharePlan, now: u64) {
        let tree = &mut self.scheduler.tree;
        if self.entries[id as usize].weight != share.weight {
            self.entries[id as usize].weight = share.weight;
            tree.set_weight(id, share.weight, now);
        }
        tree.set_floor(self.entries[id as usize].leaf, share.floor, now);
        let had_ceiling = tree.ceiling(id);
        if had_ceiling != share.ceiling {
            tree.set_ceiling(id, share.ceiling, now);
            self.entry_mut(id).ceiling_name = Name::of_path(&self.path(id));
        }
        self.entry_mut(id).max_waiting = share.max_waiting;
        if had_ceiling.is_some() != share.ceiling.is_some() {
            self.update_flags(id);
        }
        if share.is_key {
            self.scheduler.tree.mark_as_key(id);
        }
    }

    /// The class and all classes in it, the innermost first; without the classes of keys.
    pub(crate) fn subtree(&self, id: ClassId) -> Vec<ClassId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(id) = found.get(next) {
            let children = self.entry(*id).children.iter().filter(|(name, _)| !name.is_key());
            found.extend(children.map(|(_, id)| *id));
            next += 1;
        }
        found.reverse();
        found
    }

    /// Takes the name of a class away: it is removed, and another class may have the name. The classes in it have been
    /// removed.
    pub(crate) fn unlist(&mut self, id: ClassId, now: u64) {
        let parent = self.scheduler.tree.parent(id);
        let name = self.entry(id).name.clone();
        let siblings = &mut self.entry_mut(parent).children;
        if siblings.get(&name) == Some(&id) {
            siblings.remove(&name);
        }
        self.retain((parent, id), name, now);
        let entry = self.entry_mut(id);
        entry.is_removed = true;
        entry.flags.set(ClassFlags::REMOVED);
        let leaf = entry.leaf;
        self.scheduler.tree.set_floor(leaf, None, now);
    }

    /// Keeps what a removed class still owes, for a class of the same name.
    fn retain(&mut self, (parent, id): (ClassId, ClassId), name: ClassName, now: u64) {
        let entry = self.entry_mut(id);
        let (leaf, children) = (entry.leaf, std::mem::take(&mut entry.retained));
        let children = children.into_iter().map(|(name, retained)| (name, retained.without_tag())).collect();
        let Some(retained) = self.scheduler.tree.retained((id, leaf), children, now) else { return };
        let tree = &self.scheduler.tree;
        let entry = &mut self.entries[parent as usize];
        entry.retained.insert(name, retained);
        // Two for each that is added, so that they cannot pile up.
        for _ in 0..2 {
            let after = entry.swept.take().map_or(Unbounded, Excluded);
            let Some((name, retained)) = entry.retained.range((after, Unbounded)).next() else { continue };
            let (name, is_over) = (name.clone(), tree.is_forgettable(parent, retained, now));
            if is_over {
                entry.retained.remove(&name);
            }
            entry.swept = Some(name);
        }
    }

    /// The last handle of a class was dropped: no claim waits in it, and no class in it has a handle.
    pub(crate) fn free(&mut self, id: ClassId, now: u64) {
        if !self.entry(id).is_removed {
            self.unlist(id, now);
        }
        let leaf = self.entry(id).leaf;
        // A class in it may still owe a debt, as this one itself.
        let is_bare = self.scheduler.tree.children(id) == u32::from(leaf != id);
        // Its queue is empty, unless a joint claim was forgotten: then the claims in it may still have their turns.
        let is_empty = self.entry(id).queue.is_empty() && self.entry(id).reserved.is_none();
        if is_bare && is_empty && self.scheduler.is_idle(leaf) {
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
            let entry = self.entry_mut(id);
            entry.is_indebted = false;
            if entry.name.is_key() { self.free_key(id, now) } else { self.free(id, now) }
        }
    }

    /// Tells the callers in a class, and in the classes in it, whether a ceiling is above their claims.
    fn update_flags(&self, id: ClassId) {
        let tree = &self.scheduler.tree;
        for id in tree.subtree(id) {
            let entry = self.entry(id);
            if !entry.is_removed {
                entry.flags.set(if tree.is_under_ceiling(id) { ClassFlags::CEILING } else { 0 });
            }
        }
    }
}
