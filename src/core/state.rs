//! The state under the limiter's lock: the queue of waiters, the supply of tokens, and the rest of a limiter's data.
//!
//! The operations are in the files below `state/`: serving the queue in `serving.rs` and `step.rs`, claims that arrive
//! in `claims.rs`, cancellation and changes of the limiter in `changes.rs`, pauses in `pausing.rs`, calls on a queue
//! that is behind in `deferred.rs`, estimates in `forecast.rs`, quotas in dry run in `dry_run.rs`, joint claims in
//! `joint.rs` and `joint_review.rs`, external tokens in `source.rs`, the periods of calendars in `calendar.rs`, what a
//! child and what a parent does in `as_child.rs` and `as_parent.rs`, read access in `view.rs`, the in-flight cap in
//! `ceiling.rs`, the levels that outlive the limiter in `saved.rs`, and the fast path's limits in `publish.rs`. With
//! classes: service in `classes.rs`, claims in `class_claims.rs`, `class_refusals.rs` and `class_departures.rs`, joint
//! claims in `class_joint.rs`, shares in `shares.rs`, read access in `class_view.rs`.
//!
//! The lock is `Core::state`. Every method here runs with the lock held and does nothing with a waker except move it.
//! Time is passed in as a number that the caller read before it took the lock.

mod as_child;
mod as_parent;
mod calendar;
mod ceiling;
mod changes;
mod claims;
mod class_claims;
mod class_departures;
mod class_joint;
mod class_refusals;
mod class_view;
mod classes;
mod deferred;
mod dry_run;
mod forecast;
mod joint;
mod joint_review;
mod pausing;
mod publish;
pub(crate) mod saved;
mod serving;
mod shares;
mod source;
mod step;
mod view;

pub(crate) use as_parent::ChildLimiter;
pub(crate) use ceiling::Cap;
pub(crate) use claims::Arrival;
#[cfg(feature = "metrics")]
pub(crate) use class_view::ClassTotals;
pub(crate) use deferred::Refund;
use pausing::Pauses;
pub(crate) use serving::{CatchUp, Reach, Served};
pub(crate) use shares::SharePlan;

use as_child::ProxyState;
use deferred::DeferredCall;

use crate::core::classes::{ClassId, Classes};
use crate::core::drivers::Drivers;
use crate::core::dry_run::DryRun;
use crate::core::forecast::Forecast;
use crate::core::joint::Fronts;
use crate::core::queue::Queue;
use crate::core::rovers::{Rovers, ahead};
use crate::core::stride::Stride;
use crate::core::supply::Supply;
use crate::name::QuotaNames;
use std::collections::VecDeque;
use std::sync::Weak;
use tokio::runtime::Handle;

/// The largest claim. 2^14 waiting claims of this size fit within [`MAX_SPAN`].
pub(crate) const MAX_COST: u64 = 1 << 48;
/// The largest distance by which claims may overrun the tokens. It keeps wrapping differences far from overflow.
pub(crate) const MAX_SPAN: i64 = 1 << 62;

/// The tail and the time. The caller reads them in this order, before it takes the lock: so every claim up to `tail`
/// was made by `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) tail: u64,
    pub(crate) now: u64,
}

/// The optional features of a limiter, as bits of one byte: a limiter without any of them pays for one check.
#[derive(Clone, Copy, Debug, Default)]
struct Role(u8);

impl Role {
    /// The limiter grants nothing alone: its parent must grant each claim too.
    const CHILD: u8 = 1;
    /// The limiter was built with classes, which are in `rare`.
    const CLASSES: u8 = 2;
    /// The tokens of one of the quotas come from a source.
    const SOURCE: u8 = 4;
    /// A child has to answer whether its proxy may be granted, and which of its claims is next.
    const AWAITS: u8 = 8;
    /// One of the quotas is in dry run; the simulation is in `rare`.
    const DRY_RUN: u8 = 16;
    /// No cost may be above `max_cost`, or above the amount of a sliding quota.
    const MAX_COST: u8 = 32;
    /// One of the quotas has a calendar; see `state/calendar.rs`.
    const CALENDAR: u8 = 64;
    /// One of the quotas is sliding.
    const SLIDING: u8 = 128;

    /// Each grant tells its instant.
    const INSTANTS: u8 = Self::CALENDAR | Self::SLIDING;
    /// Grants have more to tell than how many tokens remain.
    const SPECIAL_WORDS: u8 = Self::DRY_RUN | Self::INSTANTS;
    /// It is more than the front claim that decides when the queue must be served.
    const OTHER_DUES: u8 = Self::CLASSES | Self::CALENDAR;
    /// An empty queue is served too: a child has to answer, or the wall clock to be read.
    const ALWAYS_SERVED: u8 = Self::AWAITS | Self::CALENDAR;

    fn add(&mut self, role: u8) {
        self.0 |= role;
    }

    fn remove(&mut self, role: u8) {
        self.0 &= !role;
    }

    fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Whether it has one of these features.
    #[inline(always)]
    fn has(self, any: u8) -> bool {
        self.0 & any != 0
    }

    /// Whether it has this feature, and is otherwise plain.
    #[inline(always)]
    fn has_only(self, role: u8) -> bool {
        self.0 == role
    }
}

/// The field order, fixed by `repr(C)`, puts the fields next to the lock that every wait and every serving pass read, and
/// that every exact claim writes: the queue, the stride, and the supply with the schedule of its quota. The drivers and the
/// totals follow. With one limiter per key, the state of a single limiter is usually
/// in no cache, and each cache line that is not needed saves a miss.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) queue: Queue,
    /// The number of the claim that enters next, in any class.
    pub(crate) next_number: u64,
    /// The result of [`due`](Self::due) when the queue was served last; 0 if the lock was released in the middle of that.
    last_due: u64,
    /// The time read by the caller that last served the queue while a waiter waited.
    last_served: u64,
    pub(crate) closed: bool,
    /// True if the only thing done since the lock was taken was to deny a claim: that denial then stays valid beyond
    /// the next publishing.
    denied: bool,
    role: Role,
    /// The proxy of this queue in its parent's queue.
    proxy: ProxyState,
    /// The version of the keyed map's quotas that this limiter applies.
    pub(crate) quota_version: u32,
    pub(crate) cap: Option<Cap>,
    pub(crate) stride: Stride,
    pub(crate) supply: Supply,
    pub(crate) drivers: Drivers,
    pub(crate) totals: Totals,
    rare: Option<Box<Rare>>,
}

/// Data that most limiters never need.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Names of the quotas, as text and for refusals; empty if no quota has one.
    pub(crate) names: QuotaNames,
    forecast: Forecast,
    /// Present if the limiter was built with classes; see `state/classes.rs`.
    classes: Option<Box<Classes>>,
    /// The pauses whose later end the supply keeps.
    pauses: Pauses,
    /// Present while a quota is in dry run; see `state/dry_run.rs`.
    dry_run: Option<Box<DryRun>>,
    /// For each quota the epoch that began when it was last enforced again after a dry run.
    enforced_in: Vec<u64>,
    wall_clock: calendar::WallClock,
    /// The largest cost that the user allows; 0 if there is none. Fixed at construction.
    max_cost: u64,
    /// Present while a joint claim waits; see `core/joint.rs`.
    joint: Option<Box<Fronts>>,
    /// Calls made while the queue was behind; see `state/deferred.rs`.
    deferred: VecDeque<DeferredCall>,
    /// The time that the present caller read from the clock, while it acts on a queue that is behind.
    acts_at: Option<u64>,
    /// The child that has to answer, if the role says so.
    awaited: Option<as_parent::AwaitedChild>,
    /// Keyed limiters under this limiter, or under a class of it: they close when it closes.
    pub(crate) children: Vec<(ClassId, Weak<dyn ChildLimiter>)>,
}

/// The classes of a limiter, borrowed apart from its queue and its supply.
#[inline]
fn classes_in(rare: &mut Option<Box<Rare>>) -> Option<&mut Classes> {
    rare.as_mut()?.classes.as_deref_mut()
}

/// Counters that cannot be derived from the rovers.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// The position at which the rovers began.
    pub(crate) origin: u64,
    /// Positions that the tail passed and that were granted to no claim: cancelled claims and retracted tokens.
    pub(crate) skipped: u64,
    /// Granted tokens that came back unused.
    pub(crate) refunded: u64,
    /// Callers that wanted to wait and were refused.
    pub(crate) refused: u64,
    /// The longest time, in nanoseconds, between the instant that the schedule gave a grant and its delivery.
    pub(crate) lateness: u64,
}

impl State {
    pub(crate) fn new(supply: Supply, cap: Option<u64>, origin: u64) -> Self {
        let own = supply.gate();
        let mut state = Self {
            queue: Queue::new(),
            next_number: 1,
            last_due: u64::MAX,
            last_served: 0,
            closed: false,
            denied: false,
            role: Role::default(),
            proxy: ProxyState::None,
            quota_version: 0,
            cap: cap.map(|tokens| Cap { tokens, seen: 0, watching: false }),
            drivers: Drivers::default(),
            supply,
            stride: Stride::new(origin),
            totals: Totals { origin, ..Totals::default() },
            rare: None,
        };
        if own > 0 {
            state.rare().pauses.own = own;
        }
        state.note_sliding();
        state
    }

    /// Whether waiters on the runtime `host` can rely on existing drivers to serve them.
    pub(crate) fn serves(&self, host: &Handle) -> bool {
        self.drivers.serve(host) && !self.source_task_is_gone()
    }

    /// Makes this the queue of a child: nothing is granted here that the parent does not grant.
    pub(crate) fn set_parent(&mut self) {
        self.role.add(Role::CHILD);
    }

