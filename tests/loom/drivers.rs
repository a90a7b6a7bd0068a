//! A driver that is going to sleep must not miss a claim that it has to wake for.
//!
//! Only the driver's own thread enters the runtime, and only while it polls: loom runs all its threads on one thread of
//! the operating system, which stores the context of the runtime.

use crate::{Race, SECOND, build, ends, explore, is_served, taken, timed, waiting};
use loom::thread::JoinHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio_test::task::{self, Spawn};
use tollgate::{Builder, Clock, Limiter, Quota, Replenisher};

fn paused_runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Polls drivers that have nothing to do yet.
fn go_to_sleep<const N: usize>(runtime: &Runtime, drivers: [&mut Spawn<Replenisher>; N]) {
    let _inside = runtime.enter();
    drivers.into_iter().for_each(|driver| assert!(driver.poll().is_pending()));
}

/// An actor with a driver that has nothing to do yet.
fn goes_to_sleep(race: &Race, runtime: &Runtime, mut driver: Spawn<Replenisher>) -> JoinHandle<Spawn<Replenisher>> {
    let handle = runtime.handle().clone();
    race.actor(move || {
        let _inside = handle.enter();
        assert!(driver.poll().is_pending());
        driver
    })
}

/// Polls a driver if it was woken.
fn runs(driver: &mut Spawn<Replenisher>) {
    assert!(!driver.is_woken() || driver.poll().is_pending());
}

/// The first waiter enters while the driver, which found none, goes to sleep: the driver is woken, or has set its
/// alarm.
///
/// Plant `driver_goes_to_sleep_under_a_second_lock`.
#[test]
fn enqueue_against_a_driver_going_to_sleep() {
    explore(|race| {
        let (runtime, (limiter, clock)) =
            (paused_runtime(), timed(Limiter::builder().quota(Quota::per_second(1).initial(0))));
        let sleep = goes_to_sleep(race, &runtime, task::spawn(limiter.replenisher()));
        let enter = race.on(&limiter, |limiter| waiting(limiter, 1));
        let (mut driver, mut waiter) = ends(sleep, enter);
        let _inside = runtime.handle().enter();
        runs(&mut driver);
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
        let (runtime, (limiter, clock)) =
            (paused_runtime(), timed(Limiter::builder().quota(Quota::per_second(200).initial(0))));
        let (front, mut next) = (waiting(&limiter, 2), waiting(&limiter, 1));
        let (mut lead, mut backup) = (task::spawn(limiter.replenisher()), task::spawn(limiter.replenisher()));
        go_to_sleep(&runtime, [&mut lead, &mut backup]);
        let end = race.actor(move || drop(lead));
        let leave = race.actor(move || drop(front));
        ends(end, leave);
        let _inside = runtime.handle().enter();
        runs(&mut backup);
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
        let limiter = build(Limiter::builder().quota(Quota::manual(1)));
        let mut driver = task::spawn(limiter.replenisher());
        let sleep = race.actor(move || {
            let ended = driver.poll().is_ready();
            (driver, ended)
        });
        let end = race.actor(move || drop(limiter));
        let ((mut driver, ended), ()) = ends(sleep, end);
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
        let serve = race.on(&limiter, |limiter| limiter.replenish(3));
        let (mut driver, ()) = ends(sleep, serve);
        runs(&mut driver);
        assert!(waiters.iter_mut().all(is_served), "more claims are due, and are not served");
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

fn on_a_wall(builder: Builder) -> (Limiter, Wall) {
    let wall = Wall::default();
    (builder.clock(wall.clone()).build().unwrap(), wall)
}

/// The clock has jumped, and more waiters are due than a batch holds, long before the timer of any driver fires. A
/// caller hands the queue over while the lead ends: the backup serves the rest.
///
/// Plant `end_of_the_lead_forgets_that_more_is_due`: the backup is called only if its alarm is too late for the front
/// waiter.
#[test]
fn a_queue_is_handed_over_against_the_end_of_the_lead() {
    explore(|race| {
        let (runtime, (limiter, wall)) =
            (paused_runtime(), on_a_wall(Limiter::builder().quota(Quota::per_second(1).initial(0))));
        let (mut lead, mut backup) = (task::spawn(limiter.replenisher()), task::spawn(limiter.replenisher()));
        go_to_sleep(&runtime, [&mut lead, &mut backup]);
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        go_to_sleep(&runtime, [&mut lead, &mut backup]);
        wall.0.store(3, SeqCst);
        let end = race.actor(move || drop(lead));
        let tick = race.on(&limiter, Limiter::tick);
        ends(end, tick);
        let _inside = runtime.handle().enter();
        runs(&mut backup);
        assert!(queue.iter_mut().all(is_served), "more claims are due, and no driver serves them");
    });
}

/// More claims than a batch are due while the only driver goes to sleep, before the clock jumps or after.
///
/// Plant `hand_over_trusts_the_alarm_of_the_lead`: a lead with an alarm in the past is not called.
#[test]
fn a_queue_is_handed_over_after_a_jump_against_a_driver_going_to_sleep() {
    explore(|race| {
        let (runtime, (limiter, wall)) =
            (paused_runtime(), on_a_wall(Limiter::builder().quota(Quota::per_second(1).initial(0))));
        let mut driver = task::spawn(limiter.replenisher());
        go_to_sleep(&runtime, [&mut driver]);
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        let sleep = goes_to_sleep(race, &runtime, driver);
        let tick = race.on(&limiter, move |limiter| {
            wall.0.store(3, SeqCst);
            limiter.tick();
        });
        let (mut driver, ()) = ends(sleep, tick);
        let _inside = runtime.handle().enter();
        runs(&mut driver);
        assert!(queue.iter_mut().all(is_served), "more claims are due, and no driver serves them");
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
        let builder = Limiter::builder().quota(Quota::per_second(1).burst(2).initial(1)).max_in_flight(9);
        let (runtime, (limiter, wall)) = (paused_runtime(), on_a_wall(builder));
        let mut driver = task::spawn(limiter.replenisher());
        go_to_sleep(&runtime, [&mut driver]);
        let mut grant = taken(&limiter, 1);
        let mut queue: Vec<_> = (0..3).map(|_| waiting(&limiter, 1)).collect();
        go_to_sleep(&runtime, [&mut driver]);
        wall.0.store(3, SeqCst);
        let serve = goes_to_sleep(race, &runtime, driver);
        let refund = race.actor(move || {
            grant.settle(0);
            grant
        });
        let (mut driver, _grant) = ends(serve, refund);
        let _inside = runtime.handle().enter();
        runs(&mut driver);
        assert!(queue.iter_mut().all(is_served), "more claims are due, and no driver serves them");
        assert_eq!((limiter.available(), limiter.snapshot().in_flight), (1, Some(3)));
    });
}
