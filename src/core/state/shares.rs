//! Adds and removes the classes of a limiter, and changes their shares.

use super::{State, classes_in};
use crate::Quota;
use crate::core::classes::{ClassId, ClassName, MAX_DEPTH, MAX_WEIGHT, NO_CLASS};
use crate::core::steps;
use crate::error::ConfigError;
use std::sync::Arc;

/// The most classes of a limiter with a source of tokens: each request tells the source which classes need some.
const MOST_SHARED: usize = 64;

/// How many classes are removed while the lock is held: under loom one, so that models see what happens in between.
const REMOVED_AT_ONCE: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// The share of a class as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharePlan {
    pub(crate) weight: u64,
    pub(crate) floor: Option<Quota>,
    pub(crate) ceiling: Option<Quota>,
    pub(crate) max_waiting: u64,
    /// Whether the class is scheduled as that of a key. For tests.
    pub(crate) is_key: bool,
}

impl SharePlan {
    fn check(&self, name: &str) -> Result<(), ConfigError> {
        let class = || name.to_string();
        if self.weight == 0 || self.weight > MAX_WEIGHT {
            return Err(ConfigError::BadWeight { class: class(), weight: self.weight, most: MAX_WEIGHT });
        }
        for (part, quota) in [("floor", self.floor), ("ceiling", self.ceiling)] {
            let Some(quota) = quota else { continue };
            if quota.is_manual() {
                return Err(ConfigError::ManualShare { class: class(), part });
            }
            let checked = quota.check().and_then(|()| quota.check_no_calendar("a share of a class"));
            let checked = checked.and_then(|()| quota.check_not_sliding(part));
            checked.map_err(|reason| ConfigError::BadShare { class: class(), part, reason })?;
        }
        Ok(())
    }

    /// Whether a limiter with a source of tokens, which it shares with other limiters, can have such a class.
    fn check_source(&self, name: &str, has_external: bool) -> Result<(), ConfigError> {
        let parts = [("floor", self.floor), ("ceiling", self.ceiling)];
        match parts.into_iter().find(|(_, quota)| has_external && quota.is_some()) {
            Some((part, _)) => Err(ConfigError::DistributedShare { class: name.to_string(), part }),
            None => Ok(()),
        }
    }
}

impl State {
    /// Adds a class in `parent`. The limiter has been served up to now.
    pub(crate) fn add_class(
        &mut self,
        parent: ClassId,
        name: Arc<str>,
        share: &SharePlan,
    ) -> Result<ClassId, ConfigError> {
        share.check(&name)?;
        let (now, has_external) = (self.supply.synced(), self.has_source());
        let Some(classes) = classes_in(&mut self.rare) else {
            return Err(ConfigError::NoClasses);
        };
        let class = || name.to_string();
        if classes.entry(parent).is_removed {
            return Err(ConfigError::ClassRemoved { class: class() });
        }
        let child = ClassName::Text(Arc::clone(&name));
        if classes.has_child(parent, &child) {
            return Err(ConfigError::DuplicateClass { class: class() });
        }
        if classes.scheduler.tree.depth(parent) >= MAX_DEPTH {
            return Err(ConfigError::ClassTooDeep { class: class(), most: MAX_DEPTH });
        }
        if classes.scheduler.tree.has_floor(classes.entry(parent).leaf) {
            return Err(ConfigError::FloorWithClasses { class: classes.name(parent) });
        }
        share.check_source(&name, has_external)?;
        if has_external && classes.count() == MOST_SHARED {
            return Err(ConfigError::TooManyClasses { class: class(), most: MOST_SHARED });
        }
        classes.scheduler.tree.check(parent, NO_CLASS, NO_CLASS, share.floor, share.ceiling, &name)?;
        let id = classes.insert(parent, child, share.weight, now);
        classes.set_share(id, share, now);
        Ok(id)
    }

    /// Changes the share of a class.
    pub(crate) fn set_share(&mut self, id: ClassId, share: &SharePlan) -> Result<(), ConfigError> {
        let (now, has_external) = (self.supply.synced(), self.has_source());
        let Some(classes) = classes_in(&mut self.rare) else {
            return Err(ConfigError::NoClasses);
        };
        let name = classes.name(id);
        share.check(&name)?;
        share.check_source(&name, has_external)?;
        if classes.entry(id).is_removed {
            return Err(ConfigError::ClassRemoved { class: name });
        }
        if share.floor.is_some() && !classes.has_no_classes(id) {
            return Err(ConfigError::FloorWithClasses { class: name });
        }
        let tree = &classes.scheduler.tree;
        tree.check(tree.parent(id), id, classes.entry(id).leaf, share.floor, share.ceiling, &name)?;
        classes.set_share(id, share, now);
        Ok(())
    }

    /// Removes classes in a class, the innermost first, and at last the class itself; a bounded number for one hold of the
    /// lock. Returns whether more are left. Their waiters are turned away when the limiter is served next.
    pub(crate) fn remove_class(&mut self, class: ClassId) -> bool {
        let now = self.supply.synced();
        for _ in 0..REMOVED_AT_ONCE {
            let classes = self.classes_mut().filter(|classes| !classes.entry(class).is_removed);
            let Some(classes) = classes else { return false };
            steps::count();
            let next = classes.innermost(class);
            classes.unlist(next, now);
            if classes.entry(next).queue.front().is_some() {
                classes.closing.push(next..next + 1);
            }
            if classes.entry(next).has_joint {
                self.review_all_fronts();
            }
            if next == class {
                return false;
            }
        }
        true
    }

    /// Keys of a keyed limiter will have classes in `group`.
    pub(crate) fn add_keys(&mut self, group: ClassId) -> Result<(), ConfigError> {
        let has_external = self.has_source();
        let Some(classes) = self.classes_mut() else { return Err(ConfigError::NoClasses) };
        if has_external {
            return Err(ConfigError::DistributedParent);
        }
        if classes.scheduler.tree.depth(group) >= MAX_DEPTH {
            return Err(ConfigError::ClassTooDeep { class: classes.name(group), most: MAX_DEPTH });
        }
        if classes.scheduler.tree.has_floor(classes.entry(group).leaf) {
            return Err(ConfigError::FloorWithClasses { class: classes.name(group) });
        }
        classes.entry_mut(group).has_keys = true;
        Ok(())
    }

    /// The last handle of a class was dropped.
    pub(crate) fn free_class(&mut self, class: ClassId) {
        let now = self.supply.synced();
        let Some(classes) = self.classes_mut() else { return };
        let has_joint = classes.entry(class).has_joint;
        classes.free(class, now);
        if has_joint {
            // Joint claims of the class that were forgotten end.
            self.review_all_fronts();
        }
    }
}
