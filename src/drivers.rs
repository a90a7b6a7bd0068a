//! Who sleeps for the line: one replenisher per runtime that has waiters, and blocked threads.

use crate::wakes::Wakes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread::{self, ThreadId};
use tokio::runtime::Handle;

/// Drivers that serve many lines have numbers from here on, the same in all of them.
pub(crate) const OF_MANY: u64 = 1 << 63;
/// The numbers of all others, whatever line they serve.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The registered drivers, under the limiter's lock.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// Nearly always the only one. Here, and not on the heap, since each look at one of many lines asks for it.
    first: Option<Driver>,
    /// Empty if there is no first one.
    others: Vec<Driver>,
}

#[derive(Debug)]
pub(crate) struct Driver {
    id: u64,
    kind: Kind,
    /// Wakes it when its alarm must be set earlier; `None` before it first looked, and while it is on its way to look.
    waker: Option<Waker>,
    /// The instant at which it will look by itself; 0 while it is about to look anyway.
    alarm: u64,
    #[cfg(feature = "keyed")]
    ledger: Ledger,
}

/// What the driver of many lines has written down of this one elsewhere. Here, since whoever looks at a line has its drivers
/// at hand, and one line in a hundred thousand is in no cache.
#[cfg(feature = "keyed")]
#[derive(Debug, Default)]
struct Ledger {
    /// Odd while an instant is noted, by this number.
    noted: u64,
    /// Whether it is noted to be given up.
    lingers: bool,
}

/// What a driver of many lines has to write down after a look at one.
#[cfg(feature = "keyed")]
#[derive(Debug)]
pub(crate) struct Rest {
    /// To look again at this instant, noted by this number. `None` if no clock can tell.
    pub(crate) next: Option<(u64, u64)>,
    /// That nobody is due, which was not known before.
    pub(crate) lingers: bool,
    /// What was noted before the look was still good.
    pub(crate) was_noted: bool,
    /// To be dropped without the lock.
    _old: Option<Waker>,
}

/// Who drives, and who may rely on it.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A replenisher that a waiter spawned on its runtime. The waiters of that runtime rely on it: if they are polled, so
    /// is it.
    Hired(Handle),
    /// A replenisher in the user's own hands, which may be kept and not polled. Only those who wait outside of all
    /// runtimes rely on it: they are told to have one.
    ByHand,
    /// A thread that blocks in the line. Only it relies on itself.
    Thread(ThreadId),
}

impl Driver {
    pub(crate) fn serves_others(&self) -> bool {
        !matches!(self.kind, Kind::Thread(_))
    }

    /// Whether it is to look before its alarm, now that the line is due at `due`. Who serves one line finds out by itself,
    /// a moment too early, that nobody waits any more. Who serves many is told: to have an instant in mind for each line
    /// that was ever waited on would take memory.
    fn is_late(&self, due: u64, now: u64) -> bool {
        let is_needless = || due == u64::MAX && (now.saturating_add(1)..due).contains(&self.alarm);
        self.alarm > due || (self.id >= OF_MANY && is_needless())
    }
}

impl Drivers {
    #[inline]
    fn iter(&self) -> impl Iterator<Item = &Driver> {
        self.first.iter().chain(&self.others)
    }

    #[inline]
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Driver> {
        self.first.iter_mut().chain(&mut self.others)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a caller on this thread, outside of all runtimes, can rely on somebody.
    pub(crate) fn serve_outside(&self) -> bool {
        let here = thread::current().id();
        self.iter().any(|driver| match &driver.kind {
            Kind::Hired(_) => false,
            Kind::ByHand => true,
            Kind::Thread(thread) => *thread == here,
        })
    }

    /// Whether the waiters of `runtime` can rely on somebody.
    pub(crate) fn serve(&self, runtime: &Handle) -> bool {
        self.hosts().any(|host| host.id() == runtime.id())
    }

    /// The runtimes that have a driver here.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Handle> {
        self.iter().filter_map(|driver| if let Kind::Hired(host) = &driver.kind { Some(host) } else { None })
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.iter().any(|driver| driver.id == id)
    }

    /// Registers a driver that is about to look.
    pub(crate) fn add(&mut self, kind: Kind) -> u64 {
        let id = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.adopt(id, kind);
        id
    }

    /// Registers a driver of many lines, under the number that it has in all of them.
    pub(crate) fn adopt(&mut self, id: u64, kind: Kind) {
        let driver = Driver {
            id,
            kind,
            waker: None,
            alarm: 0,
            #[cfg(feature = "keyed")]
            ledger: Ledger::default(),
        };
        match self.first {
            None => self.first = Some(driver),
            Some(_) => self.others.push(driver),
        }
    }

