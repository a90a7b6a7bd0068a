//! A driver on its way to sleep must not miss whom it would have to wake for.
//!
//! Only the driver's own thread enters the runtime, and only while it polls: loom runs all its threads on one thread of
//! the system, on which the runtime keeps its context.

use crate::{SECOND, explore, is_served, waiting};
use tokio::runtime::{self, Runtime};
use tokio_test::task;
use tollgate::{Limiter, ManualClock, Quota};

fn paused_runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The first waiter enters while the driver, who found nobody, goes to sleep: it is roused, or has set its alarm.
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
        assert!(driver.is_woken(), "it sleeps on while somebody is due");
        assert!(driver.poll().is_pending());
        assert!(is_served(&mut waiter));
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
        assert!(ended || (driver.is_woken() && driver.poll().is_ready()), "it outlives its limiter");
    });
}
