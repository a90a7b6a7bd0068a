//! A driver that is going to sleep must not miss a claim that it has to wake for.
//!
//! Only the driver's own thread enters the runtime, and only while it polls: loom runs all its threads on one thread of
//! the operating system, which stores the context of the runtime.

use crate::{SECOND, explore, is_served, taken, waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio_test::task;
use tollgate::{Clock, Limiter, ManualClock, Quota};

fn paused_runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The first waiter enters while the driver, which found none, goes to sleep: the driver is woken, or has set its
/// alarm.
///
/// Plant `driver_goes_to_sleep_under_a_second_lock`.
#[test]
fn enqueue_against_a_driver_going_to_sleep() {
    explore(|race| {
        let (runtime, clock) = (paused_runtime(), ManualClock::new());
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let (mut driver, handle) = (task::spawn(limiter.replenisher()), runtime.handle().clone());
        let sleep = race.actor(move || {
            let _inside = handle.enter();
            assert!(driver.poll().is_pending());
            driver
        });
        let other = limiter.clone();
        let enter = race.actor(move || waiting(&other, 1));
        let (mut driver, mut waiter) = (sleep.join().unwrap(), enter.join().unwrap());
        let _inside = runtime.handle().enter();
        if driver.is_woken() {
            assert!(driver.poll().is_pending());
        }
        clock.advance(SECOND);
        runtime.block_on(tokio::time::advance(SECOND));
        assert!(driver.is_woken(), "the driver sleeps while a claim is due");
        assert!(driver.poll().is_pending());
        assert!(is_served(&mut waiter));
    });
}

/// The lead ends while the front waiter leaves, and the next waiter is due earlier, by less than the backup's delay.
/// The backup becomes the lead and wakes at the new instant, whichever of the two happens first.
///
/// Plant `end_of_the_lead_calls_no_driver`.
#[test]
fn the_end_of_the_lead_against_a_new_front() {
    /// The time of a token: half of the time that a backup sleeps longer than the lead.
    const TOKEN: Duration = Duration::from_millis(5);
    explore(|race| {
        let (runtime, clock) = (paused_runtime(), ManualClock::new());
        let quota = Quota::per_second(200).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let (front, mut next) = (waiting(&limiter, 2), waiting(&limiter, 1));
        let (mut lead, mut backup) = (task::spawn(limiter.replenisher()), task::spawn(limiter.replenisher()));
        runtime.block_on(async {
            assert!(lead.poll().is_pending());
            assert!(backup.poll().is_pending());
        });
        let end = race.actor(move || drop(lead));
        let leave = race.actor(move || drop(front));
        end.join().unwrap();
        leave.join().unwrap();
        let _inside = runtime.handle().enter();
        if backup.is_woken() {
            assert!(backup.poll().is_pending());
        }
        clock.advance(TOKEN);
        runtime.block_on(tokio::time::advance(TOKEN));
        assert!(backup.is_woken(), "the backup sleeps while the waiter is due");
        assert!(backup.poll().is_pending());
        assert!(is_served(&mut next));
    });
}

/// The last limiter is dropped while the driver goes to sleep: it ends.
///
/// Plant `last_drop_wakes_no_driver`.
#[test]
fn the_last_drop_against_a_driver_going_to_sleep() {
    explore(|race| {
        let limiter = Limiter::builder().quota(Quota::manual(1)).clock(ManualClock::new()).build().unwrap();
        let mut driver = task::spawn(limiter.replenisher());
        let sleep = race.actor(move || {
            let ended = driver.poll().is_ready();
            (driver, ended)
        });
        let end = race.actor(move || drop(limiter));
        let (mut driver, ended) = sleep.join().unwrap();
        end.join().unwrap();
        assert!(ended || (driver.is_woken() && driver.poll().is_ready()), "the driver outlives its limiter");
    });
}

/// A clock that stands still. The limiter takes it for a real one.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// A caller wakes a full batch and leaves the rest to the driver, which is going to sleep: the driver continues, or is
/// woken.
///
/// Plant `rest_of_the_queue_is_left_to_a_sleeping_driver`.
#[test]
fn a_batch_is_served_against_a_driver_going_to_sleep() {
    explore(|race| {
        let quota = Quota::manual(3).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(Still).build().unwrap();
        let mut driver = task::spawn(limiter.replenisher());
        assert!(driver.poll().is_pending(), "the driver registers, and no claim waits");
        let mut waiters: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        let sleep = race.actor(move || {
            assert!(driver.poll().is_pending());
            driver
        });
        let other = limiter.clone();
        let serve = race.actor(move || other.replenish(3));
        let mut driver = sleep.join().unwrap();
        serve.join().unwrap();
        if driver.is_woken() {
            assert!(driver.poll().is_pending());
        }
        let served: Vec<_> = waiters.iter_mut().map(is_served).collect();
        assert_eq!(served, [true; 3], "more claims are due, and are not served");
    });
}

/// A clock that the limiter takes for a real one.
#[derive(Clone, Debug, Default)]
struct Wall(Arc<AtomicU64>);

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(SeqCst))
    }
}

