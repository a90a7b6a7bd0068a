//! Snapshots of classes.

use crate::core::classes::ClassId;
use crate::core::state::State;

/// The state of a [`Class`](crate::Class) at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassSnapshot {
    /// The weight of the class.
    pub weight: u64,
    /// How many callers wait in the class itself.
    pub waiting_tasks: usize,
    /// How many tokens they ask for.
    pub waiting_tokens: u64,
    /// Tokens of the installments that the class itself was served. Those of claims that wait for further installments
    /// are included. Grants made at once, while no claim waits in the limiter and no ceiling is above the class, are not
    /// counted by class.
    pub served: u64,
    /// The part of `served` that was served after a wait because the floor of the class was due.
    pub served_by_floor: u64,
    /// True if claims wait in the class or in a class in it, and ceilings hold all of them back.
    pub is_held: bool,
    /// Tokens that the class's own ceiling has; negative after a debt, `None` without a ceiling.
    pub ceiling_level: Option<i64>,
}

impl ClassSnapshot {
    pub(super) fn of(state: &mut State, class: ClassId) -> Self {
        let now = state.supply.synced();
        let Some(classes) = state.classes_mut() else { unreachable!("the class belongs to this limiter") };
        let (is_held, ceiling_level) = classes.scheduler.tree.view(class, now);
        let (entry, tree) = (classes.entry(class), &classes.scheduler.tree);
        Self {
            weight: tree.weight(class),
            waiting_tasks: entry.queue.len(),
            waiting_tokens: entry.queue.tokens(),
            served: entry.served,
            served_by_floor: entry.by_floor,
            is_held,
            ceiling_level,
        }
    }
}
