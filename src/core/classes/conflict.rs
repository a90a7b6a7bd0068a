//! Whether all floors of a tree can be kept below the quotas and below the ceilings.

use super::floor::{Rate, RateSum};
use super::limits::Limits;
use super::offer::{ClassId, NO_CLASS, ROOT};
use super::tree::Tree;
use crate::Quota;
use crate::error::ConfigError;

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
        name: &str,
    ) -> Result<(), ConfigError> {
        let new = floor.and_then(Rate::of).map_or(0, Rate::fixed);
        let (old, below) = match id {
            NO_CLASS => (0, 0),
            _ => (self.rare(leaf).floor.as_ref().map_or(0, |floor| floor.rate.fixed()), self.rare(id).floors),
        };
        let sum = |floors: RateSum| (floors - old).saturating_add(new);
        if let Some(quota) = ceiling {
            self.check_ceiling(quota, sum(below), name)?;
        }
        let Some(floor) = floor.filter(|_| new > old) else { return Ok(()) };
        for (above, ceiling) in self.ceilings(parent) {
            self.check_ceiling(ceiling.quota(), sum(self.rare(above).floors), name)?;
        }
        let sum = sum(self.rare(ROOT).floors);
        // A sum that has overflowed is above any rate.
        let is_above = self.limits.rate.map_or(sum == RateSum::MAX, |rate| rate.fixed_up() < sum);
        if is_above { Err(ConfigError::FloorsAboveRate { class: name.to_string(), floor }) } else { Ok(()) }
    }

    /// Checks that floors of this sum can be kept below a ceiling.
    fn check_ceiling(&self, ceiling: Quota, floors: RateSum, name: &str) -> Result<(), ConfigError> {
        if floors == 0 {
            return Ok(());
        }
        let class = || name.to_string();
        // Where no time refills the quotas, an installment of another class takes no time from this ceiling.
        let (burst, least) = (ceiling.capacity(), self.limits.burst);
        if self.limits.rate.is_some() && burst < least {
            return Err(ConfigError::CeilingBelowBurst { class: class(), burst, least });
        }
        if Rate::of(ceiling).is_some_and(|rate| rate.fixed_up() < floors) {
            return Err(ConfigError::FloorsAboveCeiling { class: class(), ceiling });
        }
        Ok(())
    }

    /// A class with a ceiling below which floors could not be kept if these were the limits of the quotas: the burst of the
    /// ceiling, and the class.
    pub(crate) fn conflict_with(&self, limits: &Limits) -> Option<(u64, ClassId)> {
        self.ceilings.first().copied().filter(|(burst, _)| limits.rate.is_some() && *burst < limits.burst)
    }
}
