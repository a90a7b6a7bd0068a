//! The classes of one limiter: the scheduler, and beside each class its queue, its name and its children.
//!
//! A class that has children also has a leaf of its own among them, for the claims made in the class itself. The
//! waiters of the limiter itself (the root class) are in the limiter's own queue, which also counts those of all
//! classes.

use super::Scheduler;
use super::tree::{ClassId, Memory, ROOT};
use crate::core::queue::Queue;
use crate::core::state::SharePlan;
use crate::core::supply::Supply;
use crate::sync::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The deepest class: the limiter's own classes have depth 1.
pub(crate) const MAX_DEPTH: usize = 16;

/// What a caller may know of its class without the lock. Written under the lock.
#[derive(Debug, Default)]
pub(crate) struct ClassWord(AtomicU64);

impl ClassWord {
    const CEILING: u64 = 1;
    const REMOVED: u64 = 2;

    /// Whether claims of the class may be granted without the lock: no ceiling is above them.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        // A claim that is granted without the lock reads this again afterwards, and `published` with Acquire between
        // the two. So either it took tokens published before the word was written, or it sees the new word.
        self.0.load(Ordering::Relaxed) == 0
    }

    fn set(&self, bits: u64) {
        self.0.store(bits, Ordering::Relaxed);
    }
}

/// A class, or the leaf for the claims made in a class with children.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The waiters of the class. Empty in the root's slot.
    pub(crate) queue: Queue,
    /// The leaf of the tree for the claims made in this class: the class itself, or a child.
    pub(crate) leaf: ClassId,
    /// The class whose claims wait in this leaf.
    pub(crate) owner: ClassId,
    name: Arc<str>,
    word: Arc<ClassWord>,
    /// The classes in this one by name. A class that was removed is not among them.
    children: BTreeMap<Arc<str>, ClassId>,
    /// What classes that were dropped still owe, by name.
    memories: BTreeMap<Arc<str>, Memory>,
    /// How many memories were left when they were last looked through.
    kept: usize,
    pub(crate) is_removed: bool,
    pub(crate) max_waiting: usize,
    /// Tokens granted under the lock, and the part of them that was served by the floor.
    pub(crate) served: u64,
    pub(crate) by_floor: u64,
}

impl Slot {
    fn new(id: ClassId, name: Arc<str>) -> Self {
        Self {
            queue: Queue::new(),
            leaf: id,
            owner: id,
            name,
            word: Arc::default(),
            children: BTreeMap::new(),
            memories: BTreeMap::new(),
            kept: 0,
            is_removed: false,
            max_waiting: usize::MAX,
            served: 0,
            by_floor: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) scheduler: Scheduler,
    slots: Vec<Slot>,
    /// Classes without handles that still owe a debt.
    indebted: Vec<ClassId>,
    /// The instant of the next step, as of when the limiter was last served.
    pub(crate) due: u64,
}

impl Classes {
    pub(crate) fn new(supply: &Supply) -> Self {
        let slots = vec![Slot::new(ROOT, "".into())];
        Self { scheduler: Scheduler::new(supply), slots, indebted: Vec::new(), due: u64::MAX }
    }

    pub(crate) fn slot(&self, id: ClassId) -> &Slot {
        &self.slots[id as usize]
    }

    pub(crate) fn slot_mut(&mut self, id: ClassId) -> &mut Slot {
        &mut self.slots[id as usize]
    }

    pub(crate) fn len(&self) -> ClassId {
        self.slots.len() as ClassId
    }

    /// The class whose claims wait in `leaf`.
    pub(crate) fn owner(&self, leaf: ClassId) -> ClassId {
        self.slot(leaf).owner
    }

    /// The largest claim of a class that its ceilings can let pass at once.
    pub(crate) fn most_at_once(&self, class: ClassId) -> u64 {
        self.scheduler.tree.most(self.slot(class).leaf)
    }

    pub(crate) fn has_child(&self, parent: ClassId, name: &str) -> bool {
        self.slot(parent).children.contains_key(name)
    }

