//! The work that a caller collects under the lock and does after releasing it: wakers to wake, other queues to serve.

use super::in_use::InUse;
use super::{Core, quietly};
use crate::core::joint::JointSet;
use arrayvec::ArrayVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// The result of [`Core::hire`].
pub(crate) enum Hired {
    Now,
    Before,
    /// The runtime is shutting down, and dropped the driver at once.
    InVain,
}

/// How many wakers leave the lock together: tokio's batch size, small enough for the stack and large enough that taking
/// the lock does not dominate the cost. 2 under loom, so that models see full batches.
#[cfg(not(tollgate_loom))]
const BATCH: usize = 32;
#[cfg(tollgate_loom)]
const BATCH: usize = 2;

/// How many joint claims one caller looks at, or steps of a scheduler it takes, while it holds the lock.
const STEPS_PER_LOCK: usize = BATCH;

/// Work to do when no lock is held: a bounded batch of wakers to wake, and other queues to serve.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: ArrayVec<Waker, BATCH>,
    /// Work for other queues. Nearly every call has none, and a box is then one word to set and to check.
    for_peers: Option<Box<ForPeers>>,
    /// How many joint claims were looked at, or steps of a scheduler taken, since the lock was taken.
    pub(crate) steps: usize,
}

/// Work for the queues that are tied to the one that was locked.
#[derive(Default)]
struct ForPeers {
    /// Joint sets to be reviewed.
    reviews: VecDeque<Arc<JointSet>>,
    /// Queues to be served once all reviews are done.
    unserved: VecDeque<Arc<Core>>,
    /// Queues with a front claim that must enter or leave their parent's queue.
    parent_polls: VecDeque<Weak<Core>>,
}

impl Wakes {
    pub(crate) fn is_full(&self) -> bool {
        self.wakers.is_full()
    }

    /// # Panics
    /// If the batch [is full](Self::is_full).
    #[inline]
    pub(crate) fn push(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// True if the caller must release the lock before it looks at another joint claim, or takes another step of
    /// a scheduler: no space for its waker is left, or it has done enough of them.
    pub(crate) fn must_pause(&self) -> bool {
        self.is_full() || self.steps >= STEPS_PER_LOCK
    }

    /// A joint set must be reviewed.
    pub(crate) fn push_review(&mut self, set: Arc<JointSet>) {
        let reviews = &mut self.for_peers().reviews;
        if reviews.back().is_none_or(|last| !Arc::ptr_eq(last, &set)) {
            reviews.push_back(set);
        }
    }

    /// One call can have thousands of queues served, so only a few entries are searched. A queue that is served twice costs
    /// little.
    pub(crate) fn push_unserved(&mut self, core: Arc<Core>) {
        const SEARCHED: usize = 8;
        let unserved = &mut self.for_peers().unserved;
        if !unserved.iter().take(SEARCHED).any(|known| Arc::ptr_eq(known, &core)) {
            unserved.push_back(core);
        }
    }

    /// Serving has stopped, and the lock is released: the batch is full, or `awaited` has to answer first. After a proxy,
    /// wakers are collected until the batch is full: otherwise a waker that calls the limiter would serve the next
    /// proxy, wake the next waker, and so on recursively.
    pub(crate) fn wake_or_ask(&mut self, awaited: Option<Weak<Core>>) {
        if self.is_full() || awaited.is_none() {
            self.wake_all();
        }
        awaited.into_iter().for_each(|child| self.ask(&child));
    }

    /// Has a child [answer](Core::answer_parent) its parent, if the child still exists.
    pub(crate) fn ask(&mut self, child: &Weak<Core>) {
        if let Some(child) = InUse::upgrade(child) {
            child.answer_parent(self);
        }
    }

    pub(crate) fn push_parent_poll(&mut self, child: Weak<Core>) {
        self.for_peers().parent_polls.push_back(child);
    }

    fn for_peers(&mut self) -> &mut ForPeers {
        self.for_peers.get_or_insert_default()
    }

    /// Does the work that must happen without a lock: wakes, then has the other queues serve themselves. The queues are
    /// taken from lists, one after the other, so that a chain of joint claims does not grow the stack.
    #[inline]
    pub(crate) fn run(&mut self) {
        self.wake_all();
        if self.for_peers.is_some() {
            self.run_peers();
        }
    }

    #[cold]
    fn run_peers(&mut self) {
        while let Some(work) = &mut self.for_peers {
            if let Some(set) = work.reviews.pop_front() {
                set.review(self);
            } else if let Some(peer) = work.unserved.pop_front() {
                InUse::new(peer).serve_into(self);
            } else if let Some(child) = work.parent_polls.pop_front() {
                if let Some(child) = InUse::upgrade(&child) {
                    child.poll_parent(self);
                }
            } else {
                return;
            }
        }
    }

    /// Wakes all of them. A waker that panics breaks its own task only: the others are woken, and the panic does not
    /// reach the caller, which may be any task or thread that happened to serve the queue. (The panic hook has reported
    /// it.)
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        self.steps = 0;
        if !self.wakers.is_empty() {
            self.wake_some();
        }
    }

