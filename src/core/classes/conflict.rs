//! Whether all floors of a tree can be kept below the quotas and below the ceilings.

use super::floor::{Rate, RateSum};
use super::limits::Limits;
use super::offer::{ClassId, NO_CLASS, ROOT};
use super::tree::Tree;
use crate::Quota;

/// Why the floors of a tree could not all be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloorConflict {
    /// Together they exceed the rate of the slowest quota.
    Rate { floor: Quota },
    /// Those below a ceiling exceed its rate.
    CeilingRate { ceiling: Quota },
    /// A ceiling above a floor has a smaller burst than the limiter.
    CeilingBurst { burst: u64, least: u64 },
}

impl Tree {
    /// Checks that the floors in which a class takes part can be kept if it has this floor and this ceiling.
    ///
    /// `id` is the class, and `leaf` the leaf for its own claims; both are [`NO_CLASS`] if it is about to be added in `parent`.
    /// A floor that does not rise is not checked: slower quotas may have made it impossible to keep.
    pub(crate) fn check(
        &self,
        parent: ClassId,
        id: ClassId,
        leaf: ClassId,
        floor: Option<Quota>,
        ceiling: Option<Quota>,
    ) -> Result<(), FloorConflict> {
        let new = floor.and_then(Rate::of).map_or(0, Rate::fixed);
        let (old, below) = match id {
            NO_CLASS => (0, 0),
            _ => (self.rare(leaf).floor.as_ref().map_or(0, |floor| floor.rate.fixed()), self.rare(id).floors),
        };
        let sum = |floors: RateSum| (floors - old).saturating_add(new);
        if let Some(quota) = ceiling {
            self.check_ceiling(quota, sum(below))?;
        }
        let Some(floor) = floor.filter(|_| new > old) else { return Ok(()) };
        for above in self.path(parent) {
            if let Some(ceiling) = &self.rare(above).ceiling {
                self.check_ceiling(ceiling.quota(), sum(self.rare(above).floors))?;
            }
        }
        let sum = sum(self.rare(ROOT).floors);
        // A sum that has overflowed is above any rate.
        let is_above = self.limits.rate.map_or(sum == RateSum::MAX, |rate| rate.fixed_up() < sum);
        if is_above { Err(FloorConflict::Rate { floor }) } else { Ok(()) }
    }

    /// Checks that floors of this sum can be kept below a ceiling.
    fn check_ceiling(&self, quota: Quota, floors: RateSum) -> Result<(), FloorConflict> {
        if floors == 0 {
            return Ok(());
        }
        // Where no time refills the quotas, an installment of another class takes no time from this ceiling.
        if self.limits.rate.is_some() && quota.capacity() < self.limits.burst {
            return Err(FloorConflict::CeilingBurst { burst: quota.capacity(), least: self.limits.burst });
        }
        if Rate::of(quota).is_some_and(|rate| rate.fixed_up() < floors) {
            return Err(FloorConflict::CeilingRate { ceiling: quota });
        }
        Ok(())
    }

    /// A class with a ceiling below which floors could not be kept if these were the limits of the quotas.
    pub(crate) fn conflict_with(&self, limits: &Limits) -> Option<(ClassId, FloorConflict)> {
        let is_known = limits.burst <= self.limits.burst && self.limits.rate.is_some();
        if is_known || limits.rate.is_none() || self.rare(ROOT).floors == 0 {
            return None;
        }
        let (burst, id) = *self.ceilings.first().filter(|(burst, _)| *burst < limits.burst)?;
        Some((id, FloorConflict::CeilingBurst { burst, least: limits.burst }))
    }
}
