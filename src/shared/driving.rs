//! Who serves the line when its time has come: drivers, hired where somebody waits.

use super::{Drive, Shared, drop_quietly};
use crate::alarm::Alarm;
use crate::clock::Time;
#[cfg(feature = "keyed")]
use crate::drivers::Rest;
use crate::drivers::{Driver, Kind};
use crate::knot::Knot;
use crate::replenisher::{Registration, Replenisher};
use crate::state::{Progress, Sample, State};
use crate::sync::MutexGuard;
use crate::wakes::{Wakes, wake_each};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// How many batches a driver delivers before it yields: 128 grants, half of what the queue of a tokio worker holds. What is
/// woken beyond that goes through the queue that all workers share: at 100,000 tasks and a million grants per second,
/// turns of a thousand grants fell behind, and were 100 ms late where these are 1 ms. (And a poll that served 28,000
/// starved the timers.)
const BATCHES_PER_TURN: usize = 4;

/// After how long a clock that panics is asked again: a tick of tokio's.
const RETRY: Duration = Duration::from_millis(1);

/// When `at` will be, for whoever sleeps for others: a clock that panics is not to end them.
pub(crate) fn instant_anyway(time: &Time, at: u64) -> Instant {
    catch_unwind(AssertUnwindSafe(|| time.instant(at))).unwrap_or_else(|_| Instant::now() + RETRY)
}

enum Hired {
    Now,
    Before,
    /// The runtime is shutting down, and dropped the driver at once.
    InVain,
}

/// Why the driver of many lines looks at one of them.
#[cfg(feature = "keyed")]
#[derive(Debug)]
pub(crate) enum Why {
    /// It has noted so, by this number.
    Noted(u64),
    /// Its waker was used. This one is for the next time.
    Rung(Waker),
}

/// What it found there.
#[cfg(feature = "keyed")]
#[derive(Debug)]
pub(crate) enum Look {
    /// Something else was noted since, and the line is not looked at.
    Stale,
    Rest(Rest),
    /// More is due, but others want to run.
    Yield,
}

/// Drives the lines of many limiters at once.
#[cfg(feature = "keyed")]
pub(crate) trait Warden: std::fmt::Debug + Send + Sync {
    /// Has `host` serve this line from now on. False if it is shutting down.
    fn hire(&self, host: &Handle, shared: &Shared) -> bool;
    /// Somebody held the line of this mark for a moment, and does not any more.
    fn let_go(&self, mark: u64);
}

impl Shared {
    /// The runtime that would serve a caller who has to wait; `None` where no timer can, or need.
    pub(crate) fn host(&self) -> Option<Handle> {
        if self.time.is_manual() { None } else { Handle::try_current().ok() }
    }

    /// Whether somebody will serve the line for a caller hosted here, or can be hired to.
    pub(crate) fn is_driven(&self, state: &State, host: &Option<Handle>) -> bool {
        self.time.is_manual() || host.is_some() || state.drivers.serve_outside()
    }

    /// Whether nobody serves the line for a caller hosted here, yet or any more.
    pub(super) fn is_unserved(&self, state: &State, host: &Option<Handle>) -> bool {
        match host {
            Some(host) => !state.serves(host),
            None => !self.is_driven(state, host) || state.is_unkept(),
        }
    }

    /// Has the runtime we are on serve this line. False if it is shutting down.
    ///
    /// # Panics
    /// If it has no timers: in the caller's hands, where it can be seen, rather than in a background task.
    pub(crate) fn serve_here(&self, host: &Handle) -> bool {
        if self.state.lock().serves(host) {
            return true;
        }
        drop(Alarm::new());
        self.serve_from(host)
    }

    /// Has runtime `host` serve this line and all that its joint claims stand in: whoever waits on `host` behind one of
    /// them is not to depend on other runtimes. (So every line tied to one that `host` serves is served by it too.)
    /// False if it is shutting down.
    pub(crate) fn serve_from(&self, host: &Handle) -> bool {
        match self.hire(host) {
            Hired::Now => {}
            Hired::Before => return true,
            Hired::InVain => return false,
        }
        let mut tied = self.tied_to();
        while let Some(shared) = tied.pop() {
            if let Hired::Now = shared.hire(host) {
                tied.extend(shared.tied_to());
            }
        }
        true
    }

