//! Who sleeps for all keys of a map: one task per runtime that has waiters, over one queue of due instants.
//!
//! A seat's line has a driver entry for each such runtime, as every line has; its waker does not wake a task of its own
//! but puts the seat onto the runtime's [`Desk`]. The [`Attendant`] of the desk serves what is on it and what is due,
//! sleeps until the next instant in its queue, and gives up seats on which nobody waited for a while. A key on which
//! nobody waits has no seat, and so no entry anywhere here.

mod attendant;

pub(super) use attendant::Attendant;

use crate::clock::Time;
use crate::drivers::{Kind, OF_MANY};
use crate::shared::{Shared, Warden};
use crate::sync::Mutex;
use crate::wakes::wake_each;
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
pub(super) trait Landlord: Send + Sync {
    /// Gives up the seat at this address if nobody needs it; true if it is gone.
    fn retire(&self, seat: *const Shared, hash: u64, now: u64) -> bool;
    /// All seats.
    fn seats(&self) -> Vec<Arc<Shared>>;
    /// A seat of this hash was held for a moment.
    fn let_go(&self, hash: u64);
}

/// All desks of a map.
pub(super) struct Hub {
    landlord: Weak<dyn Landlord>,
    time: Time,
    /// A limiter above all keys.
    roof: Option<Arc<Shared>>,
    desks: Mutex<Vec<Arc<Desk>>>,
    /// How many of them are in the user's hands.
    by_hand: AtomicUsize,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("time", &self.time).finish_non_exhaustive()
    }
}

/// Where seats wait to be looked at by the attendant of one runtime.
#[derive(Debug)]
struct Desk {
    /// Its driver number in all lines. Beyond those that lines give to drivers of their own.
    number: u64,
    /// `None` for an attendant in the user's own hands.
    host: Option<Handle>,
    tray: Mutex<Tray>,
}

#[derive(Debug, Default)]
struct Tray {
    seats: Vec<Arc<Bell>>,
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
struct Bell {
    desk: Arc<Desk>,
    seat: Weak<Shared>,
}

impl Tray {
    /// Whoever does not come for what is here, as a replenisher by hand that is kept and not polled, must not have seats that
    /// are gone kept in memory: they are struck out each time the tray has grown to twice of what was left. Costs each bell
    /// two steps.
    fn put(&mut self, bell: Arc<Bell>) {
        if self.seats.len() >= 2 * self.kept.max(SMALL) {
            self.seats.retain(|bell| bell.seat.strong_count() > 0);
            self.kept = self.seats.len();
        }
        self.seats.push(bell);
    }

    /// A crowd that is gone is not to be remembered by its size.
    fn shrink(&mut self) {
        if self.seats.is_empty() {
            self.seats = Vec::new();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut tray = self.desk.tray.lock();
        if tray.ended {
            return;
        }
        tray.put(Arc::clone(&self));
        let attendant = tray.waker.take();
        drop(tray);
        if let Some(attendant) = attendant {
            attendant.wake();
        }
    }
}

impl Hub {
    pub(super) fn new(landlord: Weak<dyn Landlord>, time: Time, roof: Option<Arc<Shared>>) -> Self {
        Self { landlord, time, roof, desks: Mutex::new(Vec::new()), by_hand: AtomicUsize::new(0) }
    }

    /// An attendant for the user to spawn. It registers when it is first polled.
    pub(super) fn by_hand(self: &Arc<Self>) -> Attendant {
        let desk = Self::open_desk(None);
        Attendant::new(Arc::clone(self), desk)
    }

    fn open_desk(host: Option<Handle>) -> Arc<Desk> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Desk { number, host, tray: Mutex::new(Tray::default()) })
    }

    /// The desk of `host`, opened if there is none. `None` if the runtime is shutting down.
    fn desk(self: &Arc<Self>, host: &Handle) -> Option<Arc<Desk>> {
        let mut desks = self.desks.lock();
        let own = desks.iter().find(|desk| desk.host.as_ref().is_some_and(|it| it.id() == host.id()));
        if let Some(desk) = own {
            return Some(Arc::clone(desk));
        }
        let desk = Self::open_desk(Some(host.clone()));
        desks.push(Arc::clone(&desk));
        drop(desks);
        host.spawn(Attendant::new(Arc::clone(self), Arc::clone(&desk)));
        let ended = desk.tray.lock().ended;
        if ended { None } else { Some(desk) }
    }

    /// Has `desk` serve `seat` from now on. False if the desk is closed.
    fn seat_at(&self, desk: &Arc<Desk>, seat: &Shared) -> bool {
        let kind = || desk.host.as_ref().map_or(Kind::ByHand, |host| Kind::Hired(host.clone()));
        let mut state = seat.state.lock();
        let is_new = !state.drivers.contains(desk.number);
        if is_new {
            state.drivers.adopt(desk.number, kind());
        }
        drop(state);
        if is_new {
            // It has not looked yet: whoever enters the line meanwhile does not ring. And it may be the user's, and panic.
            wake_each([Waker::from(Arc::new(Bell { desk: Arc::clone(desk), seat: seat.weak() }))]);
        }
        // Who closes a desk says so first, and then looks for its entries everywhere.
        let ended = desk.tray.lock().ended;
        if ended {
            seat.remove_driver(desk.number);
        }
        !ended
    }

    /// Desks in the user's hands serve every new seat: whoever waits outside of all runtimes relies on them.
    pub(super) fn welcome(&self, seat: &Shared) {
        if self.by_hand.load(Ordering::Relaxed) == 0 {
            return;
        }
        let by_hand: Vec<_> = self.desks.lock().iter().filter(|desk| desk.host.is_none()).cloned().collect();
        for desk in by_hand {
            self.seat_at(&desk, seat);
        }
    }

    /// The map is gone: the attendants find that out and end.
    pub(super) fn close(&self) {
        let desks = std::mem::take(&mut *self.desks.lock());
        wake_each(desks.iter().filter_map(|desk| desk.tray.lock().waker.take()));
    }
}

impl Warden for Arc<Hub> {
    fn hire(&self, host: &Handle, seat: &Shared) -> bool {
        self.desk(host).is_some_and(|desk| self.seat_at(&desk, seat))
    }

    fn let_go(&self, mark: u64) {
        if let Some(landlord) = self.landlord.upgrade() {
            landlord.let_go(mark);
        }
    }
}
