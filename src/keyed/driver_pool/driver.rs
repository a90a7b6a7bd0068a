//! The driver task of one mailbox.

use super::{DriverPool, EntryOwner, Inbox, Mailbox, QueueWaker};
use crate::core::alarm::Alarm;
use crate::core::drivers::NO_TIMER;
use crate::core::in_use::InUse;
use crate::core::replenisher::Replenisher;
use crate::core::{Core, drop_quietly, quietly, steps};
use pin_project_lite::pin_project;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// How many live entries a driver looks at before it yields. Tokio's local queue holds 256 tasks, and a plain limiter's
/// driver wakes up to half as many in a turn; here most looks wake one task, and many wake none.
const ENTRIES_PER_TURN: usize = 256;
/// How long a live entry is kept after its last waiter, in nanoseconds, so that a task which calls again and again does
/// not cause a new one each time. The time doubles each time the entry is found in use without waiters.
const LINGER: u64 = 100_000_000;
const MAX_DOUBLINGS: u32 = 12;

/// When to look at a live entry again. Timers run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: u64,
    /// The address of the live entry. It belongs to no other one while there is a timer, which has a `Weak` of it.
    address: usize,
    /// `None` if the queue is due: there is one such timer at most for a live entry. Otherwise no waiter was due when the
    /// timer was set: retire the entry if it is not needed. The number counts how often it has been found in use since
    /// then.
    gives_up: Option<u32>,
}

/// A job for one live entry.
#[derive(Debug)]
enum Job {
    /// The queue of the entry used its waker: serve the queue, and register the waker again.
    Serve(Arc<QueueWaker>),
    /// A timer of the entry is due.
    Due(Timer, Weak<Core>),
}

/// What a driver has to do.
#[derive(Debug, Default)]
struct Jobs {
    /// Jobs that are due and have not been run yet.
    due: VecDeque<Job>,
    /// The timers that are not due yet.
    timers: BTreeMap<Timer, Weak<Core>>,
    /// The last one that was looked at, to remove it if its live entry is gone.
    looked_at: Option<Timer>,
    /// How many live entries are gone for which four timers each are still to be looked at.
    gone: usize,
}

pin_project! {
    /// A future that serves the queues of all keys, returned by
    /// [`KeyedLimiter::replenisher`](crate::KeyedLimiter::replenisher). It completes when the last clone of the limiter is
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: waiters are woken and look for another driver on their own runtimes.
    ///
    /// # Panics
    ///
    /// Panics when polled outside of a tokio runtime, or on a runtime without timers, as `tokio::time::sleep` does.
    #[must_use = "a replenisher does nothing unless it is spawned or polled"]
    pub struct KeyedReplenisher {
        pool: Arc<DriverPool>,
        mailbox: Arc<Mailbox>,
        jobs: Jobs,
        is_registered: bool,
        #[pin]
        alarm: Alarm,
        // For a manual driver: serves the parent limiter, by the parent's own clock. Runtimes with waiters have drivers of
        // the parent for that.
        #[pin]
        parent: Option<Replenisher>,
    }

    impl PinnedDrop for KeyedReplenisher {
        // The runtime shuts down, or the user dropped a manual driver: removes this driver's entries from all queues, and
        // their waiters look for another driver.
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let ended = Inbox { ended: true, ..Inbox::default() };
            let left = std::mem::replace(&mut *this.mailbox.inbox.lock(), ended);
            // The waker of a manual driver is user code and may panic.
            drop_quietly(left);
            let number = this.mailbox.number;
            this.pool.mailboxes.lock().retain(|mailbox| mailbox.number != number);
            if let Some(owner) = this.pool.owner.upgrade() {
                for live in owner.live_entries() {
                    live.remove_driver(number);
                }
            }
        }
    }
}

impl fmt::Debug for KeyedReplenisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let woken = self.mailbox.inbox.lock().live_entries.len();
        f.debug_struct("KeyedReplenisher")
            .field("woken", &woken)
            .field("due", &self.jobs.due.len())
            .finish_non_exhaustive()
    }
}

impl KeyedReplenisher {
    pub(super) fn new(pool: Arc<DriverPool>, mailbox: Arc<Mailbox>) -> Self {
        let is_registered = mailbox.host.is_some();
        let parent = pool.parent.as_ref().filter(|_| !is_registered).map(|parent| Replenisher::new(parent));
        Self { pool, mailbox, jobs: Jobs::default(), is_registered, alarm: Alarm::unset(), parent }
    }
}

