//! Classes of a limiter: how it shares its tokens among the queues of a tree of classes.
//!
//! From the bottom up: `tournament.rs`; `tags.rs`, `floor.rs` and `ceiling.rs` (weights, reservations and limits, in
//! integers); `node.rs`, `limits.rs`, `retained.rs`, `tree.rs`, `conflict.rs`, `pick.rs` and `charge.rs` (the tree and the
//! rules of service); `shadow.rs` and `scheduler.rs` (installments and what was set aside for them); `reserve.rs` (joint claims);
//! `simulation.rs` (estimates); `name.rs`, `entry.rs`, `table.rs` and `weights.rs` (the queues, names and weights of the classes).
//! `state/classes.rs` serves a limiter with them.

#[cfg(all(test, not(tollgate_loom)))]
mod arrivals;
#[cfg(all(test, not(tollgate_loom)))]
mod bounds;
mod ceiling;
mod charge;
mod conflict;
mod entry;
mod floor;
mod limits;
#[cfg(all(test, not(tollgate_loom)))]
mod model_histories;
mod name;
mod node;
mod offer;
mod pick;
mod reserve;
mod retained;
mod scheduler;
mod shadow;
mod simulation;
mod table;
mod tags;
mod tournament;
mod tree;
pub(crate) mod weights;

/// Counts, for the tests of bounds, the steps of the scheduler and the classes that loops over classes look at.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local!(static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

    #[inline(always)]
    pub(crate) fn count() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn take() -> u64 {
        STEPS.take()
    }
}

pub(crate) use conflict::FloorConflict;
pub(crate) use entry::{ClassEntry, ClassFlags};
pub(crate) use name::{ClassName, KeyName};
pub(crate) use offer::Backlog;
pub(crate) use offer::Pick;
pub(crate) use offer::{ClassId, NEW, ROOT};
pub(crate) use scheduler::{Scheduler, Step};
pub(crate) use simulation::{Installment, Simulation, Waiting};
pub(crate) use table::{AwaitedChild, Classes, MAX_DEPTH};
pub(crate) use tags::MAX_WEIGHT;
