//! The drivers of a queue: one replenisher per runtime that has waiters, and blocked threads.
//!
//! Any driver that wakes serves the whole queue. One of them, the **lead**, sleeps until the very instant at which the
//! front waiter is due. The others are **backups**: if all of them woke at that instant, each grant would cost a
//! wake-up per driver. A backup sleeps [`DELAY`] longer for each driver that is to wake before it, the lead included.
//! The lead may be on a runtime that is alive and not driven; the first backup that wakes then finds the lead missing
//! and takes its place. So each driver that is not driven delays the queue by `DELAY`, once: grants are made in virtual
//! time, and the claims that fell due meanwhile are delivered together.
//!
//! A lead that is a blocked thread is always driven. Then all backups sleep as long as the last one would, so that
//! threads that come and go do not wake as backups at all.
//!
//! The backups are in the order of their arrival, but that a lead that was missing takes the place of its successor. The
//! newest wakes first: the oldest threads are the next to be granted and to leave, and then no other backup changes its rank.

mod many;

pub(crate) use many::{NO_TIMER, NextLook};

use crate::core::wakes::Wakes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread::{self, ThreadId};
use tokio::runtime::Handle;

/// Drivers that serve many queues have ids from here on. Such a driver has the same id in each of its queues.
pub(crate) const OF_MANY: u64 = 1 << 63;
/// The next id of a driver that serves one queue. The ids are unique over all queues.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// How much later than the driver before it a backup wakes, in nanoseconds: several ticks of tokio's timer, because a
/// lead on a busy runtime may be late by that much. All of `n` backups together wake about `ln(n) / DELAY` times a
/// second at most.
pub(crate) const DELAY: u64 = 10_000_000;

/// The registered drivers. Protected by the limiter's lock.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// Nearly always the only driver. Stored inline and not on the heap, because every access to the queue of a key
    /// reads it.
    lead: Option<Driver>,
    /// Allocated for the first backup.
    others: Option<Box<Backups>>,
}

#[derive(Debug, Default)]
struct Backups {
    /// Empty if there is no lead. The newest is the last.
    drivers: VecDeque<Driver>,
    /// No backup has to be woken for a queue that is due at this instant or later. So most changes of the due instant
    /// do not have to scan the backups.
    backed_from: u64,
    /// Whether one of the backups serves many queues.
    has_many: bool,
}

#[derive(Debug)]
pub(crate) struct Driver {
    /// Unique among all drivers of all queues, except that a driver of many queues has one id in all of them.
    id: u64,
    kind: Kind,
    /// Wakes the driver when its alarm must be set earlier. `None` before the first turn, and from a wake-up until the
    /// next turn.
    waker: Option<Waker>,
    /// The instant of its next turn, in nanoseconds; 0 while it is about to take a turn anyway.
    alarm: u64,
    /// How many drivers were due to wake before this one when it set its alarm; 0 for the lead.
    rank: u32,
    // What a driver of many queues has of this queue in its own data structures. Stored here, next to the queue's other driver
    // fields, because every access to the queue reads those, and a queue among a hundred thousand is in no cache.
    /// The instant of the timer for its next turn, or [`NO_TIMER`].
    timer: u64,
    /// Whether the driver has recorded that this queue may be removed.
    lingers: bool,
}

/// The kind of a driver. It decides which waiters may rely on it.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A replenisher that a waiter spawned on its runtime. The waiters of that runtime rely on it: whenever they are
    /// polled, it is polled too.
    Hired(Handle),
    /// A replenisher that the user holds, and may keep without polling it. Only waiters outside of all runtimes rely on
    /// it: the documentation asks their callers to run one.
    ByHand,
    /// A thread that blocks in the queue. Only that thread relies on it.
    Thread(ThreadId),
}

impl Driver {
    pub(crate) fn serves_others(&self) -> bool {
        !matches!(self.kind, Kind::Thread(_))
    }

    /// Whether the driver must take a turn before its alarm, now that the queue is due at `due`. A driver of one queue
    /// keeps an alarm that is not needed any more, and then finds that no claim waits. A driver of many queues is woken
    /// at once: otherwise it would keep an entry in memory for each queue that ever had a waiter.
    fn is_late(&self, due: u64, now: u64) -> bool {
        let is_needless = || due == u64::MAX && (now.saturating_add(1)..due).contains(&self.alarm);
        self.good_from() > due || (self.id >= OF_MANY && is_needless())
    }

    /// The earliest due instant for which the alarm of this driver is early enough. A backup may be late by twice its
    /// delay, so that a due instant that moves back and forth does not wake the backup each time.
    fn good_from(&self) -> u64 {
        self.alarm.saturating_sub(2 * delay(self.rank))
    }

    /// Whether this driver should have taken a turn by now and has not, because its runtime is not driven or is busy. A
    /// driver that was woken and has not taken its turn yet counts as missing at once.
    fn is_missing(&self, now: u64) -> bool {
        self.alarm == 0 || self.alarm.saturating_add(DELAY) <= now
    }

    /// Marks this driver as about to take a turn, and returns the waker with which the caller must wake it.
    fn call(&mut self) -> Option<Waker> {
        self.alarm = 0;
        self.waker.take()
    }
}

fn delay(rank: u32) -> u64 {
    DELAY * u64::from(rank)
}

impl Drivers {
    #[inline]
    fn iter(&self) -> impl Iterator<Item = &Driver> {
        self.lead.iter().chain(self.others.iter().flat_map(|others| &others.drivers))
    }

    #[inline]
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Driver> {
        self.lead.iter_mut().chain(self.others.iter_mut().flat_map(|others| &mut others.drivers))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lead.is_none()
    }

