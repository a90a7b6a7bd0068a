//! On tokio's clock: which driver serves the queues, and that every claim is granted at the scheduled instant.

use super::MS;
use crate::fixture::*;
use futures::future::join_all;
use tokio::runtime::Runtime;

const LONG: Duration = Duration::from_secs(3_600);
/// The interval between two polls, in paused time.
const OFTEN: Duration = if cfg!(miri) { Duration::from_secs(1) } else { MS };

/// One token each `milliseconds`, none at first.
fn every(milliseconds: u32) -> Limiter {
    Limiter::new(Quota::new(1, MS * milliseconds).burst(1).initial(0)).unwrap()
}

/// A rate so low that no token comes while a test is set up in real time, on any machine.
fn seldom() -> Limiter {
    every(10_000)
}

/// Returns when the claim is granted from the current runtime.
async fn until_woken(claim: &Spawn<Consume<'_>>) {
    let is_woken = async {
        while !claim.is_woken() {
            sleep(OFTEN).await;
        }
    };
    timeout(LONG, is_woken).await.expect("its queues are served from this runtime");
}

fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_tasks_is_granted_one_by_one_at_the_slower_rate() {
    let (a, b) = (every(10), every(30));
    let began = Instant::now();
    let waits = join_all((0..20).map(|_| async {
        let _grants = join([(&a, 1), (&b, 1)]).await.unwrap();
        began.elapsed()
    }))
    .await;
    assert_eq!(waits, (1..=20).map(|place| place * 30 * MS).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn plain_claims_pass_at_their_own_instants_around_a_joint_one() {
    let (a, b) = (every(10), every(100));
    let began = Instant::now();
    let plain = |limiter| async move {
        let limiter: &Limiter = limiter;
        let _grant = limiter.consume(1).await.unwrap();
        began.elapsed()
    };
    let joint = async {
        let _grants = join([(&b, 1), (&a, 1)]).await.unwrap();
        began.elapsed()
    };
    let (first, joint, behind, other) = tokio::join!(plain(&a), joint, plain(&a), plain(&b));
    assert_eq!([first, joint, behind, other], [10, 100, 20, 200].map(Duration::from_millis));
}

#[test]
fn an_undriven_or_ended_runtime_delays_no_claim_on_another() {
    for ended in [false, true] {
        let (a, b) = (seldom(), seldom());
        let mut idle = Some(paused());
        let mut stalled = spawn(join([(&a, 1), (&b, 1)]));
        idle.as_ref().unwrap().block_on(async { assert_pending!(stalled.poll()) });
        if ended {
            idle = None;
        }
        paused().block_on(async {
            for limiter in [&a, &b] {
                let claim = timeout(LONG, limiter.consume(1)).await;
                drop(claim.expect("a claim behind the stalled claim is served").unwrap());
            }
        });
        drop((stalled, idle));
    }
}

#[test]
fn a_chain_of_claims_on_undriven_runtimes_delays_no_other_claim() {
    let [a, b, c] = [seldom(), seldom(), seldom()];
    let (first, second, driven) = (paused(), paused(), paused());
    let mut behind = spawn(a.consume(1));
    let mut tied = spawn(join([(&a, 1), (&b, 1)]));
    let mut further = spawn(join([(&b, 1), (&c, 1)]));
    // The claim on the later limiter enters first, so that the other waits behind it in b. Then comes a caller of a
    // third runtime.
    first.block_on(async { assert_pending!(further.poll()) });
    second.block_on(async { assert_pending!(tied.poll()) });
    driven.block_on(async {
        assert_pending!(behind.poll());
        until_woken(&behind).await;
    });
    assert!(matches!(behind.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn a_later_claim_connects_queues_for_earlier_waiters() {
    let (a, b) = (seldom(), seldom());
    let (idle, driven) = (paused(), paused());
    let mut in_front = spawn(join([(&a, 1), (&b, 1)]));
    let mut waiting = spawn(a.consume(1));
    driven.block_on(async { assert_pending!(waiting.poll()) });
    idle.block_on(async { assert_pending!(in_front.poll()) });
    let mut behind = spawn(a.consume(1));
    driven.block_on(async {
        assert_pending!(behind.poll());
        until_woken(&behind).await;
    });
    assert!(waiting.is_woken());
}

#[test]
fn a_claim_of_an_ended_runtime_serves_another_when_it_moves() {
    let (a, b) = (seldom(), seldom());
    let gone = paused();
    let mut claim = Box::pin(join([(&a, 1), (&b, 1)]));
    gone.block_on(async { assert!(futures::poll!(&mut claim).is_pending()) });
    drop(gone);
    let _grants =
        paused().block_on(async { timeout(LONG, claim).await.expect("the claim has a driver here").unwrap() });
}

#[test]
fn a_runtime_that_is_shutting_down_is_named_and_leaves_no_driver_behind() {
    let (a, b) = (seldom(), seldom());
    let runtime = paused();
    let handle = runtime.handle().clone();
    drop(runtime);
    {
        let _inside = handle.enter();
        // A claim that takes nothing needs no driver.
        for (cost, limiter) in [(1, 0), (0, 1)] {
            let refused = JoinError::Refused { limiter, error: ConsumeError::NoRuntime };
            assert!(matches!(spawn(join([(&a, cost), (&b, 1)])).poll(), Poll::Ready(Err(error)) if error == refused));
        }
        assert!(matches!(spawn(a.consume(1)).poll(), Poll::Ready(Err(ConsumeError::NoRuntime))));
    }
    for (limiter, refused) in [(&a, 3), (&b, 2)] {
        assert!(matches!(spawn(limiter.consume(1)).poll(), Poll::Ready(Err(ConsumeError::NoRuntime))));
        assert_eq!((limiter.snapshot().waiting_tasks, limiter.snapshot().refused), (0, refused));
    }
}

#[test]
fn a_runtime_without_timers_panics_in_the_caller_and_leaves_nothing_behind() {
    let (a, b) = (every(86_400_000), every(86_400_000));
    let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let panics = || timeless.block_on(async { join([(&a, 1), (&b, 1)]).await.map(|_| ()) });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    for limiter in [&a, &b] {
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
        assert!(matches!(spawn(limiter.consume(1)).poll(), Poll::Ready(Err(ConsumeError::NoRuntime))));
    }
}

/// In real time, on which no result depends: the limit of an hour only ends a hang.
#[test]
fn a_thread_blocked_behind_a_claim_of_an_idle_runtime_is_served() {
    // With another clock the joint claim holds the thread's queue until the other one is due.
    let (a, began) = (seldom(), std::time::Instant::now());
    let b = Limiter::builder().quota(Quota::new(1, 10_000 * MS).burst(1).initial(0));
    let b = b.clock(ClockFn::moving(move || began.elapsed())).build().unwrap();
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stalled = spawn(join([(&a, 1), (&b, 1)]));
    idle.block_on(async { assert_pending!(stalled.poll()) });
    // The second claim is due long after the thread has first served the queue.
    a.set_quota(0, Quota::new(1, MS).burst(1)).unwrap();
    b.set_quota(0, Quota::new(1, 50 * MS).burst(1)).unwrap();
    let (tell, hear) = std::sync::mpsc::channel();
    let max_wait = Duration::from_secs(3_600);
    let served = std::thread::scope(|scope| {
        let a = &a;
        scope.spawn(move || tell.send(a.blocking_consume(1).map(|grant| grant.cost())));
        let served = hear.recv_timeout(max_wait);
        drop(stalled); // lets the thread end in any case
        served
    });
    assert_eq!(served, Ok(Ok(1)), "the thread drives both queues");
}

/// The first queue holds the claim for a second of its own time, while no time passes for the second queue.
#[tokio::test(start_paused = true)]
async fn a_queue_that_waited_for_another_clock_keeps_at_most_its_burst() {
    let (here, elsewhere) = (Limiter::new(Quota::per_second(1_000).burst(5)).unwrap(), ManualClock::new());
    let there = Limiter::builder().quota(Quota::manual(5).initial(0)).clock(elsewhere).build().unwrap();
    let joint = pending(join([(&here, 1), (&there, 1)]));
    let behind: Vec<_> = (0..100).map(|_| pending(here.consume(1))).collect();
    sleep(Duration::from_secs(1)).await;
    there.replenish(1);
    assert!(joint.is_woken());
    assert_eq!(woken(&behind), 4, "a burst of 5, and one of them was the joint");
}

/// Due claims of one queue are delivered in batches, and a batch may be full when the other queue's driver is to be
/// woken.
#[tokio::test(start_paused = true)]
async fn the_driver_of_the_other_queue_is_woken_for_any_number_of_due_claims() {
    for due in 1..=if cfg!(miri) { 34 } else { 70 } {
        let (nanos, clock) = shown(ClockFn::moving);
        let leap = |millis: u64| nanos.fetch_add(millis * 1_000_000, Relaxed);
        let built = || {
            let quota = Quota::new(1, MS).burst(1).initial(0);
            Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap()
        };
        let quiet = built();
        let passes = pending(quiet.consume(1));
        leap(1);
        sleep(2 * MS).await;
        assert!(passes.is_woken(), "the driver now sleeps without an alarm");
        let busy = built();
        let _waiters: Vec<_> = (0..due).map(|_| pending(busy.consume(1))).collect();
        sleep(Duration::from_micros(1)).await;
        leap(due);
        let mut claim = pending(join([(&busy, 1), (&quiet, 2)]));
        leap(2);
        sleep(5 * MS).await;
        assert!(claim.is_woken(), "with {due} before it");
        assert!(claim.poll().is_ready());
    }
}

/// A joint claim waits aside, for a limiter whose cap is used up. 100 other claims of the slow limiter are due, more than
/// one batch, and no driver has run yet. Then a release of the cap sends the slow limiter an update: it must grant the due
/// claims before it decides about the joint claim.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_behind_serves_what_is_due_before_it_looks_at_a_joint_claim() {
    for arrives in [false, true] {
        let slow = Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap();
        let capped = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap();
        let in_flight = capped.try_acquire(1).unwrap();
        let joint = pending(join([(&slow, 80), (&capped, 1)]));
        let waiters: Vec<_> = (0..100).map(|_| pending(slow.consume(1))).collect();
        tokio::task::yield_now().await;
        // Polled once, this moves the clock and lets no other task run.
        assert_pending!(spawn(tokio::time::advance(100 * MS)).poll());
        let mut last = spawn(slow.consume(1));
        if arrives {
            assert_pending!(last.poll());
        } else {
            slow.tick();
        }
        drop(in_flight);
        sleep(79 * MS).await;
        assert_eq!((woken(&waiters), joint.is_woken()), (100, false));
        sleep(2 * MS).await;
        assert!(joint.is_woken());
    }
}
