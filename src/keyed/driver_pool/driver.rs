//! Who serves the seats of one desk.

use super::{DriverPool, EntryOwner, Mailbox, QueueWaker, SMALL};
use crate::core::alarm::Alarm;
use crate::core::replenisher::Replenisher;
use crate::core::{Core, Look, LookReason, instant_or_retry};
use crate::keyed::timer_wheel::TimerWheel;
use pin_project::{pin_project, pinned_drop};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// How many seats an attendant looks at before it yields. What is woken goes through tokio's queue of 256 tasks, half of which
/// a limiter's own driver fills in a turn; here most looks wake one task, and many wake none.
const ENTRIES_PER_TURN: usize = 256;
/// How long a seat is kept after its last waiter, in nanoseconds, so that a task that asks again and again does not have it
/// made anew each time. It doubles each time the seat is found in use without anybody waiting.
const LINGER: u64 = 100_000_000;
const MAX_DOUBLINGS: u32 = 12;

/// What is to be done for a seat.
#[derive(Debug)]
enum Job {
    /// It has rung: serve it, and hang the bell up again.
    Serve(Arc<QueueWaker>),
    /// The instant has come that was noted by this number.
    Due(Weak<Core>, u64),
    /// Nobody waited when this was written down. How often it was found in use since.
    GiveUp(Weak<Core>, u32),
}

/// Serves the seats of one desk.
#[pin_project(PinnedDrop)]
pub(in crate::keyed) struct KeyedDriver {
    pool: Arc<DriverPool>,
    mailbox: Arc<Mailbox>,
    /// What was on the tray.
    woken: Vec<Arc<QueueWaker>>,
    wheel: TimerWheel<Job>,
    /// How many entries of the agenda are of no use any more.
    stale: usize,
    /// What has come due and has not been done yet.
    due: VecDeque<Job>,
    known: bool,
    #[pin]
    alarm: Alarm,
    /// Serves a limiter above all keys, by that limiter's own time, for an attendant in the user's hands. Runtimes with waiters
    /// have it served by drivers of its own.
    #[pin]
    parent: Option<Replenisher>,
}

impl fmt::Debug for KeyedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let woken = self.mailbox.inbox.lock().live_entries.len();
        f.debug_struct("Attendant").field("rung", &woken).field("due", &self.due.len()).finish_non_exhaustive()
    }
}

impl KeyedDriver {
    pub(super) fn new(pool: Arc<DriverPool>, mailbox: Arc<Mailbox>) -> Self {
        let known = mailbox.host.is_some();
        let parent = pool.parent.as_ref().filter(|_| !known).map(|parent| Replenisher::new(parent.weak()));
        let (wheel, due) = (TimerWheel::new(), VecDeque::new());
        Self { pool, mailbox, woken: Vec::new(), wheel, stale: 0, due, known, alarm: Alarm::unset(), parent }
    }
}

impl Future for KeyedDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(owner) = this.pool.owner.upgrade() else { return Poll::Ready(()) };
        if !*this.known {
            // In the user's hands: from the first poll on it serves everybody.
            *this.known = true;
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
            // A clock that panics says that nothing is due yet.
            let now = catch_unwind(AssertUnwindSafe(|| this.pool.time.now())).unwrap_or(0);
            this.wheel.take_due(now, this.due);
            while let Some(job) = this.due.pop_front() {
                match run(job, this.mailbox.number, &*owner, now, this.stale) {
                    Next::Nothing => {}
                    Next::Again(job) => {
                        // As many were served as one limiter's own driver does in a turn.
                        this.due.push_back(job);
                        looks = ENTRIES_PER_TURN - 1;
                    }
                    Next::At(at, job) => this.wheel.add(at, job),
                }
                looks += 1;
                if looks == ENTRIES_PER_TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            // Half of it at most, so that this costs each entry two steps.
            if *this.stale > this.wheel.len() / 2 + SMALL {
                this.wheel.retain(|job| is_good(job, this.mailbox.number, &*owner));
                *this.stale = 0;
            }
            let Some(next) = this.wheel.next() else {
                (*this.due, *this.woken) = Default::default();
                this.mailbox.inbox.lock().shrink();
                return Poll::Pending;
            };
            if next > now {
                ready!(this.alarm.as_mut().poll_until(instant_or_retry(&this.pool.time, next), cx));
            }
        }
    }
}