    /// Whether a caller on this thread, outside of all runtimes, can rely on a driver.
    pub(crate) fn serve_outside(&self) -> bool {
        let here = thread::current().id();
        // From the newest backup: a thread that asks has usually just registered.
        let backups = self.others.iter().flat_map(|others| others.drivers.iter().rev());
        backups.chain(&self.lead).any(|driver| match &driver.kind {
            Kind::Hired(_) => false,
            Kind::ByHand => true,
            Kind::Thread(thread) => *thread == here,
        })
    }

    /// Whether the waiters of `runtime` can rely on a driver.
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

    /// Registers a driver that is about to take its first turn.
    pub(crate) fn add(&mut self, kind: Kind) -> u64 {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.adopt(id, kind);
        id
    }

    /// Registers a driver of many queues, under the id that it has in all of them.
    pub(crate) fn adopt(&mut self, id: u64, kind: Kind) {
        let driver = Driver { id, kind, waker: None, alarm: 0, rank: 0, timer: NO_TIMER, lingers: false };
        if self.lead.is_none() {
            self.lead = Some(driver);
            return;
        }
        let others = self.others.get_or_insert_default();
        others.has_many |= id >= OF_MANY;
        others.drivers.push_back(driver);
    }

    /// Removes driver `id` and returns it; the caller drops it without the lock. If it was the lead, the newest backup
    /// becomes the lead; see [`call_successors`](Self::call_successors).
    pub(crate) fn remove(&mut self, id: u64) -> Option<Driver> {
        if self.lead.as_ref()?.id == id {
            let next = self.others.as_mut().and_then(|others| others.drivers.pop_back());
            return std::mem::replace(&mut self.lead, next.map(|next| Driver { rank: 0, ..next }));
        }
        let others = self.others.as_mut()?;
        let index = others.drivers.iter().position(|driver| driver.id == id)?;
        others.drivers.remove(index)
    }

    /// After a driver was removed: returns the wakers of the lead and of the backup next to it, if their alarms are too
    /// late for their new ranks. The caller wakes them without the lock.
    pub(crate) fn call_successors(&mut self, due: u64) -> [Option<Waker>; 2] {
        let lead_is_driven = self.lead.as_ref().is_some_and(|lead| !lead.serves_others());
        let lead = self.lead.as_mut().filter(|lead| lead.alarm > due);
        let first_backup = self.others.as_mut().and_then(|others| others.drivers.back_mut());
        let first_backup =
            first_backup.filter(|first_backup| !lead_is_driven && first_backup.alarm.saturating_sub(2 * DELAY) > due);
        [lead.and_then(Driver::call), first_backup.and_then(Driver::call)]
    }

    /// Driver `id` has served the queue, at `now`, and goes to sleep. Returns its alarm, and its old waker, which the
    /// caller drops without the lock.
    pub(crate) fn sleep(&mut self, id: u64, due: u64, now: u64, waker: Waker) -> (u64, Option<Waker>) {
        match self.arm(id, due, now) {
            Some(driver) => (driver.alarm, driver.waker.replace(waker)),
            None => (due, None),
        }
    }

    /// Sets the alarm of driver `id`, which has just served the queue. Makes it the lead if the lead is missing; see
    /// the head of this file.
    fn arm(&mut self, id: u64, due: u64, now: u64) -> Option<&mut Driver> {
        let lead = self.lead.as_mut()?;
        if lead.id != id {
            let Backups { drivers, backed_from, has_many } = self.others.as_deref_mut()?;
            let index = drivers.iter().rposition(|driver| driver.id == id)?;
            let rank = if lead.serves_others() { drivers.len() - index } else { drivers.len() };
            let driver = &mut drivers[index];
            if !lead.is_missing(now) {
                driver.rank = u32::try_from(rank).unwrap_or(u32::MAX);
                driver.alarm = due.saturating_add(delay(driver.rank));
                *backed_from = driver.good_from().max(*backed_from);
                return Some(driver);
            }
            // Its alarm has passed: no change of the due instant has to wake it.
            std::mem::swap(lead, driver);
            *has_many |= driver.id >= OF_MANY;
        }
        lead.rank = 0;
        lead.alarm = due;
        Some(lead)
    }

    /// Wakes the lead driver, whatever its alarm is, and each backup with an alarm too late for `now`: the queue is
    /// due, and the caller leaves the rest of it to them. Returns false if `wakes` has no space for all of them.
    pub(crate) fn call_lead(&mut self, now: u64, wakes: &mut Wakes) -> bool {
        self.lead.iter_mut().for_each(|lead| lead.alarm = u64::MAX);
        self.wake_if_late(now, now, wakes)
    }

    /// Wakes each driver with an alarm that is too late for `due`, or not needed any more. Returns false if `wakes` has
    /// no space for all of them.
    pub(crate) fn wake_if_late(&mut self, due: u64, now: u64, wakes: &mut Wakes) -> bool {
        let mut backups_to_check =
            self.others.as_deref_mut().filter(|it| due < it.backed_from || (it.has_many && due == u64::MAX));
        let backups = backups_to_check.iter_mut().flat_map(|others| &mut others.drivers);
        for driver in self.lead.iter_mut().chain(backups) {
            if driver.is_late(due, now) {
                if wakes.is_full() {
                    return false;
                }
                driver.call().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
        if let Some(others) = backups_to_check {
            others.backed_from = others.drivers.iter().map(Driver::good_from).max().unwrap_or(0);
        }
        true
    }

    /// Takes all wakers: the limiter is being dropped, or the task of its source has ended.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        self.iter_mut().filter_map(|driver| driver.waker.take()).collect()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
