//! Who sleeps for all keys of a map: one task per runtime that has waiters, over one queue of due instants.
//!
//! A seat's line has a driver entry for each such runtime, as every line has; its waker does not wake a task of its own
//! but puts the seat onto the runtime's [`Desk`]. The [`Attendant`] of the desk serves what is on it and what is due,
//! sleeps until the next instant in its queue, and gives up seats on which nobody waited for a while. A key on which
//! nobody waits has no seat, and so no entry anywhere here.

use super::agenda::Agenda;
use crate::alarm::Alarm;
use crate::clock::Time;
use crate::drivers::{Kind, OF_MANY};
use crate::shared::{Drive, Shared, Warden, instant_anyway};
use crate::sync::Mutex;
use crate::wakes::wake_each;
use pin_project::{pin_project, pinned_drop};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::runtime::Handle;

/// How many seats an attendant looks at before it yields: as many as a limiter's own driver delivers grants.
const SEATS_PER_TURN: usize = 1_000;
/// How long a seat is kept after its last waiter, in nanoseconds, so that a task that asks again and again does not have it
/// made anew each time. It doubles each time the seat is found in use without anybody waiting.
const LINGER: u64 = 100_000_000;
const MOST_DOUBLINGS: u32 = 12;
/// So few useless entries are not worth going through the queue for.
const SMALL: usize = 64;
/// The numbers of all desks there are: those of several maps meet in the line of a limiter above them.
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
    /// The attendant's, while it sleeps.
    waker: Option<Waker>,
    /// The attendant is gone.
    ended: bool,
}

/// What a seat's line rings when it has to be served earlier than was said before.
#[derive(Debug)]
struct Bell {
    desk: Arc<Desk>,
    seat: Weak<Shared>,
    /// It is in the queue to be given up.
    lingers: AtomicBool,
    /// Odd while its line is noted in the queue, by this number. The attendant's alone.
    noted: AtomicU64,
}

impl Bell {
    fn new(desk: &Arc<Desk>, seat: &Shared) -> Self {
        Self { desk: Arc::clone(desk), seat: seat.weak(), lingers: AtomicBool::new(false), noted: AtomicU64::new(0) }
    }

