//! Who sleeps for all keys of a map: one task per runtime that has waiters, over one queue of due instants.
//!
//! A seat's line has a driver entry for each such runtime, as every line has; its waker does not wake a task of its own
//! but puts the seat onto the runtime's [`Mailbox`]. The [`KeyedDriver`] of the desk serves what is on it and what is due,
//! sleeps until the next instant in its queue, and gives up seats on which nobody waited for a while. A key on which
//! nobody waits has no seat, and so no entry anywhere here.

mod driver;

pub(super) use driver::KeyedDriver;

use crate::clock::Time;
use crate::core::drivers::{Kind, OF_MANY};
use crate::core::sync::Mutex;
use crate::core::wakes::wake_each;
use crate::core::{Core, QueueDriver};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use tokio::runtime::Handle;

/// So few useless entries are not worth going through them for.
const SMALL: usize = 64;
/// The numbers of all desks there are.
static NUMBERS: AtomicU64 = AtomicU64::new(OF_MANY);

/// The map, as seen from here.
pub(super) trait EntryOwner: Send + Sync {
    /// Gives up the seat at this address if nobody needs it; true if it is gone.
    fn retire(&self, live: *const Core, hash: u64, now: u64) -> bool;
    /// All seats.
    fn live_entries(&self) -> Vec<Arc<Core>>;
    /// A seat of this hash was held for a moment.
    fn let_go(&self, hash: u64);
}

/// All desks of a map.
pub(super) struct DriverPool {
    owner: Weak<dyn EntryOwner>,
    time: Time,
    /// A limiter above all keys.
    parent: Option<Arc<Core>>,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    /// How many of them are in the user's hands.
    by_hand: AtomicUsize,
}

impl fmt::Debug for DriverPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("time", &self.time).finish_non_exhaustive()
    }
}

/// Where seats wait to be looked at by the attendant of one runtime.
#[derive(Debug)]
struct Mailbox {
    /// Its driver number in all lines. Beyond those that lines give to drivers of their own.
    number: u64,
    /// `None` for an attendant in the user's own hands.
    host: Option<Handle>,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    live_entries: Vec<Arc<QueueWaker>>,
    /// How many of them were still there when it was gone through last.
    kept: usize,
    /// The attendant's, while it sleeps.
    waker: Option<Waker>,
    /// The attendant is gone.
    ended: bool,
}

/// What a seat's line rings when it has to be served earlier than was said before. It hangs in the line, and whoever serves
/// what is due does not touch it.
#[derive(Debug)]
struct QueueWaker {
    mailbox: Arc<Mailbox>,
    live: Weak<Core>,
}

impl Inbox {
    /// Whoever does not come for what is here, as a replenisher by hand that is kept and not polled, must not have seats that
    /// are gone kept in memory: they are struck out each time the tray has grown to twice of what was left. Costs each bell
    /// two steps.
    fn put(&mut self, queue_waker: Arc<QueueWaker>) {
        if self.live_entries.len() >= 2 * self.kept.max(SMALL) {
            self.live_entries.retain(|queue_waker| queue_waker.live.strong_count() > 0);
            self.kept = self.live_entries.len();
        }
        self.live_entries.push(queue_waker);
    }

    /// A crowd that is gone is not to be remembered by its size.
    fn shrink(&mut self) {
        if self.live_entries.is_empty() {
            self.live_entries = Vec::new();
        }
    }
}

impl Wake for QueueWaker {
    fn wake(self: Arc<Self>) {
        let mut inbox = self.mailbox.inbox.lock();
        if inbox.ended {
            return;
        }
        inbox.put(Arc::clone(&self));
        let driver = inbox.waker.take();
        drop(inbox);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl DriverPool {
    pub(super) fn new(owner: Weak<dyn EntryOwner>, time: Time, parent: Option<Arc<Core>>) -> Self {
        Self { owner, time, parent, mailboxes: Mutex::new(Vec::new()), by_hand: AtomicUsize::new(0) }
    }

    /// An attendant for the user to spawn. It registers when it is first polled.
    pub(super) fn by_hand(self: &Arc<Self>) -> KeyedDriver {
        let mailbox = Self::open_mailbox(None);
        KeyedDriver::new(Arc::clone(self), mailbox)
    }

    fn open_mailbox(host: Option<Handle>) -> Arc<Mailbox> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Mailbox { number, host, inbox: Mutex::new(Inbox::default()) })
    }

    /// The desk of `host`, opened if there is none. `None` if the runtime is shutting down.
    fn mailbox(self: &Arc<Self>, host: &Handle) -> Option<Arc<Mailbox>> {
        let mut mailboxes = self.mailboxes.lock();
        let own = mailboxes.iter().find(|mailbox| mailbox.host.as_ref().is_some_and(|it| it.id() == host.id()));
        if let Some(mailbox) = own {
            return Some(Arc::clone(mailbox));
        }
        let mailbox = Self::open_mailbox(Some(host.clone()));
        mailboxes.push(Arc::clone(&mailbox));
        drop(mailboxes);
        host.spawn(KeyedDriver::new(Arc::clone(self), Arc::clone(&mailbox)));
        let ended = mailbox.inbox.lock().ended;
        if ended { None } else { Some(mailbox) }
    }

    /// Has `mailbox` serve `live` from now on. False if the desk is closed.
    fn add_waker(&self, mailbox: &Arc<Mailbox>, live: &Core) -> bool {
        let kind = || mailbox.host.as_ref().map_or(Kind::ByHand, |host| Kind::Hired(host.clone()));
        let mut state = live.state.lock();
        let is_new = !state.drivers.contains(mailbox.number);
        if is_new {
            state.drivers.adopt(mailbox.number, kind());
        }
        drop(state);
        if is_new {
            // It has not looked yet: whoever enters the line meanwhile does not ring. And it may be the user's, and panic.
            wake_each([Waker::from(Arc::new(QueueWaker { mailbox: Arc::clone(mailbox), live: live.weak() }))]);
        }
        // Who closes a desk says so first, and then looks for its entries everywhere.
        let ended = mailbox.inbox.lock().ended;
        if ended {
            live.remove_driver(mailbox.number);
        }
        !ended
    }

    /// Desks in the user's hands serve every new seat: whoever waits outside of all runtimes relies on them.
    pub(super) fn notify_live(&self, live: &Core) {
        if self.by_hand.load(Ordering::Relaxed) == 0 {
            return;
        }
        let by_hand: Vec<_> = self.mailboxes.lock().iter().filter(|mailbox| mailbox.host.is_none()).cloned().collect();
        for mailbox in by_hand {
            self.add_waker(&mailbox, live);
        }
    }

    /// The map is gone: the attendants find that out and end.
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
        if let Some(owner) = self.owner.upgrade() {
            owner.let_go(key_hash);
        }
    }
}
