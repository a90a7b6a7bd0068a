//! A queue with a parent: another limiter that must grant whatever this one grants. Both grant, or neither does.
//!
//! Only the front waiter of the child's queue also waits in the parent's queue, and only once the child has its tokens
//! ready. It waits there through a *proxy*. So a long queue has one place in the parent's queue, a queue with a front that
//! is not ready has none, and a claim in the parent's queue waits for nothing else.
//!
//! The parent never grants a proxy alone. When it is the proxy's turn, the parent stops: it serves nothing further until
//! the child has *answered*. The answer takes both locks. If the front claim is still ready, both grant it; otherwise the
//! proxy leaves. Then the next ready claim of the child enters. Any caller that finds the parent stopped has the child
//! answer (see `answer_parent` in `core/pair.rs`), so the parent waits for no thread.
//!
//! Both locks are taken, the child's first, by every caller that finds, before it releases the child's lock, that the
//! queue [wants its parent](State::wants_parent). So the proxy stands for the current front as soon as the caller that
//! changed the front last is done.
//!
//! In a parent with classes each key has a class, from its first proxy on until the key's queue is gone. The scheduler
//! orders these classes as any others. The class has no other claim of the key in its queue, except joint ones. Without the
//! answer the scheduler would treat it as idle when its proxy leaves, and serve its siblings, whatever their weights are.
//!
//! A joint claim over the child is a joint claim over both, and has no proxy; see `core/joint.rs`. Its review takes both
//! locks, so the child answers without waiting for a review.
//!
//! A claim that the parent grants without waiting counts there from now, and in the child from the instant at which it
//! became ready: no waiter pays for a late timer. A claim that had to wait in the parent's queue counts in both from
//! the instant at which the parent granted it.
//!
//! This file holds the reference to a parent and the link to it; `core/pair.rs` acts on both queues.

use super::Core;
use crate::clock::Time;
use crate::core::classes::{ClassId, KeyName, ROOT};
use crate::core::grants::Settled;
use crate::core::queue::Place;
use crate::core::rovers::Rovers;
use crate::core::state::{ChildLimiter, Sample, State};
#[cfg(feature = "keyed")]
use crate::error::ConfigError;
use crate::error::{ConsumeError, Denied, TryAcquireError};
use crate::observe::GrantWord;
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where the queues of children enter their parent: a limiter, or a class of it.
#[derive(Clone)]
pub(crate) struct Parent {
    pub(crate) limiter: Arc<Core>,
    /// The class in which the classes of the keys are made, if the limiter has classes.
    pub(crate) group: ClassId,
    _handle: Arc<dyn Any + Send + Sync>,
}

impl Parent {
    /// `handle` is kept to keep the class alive.
    pub(crate) fn new(limiter: Arc<Core>, group: ClassId, handle: Arc<dyn Any + Send + Sync>) -> Self {
        Self { limiter, group, _handle: handle }
    }

    /// Takes `cost` tokens if they are available and no claim waits, for a caller that holds the lock of a shard. Any
    /// cost that `try_acquire` can take is allowed: the limit on a single claim is checked by the key.
    #[inline]
    pub(crate) fn admit_now(&self, cost: u64, sample: Sample) -> bool {
        self.limiter.admit_now(self.group, cost, sample).is_some()
    }

    /// The tokens that a key could get now.
    pub(crate) fn available(&self) -> u64 {
        self.limiter.look_at(|state, rovers, _| state.available_in(rovers, self.group))
    }

    /// How long a claim of `cost` tokens that arrives in `delay` will have waited, counted from now; see
    /// [`State::estimate_later`].
    pub(crate) fn estimate_later(&self, cost: u64, delay: Duration) -> Option<Duration> {
        let group = self.group;
        self.look_ahead(self.sample(), cost, |state, rovers, sample| {
            state.estimate_later(rovers, group, cost, sample.now, delay)
        })
    }

    /// The final answer of a child that has denied `cost` tokens: it accounts for the parent too.
    pub(crate) fn deny_too(&self, cost: u64, denied: Denied) -> TryAcquireError {
        let group = self.group;
        self.look_ahead(self.sample(), cost, |state, rovers, sample| {
            state.deny_too(rovers, group, cost, sample.now, denied)
        })
    }

    /// The final answer of a child that has refused to wait for `cost` tokens: it accounts for the parent too.
    pub(crate) fn refuse_too(&self, cost: u64, error: ConsumeError) -> ConsumeError {
        let ConsumeError::TooLate { estimate, allowed, .. } = error else { return error };
        let group = self.group;
        self.look_ahead(self.sample(), cost, |state, rovers, sample| {
            match state.estimate_later(rovers, group, cost, sample.now, estimate) {
                Some(later) if later > estimate => state.too_late(rovers, cost, later, allowed).as_parent(),
                _ => error,
            }
        })
    }

    /// Why a parent without classes does not grant now the `cost` tokens that a child with `remaining` tokens could
    /// grant. `None` if it does.
    pub(crate) fn refusal(&self, cost: u64, remaining: u64) -> Option<TryAcquireError> {
        let (refusal, source_task_is_gone) = self.limiter.look_at(|state, rovers, sample| {
            if state.can_admit(rovers, ROOT, cost) {
                return (None, false);
            }
            let refusal = state.try_acquire(rovers, ROOT, cost, sample.now).err();
            (refusal.map(|error| State::as_parent(error, remaining)), state.source_task_is_gone())
        });
        if source_task_is_gone {
            self.limiter.replace_source_task();
        }
        refusal
    }

