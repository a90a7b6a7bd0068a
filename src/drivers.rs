//! Who sleeps for the line: one replenisher per runtime that has waiters, and blocked threads.

use crate::wakes::Wakes;
use std::task::Waker;
use std::thread::{self, ThreadId};
use tokio::runtime::Handle;

/// Drivers that serve many lines have numbers from here on, the same in all of them.
pub(crate) const OF_MANY: u64 = 1 << 63;

/// The registered drivers, under the limiter's lock.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    list: Vec<Driver>,
    next: u64,
}

#[derive(Debug)]
pub(crate) struct Driver {
    id: u64,
    kind: Kind,
    /// Wakes it when its alarm must be set earlier; `None` before it first looked, and while it is on its way to look.
    waker: Option<Waker>,
    /// The instant at which it will look by itself; 0 while it is about to look anyway.
    alarm: u64,
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
    /// Whether a caller on this thread, outside of all runtimes, can rely on somebody.
    pub(crate) fn serve_outside(&self) -> bool {
        let here = thread::current().id();
        self.list.iter().any(|driver| match &driver.kind {
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
        self.list.iter().filter_map(|driver| if let Kind::Hired(host) = &driver.kind { Some(host) } else { None })
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.list.iter().any(|driver| driver.id == id)
    }

    /// Registers a driver that is about to look.
    pub(crate) fn add(&mut self, kind: Kind) -> u64 {
        let id = self.next;
        self.next += 1;
        self.list.push(Driver { id, kind, waker: None, alarm: 0 });
        id
    }

    /// Registers a driver of many lines, under the number that it has in all of them.
    #[cfg(feature = "keyed")]
    pub(crate) fn adopt(&mut self, id: u64, kind: Kind) {
        self.list.push(Driver { id, kind, waker: None, alarm: 0 });
    }

    /// The driver is returned to be dropped without the lock.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Driver> {
        let index = self.list.iter().position(|driver| driver.id == id)?;
        Some(self.list.swap_remove(index))
    }

    /// Driver `id` goes to sleep until `alarm`; returns its old waker, to be dropped without the lock.
    pub(crate) fn sleep(&mut self, id: u64, alarm: u64, waker: Waker) -> Option<Waker> {
        let driver = self.list.iter_mut().find(|driver| driver.id == id)?;
        driver.alarm = alarm;
        driver.waker.replace(waker)
    }

    /// Wakes the drivers whose alarm is later than `due`, or rings for nobody. False if there was no room for all of them.
    pub(crate) fn rouse(&mut self, due: u64, now: u64, wakes: &mut Wakes) -> bool {
        for driver in &mut self.list {
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
        self.list.iter_mut().filter_map(|driver| driver.waker.take()).collect()
    }
}
