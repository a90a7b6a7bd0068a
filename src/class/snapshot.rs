//! Snapshots of classes.

use crate::core::classes::ClassId;
use crate::core::state::State;

/// The state of a [`Class`](crate::Class) at one instant.
///
/// Waits are not in it: a `Meter`, of the feature `metrics`, records how long claims of each class waited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassSnapshot {
    /// The weight of the class.
    pub weight: u64,
    /// How many callers wait in the class itself.
    pub waiting_tasks: u64,
    /// How many tokens those callers ask for.
    pub waiting_tokens: u64,
    /// Tokens of the installments that the class itself was served, including those of claims that wait for further
    /// installments. Grants made at once, while no claim waits in the limiter and no ceiling is above the class, are
    /// not counted by class.
    pub served: u64,
    /// The part of `served` that was served because the floor of the class was due.
    pub served_by_floor: u64,
    /// True if claims wait in the class or in a class in it, and ceilings hold all of them back.
    pub is_held: bool,
    /// Tokens left in the class's own ceiling; negative after a debt, `None` without a ceiling.
    pub ceiling_level: Option<i64>,
}

impl ClassSnapshot {
    pub(super) fn of(state: &mut State, class: ClassId) -> Self {
        let now = state.supply.synced();
        let (waiting_tasks, waiting_tokens) = state.waiting_in(class);
        let Some(classes) = state.classes_mut() else { unreachable!("the class belongs to this limiter") };
        let (is_held, ceiling_level) = classes.scheduler.tree.view(class, now);
        Self {
            weight: classes.weight(class),
            waiting_tasks,
            waiting_tokens,
            served: classes.entry(class).served,
            served_by_floor: classes.served_by_floor(class),
            is_held,
            ceiling_level,
        }
    }
}
