//! Classes of a limiter: how it shares its tokens among the queues of a tree of classes.
//!
//! From the bottom up:
//!
//! | files | contents |
//! |---|---|
//! | `parts.rs`, `tournament.rs` | a long list; a tree that finds the smallest of many entries |
//! | `tags.rs`, `floor.rs`, `ceiling.rs` | weights, reserved rates and capped rates, in integers |
//! | `node.rs`, `offer.rs`, `limits.rs`, `installments.rs`, `tree.rs` | the tree, and its configuration |
//! | `pick.rs`, `charge.rs` | **the order of service**: which class is served next, and what a service costs |
//! | `conflict.rs`, `retained.rs` | whether all floors can be kept; what removed classes still owe |
//! | `scheduler.rs` | claims in installments, and what is set aside for them |
//! | `debts.rs`, `reserve.rs`, `simulation.rs` | debts; joint claims; estimates |
//! | `name.rs`, `entry.rs`, `table.rs`, `lacks.rs` | the queues and names of the classes, and what they lack |
//!
//! `state/classes.rs` serves a limiter with them.

mod ceiling;
mod charge;
mod conflict;
mod debts;
mod entry;
mod floor;
mod installments;
pub(crate) mod lacks;
mod limits;
mod name;
mod node;
mod offer;
mod parts;
mod pick;
mod reserve;
mod retained;
mod scheduler;
mod simulation;
mod table;
mod tags;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod tournament;
mod tree;

pub(crate) use name::{ClassName, KeyName};
pub(crate) use offer::Backlog;
pub(crate) use offer::Pick;
pub(crate) use offer::{ClassId, NO_CLASS, ROOT};
pub(crate) use scheduler::{NextStep, Scheduler};
pub(crate) use simulation::{MOST_SIMULATED, Waiting};
pub(crate) use table::{Classes, MAX_DEPTH};
pub(crate) use tags::MAX_WEIGHT;