    /// Not inlined, so that a call with nobody to wake does not save registers for it.
    #[inline(never)]
    fn wake_some(&mut self) {
        wake_each(self.wakers.drain(..));
    }
}

/// How many calls of wakers may be nested on a thread. Each takes stack for a poll of a task.
const MOST_NESTED: u32 = 8;

thread_local! {
    /// How many calls of wakers are nested on this thread.
    static NESTED: Cell<u32> = const { Cell::new(0) };
    /// Whether there are wakers in `HANDED_OVER`.
    static HAS_MORE: Cell<bool> = const { Cell::new(false) };
    static HANDED_OVER: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Wakes each, even if another one panics; see [`Wakes::wake_all`].
///
/// A waker may poll its task at once, and so serve a queue and come here again. From a depth of [`MOST_NESTED`] on, the
/// wakers that it finds are handed over to the call around it, which calls them next. So a chain of such wakers does not
/// grow the stack. (If a waker at that depth blocks its thread in other ways than by a limiter's blocking calls, those
/// that were handed over wait for it.)
#[inline]
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    // Under loom all threads of a model are one thread of the system, and share its thread-local values.
    let nested = if cfg!(tollgate_loom) { 0 } else { NESTED.get() };
    if nested == MOST_NESTED {
        return hand_over(wakers);
    }
    NESTED.set(nested + 1);
    for waker in wakers {
        wake(waker);
        wake_handed_over();
    }
    NESTED.set(nested);
}

#[cold]
fn hand_over(wakers: impl IntoIterator<Item = Waker>) {
    let mut wakers = Some(wakers);
    // The list is gone if the thread is ending.
    let kept = HANDED_OVER.try_with(|list| list.borrow_mut().extend(wakers.take().into_iter().flatten()));
    if kept.is_ok() {
        HAS_MORE.set(true);
    }
    wakers.into_iter().flatten().for_each(wake);
}

/// Calls the wakers that were handed over, and those that they hand over, in the order in which nested calls would have
/// called them. A thread that blocks calls this first, because its own waker may be among them. Returns whether there were
/// any.
#[inline]
pub(crate) fn wake_handed_over() -> bool {
    let has_more = HAS_MORE.get();
    if has_more {
        wake_list();
    }
    has_more
}

#[cold]
fn wake_list() {
    let mut last_first = Vec::new();
    loop {
        if HAS_MORE.replace(false) {
            last_first.extend(HANDED_OVER.take().into_iter().rev());
        }
        let Some(waker) = last_first.pop() else { return };
        wake(waker);
    }
}

fn wake(waker: Waker) {
    quietly(|| waker.wake());
}
