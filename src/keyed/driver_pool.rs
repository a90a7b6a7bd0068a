//! The background tasks of a map: one driver task per runtime that has waiters, for all keys.
//!
//! Every queue keeps a list of driver entries, one for each runtime with waiters in that queue. In a plain limiter, the
//! waker of such an entry wakes a task that serves this queue alone. In a live entry the waker is a [`QueueWaker`]: it
//! puts the live entry into the [`Mailbox`] of the runtime and wakes the [`KeyedReplenisher`] of that mailbox.
//!
//! The driver serves the live entries in its mailbox and those that are due by its timers, and sleeps until the next of
//! these instants. It also retires live entries that have had no waiters for a while. A key without waiters needs no live
//! entry, and then has no entry in this module either.
//!
//! Users can run a driver themselves with [`KeyedReplenisher`](super::KeyedReplenisher). Such a *manual* driver has a
//! mailbox without a runtime, and serves the live entries of all keys.
//!
//! # Locks
//!
//! * The waker of a queue puts entries into the mailbox, and the driver takes all of them out at once. No task's waker
//!   is cloned, woken or dropped under the mailbox's lock.
//! * A driver closes its mailbox by setting `ended`, and then removes its entries from all queues. A thread that adds
//!   an entry checks `ended` afterwards and removes its own entry if it is set. The one that runs last sees what the
//!   other did, so no queue is left with an entry of a closed mailbox.

mod driver;

pub use driver::KeyedReplenisher;

use super::key_limit::KeyLimit;
use crate::clock::Time;
use crate::core::drivers::{Kind, OF_MANY};
use crate::core::in_use::InUse;
use crate::core::wakes::wake_each;
use crate::core::{Core, QueueDriver};
use crate::sync::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use tokio::runtime::Handle;

/// The next mailbox number, across all maps.
static NUMBERS: AtomicU64 = AtomicU64::new(OF_MANY);

/// The interface of the map for its drivers.
pub(super) trait EntryOwner: Send + Sync {
    /// Retires the live entry at this address if it is not needed any more. Returns true if it is not in the map any
    /// more.
    fn retire(&self, live: *const Core, hash: u64, now: u64) -> bool;
    /// All live entries.
    fn live_entries(&self) -> Vec<InUse>;
}

/// All drivers of a map, and their mailboxes.
pub(super) struct DriverPool {
    owner: Weak<dyn EntryOwner>,
    key_limit: Arc<KeyLimit>,
    time: Time,
    /// The parent limiter of all keys.
    parent: Option<Arc<Core>>,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    /// Whether a manual driver was ever polled.
    has_by_hand: AtomicBool,
}

impl fmt::Debug for DriverPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverPool").field("time", &self.time).finish_non_exhaustive()
    }
}

/// The queue of live entries that the driver of one runtime has to look at.
#[derive(Debug)]
struct Mailbox {
    /// The id of the mailbox's driver in all queues. It differs from all ids that queues give to their own drivers.
    number: u64,
    /// The runtime of its driver; `None` for a manual driver.
    host: Option<Handle>,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    live_entries: Vec<Arc<QueueWaker>>,
    /// The next one to look at, to remove it if it is gone.
    looked_at: usize,
    /// How many such entries were removed since the driver last took the others.
    removed: usize,
    /// The waker of the driver, while it sleeps.
    waker: Option<Waker>,
    /// Set when the driver is dropped: the mailbox is closed.
    ended: bool,
}

/// The waker of a live entry's queue: used when the queue has to be served earlier than the driver expects. The queue
/// stores it; a driver that serves a due entry does not touch it.
#[derive(Debug)]
struct QueueWaker {
    mailbox: Arc<Mailbox>,
    live: Weak<Core>,
}

impl Inbox {
    /// Adds an entry. A driver that does not empty its mailbox (a manual one that is kept and not polled) must not keep
    /// the memory of live entries that are gone, so each wake-up looks at two others.
    fn put(&mut self, queue_waker: Arc<QueueWaker>) {
        for _ in 0..2 {
            match self.live_entries.get(self.looked_at) {
                Some(queue_waker) if queue_waker.live.strong_count() == 0 => {
                    self.live_entries.swap_remove(self.looked_at);
                    self.removed += 1;
                }
                Some(_) => self.looked_at += 1,
                None => self.looked_at = 0,
            }
        }
        self.live_entries.push(queue_waker);
    }
}

