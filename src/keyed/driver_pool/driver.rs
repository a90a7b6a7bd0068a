//! The driver task of one mailbox.

use super::{DriverPool, EntryOwner, Mailbox, QueueWaker, SMALL};
use crate::core::Core;
use crate::core::alarm::Alarm;
use crate::core::driving::{Look, LookReason};
use crate::core::replenisher::Replenisher;
use pin_project_lite::pin_project;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// A job for one live entry.
#[derive(Debug)]
enum Job {
    /// The queue of the entry used its waker: serve the queue, and register the waker again.
    Serve(Arc<QueueWaker>),
    /// The instant that the queue noted under this number has come.
    Due(Weak<Core>, u64),
    /// No waiter was due when this job was added: retire the entry if it is not needed. The number counts how often the
    /// entry has been found in use since then.
    GiveUp(Weak<Core>, u32),
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
        // The entries that were taken from the mailbox.
        woken: Vec<Arc<QueueWaker>>,
        // The jobs that are not due yet, by instant. The numbers distinguish jobs of the same instant.
        timers: BTreeMap<(u64, u64), Job>,
        // The number of the last job that was added to the timers.
        added: u64,
        // How many of its jobs are obsolete.
        stale: usize,
        // Jobs that are due and have not been run yet.
        due: VecDeque<Job>,
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
            let mut inbox = this.mailbox.inbox.lock();
            inbox.ended = true;
            let left = std::mem::take(&mut *inbox);
            inbox.ended = true;
            drop(inbox);
            drop(left);
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
        f.debug_struct("KeyedReplenisher").field("woken", &woken).field("due", &self.due.len()).finish_non_exhaustive()
    }
}

impl KeyedReplenisher {
    pub(super) fn new(pool: Arc<DriverPool>, mailbox: Arc<Mailbox>) -> Self {
        let is_registered = mailbox.host.is_some();
        let parent = pool.parent.as_ref().filter(|_| !is_registered).map(|parent| Replenisher::new(parent.weak()));
        Self {
            pool,
            mailbox,
            woken: Vec::new(),
            timers: BTreeMap::new(),
            added: 0,
            stale: 0,
            due: VecDeque::new(),
            is_registered,
            alarm: Alarm::unset(),
            parent,
        }
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
            this.pool.by_hand.fetch_add(1, Ordering::Relaxed);
            this.pool.mailboxes.lock().push(Arc::clone(this.mailbox));
            for live in owner.live_entries() {
                this.pool.add_waker(this.mailbox, &live);
            }
        }
        if let Some(parent) = this.parent.as_mut().as_pin_mut() {
            let _pending = parent.poll(cx);
        }
        let mut looks = 0;
        loop {
            collect(this.mailbox, this.woken, cx.waker());
            this.due.extend(this.woken.drain(..).map(Job::Serve));
            // If reading the clock panics, nothing is due yet.
            let now = catch_unwind(AssertUnwindSafe(|| this.pool.time.now())).unwrap_or(0);
            while let Some(timer) = this.timers.first_entry().filter(|timer| timer.key().0 <= now) {
                this.due.push_back(timer.remove());
            }
            while let Some(job) = this.due.pop_front() {
                match run(job, this.mailbox.number, &*owner, now, this.stale) {
                    None => {}
                    Some(Next::AtOnce(job)) => {
                        // This queue alone woke as many tasks as a plain limiter's driver wakes in a turn.
                        this.due.push_back(job);
                        looks = ENTRIES_PER_TURN - 1;
                    }
                    Some(Next::At(at, job)) => {
                        *this.added += 1;
                        this.timers.insert((at, *this.added), job);
                    }
                }
                looks += 1;
                if looks == ENTRIES_PER_TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            // Only when more than half are obsolete: so a pass costs each job two steps, amortized.
            if *this.stale > this.timers.len() / 2 + SMALL {
                this.timers.retain(|_, job| is_useful(job, this.mailbox.number, &*owner));
                *this.stale = 0;
            }
            let Some((&(next, _), _)) = this.timers.first_key_value() else {
                (*this.due, *this.woken) = Default::default();
                this.mailbox.inbox.lock().shrink();
                return Poll::Pending;
            };
            if next > now {
                ready!(this.alarm.as_mut().poll_until(this.pool.time.instant_or_retry(next), cx));
            }
        }
    }
}