    /// Adds a class of a name that is free. The pick is made anew.
    pub(crate) fn add(&mut self, parent: ClassId, name: Arc<str>, weight: u64, now: u64) -> (ClassId, Arc<ClassWord>) {
        self.free_indebted(now);
        let (id, own) = self.scheduler.add(parent, weight, now);
        for id in self.len()..self.scheduler.tree.len() as ClassId {
            self.slots.push(Slot::new(id, "".into()));
        }
        if let Some(own) = own {
            *self.slot_mut(own) = Slot { owner: parent, ..Slot::new(own, "".into()) };
            self.slot_mut(parent).leaf = own;
        }
        if let Some(memory) = self.slot_mut(parent).memories.remove(&name) {
            self.scheduler.tree.recall(id, memory);
        }
        *self.slot_mut(id) = Slot::new(id, Arc::clone(&name));
        self.slot_mut(parent).children.insert(name, id);
        self.mark();
        (id, Arc::clone(&self.slot(id).word))
    }

    pub(crate) fn name(&self, id: ClassId) -> String {
        self.slot(id).name.to_string()
    }

    /// Applies a share that was checked.
    pub(crate) fn set_share(&mut self, id: ClassId, share: &SharePlan, now: u64) {
        let tree = &mut self.scheduler.tree;
        if tree.weight(id) != share.weight {
            tree.set_weight(id, share.weight, now);
        }
        tree.set_floor(id, share.floor, now);
        if tree.ceiling(id) != share.ceiling {
            tree.set_ceiling(id, share.ceiling, now);
        }
        self.slot_mut(id).max_waiting = share.max_waiting;
        self.mark();
    }

    /// The class and all classes in it.
    pub(crate) fn subtree(&self, id: ClassId) -> Vec<ClassId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(id) = found.get(next) {
            found.extend(self.slot(*id).children.values());
            next += 1;
        }
        found
    }

    /// Takes the name of a class away: it is removed, and another class may have the name.
    pub(crate) fn unlist(&mut self, id: ClassId, now: u64) {
        let parent = self.scheduler.tree.parent(id);
        let name = Arc::clone(&self.slot(id).name);
        let slot = self.slot_mut(parent);
        if slot.children.get(&name) == Some(&id) {
            slot.children.remove(&name);
        }
        self.remember(id, now);
        self.scheduler.tree.set_floor(id, None, now);
        self.slot_mut(id).is_removed = true;
        self.slot(id).word.set(ClassWord::REMOVED);
    }

    /// Keeps what a removed class still owes, for a class of the same name.
    fn remember(&mut self, id: ClassId, now: u64) {
        let parent = self.scheduler.tree.parent(id);
        let name = Arc::clone(&self.slot(id).name);
        let Some(memory) = self.scheduler.tree.memory(id, now) else { return };
        let tree = &mut self.scheduler.tree;
        let slot = &mut self.slots[parent as usize];
        slot.memories.insert(name, memory);
        if slot.memories.len() > 2 * slot.kept + 16 {
            slot.memories.retain(|_, memory| !tree.is_forgettable(parent, memory, now));
            slot.kept = slot.memories.len();
        }
    }

    /// The last handle of a class was dropped: no claim waits in it, and no class in it has a handle.
    pub(crate) fn free(&mut self, id: ClassId, now: u64) {
        if !self.slot(id).is_removed {
            self.unlist(id, now);
        }
        let leaf = self.slot(id).leaf;
        // A class in it may still owe a debt, as this one itself.
        let is_bare = self.scheduler.tree.children(id) == u32::from(leaf != id);
        if is_bare && self.scheduler.is_idle(leaf) {
            if leaf != id {
                self.scheduler.tree.remove(leaf);
            }
            self.scheduler.tree.remove(id);
        } else {
            self.indebted.push(id);
        }
    }

    /// Frees classes without handles that have paid their debts.
    fn free_indebted(&mut self, now: u64) {
        for id in std::mem::take(&mut self.indebted) {
            self.free(id, now);
        }
    }

    /// Tells the callers in each class whether a ceiling is above their claims.
    pub(crate) fn mark(&mut self) {
        for (id, slot) in self.slots.iter().enumerate() {
            if !slot.is_removed {
                let under = self.scheduler.tree.is_under_ceiling(id as ClassId);
                slot.word.set(if under { ClassWord::CEILING } else { 0 });
            }
        }
    }
}