impl Mailbox {
    /// Adds an entry and wakes the driver. Returns false if the mailbox is closed.
    fn send(&self, queue_waker: Arc<QueueWaker>) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.ended {
            return false;
        }
        inbox.put(queue_waker);
        let driver = inbox.waker.take();
        drop(inbox);
        // The waker of a manual driver is user code and may panic.
        wake_each(driver);
        true
    }
}

impl Wake for QueueWaker {
    fn wake(self: Arc<Self>) {
        self.mailbox.send(Arc::clone(&self));
    }
}

impl DriverPool {
    pub(super) fn new(
        owner: Weak<dyn EntryOwner>,
        key_limit: Arc<KeyLimit>,
        time: Time,
        parent: Option<Arc<Core>>,
    ) -> Self {
        Self { owner, key_limit, time, parent, mailboxes: Mutex::new(Vec::new()), has_by_hand: AtomicBool::new(false) }
    }

    /// Creates a driver for the user to spawn. It registers when it is first polled.
    pub(super) fn by_hand(self: &Arc<Self>) -> KeyedReplenisher {
        let mailbox = Self::open_mailbox(None);
        KeyedReplenisher::new(Arc::clone(self), mailbox)
    }

    fn open_mailbox(host: Option<Handle>) -> Arc<Mailbox> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Mailbox { number, host, inbox: Mutex::new(Inbox::default()) })
    }

    /// The mailbox of `host`. If there is none, opens it and spawns its driver. `None` if the runtime is shutting down.
    fn mailbox(self: &Arc<Self>, host: &Handle) -> Option<Arc<Mailbox>> {
        let mut mailboxes = self.mailboxes.lock();
        let own = mailboxes.iter().find(|mailbox| mailbox.host.as_ref().is_some_and(|it| it.id() == host.id()));
        if let Some(mailbox) = own {
            return Some(Arc::clone(mailbox));
        }
        let mailbox = Self::open_mailbox(Some(host.clone()));
        mailboxes.push(Arc::clone(&mailbox));
        drop(mailboxes);
        host.spawn(KeyedReplenisher::new(Arc::clone(self), Arc::clone(&mailbox)));
        let ended = mailbox.inbox.lock().ended;
        if ended { None } else { Some(mailbox) }
    }

    /// Makes the driver of `mailbox` serve `live` from now on. Returns false if the mailbox is closed.
    fn add_waker(&self, mailbox: &Arc<Mailbox>, live: &Core) -> bool {
        let kind = || mailbox.host.as_ref().map_or(Kind::ByHand, |host| Kind::Hired(host.clone()));
        let mut state = live.state.lock();
        let is_new = !state.drivers.contains(mailbox.number);
        if is_new {
            state.drivers.adopt(mailbox.number, kind());
        }
        drop(state);
        // A closing driver sets `ended` first and then removes its entries from all queues: so checking after the entry
        // was added cannot miss it.
        let is_open = if is_new {
            // The driver has not looked at this queue yet, and a waiter that enters meanwhile does not wake it.
            mailbox.send(Arc::new(QueueWaker { mailbox: Arc::clone(mailbox), live: live.weak() }))
        } else {
            !mailbox.inbox.lock().ended
        };
        if !is_open {
            live.remove_driver(mailbox.number);
        }
        is_open
    }

    /// Adds a live entry to the manual drivers: waiters outside of all runtimes rely on them.
    pub(super) fn notify_live(&self, live: &Core) {
        if !self.has_by_hand.load(Ordering::Relaxed) {
            return;
        }
        let by_hand: Vec<_> = self.mailboxes.lock().iter().filter(|mailbox| mailbox.host.is_none()).cloned().collect();
        for mailbox in by_hand {
            self.add_waker(&mailbox, live);
        }
    }

    /// Wakes all drivers after the map was dropped, so that they end.
    pub(super) fn close(&self) {
        let mailboxes = std::mem::take(&mut *self.mailboxes.lock());
        wake_each(mailboxes.iter().filter_map(|mailbox| mailbox.inbox.lock().waker.take()));
    }
}

impl QueueDriver for Arc<DriverPool> {
    fn hire(&self, host: &Handle, live: &Core) -> bool {
        self.mailbox(host).is_some_and(|mailbox| self.add_waker(&mailbox, live))
    }

    fn let_go(&self, key_hash: u64) {
        self.key_limit.may_be_idle_now(key_hash);
    }
}