/// Takes what is on the tray; whoever puts something there from now on wakes `waker`.
fn collect(mailbox: &Mailbox, woken: &mut Vec<Arc<QueueWaker>>, waker: &Waker) {
    let waker = waker.clone();
    let mut inbox = mailbox.inbox.lock();
    std::mem::swap(&mut inbox.live_entries, woken);
    let old = inbox.waker.replace(waker);
    drop(inbox);
    drop(old);
}

/// What is to be done next for a seat.
enum Next {
    Nothing,
    /// More is due at once.
    Again(Job),
    At(u64, Job),
}

/// Does an errand of the desk with this number, by a reading of the time.
fn run(job: Job, number: u64, owner: &dyn EntryOwner, now: u64, stale: &mut usize) -> Next {
    let (live, noted, queue_waker) = match job {
        Job::Serve(queue_waker) => (queue_waker.live.clone(), 0, Some(queue_waker)),
        Job::Due(live, noted) => (live, noted, None),
        Job::GiveUp(live, times) => return give_up(live, times, number, owner, now),
    };
    let Some(held) = live.upgrade() else {
        // What was noted of it is known to nobody now. If nothing was, then one too many, which costs less than one too few.
        *stale += usize::from(queue_waker.is_some());
        return Next::Nothing;
    };
    let why = queue_waker
        .as_ref()
        .map_or(LookReason::Noted(noted), |queue_waker| LookReason::Woken(Waker::from(Arc::clone(queue_waker))));
    match held.drive_one(number, now, why) {
        Look::Yield => Next::Again(queue_waker.map_or(Job::Due(live, noted), Job::Serve)),
        Look::Stale => {
            *stale = stale.saturating_sub(1);
            Next::Nothing
        }
        Look::NextLook(rest) => {
            *stale += usize::from(rest.was_noted && queue_waker.is_some());
            if let Some((due, number)) = rest.next {
                return Next::At(due, Job::Due(live, number));
            }
            let_go(held, owner);
            if rest.lingers { Next::At(now.saturating_add(LINGER), Job::GiveUp(live, 0)) } else { Next::Nothing }
        }
    }
}

/// Gives up a seat if nobody needs it.
fn give_up(live: Weak<Core>, times: u32, number: u64, owner: &dyn EntryOwner, now: u64) -> Next {
    let Some(held) = live.upgrade() else { return Next::Nothing };
    // Whoever is due will be served here, and so end up here again. Who waits for others may be served by them.
    if held.stays(number, times == MAX_DOUBLINGS) {
        return Next::Nothing;
    }
    let hash = held.key_hash();
    drop(held);
    if hash.is_none_or(|hash| owner.retire(live.as_ptr(), hash, now)) {
        // It is gone; or is that of the overflow, and stays.
        live.upgrade().inspect(|live| _ = live.stays(number, true));
        return Next::Nothing;
    }
    Next::At(now.saturating_add(LINGER << times), Job::GiveUp(live, (times + 1) % (MAX_DOUBLINGS + 1)))
}

/// Whether an errand is still of use.
fn is_good(job: &Job, number: u64, owner: &dyn EntryOwner) -> bool {
    let Job::Due(live, noted) = job else { return true };
    let Some(held) = live.upgrade() else { return false };
    let is_good = held.is_noted(number, *noted);
    let_go(held, owner);
    is_good
}

/// Whoever swept meanwhile found it held.
fn let_go(live: Arc<Core>, owner: &dyn EntryOwner) {
    let hash = live.key_hash();
    drop(live);
    hash.inspect(|hash| owner.let_go(*hash));
}

#[pinned_drop]
impl PinnedDrop for KeyedDriver {
    /// The runtime goes away, or the user let go of it: its entries in all lines go too, and whoever waits looks again.
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
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