/// Takes all entries from the mailbox, and registers `waker` for the next one.
fn collect(mailbox: &Mailbox, woken: &mut Vec<Arc<QueueWaker>>, waker: &Waker) {
    let waker = waker.clone();
    let mut inbox = mailbox.inbox.lock();
    std::mem::swap(&mut inbox.live_entries, woken);
    let old = inbox.waker.replace(waker);
    drop(inbox);
    drop(old);
}

/// The next job for a live entry.
enum Next {
    /// More is due at once.
    AtOnce(Job),
    At(u64, Job),
}

/// Runs a job of the mailbox with this number. `now` is a reading of the time.
fn run(job: Job, number: u64, owner: &dyn EntryOwner, now: u64, stale: &mut usize) -> Option<Next> {
    let (live, noted, queue_waker) = match job {
        Job::Serve(queue_waker) => (queue_waker.live.clone(), 0, Some(queue_waker)),
        Job::Due(live, noted) => (live, noted, None),
        Job::GiveUp(live, times) => return give_up(live, times, number, owner, now),
    };
    let Some(held) = live.upgrade() else {
        // The live entry is gone, and with it the knowledge of whether a job of it is left in the timers. Count one as
        // obsolete: if no job is left, `stale` is one too high, which costs less than one too low.
        *stale += usize::from(queue_waker.is_some());
        return None;
    };
    let why = queue_waker
        .as_ref()
        .map_or(LookReason::Noted(noted), |queue_waker| LookReason::Woken(Waker::from(Arc::clone(queue_waker))));
    match held.drive_one(number, now, why) {
        Look::Yield => Some(Next::AtOnce(queue_waker.map_or(Job::Due(live, noted), Job::Serve))),
        Look::Stale => {
            *stale = stale.saturating_sub(1);
            None
        }
        Look::NextLook(rest) => {
            *stale += usize::from(rest.was_noted && queue_waker.is_some());
            if let Some((due, number)) = rest.next {
                return Some(Next::At(due, Job::Due(live, number)));
            }
            let_go(held, owner);
            rest.lingers.then(|| Next::At(now.saturating_add(LINGER), Job::GiveUp(live, 0)))
        }
    }
}

/// Retires a live entry if it is not needed any more.
fn give_up(live: Weak<Core>, times: u32, number: u64, owner: &dyn EntryOwner, now: u64) -> Option<Next> {
    let held = live.upgrade()?;
    // If this driver will look at the queue again, that look will add a new job of this kind. Waiters that only wait
    // for the parent may be served by the parent's drivers, which do not notify this driver, so it has to try again.
    if held.stays(number, times == MAX_DOUBLINGS) {
        return None;
    }
    let hash = held.key_hash();
    drop(held);
    if hash.is_none_or(|hash| owner.retire(live.as_ptr(), hash, now)) {
        return None;
    }
    Some(Next::At(now.saturating_add(LINGER << times), Job::GiveUp(live, (times + 1) % (MAX_DOUBLINGS + 1))))
}

/// Whether a job is still useful.
fn is_useful(job: &Job, number: u64, owner: &dyn EntryOwner) -> bool {
    let Job::Due(live, noted) = job else { return true };
    let Some(held) = live.upgrade() else { return false };
    let is_useful = held.is_noted(number, *noted);
    let_go(held, owner);
    is_useful
}

/// Drops the `Arc` and notifies the map, because a sweep may have found the entry in use meanwhile.
fn let_go(live: Arc<Core>, owner: &dyn EntryOwner) {
    let hash = live.key_hash();
    drop(live);
    hash.inspect(|hash| owner.let_go(*hash));
}
