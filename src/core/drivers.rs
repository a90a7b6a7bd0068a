//! The drivers of a queue: one replenisher per runtime that has waiters, and blocked threads.
//!
//! Any driver that wakes serves the whole queue. One of them, the **lead**, sleeps until the very instant at which the front
//! waiter is due. The others are **backups**: if all of them woke at that instant, each grant would cost a wake-up per driver.
//! A backup sleeps [`DELAY`] longer for each driver that is to wake before it, the lead included. The lead may be on a runtime
//! that is alive and not driven; the first backup that wakes then finds the lead missing and takes its place. So drivers that
//! are not driven cost the queue one delay of `DELAY` each, once: grants are made in virtual time, and what fell due meanwhile
//! is delivered together.
//!
//! A lead that is a blocked thread is always driven. Then all backups sleep as long as the last one would, so that threads that
//! come and go do not wake as backups at all.
//!
//! The backups are in the order of their arrival, and the newest wakes first: the oldest threads are the next to be granted
//! and to leave, and then no other backup changes its rank.

use crate::core::wakes::Wakes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread::{self, ThreadId};
use tokio::runtime::Handle;

/// Drivers that serve many lines have numbers from here on, the same in all of them.
pub(crate) const OF_MANY: u64 = 1 << 63;
/// The numbers of all others, whatever line they serve.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// How much later than the driver before it a backup wakes, in nanoseconds: some ticks of tokio's timer, which a lead on a busy
/// runtime may well need. All of `n` backups together wake about `ln(n) / DELAY` times a second at most.
pub(crate) const DELAY: u64 = 10_000_000;

/// The registered drivers, under the limiter's lock.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// Nearly always the only driver. Here, and not on the heap, since each look at one of many lines asks for it.
    lead: Option<Driver>,
    /// Made for the first backup.
    others: Option<Box<Backups>>,
}

#[derive(Debug, Default)]
struct Backups {
    /// Empty if there is no lead. The newest is the last.
    line: VecDeque<Driver>,
    /// No backup has to be woken for a queue that is due at this instant or later. So most changes of the due instant go
    /// without a look at the backups.
    backed_from: u64,
    /// Whether one of them serves many lines.
    has_many: bool,
}

#[derive(Debug)]
pub(crate) struct Driver {
    id: u64,
    kind: Kind,
    /// Wakes it when its alarm must be set earlier; `None` before it first looked, and while it is on its way to look.
    waker: Option<Waker>,
    /// The instant at which it will look by itself; 0 while it is about to look anyway.
    alarm: u64,
    /// How many drivers were to wake before it when it set its alarm; 0 for the lead.
    rank: u32,
    #[cfg(feature = "keyed")]
    notes: Notes,
}

/// What the driver of many lines has written down of this one elsewhere. Here, since whoever looks at a line has its drivers
/// at hand, and one line in a hundred thousand is in no cache.
#[cfg(feature = "keyed")]
#[derive(Debug, Default)]
struct Notes {
    /// Odd while an instant is noted, by this number.
    noted: u64,
    /// Whether it is noted to be given up.
    lingers: bool,
}

