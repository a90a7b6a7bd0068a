//! Who serves the line when its time has come: drivers, hired where somebody waits.

use super::{Core, Drive, drop_quietly};
use crate::clock::Time;
use crate::core::alarm::Alarm;
#[cfg(feature = "keyed")]
use crate::core::drivers::NextLook;
use crate::core::drivers::{Driver, Kind};
use crate::core::joint::JointClaim;
use crate::core::replenisher::{Registration, Replenisher};
use crate::core::state::{Sample, ServeResult, State};
use crate::core::sync::MutexGuard;
use crate::core::wakes::{Wakes, wake_each};
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
pub(crate) fn instant_or_retry(time: &Time, at: u64) -> Instant {
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
pub(crate) enum LookReason {
    /// It has noted so, by this number.
    Noted(u64),
    /// Its waker was used. This one is for the next time.
    Woken(Waker),
}

/// What it found there.
#[cfg(feature = "keyed")]
#[derive(Debug)]
pub(crate) enum Look {
    /// Something else was noted since, and the line is not looked at.
    Stale,
    NextLook(NextLook),
    /// More is due, but others want to run.
    Yield,
}

/// Drives the lines of many limiters at once.
#[cfg(feature = "keyed")]
pub(crate) trait QueueDriver: std::fmt::Debug + Send + Sync {
    /// Has `host` serve this line from now on. False if it is shutting down.
    fn hire(&self, host: &Handle, core: &Core) -> bool;
    /// Somebody held the line of this mark for a moment, and does not any more.
    fn let_go(&self, key_hash: u64);
}

impl Core {
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
        while let Some(core) = tied.pop() {
            if let Hired::Now = core.hire(host) {
                tied.extend(core.tied_to());
            }
        }
        true
    }

    /// Spawns a driver on `host`, unless it has one here, and the keeper of a shared line, unless that is somewhere.
    fn hire(&self, host: &Handle) -> Hired {
        #[cfg(feature = "redis")]
        self.start_refill_task(host);
        let mut state = self.state.lock();
        if state.drivers.serve(host) {
            return Hired::Before;
        }
        #[cfg(feature = "keyed")]
        if let Some(link) = &self.rare.link {
            drop(state);
            return if link.driver.hire(host, self) { Hired::Now } else { Hired::InVain };
        }
        // Registered at once, so that the next waiter does not do it again.
        let id = state.drivers.add(Kind::Hired(host.clone()));
        drop(state);
        host.spawn(Replenisher::registered(Registration::adopt(self.weak(), id)));
        if self.state.lock().drivers.contains(id) { Hired::Now } else { Hired::InVain }
    }

    /// The lines that joint claims in this one also stand in, or its roof.
    fn tied_to(&self) -> Vec<Arc<Core>> {
        #[cfg(feature = "keyed")]
        if let Some(parent_link) = self.parent_link() {
            return vec![Arc::clone(&parent_link.limiter)];
        }
        let state = self.state.lock();
        if !state.queue.is_joint() {
            return Vec::new();
        }
        let parts = state.queue.iter().filter_map(|waiter| waiter.part.as_ref());
        let parts = parts.filter(|part| !part.is_parent_ticket());
        let joints: Vec<Arc<JointClaim>> = parts.map(|part| Arc::clone(&part.joint)).collect();
        drop(state);
        joints.iter().flat_map(|joint| joint.members()).filter(|core| !std::ptr::eq(&**core, self)).collect()
    }

    /// Has the lines that joint claims in this one also stand in look, and those beyond. True if there are any.
    pub(crate) fn tick_tied(&self) -> bool {
        #[cfg(feature = "keyed")]
        // Who is under a roof has it driven.
        let mut tied = self.parent().map_or_else(|| self.tied_to(), |parent_link| parent_link.tied_to());
        #[cfg(not(feature = "keyed"))]
        let mut tied = self.tied_to();
        let mut seen: Vec<Arc<Core>> = self.weak().upgrade().into_iter().collect();
        let ours = seen.len();
        while let Some(core) = tied.pop() {
            if seen.iter().any(|known| Arc::ptr_eq(known, &core)) {
                continue;
            }
            core.tick();
            tied.extend(core.tied_to());
            seen.push(core);
        }
        seen.len() > ours
    }

    /// The runtimes that serve this line.
    pub(crate) fn hosts(&self) -> Vec<Handle> {
        self.state.lock().drivers.hosts().cloned().collect()
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.rare.weak.clone()
    }

    pub(crate) fn add_driver(&self, kind: Kind) -> u64 {
        self.state.lock().drivers.add(kind)
    }

    /// Driver `id` ends. If waiters may have relied on it, they look again, so that their runtimes find it gone. A thread's
    /// departure wakes at most the drivers that now wake first.
    pub(crate) fn remove_driver(&self, id: u64) {
        let mut state = self.state.lock();
        let own = state.drivers.remove(id);
        let due = state.last_due();
        let successors = state.drivers.call_successors(due);
        let is_missed = own.as_ref().is_some_and(Driver::serves_others);
        let waiting = if is_missed { state.queue.take_wakers() } else { Vec::new() };
        drop(state);
        drop_quietly(own);
        wake_each(waiting.into_iter().chain(successors.into_iter().flatten()));
    }

    /// One turn of a driver: serves what is due, then says until when to sleep; `waker` cuts the sleep short.
    pub(crate) fn drive(&self, id: u64, waker: &Waker) -> Drive {
        let waker = waker.clone();
        // A clock that panics stands still: with its driver many would lose theirs who are not in this line.
        let sample = self.sample_or_last();
        let state = self.state.lock();
        let sample = sample.unwrap_or_else(|| state.last_sample());
        let slept = self.serve_turn(state, sample, |state, due| {
            let crowd = state.queue.len() > 1;
            let (alarm, old) = state.drivers.sleep(id, due, sample.now, waker);
            (Drive::Until { alarm, crowd }, old)
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
            if state.finish(&self.rovers, sample.now, &mut wakes) == ServeResult::Done {
                let due = state.last_due();
                let rested = rest(&mut state, due);
                self.note_parent_poll(&state, &mut wakes);
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
    pub(crate) fn drive_one(&self, id: u64, now: u64, why: LookReason) -> Look {
        let state = self.state.lock();
        let woken = match why {
            LookReason::Noted(number) if !state.drivers.is_noted(id, number) => return Look::Stale,
            LookReason::Noted(_) => None,
            LookReason::Woken(waker) => Some(waker),
        };
        // The tail is nothing that a driver asks for.
        let sample = Sample { now, ..state.last_sample() };
        let rested = self.serve_turn(state, sample, |state, due| state.drivers.rest(id, due, now, woken));
        rested.map_or(Look::Yield, |rest| rest.map_or(Look::Stale, Look::NextLook))
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
        let stays = if state.queue.is_empty() { surely } else { state.drivers.will_look(id) };
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
        let id = limiter.core().add_driver(Kind::ByHand);
        let mut queue: Vec<_> = (0..3).map(|_| spawn(limiter.consume(1))).collect();
        let told = queue.iter_mut().map(|claim| {
            assert!(claim.poll().is_pending());
            matches!(limiter.core().drive(id, Waker::noop()), Drive::Until { crowd: true, .. })
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, true]);
    }

    #[cfg(feature = "keyed")]
    #[test]
    fn a_line_of_many_is_looked_at_by_its_last_note_and_stays_while_somebody_is_due() {
        let clock = ManualClock::new();
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let core = limiter.core();
        let id = crate::core::drivers::OF_MANY;
        core.state.lock().drivers.adopt(id, Kind::ByHand);
        let mut waiting = spawn(limiter.consume(1));
        assert!(waiting.poll().is_pending());
        let look = |why, now| match core.drive_one(id, now, why) {
            Look::NextLook(rest) => (rest.next, rest.lingers),
            other => panic!("{other:?}"),
        };
        let (next, lingers) = look(LookReason::Woken(Waker::noop().clone()), 0);
        let (due, number) = next.expect("somebody waits");
        assert_eq!((due, lingers), (1_000_000_000, false));
        assert!(core.is_noted(id, number) && !core.is_noted(id, number + 2));
        assert!(core.stays(id, false));
        clock.advance(std::time::Duration::from_secs(1));
        assert!(matches!(core.drive_one(id, due, LookReason::Noted(number + 2)), Look::Stale));
        assert_eq!(look(LookReason::Noted(number), due), (None, true));
        assert!(!core.stays(id, false));
        assert!(core.stays(id, true));
    }
}