    /// Spawns a driver on `host`, unless it has one here, and the keeper of a shared line, unless that is somewhere.
    fn hire(&self, host: &Handle) -> Hired {
        #[cfg(feature = "redis")]
        self.fill_post(host);
        let mut state = self.state.lock();
        if state.drivers.serve(host) {
            return Hired::Before;
        }
        #[cfg(feature = "keyed")]
        if let Some(ward) = &self.aside.ward {
            drop(state);
            return if ward.warden.hire(host, self) { Hired::Now } else { Hired::InVain };
        }
        // Registered at once, so that the next waiter does not do it again.
        let id = state.drivers.add(Kind::Hired(host.clone()));
        drop(state);
        host.spawn(Replenisher::registered(Registration::adopt(self.weak(), id)));
        if self.state.lock().drivers.contains(id) { Hired::Now } else { Hired::InVain }
    }

    /// The lines that joint claims in this one also stand in, or its roof.
    fn tied_to(&self) -> Vec<Arc<Shared>> {
        #[cfg(feature = "keyed")]
        if let Some(roof) = self.roof() {
            return vec![Arc::clone(&roof.limiter)];
        }
        let state = self.state.lock();
        let Some(parts) = state.line.parts() else { return Vec::new() };
        // Those behind the heads stand in the same lines.
        let knots: Vec<Arc<Knot>> = parts.heads().map(|(_, part)| Arc::clone(&part.strand.knot)).collect();
        drop(state);
        knots.iter().flat_map(|knot| knot.members()).filter(|shared| !std::ptr::eq(&**shared, self)).collect()
    }

    /// Has the lines that joint claims in this one also stand in look, and those beyond. True if there are any.
    pub(crate) fn tick_tied(&self) -> bool {
        #[cfg(feature = "keyed")]
        // Who is under a roof has it driven.
        let mut tied = self.above().map_or_else(|| self.tied_to(), |roof| roof.tied_to());
        #[cfg(not(feature = "keyed"))]
        let mut tied = self.tied_to();
        let mut seen: Vec<Arc<Shared>> = self.weak().upgrade().into_iter().collect();
        let ours = seen.len();
        while let Some(shared) = tied.pop() {
            if seen.iter().any(|known| Arc::ptr_eq(known, &shared)) {
                continue;
            }
            shared.tick();
            tied.extend(shared.tied_to());
            seen.push(shared);
        }
        seen.len() > ours
    }

    /// The runtimes that serve this line.
    pub(crate) fn hosts(&self) -> Vec<Handle> {
        self.state.lock().drivers.hosts().cloned().collect()
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.aside.weak.clone()
    }

    pub(crate) fn add_driver(&self, kind: Kind) -> u64 {
        self.state.lock().drivers.add(kind)
    }

    /// Driver `id` ends. Whoever waits looks again, so that the runtimes of the others find it gone.
    pub(crate) fn remove_driver(&self, id: u64) {
        let mut state = self.state.lock();
        let own = state.drivers.remove(id);
        let is_missed = own.as_ref().is_some_and(Driver::serves_others);
        let waiting = if is_missed { state.line.take_wakers() } else { Vec::new() };
        drop(state);
        drop_quietly(own);
        wake_each(waiting);
    }

    /// One turn of a driver: serves what is due, then says until when to sleep; `waker` cuts the sleep short.
    pub(crate) fn drive(&self, id: u64, waker: &Waker) -> Drive {
        let waker = waker.clone();
        // A clock that panics stands still: with its driver many would lose theirs who are not in this line.
        let sample = self.sample_anyway();
        let state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        let slept = self.serve_turn(state, sample, |state, due| {
            let crowd = state.line.len() > 1;
            (Drive::Until { due, crowd }, state.drivers.sleep(id, due, waker))
        });
        slept.map_or(Drive::Yield, |(until, _old)| until)
    }

