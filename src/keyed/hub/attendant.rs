//! Who serves the seats of one desk.

use super::{Bell, Desk, Hub, Landlord, SMALL};
use crate::alarm::Alarm;
use crate::keyed::agenda::Agenda;
use crate::shared::{Drive, instant_anyway};
use pin_project::{pin_project, pinned_drop};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

/// How many seats an attendant looks at before it yields. What is woken goes through tokio's queue of 256 tasks, half of which
/// a limiter's own driver fills in a turn; here most looks wake one task, and many wake none.
const SEATS_PER_TURN: usize = 256;
/// How long a seat is kept after its last waiter, in nanoseconds, so that a task that asks again and again does not have it
/// made anew each time. It doubles each time the seat is found in use without anybody waiting.
const LINGER: u64 = 100_000_000;
const MOST_DOUBLINGS: u32 = 12;

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
pub(in crate::keyed) struct Attendant {
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
        let rung = self.desk.tray.lock().seats.len();
        f.debug_struct("Attendant").field("rung", &rung).field("due", &self.due.len()).finish_non_exhaustive()
    }
}

impl Attendant {
    pub(super) fn new(hub: Arc<Hub>, desk: Arc<Desk>) -> Self {
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
                    Errand::Due(number) if bell.is_noted(number) => _ = bell.unnote(),
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
                        let number = bell.note();
                        this.agenda.add(at, (bell, Errand::Due(number)));
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
                this.agenda.retain(|(bell, errand)| !matches!(errand, Errand::Due(number) if !bell.is_noted(*number)));
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