/// The clock has jumped, and more waiters are due than a batch holds, long before the timer of any driver fires. A
/// caller hands the queue over while the lead ends: the backup serves the rest.
///
/// Plant `end_of_the_lead_forgets_that_more_is_due`: the backup is called only if its alarm is too late for the front
/// waiter.
#[test]
fn a_queue_is_handed_over_against_the_end_of_the_lead() {
    explore(|race| {
        let (runtime, wall) = (paused_runtime(), Wall::default());
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(wall.clone()).build().unwrap();
        let (mut lead, mut backup) = (task::spawn(limiter.replenisher()), task::spawn(limiter.replenisher()));
        runtime.block_on(async {
            assert!(lead.poll().is_pending());
            assert!(backup.poll().is_pending());
        });
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        runtime.block_on(async {
            assert!(lead.poll().is_pending());
            assert!(backup.poll().is_pending());
        });
        wall.0.store(3, SeqCst);
        let end = race.actor(move || drop(lead));
        let other = limiter.clone();
        let tick = race.actor(move || other.tick());
        end.join().unwrap();
        tick.join().unwrap();
        let _inside = runtime.handle().enter();
        if backup.is_woken() {
            assert!(backup.poll().is_pending());
        }
        let served: Vec<_> = queue.iter_mut().map(is_served).collect();
        assert_eq!(served, [true; 3], "more claims are due, and no driver serves them");
    });
}

/// More claims than a batch are due while the only driver goes to sleep, before the clock jumps or after.
///
/// Plant `hand_over_trusts_the_alarm_of_the_lead`: a lead with an alarm in the past is not called.
#[test]
fn a_queue_is_handed_over_after_a_jump_against_a_driver_going_to_sleep() {
    explore(|race| {
        let (runtime, wall) = (paused_runtime(), Wall::default());
        let quota = Quota::per_second(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(wall.clone()).build().unwrap();
        let mut driver = task::spawn(limiter.replenisher());
        runtime.block_on(async { assert!(driver.poll().is_pending()) });
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        let handle = runtime.handle().clone();
        let sleep = race.actor(move || {
            let _inside = handle.enter();
            assert!(driver.poll().is_pending());
            driver
        });
        let other = limiter.clone();
        let tick = race.actor(move || {
            wall.0.store(3, SeqCst);
            other.tick();
        });
        let mut driver = sleep.join().unwrap();
        tick.join().unwrap();
        let _inside = runtime.handle().enter();
        if driver.is_woken() {
            assert!(driver.poll().is_pending());
        }
        let served: Vec<_> = queue.iter_mut().map(is_served).collect();
        assert_eq!(served, [true; 3], "more claims are due, and no driver serves them");
    });
}

/// Tokens are refunded while more waiters are due than a batch holds and the driver serves them: they count once,
/// whether the queue was behind at the refund or not.
///
/// Plant `refund_to_a_queue_that_is_behind_counts_twice`: the refund counts at once, and again when the queue has been
/// served up to it.
#[test]
fn a_refund_to_a_queue_that_is_behind_against_its_driver() {
    explore(|race| {
        let (runtime, wall) = (paused_runtime(), Wall::default());
        let quota = Quota::per_second(1).burst(2).initial(1);
        let limiter = Limiter::builder().quota(quota).max_in_flight(9).clock(wall.clone()).build().unwrap();
        let mut driver = task::spawn(limiter.replenisher());
        runtime.block_on(async { assert!(driver.poll().is_pending()) });
        let mut grant = taken(&limiter, 1);
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        runtime.block_on(async { assert!(driver.poll().is_pending()) });
        wall.0.store(3, SeqCst);
        let handle = runtime.handle().clone();
        let serve = race.actor(move || {
            let _inside = handle.enter();
            assert!(driver.poll().is_pending());
            driver
        });
        let refund = race.actor(move || {
            grant.settle(0);
            grant
        });
        let mut driver = serve.join().unwrap();
        let _grant = refund.join().unwrap();
        let _inside = runtime.handle().enter();
        if driver.is_woken() {
            assert!(driver.poll().is_pending());
        }
        let served: Vec<_> = queue.iter_mut().map(is_served).collect();
        assert_eq!(served, [true; 3], "more claims are due, and no driver serves them");
        assert_eq!((limiter.available(), limiter.snapshot().in_flight), (1, Some(3)));
    });
}