/// What a driver of many lines has to write down after a look at one.
#[cfg(feature = "keyed")]
#[derive(Debug)]
pub(crate) struct NextLook {
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
        self.good_from() > due || (self.id >= OF_MANY && is_needless())
    }

    /// The earliest due instant for which its alarm is early enough. A backup may be late by twice its delay, so that an instant
    /// that moves to and fro does not wake it each time.
    fn good_from(&self) -> u64 {
        self.alarm.saturating_sub(2 * delay(self.rank))
    }

    /// Whether it should have looked by now and has not: its runtime is not driven, or is busy. One that was woken and has not
    /// come yet can be replaced at once by one that is here.
    fn is_missing(&self, now: u64) -> bool {
        self.alarm == 0 || self.alarm.saturating_add(DELAY) <= now
    }

    /// It is to be woken with what is returned, and is then about to look.
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
        self.lead.iter().chain(self.others.iter().flat_map(|others| &others.line))
    }

    #[inline]
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Driver> {
        self.lead.iter_mut().chain(self.others.iter_mut().flat_map(|others| &mut others.line))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lead.is_none()
    }

    /// Whether a caller on this thread, outside of all runtimes, can rely on somebody.
    pub(crate) fn serve_outside(&self) -> bool {
        let here = thread::current().id();
        // A thread that comes here has just registered.
        let backups = self.others.iter().flat_map(|others| others.line.iter().rev());
        backups.chain(&self.lead).any(|driver| match &driver.kind {
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
            rank: 0,
            #[cfg(feature = "keyed")]
            notes: Notes::default(),
        };
        if self.lead.is_none() {
            self.lead = Some(driver);
            return;
        }
        let others = self.others.get_or_insert_default();
        others.has_many |= id >= OF_MANY;
        others.line.push_back(driver);
    }

    /// The driver is returned to be dropped without the lock. If it was the lead, the newest backup is the next one; see
    /// [`call_successors`](Self::call_successors).
    pub(crate) fn remove(&mut self, id: u64) -> Option<Driver> {
        if self.lead.as_ref()?.id == id {
            let next = self.others.as_mut().and_then(|others| others.line.pop_back());
            return std::mem::replace(&mut self.lead, next.map(|next| Driver { rank: 0, ..next }));
        }
        let others = self.others.as_mut()?;
        let index = others.line.iter().position(|driver| driver.id == id)?;
        others.line.remove(index)
    }

    /// After a driver was removed: the wakers of the lead and of the backup next to it, where their alarms are too late for what
    /// they have become. To be woken without the lock.
    pub(crate) fn call_successors(&mut self, due: u64) -> [Option<Waker>; 2] {
        let is_sure = self.lead.as_ref().is_some_and(|lead| !lead.serves_others());
        let lead = self.lead.as_mut().filter(|lead| lead.alarm > due);
        let deputy = self.others.as_mut().and_then(|others| others.line.back_mut());
        let deputy = deputy.filter(|deputy| !is_sure && deputy.alarm.saturating_sub(2 * DELAY) > due);
        [lead.and_then(Driver::call), deputy.and_then(Driver::call)]
    }

    /// Driver `id` has served the queue, at `now`, and goes to sleep. Returns its alarm, and its old waker to be dropped without
    /// the lock.
    pub(crate) fn sleep(&mut self, id: u64, due: u64, now: u64, waker: Waker) -> (u64, Option<Waker>) {
        match self.arm(id, due, now) {
            Some(driver) => (driver.alarm, driver.waker.replace(waker)),
            None => (due, None),
        }
    }

    /// Sets the alarm of driver `id`, which has just served the queue; see the head of this file.
    fn arm(&mut self, id: u64, due: u64, now: u64) -> Option<&mut Driver> {
        let lead = self.lead.as_mut()?;
        if lead.id != id {
            let Backups { line, backed_from, has_many } = self.others.as_deref_mut()?;
            let index = line.iter().rposition(|driver| driver.id == id)?;
            let rank = if lead.serves_others() { line.len() - index } else { line.len() };
            let driver = &mut line[index];
            if !lead.is_missing(now) {
                driver.rank = u32::try_from(rank).unwrap_or(u32::MAX);
                driver.alarm = due.saturating_add(delay(driver.rank));
                *backed_from = driver.good_from().max(*backed_from);
                return Some(driver);
            }
            std::mem::swap(lead, driver);
            *backed_from = driver.good_from().max(*backed_from);
            *has_many |= driver.id >= OF_MANY;
        }
        lead.rank = 0;
        lead.alarm = due;
        Some(lead)
    }

    /// Driver `id`, of many lines, goes on to others, and looks at this one again at `due`. Its waker stays, unless it was
    /// used and is brought back.
    #[cfg(feature = "keyed")]
    pub(crate) fn rest(&mut self, id: u64, due: u64, now: u64, waker: Option<Waker>) -> Option<NextLook> {
        let driver = self.arm(id, due, now)?;
        let alarm = driver.alarm;
        let old = waker.and_then(|waker| driver.waker.replace(waker));
        let Notes { noted, lingers } = &mut driver.notes;
        let was_noted = *noted % 2 == 1;
        *noted = noted.next_multiple_of(2);
        if due == u64::MAX {
            return Some(NextLook { next: None, lingers: !std::mem::replace(lingers, true), was_noted, _old: old });
        }
        *noted += 1;
        Some(NextLook { next: Some((alarm, *noted)), lingers: false, was_noted, _old: old })
    }

    /// Whether this was noted by driver `id`, and nothing else since.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_noted(&self, id: u64, number: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.notes.noted == number)
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
            driver.notes.lingers = false;
        }
    }

    /// Wakes the lead driver, whatever its alarm is, and the backups whose alarms are too late for `now`: the queue is due, and
    /// its caller leaves the rest of it to them. False if there was no room for all of them.
    pub(crate) fn call_lead(&mut self, now: u64, wakes: &mut Wakes) -> bool {
        if wakes.is_full() {
            return false;
        }
        if let Some(waker) = self.lead.as_mut().filter(|lead| lead.alarm != 0).and_then(Driver::call) {
            wakes.push(waker);
        }
        self.rouse(now, now, wakes)
    }

    /// Wakes the drivers whose alarms are too late for `due`, or are needless. False if there was no room for all of them.
    pub(crate) fn rouse(&mut self, due: u64, now: u64, wakes: &mut Wakes) -> bool {
        let mut concerned =
            self.others.as_deref_mut().filter(|it| due < it.backed_from || (it.has_many && due == u64::MAX));
        let backups = concerned.iter_mut().flat_map(|others| &mut others.line);
        for driver in self.lead.iter_mut().chain(backups) {
            if driver.is_late(due, now) {
                if wakes.is_full() {
                    return false;
                }
                driver.call().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
        if let Some(others) = concerned {
            others.backed_from = others.line.iter().map(Driver::good_from).max().unwrap_or(0);
        }
        true
    }

    /// All wakers, for the end.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        self.iter_mut().filter_map(|driver| driver.waker.take()).collect()
    }
}