    /// The error if one of the quotas is sliding: the parent does not know when the grants of the keys were made.
    #[cfg(feature = "keyed")]
    pub(crate) fn sliding_quota(&self) -> Option<ConfigError> {
        let state = self.limiter.state.lock();
        let (index, _) = state.supply.smallest_window()?;
        let error = state.supply.quotas()[index].quota.check_not_sliding("parent").err()?;
        Some(error.of(index, state.name(index).map(|name| &**name)))
    }

    /// Changes the cost of a grant of a key from `cost` to `actual`. The operation that calls this has begun and must
    /// be completed: if the clock panics, the last sample is used. Returns the new cost. `key` is the key, and its
    /// weight, for a cost that grows.
    pub(crate) fn resettle(&self, key: Option<(KeyName, u64)>, cost: u64, actual: u64) -> u64 {
        let Some((key, weight)) = key.filter(|_| actual > cost) else {
            let grant = Settled::new(self.group, cost, GrantWord::NOTHING);
            return self.limiter.resettle_here(Core::sample_or_last, grant, actual);
        };
        let charge = |state: &mut State, rovers: &Rovers, _| {
            state.charge_key(rovers, self.group, key, weight, state.extra_charge(cost, actual))
        };
        cost + self.limiter.with_anyway(charge)
    }
}

impl Deref for Parent {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.limiter
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parent").field("group", &self.group).finish_non_exhaustive()
    }
}

/// Links one queue to its parent.
pub(super) struct ParentLink {
    pub(super) parent: Parent,
    /// Whether both limiters read the same clock.
    pub(super) one_clock: bool,
    /// Whether the child itself has an in-flight cap.
    pub(super) has_cap: bool,
    pub(super) key: KeyName,
    /// The weight of the key's class; 0 until it is set, which is the same as 1.
    pub(super) weight: AtomicU64,
    /// Accessed only while both limiters' locks are held, except in `drop`. The mutex is there because the compiler
    /// cannot know that.
    pub(super) proxy: Mutex<Proxy>,
}

/// The place of the proxy of the front claim.
#[derive(Default)]
pub(super) struct Proxy {
    pub(super) place: Option<Pin<Box<Place>>>,
    /// The class of the key in a parent with classes. It exists from the first proxy on.
    pub(super) class: Option<ClassId>,
}

impl ParentLink {
    pub(super) fn new(parent: Parent, time: &Time, key: KeyName, has_cap: bool) -> Self {
        let one_clock = parent.limiter.time.is_one_with(time);
        Self { parent, one_clock, has_cap, key, weight: AtomicU64::new(0), proxy: Mutex::new(Proxy::default()) }
    }

    /// The weight of the key's class.
    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for ParentLink {
    /// No claim waits in the child's queue, so the proxy was called out or has left. But its place may still
    /// hold an outcome, which is taken here.
    fn drop(&mut self) {
        let mut proxy = self.proxy.lock();
        let Proxy { place, class } = &mut *proxy;
        let place = place.as_mut().filter(|place| place.is_entered());
        if place.is_none() && class.is_none() {
            return;
        }
        self.parent.limiter.leaving(|state, rovers, _| {
            if let Some(place) = place {
                drop(state.depart(rovers, place.as_mut(), class.unwrap_or(ROOT)));
            }
            if let Some(class) = class.take() {
                state.remove_user(class);
            }
        });
    }
}

impl Core {
    pub(super) fn parent_link(&self) -> Option<&ParentLink> {
        if self.has_parent { self.link.as_ref()?.parent_link.as_ref() } else { None }
    }

    /// The parent of this limiter, which is that of a key.
    pub(crate) fn parent(&self) -> Option<&Parent> {
        self.parent_link().map(|link| &link.parent)
    }

    /// The class of this key in its parent, which is locked, for one more user of the class.
    pub(crate) fn join_parent(&self, parent: &mut State) -> ClassId {
        self.parent_link().map_or(ROOT, |link| parent.join_key(link.parent.group, link.key, link.weight()))
    }

    /// The parent, if it has an in-flight cap.
    pub(super) fn capped_parent(&self) -> Option<&Parent> {
        self.parent().filter(|parent| parent.capped)
    }

    /// Returns tokens of the parent that a claim of this limiter got, and that no caller has seen.
    pub(super) fn give_back_to_parent(&self, tokens: u64) {
        if tokens > 0 {
            if let Some(parent) = self.parent() {
                parent.give_back(parent.group, tokens, GrantWord::NOTHING);
            }
        }
    }

    /// Closes `child` when this limiter is closed, or `group` removed. Returns false if that has happened already.
    pub(crate) fn add_child(&self, group: ClassId, child: Weak<dyn ChildLimiter>) -> bool {
        let mut state = self.state.lock();
        let is_closed = state.is_closed(group);
        let children = &mut state.rare().children;
        // Looked through before it grows: not for each new child.
        if children.len() == children.capacity() {
            children.retain(|(_, child)| child.strong_count() > 0);
        }
        children.push((group, child));
        !is_closed
    }

    pub(crate) fn close_children(&self) {
        self.close_children_in(|_, _| true);
    }

    /// Closes the children in groups that are `gone`.
    pub(super) fn close_children_in(&self, gone: impl Fn(&State, ClassId) -> bool) {
        let mut state = self.state.lock();
        let children = std::mem::take(&mut state.rare().children);
        let (closing, kept): (Vec<_>, Vec<_>) = children.into_iter().partition(|(group, _)| gone(&state, *group));
        state.rare().children = kept;
        drop(state);
        closing.iter().filter_map(|(_, child)| child.upgrade()).for_each(|child| child.close());
    }

    /// Sets the weight of the key's class, before the key waits for the first time.
    pub(crate) fn weigh(&self, weight: impl FnOnce() -> u64) {
        if let Some(link) = self.parent_link() {
            if link.weight.load(Ordering::Relaxed) == 0 {
                link.weight.store(weight(), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
