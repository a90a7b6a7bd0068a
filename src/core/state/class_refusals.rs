//! Refusals of claims of classes: which bound holds a claim back, its name, and when to come back.

use super::{Role, State};
use crate::core::classes::ClassId;
use crate::core::queue::Place;
use crate::core::rovers::{Rovers, ahead};
use crate::error::{Bound, Denied, TryAcquireError};
use crate::name::Name;
use std::pin::Pin;

impl State {
    /// The error of a claim whose `cost` a class, or a limiter without classes, can never have at once.
    pub(super) fn too_large_at_once(&self, class: ClassId, cost: u64) -> Option<TryAcquireError> {
        let below_ceilings = self.classes().map_or(u64::MAX, |classes| classes.most_at_once(class));
        let most = self.most_at_once();
        if cost > below_ceilings && below_ceilings < most {
            let (by, quota_name) = (Bound::Ceiling, self.smallest_ceiling(class).text());
            return Some(TryAcquireError::TooLarge { cost, most: below_ceilings, by, quota_name });
        }
        (cost > most).then(|| {
            let by = self.setting_of(most).unwrap_or_else(|| Bound::Quota(self.supply.smallest()));
            TryAcquireError::TooLarge { cost, most, by, quota_name: self.quota_name(by).text() }
        })
    }

    /// The [denial](Self::deny) of a claim of a class. While claims wait that no ceiling holds
    /// back, the time to come back is when all that waits now could have been served. It is not kept to be repeated: whether
    /// a class is granted tokens that are there depends on its turn.
    pub(super) fn deny_class(&mut self, rovers: &Rovers, class: ClassId, cost: u64, now: u64) -> Denied {
        let Some(classes) = self.classes() else { unreachable!("only called with classes") };
        let (leaf, base) = (classes.entry(class).leaf, self.base(rovers));
        let is_busy = classes.scheduler.tree.pick().is_some() || self.held().is_some();
        let end = if is_busy { rovers.tail() } else { base }.wrapping_add(cost);
        let below_ceilings = classes.scheduler.tree.ceilings_have(leaf, cost);
        let is_known = !self.queue.has_joint() && self.fits_in_flight(rovers, cost);
        let at = self.supply.scheduled(end).filter(|_| is_known).map(|at| at.max(below_ceilings));
        let retry_after = at.filter(|at| *at < u64::MAX).map(|at| self.wait(at, now));
        let by = self.obstacle_of_class(class, cost, end);
        let (remaining, name) = (self.available_in(rovers, class), self.name_in_class(by, class, cost));
        Denied { retry_after, remaining, by, name }
    }

    /// What keeps a class from `cost` tokens that end at `end`.
    fn obstacle_of_class(&mut self, class: ClassId, cost: u64, end: u64) -> Bound {
        let now = self.supply.synced();
        let Some(classes) = self.classes_mut() else { return Bound::Queue };
        let leaf = classes.entry(class).leaf;
        let is_busy = classes.scheduler.tree.pick().is_some() || !classes.scheduler.is_idle(leaf);
        if is_busy || self.held().is_some() || !self.is_class_empty(class) {
            return Bound::Queue;
        }
        let Some(classes) = self.classes_mut() else { return Bound::Queue };
        let below_ceilings = classes.scheduler.tree.space_below_ceilings(leaf, now);
        let is_held = below_ceilings < cost && !self.supply.is_paused() && ahead(self.supply.limit(), end) >= 0;
        if is_held { Bound::Ceiling } else { self.supply.obstacle(end) }
    }

    /// Whether a claim in a class is granted at `at` because of a ceiling: all quotas have the tokens up to `end` before.
    pub(super) fn is_delayed_by_ceiling(&self, class: ClassId, end: u64, at: u64) -> bool {
        let Some(classes) = self.classes() else { return false };
        let is_under_ceiling = classes.scheduler.tree.is_under_ceiling(classes.entry(class).leaf);
        is_under_ceiling && self.supply.scheduled(end).is_some_and(|all| all < at)
    }

    /// The bound that would hold back a claim of `cost` made now in a class, or in a limiter without classes, and the
    /// name of that bound.
    pub(crate) fn holder_of_new(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> (Bound, Name) {
        let end = if self.role.has(Role::CLASSES) { self.base(rovers) } else { rovers.tail() }.wrapping_add(cost);
        let by = match self.supply.holder(end) {
            Some(by) if !self.role.has(Role::CLASSES) || matches!(by, Bound::Pause | Bound::InFlight) => by,
            _ => self.obstacle_of_class(class, cost, end),
        };
        (by, self.name_in_class(by, class, cost))
    }

    /// The bound that holds back the claim in `place`, in a limiter without classes: of a claim that is not the front one,
    /// the bound that holds back the last claim.
    pub(crate) fn holder_of_waiting(&mut self, rovers: &Rovers, place: Pin<&mut Place>) -> Option<Bound> {
        if self.role.has(Role::CLASSES) {
            return None;
        }
        let number = self.queue.number(place)?;
        let is_front = self.queue.front().is_some_and(|front| front.number == number);
        let end = self.front_ticket(rovers).filter(|_| is_front).unwrap_or_else(|| rovers.tail());
        self.supply.holder(end)
    }

    /// The name of a bound of claims of `cost` in a class.
    pub(super) fn name_in_class(&self, by: Bound, class: ClassId, cost: u64) -> Name {
        let Some(classes) = self.classes().filter(|_| by == Bound::Ceiling) else { return self.quota_name(by) };
        let slowest = classes.scheduler.tree.slowest_ceiling(classes.entry(class).leaf, cost);
        slowest.map_or(Name::NONE, |class| classes.ceiling_name(class))
    }

    /// The name of the ceiling above a class that lets the fewest tokens pass at once.
    fn smallest_ceiling(&self, class: ClassId) -> Name {
        let Some(classes) = self.classes() else { return Name::NONE };
        let smallest = classes.scheduler.tree.smallest_ceiling(classes.entry(class).leaf);
        smallest.map_or(Name::NONE, |class| classes.ceiling_name(class))
    }
}