#[cfg(all(test, feature = "keyed", not(tollgate_loom)))]
mod tests {
    use super::*;

    const ID: u64 = OF_MANY + 1;
    const OTHER: u64 = OF_MANY + 2;

    /// When to look again and by which note, whether to note that it may be given up, and whether an older note was good.
    fn rest(drivers: &mut Drivers, due: u64) -> (Option<(u64, u64)>, bool, bool) {
        let rest = drivers.rest(ID, due, 0, None).expect("it is registered");
        (rest.next, rest.lingers, rest.was_noted)
    }

    #[test]
    fn a_driver_of_many_lines_knows_what_it_has_noted_of_each() {
        let mut drivers = Drivers::default();
        drivers.adopt(OTHER, Kind::ByHand);
        drivers.adopt(ID, Kind::ByHand);
        assert_eq!(drivers.sleep(ID, 1, 0, Waker::noop().clone()).0, 1, "it takes the lead");
        drivers.sleep(OTHER, u64::MAX, 0, Waker::noop().clone());
        drivers.lead.as_mut().unwrap().alarm = 0;
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

    const DUE: u64 = 1_000 * DELAY;

    /// Drivers that look once each, in this order, while the queue is due at `DUE`.
    fn asleep(count: usize) -> (Drivers, Vec<u64>) {
        let mut drivers = Drivers::default();
        let ids: Vec<u64> = (0..count).map(|_| drivers.add(Kind::ByHand)).collect();
        for id in &ids {
            drivers.sleep(*id, DUE, 0, Waker::noop().clone());
        }
        (drivers, ids)
    }

    /// The drivers, by their index, that have been called and have not looked since.
    fn called(drivers: &Drivers, ids: &[u64]) -> Vec<usize> {
        let alarm = |id: &u64| drivers.iter().find(|driver| driver.id == *id).map(|driver| driver.alarm);
        ids.iter().enumerate().filter(|(_, id)| alarm(id) == Some(0)).map(|(index, _)| index).collect()
    }

    fn rouse(drivers: &mut Drivers, due: u64) {
        let mut wakes = Wakes::default();
        while !drivers.rouse(due, 0, &mut wakes) {
            wakes.wake_all();
        }
    }

    #[test]
    fn the_lead_wakes_when_the_queue_is_due_and_the_backups_one_after_the_other() {
        let (mut drivers, ids) = asleep(4);
        let mut alarm = |index: usize| drivers.sleep(ids[index], DUE, 0, Waker::noop().clone()).0;
        assert_eq!([0, 3, 2, 1].map(&mut alarm), [0, 1, 2, 3].map(|rank| DUE + rank * DELAY));
    }

    #[test]
    fn a_grant_calls_no_backup_and_a_new_front_that_is_due_earlier_calls_those_that_are_too_late() {
        let (mut drivers, ids) = asleep(40);
        rouse(&mut drivers, DUE + 1);
        rouse(&mut drivers, u64::MAX);
        assert!(called(&drivers, &ids).is_empty());
        rouse(&mut drivers, DUE - DELAY / 2);
        assert_eq!(called(&drivers, &ids), [0], "only the lead");
        rouse(&mut drivers, DUE - DELAY - DELAY / 2);
        assert_eq!(called(&drivers, &ids), [0, 39], "the backups of higher ranks may be later");
        rouse(&mut drivers, 0);
        assert_eq!(called(&drivers, &ids).len(), 40);
    }

    #[test]
    fn drivers_that_sleep_without_an_alarm_are_all_called_when_the_queue_is_due_some_time() {
        let (mut drivers, ids) = asleep(40);
        for id in &ids {
            assert_eq!(drivers.sleep(*id, u64::MAX, 0, Waker::noop().clone()).0, u64::MAX);
        }
        rouse(&mut drivers, DUE);
        assert_eq!(called(&drivers, &ids).len(), 40);
    }

    #[test]
    fn a_backup_that_finds_the_lead_missing_takes_its_place() {
        let (mut drivers, ids) = asleep(3);
        let mut look = |index: usize, due, now| drivers.sleep(ids[index], due, now, Waker::noop().clone()).0;
        let later = 2 * DUE;
        assert_eq!(look(2, later, DUE + DELAY - 1), later + DELAY, "the lead may still come");
        assert_eq!(look(1, later, DUE + DELAY), later);
        assert_eq!(look(0, later, DUE + DELAY), later + 2 * DELAY, "the former lead, which comes after all");
        assert_eq!(look(2, later, later + 9 * DELAY), later, "missing, and so is the next");
    }

    #[test]
    fn the_end_of_the_lead_calls_the_next_one_and_no_other() {
        let (mut drivers, ids) = asleep(9);
        assert!(drivers.remove(ids[4]).is_some());
        assert!(drivers.call_successors(DUE).iter().all(Option::is_none));
        assert!(drivers.remove(ids[0]).is_some());
        assert_eq!(drivers.call_successors(DUE).iter().flatten().count(), 1);
        assert_eq!(called(&drivers, &ids), [8]);
        assert_eq!(drivers.sleep(ids[8], DUE, 0, Waker::noop().clone()).0, DUE);
    }

    #[test]
    fn beside_a_thread_that_leads_all_backups_sleep_long() {
        let mut drivers = Drivers::default();
        let ids = [(); 9].map(|()| drivers.add(Kind::Thread(thread::current().id())));
        let alarms = ids.map(|id| drivers.sleep(id, DUE, 0, Waker::noop().clone()).0);
        assert_eq!(alarms[0], DUE);
        assert_eq!(alarms[1..], [DUE + 8 * DELAY; 8]);
        assert!(drivers.remove(ids[0]).is_some());
        drivers.call_successors(DUE);
        assert_eq!(called(&drivers, &ids), [8], "the next lead, and no other");
    }

    #[test]
    fn a_backup_of_a_high_rank_is_called_when_it_becomes_the_next_after_the_lead() {
        let (mut drivers, ids) = asleep(9);
        assert_eq!(drivers.sleep(ids[1], DUE, 0, Waker::noop().clone()).0, DUE + 8 * DELAY);
        for id in &ids[2..] {
            assert!(drivers.remove(*id).is_some());
        }
        assert_eq!(drivers.call_successors(DUE).iter().flatten().count(), 1);
        assert_eq!(called(&drivers, &ids), [1]);
    }
}