    /// The driver is returned to be dropped without the lock.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Driver> {
        let index = self.iter().position(|driver| driver.id == id)?;
        match index {
            0 => std::mem::replace(&mut self.first, self.others.pop()),
            index => Some(self.others.swap_remove(index - 1)),
        }
    }

    /// Driver `id` goes to sleep until `alarm`; returns its old waker, to be dropped without the lock.
    pub(crate) fn sleep(&mut self, id: u64, alarm: u64, waker: Waker) -> Option<Waker> {
        let driver = self.iter_mut().find(|driver| driver.id == id)?;
        driver.alarm = alarm;
        driver.waker.replace(waker)
    }

    /// Driver `id`, of many lines, goes on to others, and looks at this one again at `due`. Its waker stays, unless it was
    /// used and is brought back.
    #[cfg(feature = "keyed")]
    pub(crate) fn rest(&mut self, id: u64, due: u64, waker: Option<Waker>) -> Option<Rest> {
        let driver = self.iter_mut().find(|driver| driver.id == id)?;
        driver.alarm = due;
        let old = waker.and_then(|waker| driver.waker.replace(waker));
        let Ledger { noted, lingers } = &mut driver.ledger;
        let was_noted = *noted % 2 == 1;
        *noted = noted.next_multiple_of(2);
        if due == u64::MAX {
            return Some(Rest { next: None, lingers: !std::mem::replace(lingers, true), was_noted, _old: old });
        }
        *noted += 1;
        Some(Rest { next: Some((due, *noted)), lingers: false, was_noted, _old: old })
    }

    /// Whether this was noted by driver `id`, and nothing else since.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_noted(&self, id: u64, number: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.ledger.noted == number)
    }

    /// Whether driver `id` looks by itself some time, or is about to.
    #[cfg(feature = "keyed")]
    pub(crate) fn will_look(&self, id: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.alarm != u64::MAX)
    }

    /// Driver `id` has no note any more that this line is to be given up.
    #[cfg(feature = "keyed")]
    pub(crate) fn stop_lingering(&mut self, id: u64) {
        if let Some(driver) = self.iter_mut().find(|driver| driver.id == id) {
            driver.ledger.lingers = false;
        }
    }

    /// Wakes the drivers whose alarm is later than `due`, or rings for nobody. False if there was no room for all of them.
    pub(crate) fn rouse(&mut self, due: u64, now: u64, wakes: &mut Wakes) -> bool {
        for driver in self.iter_mut() {
            if driver.is_late(due, now) {
                if wakes.is_full() {
                    return false;
                }
                if let Some(waker) = driver.waker.take() {
                    wakes.push(waker);
                }
                driver.alarm = 0;
            }
        }
        true
    }

    /// All wakers, for the end.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        self.iter_mut().filter_map(|driver| driver.waker.take()).collect()
    }
}

#[cfg(all(test, feature = "keyed"))]
mod tests {
    use super::*;

    const ID: u64 = OF_MANY + 1;
    const OTHER: u64 = OF_MANY + 2;

    /// When to look again and by which note, whether to note that it may be given up, and whether an older note was good.
    fn rest(drivers: &mut Drivers, due: u64) -> (Option<(u64, u64)>, bool, bool) {
        let rest = drivers.rest(ID, due, None).expect("it is registered");
        (rest.next, rest.lingers, rest.was_noted)
    }

    #[test]
    fn a_driver_of_many_lines_knows_what_it_has_noted_of_each() {
        let mut drivers = Drivers::default();
        drivers.adopt(OTHER, Kind::ByHand);
        drivers.adopt(ID, Kind::ByHand);
        drivers.sleep(OTHER, u64::MAX, Waker::noop().clone());
        assert!(drivers.will_look(ID), "it is about to");
        assert_eq!(rest(&mut drivers, 5), (Some((5, 1)), false, false));
        assert!(drivers.is_noted(ID, 1));
        assert!(!drivers.is_noted(ID, 0) && !drivers.is_noted(OTHER, 1));
        assert!(drivers.will_look(ID) && !drivers.will_look(OTHER));
        assert_eq!(rest(&mut drivers, 7), (Some((7, 3)), false, true));
        assert!(drivers.is_noted(ID, 3) && !drivers.is_noted(ID, 1));
        // Nobody is due any more.
        assert_eq!(rest(&mut drivers, u64::MAX), (None, true, true));
        assert!(!drivers.is_noted(ID, 3) && !drivers.will_look(ID));
        assert_eq!(rest(&mut drivers, u64::MAX), (None, false, false));
        drivers.stop_lingering(OTHER);
        assert_eq!(rest(&mut drivers, u64::MAX), (None, false, false));
        drivers.stop_lingering(ID);
        assert_eq!(rest(&mut drivers, u64::MAX), (None, true, false));
        assert_eq!(rest(&mut drivers, 9), (Some((9, 5)), false, false));
    }

    #[test]
    fn whoever_goes_first_leaves_its_place_to_another() {
        let mut drivers = Drivers::default();
        let all: Vec<u64> = (0..3).map(|_| drivers.add(Kind::ByHand)).collect();
        for (gone, left) in [(0, vec![1, 2]), (2, vec![1]), (1, vec![])] {
            assert!(drivers.remove(all[gone]).is_some() && drivers.remove(all[gone]).is_none());
            assert_eq!((0..3).filter(|index| drivers.contains(all[*index])).collect::<Vec<_>>(), left);
        }
    }
}
