//! Snapshots of classes.

use crate::core::classes::ClassId;
use crate::core::state::State;
use std::time::Duration;

/// The state of a [`Class`](crate::Class) at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassSnapshot {
    /// The weight of the class.
    pub weight: u64,
    /// How many callers wait in the class itself.
    pub waiting_tasks: usize,
    /// How many tokens those callers ask for.
    pub waiting_tokens: u64,
    /// Tokens of the installments that the class itself was served, including those of claims that wait for further
    /// installments. Grants made at once, while no claim waits in the limiter and no ceiling is above the class, are
    /// not counted by class.
    pub served: u64,
    /// The part of `served` that was served because the floor of the class was due.
    pub served_by_floor: u64,
    /// The median wait of the claims granted in the class itself after a wait, as an upper bound that is at most a
    /// quarter too high (and at least 66 us). The last 1,024 to 2,048 such claims count, and older ones with less and
    /// less weight. `None` before the first. The wait of a key under the class begins when its front claim has the
    /// tokens of the key's own quotas.
    pub wait_p50: Option<Duration>,
    /// The same for 99 of 100 claims.
    pub wait_p99: Option<Duration>,
    /// The tokens that the class, with the classes in it, received lately, compared with its parent.
    pub recent: RecentShare,
    /// True if claims wait in the class or in a class in it, and ceilings hold all of them back.
    pub is_held: bool,
    /// Tokens left in the class's own ceiling; negative after a debt, `None` without a ceiling.
    pub ceiling_level: Option<i64>,
}

/// The part of its parent's tokens that a class received within the last 5 to 10 seconds.
///
/// Grants made at once are left out, as in [`ClassSnapshot::served`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RecentShare {
    /// How far the figures reach back.
    pub window: Duration,
    /// Tokens that the class and the classes in it were served.
    pub served: u64,
    /// Tokens that the parent, with all classes in it, was served.
    pub served_to_parent: u64,
    /// The weight of the class.
    pub weight: u64,
    /// The sum of the weights of all classes with the same parent, whether claims wait in them or not.
    pub weights: u64,
}

impl RecentShare {
    /// Returns the part of its parent's tokens that the class received, from 0 to 1. `None` if there were none.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota, Share};
    /// let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(1)).classes().build()?;
    /// let pages = limiter.class("pages", Share::weight(3))?;
    /// let backup = limiter.class("backup", Share::weight(1))?;
    /// // Both always have work, here in four tasks each.
    /// for class in [&pages, &backup].repeat(4) {
    ///     let class = class.clone();
    ///     tokio::spawn(async move { while class.wait(1).await.is_ok() {} });
    /// }
    /// tokio::time::sleep(Duration::from_secs(3)).await;
    /// let recent = pages.snapshot().recent;
    /// assert_eq!(recent.due(), 0.75);
    /// assert!((recent.received().unwrap() - 0.75).abs() < 0.01);
    /// # Ok(()) }
    /// ```
    pub fn received(&self) -> Option<f64> {
        (self.served_to_parent > 0).then(|| self.served as f64 / self.served_to_parent as f64)
    }

    /// Returns the part that the class is due by its weight while claims wait in all its siblings, from 0 to 1.
    pub fn due(&self) -> f64 {
        self.weight as f64 / self.weights.max(self.weight) as f64
    }
}

impl ClassSnapshot {
    pub(super) fn of(state: &mut State, class: ClassId) -> Self {
        let now = state.supply.synced();
        let reading = state.read_class(class);
        let (waiting_tasks, waiting_tokens) = state.waiting_in(class);
        let Some(classes) = state.classes_mut() else { unreachable!("the class belongs to this limiter") };
        let (is_held, ceiling_level) = classes.scheduler.tree.view(class, now);
        let weight = classes.weight(class);
        Self {
            weight,
            waiting_tasks,
            waiting_tokens,
            served: classes.entry(class).served,
            served_by_floor: classes.served_by_floor(class),
            wait_p50: reading.median_wait,
            wait_p99: reading.p99_wait,
            recent: RecentShare {
                window: reading.window,
                served: reading.served,
                served_to_parent: reading.served_to_parent,
                weight,
                weights: reading.weights,
            },
            is_held,
            ceiling_level,
        }
    }
}