impl Future for KeyedReplenisher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(owner) = this.pool.owner.upgrade() else { return Poll::Ready(()) };
        if !*this.is_registered {
            // A manual driver: it serves all keys from its first poll on.
            *this.is_registered = true;
            this.pool.has_by_hand.store(true, Ordering::Relaxed);
            this.pool.mailboxes.lock().push(Arc::clone(this.mailbox));
            for live in owner.live_entries() {
                this.pool.add_waker(this.mailbox, &live);
            }
        }
        if let Some(parent) = this.parent.as_mut().as_pin_mut() {
            let _pending = parent.poll(cx);
        }
        let (jobs, mut looks) = (this.jobs, 0);
        loop {
            jobs.collect(this.mailbox, cx.waker());
            // If reading the clock panics, nothing is due yet.
            let now = quietly(|| this.pool.time.now()).unwrap_or(0);
            for _ in 0..ENTRIES_PER_TURN {
                let Some(timer) = jobs.timers.first_entry().filter(|timer| timer.key().at <= now) else { break };
                steps::count();
                let (timer, live) = timer.remove_entry();
                jobs.due.push_back(Job::Due(timer, live));
            }
            while jobs.gone > 0 || !jobs.due.is_empty() {
                jobs.forget_gone();
                let job = jobs.due.pop_front();
                if let Some(job) = job.and_then(|job| jobs.run(job, this.mailbox.number, &*owner, now)) {
                    // This queue alone woke as many tasks as a plain limiter's driver wakes in a turn.
                    jobs.due.push_back(job);
                    looks = ENTRIES_PER_TURN - 1;
                }
                looks += 1;
                if looks == ENTRIES_PER_TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            let Some((&Timer { at: next, .. }, _)) = jobs.timers.first_key_value() else {
                // Frees the memory of a past burst of jobs.
                jobs.due = VecDeque::new();
                return Poll::Pending;
            };
            if next > now {
                ready!(this.alarm.as_mut().poll_until(this.pool.time.instant_or_retry(next), cx));
            }
        }
    }
}

impl Jobs {
    /// Takes all entries from the mailbox as jobs, and registers `waker` for the next one.
    fn collect(&mut self, mailbox: &Mailbox, waker: &Waker) {
        let waker = waker.clone();
        let mut inbox = mailbox.inbox.lock();
        let woken = std::mem::take(&mut inbox.live_entries);
        let old = inbox.waker.replace(waker);
        self.gone += std::mem::take(&mut inbox.removed);
        drop(inbox);
        drop(old);
        self.due.extend(woken.into_iter().map(Job::Serve));
    }

    /// Runs a job of the mailbox with this number. `now` is a reading of the time. Returns the job if more of it is due,
    /// but other tasks must run first.
    fn run(&mut self, job: Job, number: u64, owner: &dyn EntryOwner, now: u64) -> Option<Job> {
        let (live, run_at, woken) = match &job {
            Job::Serve(queue_waker) => (&queue_waker.live, NO_TIMER, Some(Waker::from(Arc::clone(queue_waker)))),
            Job::Due(Timer { gives_up: Some(times), .. }, live) => {
                self.timers.extend(give_up(live, *times, number, owner, now).map(|timer| (timer, Weak::clone(live))));
                return None;
            }
            Job::Due(timer, live) => (live, timer.at, None),
        };
        let Some(held) = InUse::upgrade(live) else {
            // Only the live entry knew the instant of its timer, if it had one.
            self.gone += 1;
            return None;
        };
        let Some(rest) = held.drive_one(number, now, woken) else { return Some(job) };
        let due = |at| Timer { at, address: live.as_ptr().addr(), gives_up: None };
        if rest.timer != NO_TIMER && rest.timer != run_at {
            self.timers.remove(&due(rest.timer));
        }
        if rest.next != NO_TIMER {
            self.timers.insert(due(rest.next), Weak::clone(live));
        } else if rest.lingers {
            self.timers.insert(Timer { gives_up: Some(0), ..due(now.saturating_add(LINGER)) }, Weak::clone(live));
        }
        None
    }

    /// If a live entry is gone, looks at the next four timers, or begins again behind the last one, and removes those of
    /// live entries that are gone.
    fn forget_gone(&mut self) {
        let Some(gone) = self.gone.checked_sub(1) else { return };
        self.gone = gone;
        for _ in 0..4 {
            let after = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&timer, live)) = self.timers.range((after, Bound::Unbounded)).next() else { continue };
            self.looked_at = Some(timer);
            if live.strong_count() == 0 {
                self.timers.remove(&timer);
            }
        }
    }
}

/// Retires a live entry if it is not needed any more. Returns when to try again.
fn give_up(live: &Weak<Core>, times: u32, number: u64, owner: &dyn EntryOwner, now: u64) -> Option<Timer> {
    let held = InUse::upgrade(live)?;
    // If this driver will look at the queue again, that look will add a new timer of this kind. Waiters that only wait
    // for the parent may be served by the parent's drivers, which do not notify this driver, so it has to try again.
    if held.stays(number, times == MAX_DOUBLINGS) {
        return None;
    }
    let hash = held.key_hash();
    drop(held);
    if hash.is_none_or(|hash| owner.retire(live.as_ptr(), hash, now)) {
        return None;
    }
    let (at, gives_up) = (now.saturating_add(LINGER << times), Some((times + 1) % (MAX_DOUBLINGS + 1)));
    Some(Timer { at, address: live.as_ptr().addr(), gives_up })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