    /// What is noted of its line from now on.
    fn note(&self) -> Errand {
        Errand::Due(self.noted.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether an errand was noted and nothing else since: else it is of no use any more.
    fn is_noted(&self, errand: Errand) -> bool {
        !matches!(errand, Errand::Due(number) if number != self.noted.load(Ordering::Relaxed))
    }

    /// Its line is looked at now. True if it was noted in the queue.
    fn unnote(&self) -> bool {
        let number = self.noted.load(Ordering::Relaxed);
        self.noted.store(number.next_multiple_of(2), Ordering::Relaxed);
        number % 2 == 1
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut tray = self.desk.tray.lock();
        if tray.ended {
            return;
        }
        tray.seats.push(Arc::clone(&self));
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
            wake_each([Waker::from(Arc::new(Bell::new(desk, seat)))]);
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

/// What is to be done for a seat.
type Task = (Arc<Bell>, Errand);

#[derive(Clone, Copy, Debug)]
enum Errand {
    /// It has rung.
    Serve,
    /// The instant has come that was noted by this number.
    Due(u64),
    /// Nobody waited when this was written down. How often it was found in use since.
    GiveUp(u32),
}

/// Serves the seats of one desk.
#[pin_project(PinnedDrop)]
pub(super) struct Attendant {
    hub: Arc<Hub>,
    desk: Arc<Desk>,
    /// What was on the tray.
    rung: Vec<Arc<Bell>>,
    agenda: Agenda<Task>,
    /// How many entries of the agenda are of no use any more.
    stale: usize,
    /// What has come due and has not been done yet.
    due: VecDeque<Task>,
    known: bool,
    #[pin]
    alarm: Alarm,
}

impl fmt::Debug for Attendant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attendant").field("due", &self.due.len()).finish_non_exhaustive()
    }
}

impl Attendant {
    fn new(hub: Arc<Hub>, desk: Arc<Desk>) -> Self {
        let known = desk.host.is_some();
        let (agenda, due) = (Agenda::new(), VecDeque::new());
        Self { hub, desk, rung: Vec::new(), agenda, stale: 0, due, known, alarm: Alarm::unset() }
    }
}

impl Future for Attendant {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(landlord) = this.hub.landlord.upgrade() else { return Poll::Ready(()) };
        if !*this.known {
            // In the user's hands: from the first poll on it serves everybody.
            *this.known = true;
            this.hub.by_hand.fetch_add(1, Ordering::Relaxed);
            this.hub.desks.lock().push(Arc::clone(this.desk));
            // Runtimes with waiters have the roof served by drivers of its own.
            for seat in landlord.seats().iter().chain(&this.hub.roof) {
                this.hub.seat_at(this.desk, seat);
            }
        }
        let mut looks = 0;
        loop {
            collect(this.desk, this.rung, cx.waker());
            this.due.extend(this.rung.drain(..).map(|bell| (bell, Errand::Serve)));
            // A clock that panics says that nothing is due yet.
            let now = catch_unwind(AssertUnwindSafe(|| this.hub.time.now())).unwrap_or(0);
            this.agenda.take_due(now, this.due);
            while let Some((bell, errand)) = this.due.pop_front() {
                match errand {
                    Errand::Serve => *this.stale += usize::from(bell.unnote()),
                    Errand::Due(_) if bell.is_noted(errand) => _ = bell.unnote(),
                    Errand::Due(_) => {
                        *this.stale = this.stale.saturating_sub(1);
                        continue;
                    }
                    Errand::GiveUp(_) => {}
                }
                match run(&bell, errand, this.desk.number, &*landlord, now) {
                    Next::Nothing => {}
                    Next::Again => {
                        // As many were served as one limiter's own driver does in a turn.
                        this.due.push_back((bell, Errand::Serve));
                        looks = SEATS_PER_TURN - 1;
                    }
                    Next::Due(at) => {
                        let note = bell.note();
                        this.agenda.add(at, (bell, note));
                    }
                    Next::GiveUp(at, times) => this.agenda.add(at, (bell, Errand::GiveUp(times))),
                }
                looks += 1;
                if looks == SEATS_PER_TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            // Half of it at most, so that this costs each entry two steps.
            if *this.stale > this.agenda.len() / 2 + SMALL {
                this.agenda.retain(|(bell, errand)| bell.is_noted(*errand));
                *this.stale = 0;
            }
            let Some(next) = this.agenda.next() else { return Poll::Pending };
            if next > now {
                ready!(this.alarm.as_mut().poll_until(instant_anyway(&this.hub.time, next), cx));
            }
        }
    }
}

/// Takes what is on the tray; whoever puts something there from now on wakes `waker`.
fn collect(desk: &Desk, rung: &mut Vec<Arc<Bell>>, waker: &Waker) {
    let waker = waker.clone();
    let mut tray = desk.tray.lock();
    std::mem::swap(&mut tray.seats, rung);
    let old = tray.waker.replace(waker);
    drop(tray);
    drop(old);
}

/// What is to be done next for a seat.
enum Next {
    Nothing,
    /// More is due at once.
    Again,
    /// Look at its line at this instant.
    Due(u64),
    GiveUp(u64, u32),
}

/// Does an errand.
fn run(bell: &Arc<Bell>, errand: Errand, number: u64, landlord: &dyn Landlord, now: u64) -> Next {
    let Some(seat) = bell.seat.upgrade() else { return Next::Nothing };
    match errand {
        Errand::Serve | Errand::Due(_) => match seat.drive(number, &Waker::from(Arc::clone(bell))) {
            Drive::Yield => Next::Again,
            Drive::Until { due: u64::MAX, .. } if bell.lingers.swap(true, Ordering::Relaxed) => Next::Nothing,
            Drive::Until { due: u64::MAX, .. } => Next::GiveUp(now.saturating_add(LINGER), 0),
            Drive::Until { due, .. } => Next::Due(due),
        },
        Errand::GiveUp(times) => {
            let (waits, hash) = (seat.is_waited_on(), seat.mark());
            drop(seat);
            // Whoever waits now will be served here, and so end up here again.
            let is_gone = || hash.is_none_or(|hash| landlord.retire(bell.seat.as_ptr(), hash, now));
            if waits || times == MOST_DOUBLINGS || is_gone() {
                bell.lingers.store(false, Ordering::Relaxed);
                return Next::Nothing;
            }
            Next::GiveUp(now.saturating_add(LINGER << times), times + 1)
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Attendant {
    /// The runtime goes away, or the user let go of it: its entries in all lines go too, and whoever waits looks again.
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        let mut tray = this.desk.tray.lock();
        tray.ended = true;
        let left = std::mem::take(&mut *tray);
        tray.ended = true;
        drop(tray);
        drop(left);
        let number = this.desk.number;
        this.hub.desks.lock().retain(|desk| desk.number != number);
        if let Some(roof) = &this.hub.roof {
            roof.remove_driver(number);
        }
        if let Some(landlord) = this.hub.landlord.upgrade() {
            for seat in landlord.seats() {
                seat.remove_driver(number);
            }
        }
    }
}
