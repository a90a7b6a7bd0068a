//! Shares: the settings of a class.

use crate::Quota;
use crate::core::state::SharePlan;

/// The share of a [`Class`](crate::Class): a weight, and optionally a floor and a ceiling. It is checked when a class is made with it
/// or changed to it.
///
/// | part | meaning |
/// |---|---|
/// | weight | Backlogged classes with the same parent receive tokens in proportion to their weights. |
/// | floor | The least rate of the class while claims wait in it, whatever its weight. The class gets its floor or its share, whichever is more. Pauses, the in-flight cap and ceilings come first. |
/// | ceiling | The most that the class may receive: a quota of its own, with a burst. Each grant of the class, and of the classes in it, takes from it too. |
///
/// A weight sets a share and no latency: a class that is idle most of the time waits for up to one installment of each
/// sibling. To bound the latency of a class, give it a floor.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, Share};
/// let interactive = Share::weight(3).floor(Quota::per_second(200));
/// let batch = Share::weight(1).ceiling(Quota::per_second(1_000).burst(50));
/// # let _ = (interactive, batch);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a share does nothing until a class is made with it"]
pub struct Share {
    pub(super) plan: SharePlan,
}

impl Share {
    /// A share of this weight, between 1 and 1,000,000, without floor and ceiling.
    pub const fn weight(weight: u64) -> Self {
        Self { plan: SharePlan { weight, floor: None, ceiling: None, max_waiting: u64::MAX, is_key: false } }
    }

    /// Reserves a rate: while claims wait in the class, it receives at least this. The burst of `quota` is not used.
    ///
    /// All floors together must not exceed the rate of the slowest quota of the limiter. If
    /// [`set_quota`](crate::Limiter::set_quota) lowers that rate below their sum, all floors are scaled down for as long as
    /// this lasts.
    /// Replaces an earlier value.
    pub const fn floor(mut self, quota: Quota) -> Self {
        self.plan.floor = Some(quota);
        self
    }

    /// Limits the class, and all classes in it together, to a quota. Refusals by it
    /// [are named](crate::Denied::quota_name) by the path of the class: its name after those of the classes around it,
    /// with `/` between them. Paths stay in memory for the life of the process, up to a quarter of a megabyte; refusals by
    /// later ones have no name.
    /// Replaces an earlier value.
    pub const fn ceiling(mut self, quota: Quota) -> Self {
        self.plan.ceiling = Some(quota);
        self
    }

    /// Refuses further waiters once this many callers are waiting in the class itself. Callers in the classes in it do
    /// not count. The limiter's own [`max_waiting`](crate::Builder::max_waiting) applies too.
    /// Replaces an earlier value.
    pub const fn max_waiting(mut self, callers: u64) -> Self {
        self.plan.max_waiting = callers;
        self
    }

    /// Schedules the class as that of a key, for tests.
    #[doc(hidden)]
    pub const fn as_key(mut self) -> Self {
        self.plan.is_key = true;
        self
    }
}
