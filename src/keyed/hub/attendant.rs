//! Who serves the seats of one desk.

use super::{Bell, Desk, Hub, Landlord, SMALL};
use crate::alarm::Alarm;
use crate::keyed::agenda::Agenda;
use crate::replenisher::Replenisher;
use crate::shared::{Look, Shared, Why, instant_anyway};
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
const SEATS_PER_TURN: usize = 256;
/// How long a seat is kept after its last waiter, in nanoseconds, so that a task that asks again and again does not have it
/// made anew each time. It doubles each time the seat is found in use without anybody waiting.
const LINGER: u64 = 100_000_000;
const MOST_DOUBLINGS: u32 = 12;

/// What is to be done for a seat.
#[derive(Debug)]
enum Errand {
    /// It has rung: serve it, and hang the bell up again.
    Serve(Arc<Bell>),
    /// The instant has come that was noted by this number.
    Due(Weak<Shared>, u64),
    /// Nobody waited when this was written down. How often it was found in use since.
    GiveUp(Weak<Shared>, u32),
}

/// Serves the seats of one desk.
#[pin_project(PinnedDrop)]
pub(in crate::keyed) struct Attendant {
    hub: Arc<Hub>,
    desk: Arc<Desk>,
    /// What was on the tray.
    rung: Vec<Arc<Bell>>,
    agenda: Agenda<Errand>,
    /// How many entries of the agenda are of no use any more.
    stale: usize,
    /// What has come due and has not been done yet.
    due: VecDeque<Errand>,
    known: bool,
    #[pin]
    alarm: Alarm,
    /// Serves a limiter above all keys, by that limiter's own time, for an attendant in the user's hands. Runtimes with waiters
    /// have it served by drivers of its own.
    #[pin]
    roof: Option<Replenisher>,
}

impl fmt::Debug for Attendant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rung = self.desk.tray.lock().seats.len();
        f.debug_struct("Attendant").field("rung", &rung).field("due", &self.due.len()).finish_non_exhaustive()
    }
}

impl Attendant {
    pub(super) fn new(hub: Arc<Hub>, desk: Arc<Desk>) -> Self {
        let known = desk.host.is_some();
        let roof = hub.roof.as_ref().filter(|_| !known).map(|roof| Replenisher::new(roof.weak()));
        let (agenda, due) = (Agenda::new(), VecDeque::new());
        Self { hub, desk, rung: Vec::new(), agenda, stale: 0, due, known, alarm: Alarm::unset(), roof }
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
            for seat in landlord.seats() {
                this.hub.seat_at(this.desk, &seat);
            }
        }
        if let Some(roof) = this.roof.as_mut().as_pin_mut() {
            let _pending = roof.poll(cx);
        }
        let mut looks = 0;
        loop {
            collect(this.desk, this.rung, cx.waker());
            this.due.extend(this.rung.drain(..).map(Errand::Serve));
            // A clock that panics says that nothing is due yet.
            let now = catch_unwind(AssertUnwindSafe(|| this.hub.time.now())).unwrap_or(0);
            this.agenda.take_due(now, this.due);
            while let Some(errand) = this.due.pop_front() {
                match run(errand, this.desk.number, &*landlord, now, this.stale) {
                    Next::Nothing => {}
                    Next::Again(errand) => {
                        // As many were served as one limiter's own driver does in a turn.
                        this.due.push_back(errand);
                        looks = SEATS_PER_TURN - 1;
                    }
                    Next::At(at, errand) => this.agenda.add(at, errand),
                }
                looks += 1;
                if looks == SEATS_PER_TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            // Half of it at most, so that this costs each entry two steps.
            if *this.stale > this.agenda.len() / 2 + SMALL {
                this.agenda.retain(|errand| is_good(errand, this.desk.number, &*landlord));
                *this.stale = 0;
            }
            let Some(next) = this.agenda.next() else {
                (*this.due, *this.rung) = Default::default();
                this.desk.tray.lock().shrink();
                return Poll::Pending;
            };
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
    Again(Errand),
    At(u64, Errand),
}

/// Does an errand of the desk with this number, by a reading of the time.
fn run(errand: Errand, number: u64, landlord: &dyn Landlord, now: u64, stale: &mut usize) -> Next {
    let (seat, noted, bell) = match errand {
        Errand::Serve(bell) => (bell.seat.clone(), 0, Some(bell)),
        Errand::Due(seat, noted) => (seat, noted, None),
        Errand::GiveUp(seat, times) => return give_up(seat, times, number, landlord, now),
    };
    let Some(held) = seat.upgrade() else {
        // What was noted of it is known to nobody now. If nothing was, then one too many, which costs less than one too few.
        *stale += usize::from(bell.is_some());
        return Next::Nothing;
    };
    let why = bell.as_ref().map_or(Why::Noted(noted), |bell| Why::Rung(Waker::from(Arc::clone(bell))));
    match held.drive_one(number, now, why) {
        Look::Yield => Next::Again(bell.map_or(Errand::Due(seat, noted), Errand::Serve)),
        Look::Stale => {
            *stale = stale.saturating_sub(1);
            Next::Nothing
        }
        Look::Rest(rest) => {
            *stale += usize::from(rest.was_noted && bell.is_some());
            if let Some((due, number)) = rest.next {
                return Next::At(due, Errand::Due(seat, number));
            }
            let_go(held, landlord);
            if rest.lingers { Next::At(now.saturating_add(LINGER), Errand::GiveUp(seat, 0)) } else { Next::Nothing }
        }
    }
}

/// Gives up a seat if nobody needs it.
fn give_up(seat: Weak<Shared>, times: u32, number: u64, landlord: &dyn Landlord, now: u64) -> Next {
    let Some(held) = seat.upgrade() else { return Next::Nothing };
    // Whoever is due will be served here, and so end up here again. Who waits for others may be served by them.
    if held.stays(number, times == MOST_DOUBLINGS) {
        return Next::Nothing;
    }
    let hash = held.mark();
    drop(held);
    if hash.is_none_or(|hash| landlord.retire(seat.as_ptr(), hash, now)) {
        // It is gone; or is that of the overflow, and stays.
        seat.upgrade().inspect(|seat| _ = seat.stays(number, true));
        return Next::Nothing;
    }
    Next::At(now.saturating_add(LINGER << times), Errand::GiveUp(seat, (times + 1) % (MOST_DOUBLINGS + 1)))
}

/// Whether an errand is still of use.
fn is_good(errand: &Errand, number: u64, landlord: &dyn Landlord) -> bool {
    let Errand::Due(seat, noted) = errand else { return true };
    let Some(held) = seat.upgrade() else { return false };
    let is_good = held.is_noted(number, *noted);
    let_go(held, landlord);
    is_good
}

/// Whoever swept meanwhile found it held.
fn let_go(seat: Arc<Shared>, landlord: &dyn Landlord) {
    let hash = seat.mark();
    drop(seat);
    hash.inspect(|hash| landlord.let_go(*hash));
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
        if let Some(landlord) = this.hub.landlord.upgrade() {
            for seat in landlord.seats() {
                seat.remove_driver(number);
            }
        }
    }
}
