//! One quota for many machines, over the store in memory. The tests with Redis are in `tollgate-redis`.

mod away;
mod class_attacks;
mod class_callers;
mod class_fleet;
mod class_rules;
mod classes;
mod damaged;
mod distant;
pub(crate) mod failing;
mod fleet;
mod fleets;
mod joint;
mod keeper;
mod large;
mod late;
pub(crate) mod law;
pub(crate) mod link;
mod liveness;
mod memory;
mod mixes;
mod nodes;
mod patient;
mod random_worlds;
mod versions;
mod within;