    /// Serves what is due, so much of it as a driver may in one turn, and has the driver `rest` under the same lock: until the
    /// instant that it is told. `None` if more is due, but others want to run.
    fn serve_turn<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut sample: Sample,
        rest: impl FnOnce(&mut State, u64) -> R,
    ) -> Option<R> {
        let mut wakes = Wakes::default();
        for _ in 0..BATCHES_PER_TURN {
            if state.finish(&self.rovers, sample.now, &mut wakes) == Progress::Done {
                let due = state.last_due();
                let rested = rest(&mut state, due);
                self.listen(&state, &mut wakes);
                drop(state);
                Self::leave(&mut wakes);
                return Some(rested);
            }
            (state, sample) = self.again(state, sample, &mut wakes);
        }
        drop(state);
        Self::leave(&mut wakes);
        None
    }

    /// One turn of driver `id`, which serves many lines by one reading of the time: what is due by then.
    #[cfg(feature = "keyed")]
    pub(crate) fn drive_one(&self, id: u64, now: u64, why: Why) -> Look {
        let state = self.state.lock();
        let rung = match why {
            Why::Noted(number) if !state.drivers.is_noted(id, number) => return Look::Stale,
            Why::Noted(_) => None,
            Why::Rung(waker) => Some(waker),
        };
        // The tail is nothing that a driver asks for.
        let sample = Sample { now, ..state.last_sample() };
        let rested = self.serve_turn(state, sample, |state, due| state.drivers.rest(id, due, rung));
        rested.map_or(Look::Yield, |rest| rest.map_or(Look::Stale, Look::Rest))
    }

    /// Whether this is what driver `id` has noted of the line.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_noted(&self, id: u64, number: u64) -> bool {
        self.state.lock().drivers.is_noted(id, number)
    }

    /// Whether the line stays: because somebody waits who is due, or `surely` if nobody waits. Then driver `id` has no note any
    /// more to give it up. Where somebody waits for other lines, who serves them does not tell it.
    #[cfg(feature = "keyed")]
    pub(crate) fn stays(&self, id: u64, surely: bool) -> bool {
        let mut state = self.state.lock();
        let stays = if state.line.is_empty() { surely } else { state.drivers.will_look(id) };
        if stays {
            state.drivers.stop_lingering(id);
        }
        stays
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{Limiter, ManualClock, Quota};
    use tokio_test::task::spawn;

    #[test]
    fn a_driver_is_told_whether_several_wait() {
        let quota = Quota::manual(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(ManualClock::new()).build().unwrap();
        let id = limiter.shared().add_driver(Kind::ByHand);
        let mut line: Vec<_> = (0..3).map(|_| spawn(limiter.consume(1))).collect();
        let told = line.iter_mut().map(|claim| {
            assert!(claim.poll().is_pending());
            matches!(limiter.shared().drive(id, Waker::noop()), Drive::Until { crowd: true, .. })
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, true]);
    }

    #[cfg(feature = "keyed")]
    #[test]
    fn a_line_of_many_is_looked_at_by_its_last_note_and_stays_while_somebody_is_due() {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let shared = limiter.shared();
        let id = crate::drivers::OF_MANY;
        shared.state.lock().drivers.adopt(id, Kind::ByHand);
        let mut waiting = spawn(limiter.consume(1));
        assert!(waiting.poll().is_pending());
        let look = |why, now| match shared.drive_one(id, now, why) {
            Look::Rest(rest) => (rest.next, rest.lingers),
            other => panic!("{other:?}"),
        };
        let (next, lingers) = look(Why::Rung(Waker::noop().clone()), 0);
        let (due, number) = next.expect("somebody waits");
        assert_eq!((due, lingers), (1_000_000_000, false));
        assert!(shared.is_noted(id, number) && !shared.is_noted(id, number + 2));
        assert!(shared.stays(id, false));
        clock.advance(std::time::Duration::from_secs(1));
        assert!(matches!(shared.drive_one(id, due, Why::Noted(number + 2)), Look::Stale));
        assert_eq!(look(Why::Noted(number), due), (None, true));
        assert!(!shared.stays(id, false));
        assert!(shared.stays(id, true));
    }
}