    /// Refuses costs above `tokens`. The stride stays 0, so that no claim passes without the lock, under which its cost is
    /// checked: the fast path has no check of its own.
    pub(crate) fn set_max_cost(&mut self, tokens: u64) {
        self.rare().max_cost = tokens;
        self.role.add(Role::MAX_COST);
        self.stride.fix(0);
    }

    /// The largest cost that the user allows, by default any.
    pub(crate) fn max_cost(&self) -> u64 {
        let limited = self.rare.as_ref().filter(|rare| rare.max_cost > 0);
        limited.map_or(u64::MAX, |rare| rare.max_cost)
    }

    /// Whether a keyed limiter has this limiter, or a class of it, as its parent.
    fn has_children(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.children.iter().any(|(_, it)| it.strong_count() > 0))
    }

    /// Call when quotas are set. With a sliding quota no claim passes without the lock, under which it gets its instant.
    pub(crate) fn note_sliding(&mut self) {
        if self.supply.smallest_window().is_some() {
            self.role.add(Role::SLIDING | Role::MAX_COST);
            self.stride.fix(0);
        } else {
            self.role.remove(Role::SLIDING);
        }
    }

    pub(crate) fn has_sliding(&self) -> bool {
        self.role.has(Role::SLIDING)
    }

    /// How many tokens more a grant of `cost` is charged that is settled for `actual`, which is more.
    pub(crate) fn extra_charge(&self, cost: u64, actual: u64) -> u64 {
        actual.min(self.max_cost().max(cost)) - cost
    }

    pub(crate) fn pauses(&self) -> Pauses {
        self.rare.as_ref().map_or_else(Pauses::default, |rare| rare.pauses)
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Drops the last denial: the same question may get another answer now.
    #[inline]
    fn forget_denial(&mut self, rovers: &Rovers) {
        self.denied = false;
        rovers.last_denial().forget();
    }

    /// The *base*: the position at which everything that is granted, charged or set aside ends. The front claim begins there.
    #[inline]
    pub(crate) fn base(&self, rovers: &Rovers) -> u64 {
        rovers.tail().wrapping_sub(self.queue.tokens()).wrapping_sub(self.supply.debts())
    }

    /// The position at which the claim ends for which tokens above the burst may be saved: the joint claim that holds this
    /// limiter, or else the front claim. With classes only a joint claim, because no installment is larger than the burst.
    #[inline]
    pub(crate) fn front_ticket(&self, rovers: &Rovers) -> Option<u64> {
        let front = self.queue.front().map(|front| front.cost);
        let cost = self.held().map(|held| held.cost).or(front)?;
        Some(self.base(rovers).wrapping_add(cost))
    }

    /// The number of a claim that enters now.
    #[inline]
    fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// The instant at which the queue must be served, for its front waiter or for a joint claim. `u64::MAX` if no clock
    /// can tell.
    #[inline(always)]
    pub(crate) fn due(&self, rovers: &Rovers) -> u64 {
        if self.role.has(Role::OTHER_DUES) || self.queue.has_joint() {
            return self.due_otherwise(rovers);
        }
        self.due_of_front(rovers)
    }

    /// [`due`](Self::due) of a limiter with classes, a calendar quota or joint claims.
    #[cold]
    #[inline(never)]
    fn due_otherwise(&self, rovers: &Rovers) -> u64 {
        let own = match self.classes() {
            _ if self.held().is_some() => u64::MAX,
            Some(_) if self.queue.is_empty() => u64::MAX,
            Some(classes) => classes.due,
            None => self.due_of_front(rovers),
        };
        let alarm = self.joint().and_then(Fronts::first_alarm).unwrap_or(u64::MAX);
        let due = own.min(alarm);
        let waits = self.queue.has_claims() || due < u64::MAX;
        if self.role.has(Role::CALENDAR) && waits { due.min(self.fresh_until()) } else { due }
    }

    #[inline(always)]
    fn due_of_front(&self, rovers: &Rovers) -> u64 {
        let due = self.front_ticket(rovers).and_then(|ticket| self.supply.due(ticket));
        // A claim that is due and still in the queue is held back by the parent, which will notify this queue.
        due.filter(|at| *at > self.supply.synced()).unwrap_or(u64::MAX)
    }

    /// The result of [`due`](Self::due) when the queue [was served](Self::finish) last.
    pub(crate) fn last_due(&self) -> u64 {
        self.last_due
    }

    /// Whether the lock was last released while more was due.
    #[inline]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.last_due == 0
    }

    /// The sum of the costs of all claims in the queue, or in those of classes.
    pub(crate) fn costs(&self) -> u64 {
        self.queue.tokens() + self.supply.aside()
    }

    /// The number of tokens left after a claim that ends at `ticket`.
    #[inline]
    pub(super) fn remaining_after(&self, ticket: u64) -> u64 {
        ahead(self.supply.limit(), ticket).max(0) as u64
    }
}
