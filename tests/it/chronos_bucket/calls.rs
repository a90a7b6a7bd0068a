//! The document's overview of each call.

use super::{Scene, ms, secs};
use std::time::Duration;
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tollgate::{Limiter, Quota};

#[test]
fn try_consume_takes_all_or_nothing_and_says_which() {
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    assert!(scene.take(6));
    assert!(!scene.take(5), "false");
    assert_eq!(scene.available(), 4, "and nothing is taken");
    assert!(scene.take(4));
    scene.at(ms(100));
    assert!(scene.take(1) && !scene.take(1));
}

#[test]
fn try_consume_from_full_starts_the_refill_at_that_moment() {
    for idle in [ms(1), ms(99), ms(150), ms(12_345)] {
        let mut scene = Scene::new(Quota::new(10, secs(1)));
        scene.at(idle);
        assert!(scene.take(1));
        assert_eq!(scene.last_update(ms(100)), idle);
    }
}

#[test]
fn try_consume_many_times_at_one_moment_gets_no_more_than_the_budget() {
    let mut scene = Scene::new(Quota::new(10, secs(1)));
    scene.at(ms(987_654_321));
    assert_eq!((0..1_000).filter(|_| scene.take(1)).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn consume_completes_when_the_tokens_have_accrued() {
    let limiter = Limiter::new(Quota::new(10, secs(1))).unwrap();
    let start = Instant::now();
    for (cost, due) in [(10, 0), (5, 500), (3, 800), (25, 3_300)] {
        let grant = limiter.consume(cost).await.unwrap();
        assert_eq!(grant.cost(), cost);
        // Tokio's timers have a resolution of a millisecond.
        let late = start.elapsed().checked_sub(ms(due)).expect("the grant must not be early");
        assert!(late <= ms(1), "{cost} tokens came {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn consume_is_woken_earlier_by_a_replenish() {
    let limiter = Limiter::new(Quota::new(1, secs(3_600)).burst(10).initial(0)).unwrap();
    let start = Instant::now();
    let waiting = tokio::spawn(limiter.clone().consume_owned(3));
    tokio::time::sleep(secs(1)).await;
    assert!(!waiting.is_finished());
    limiter.replenish(3);
    let _grant = waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), secs(1), "the replenish wakes it, and not the schedule");
}

#[test]
fn consume_can_be_cancelled_and_the_claims_behind_move_up() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(0));
    let limiter = scene.limiter.clone();
    let mut first = task::spawn(limiter.consume(1));
    let mut second = task::spawn(limiter.consume(8));
    let mut third = task::spawn(limiter.consume(1));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(third.poll());

    drop(second);
    scene.at(ms(100));
    limiter.tick();
    assert_eq!((first.is_woken(), third.is_woken()), (true, false));
    scene.at(ms(200));
    limiter.tick();
    assert!(third.is_woken(), "as if the second had never waited");
    let _grants = (assert_ready_ok!(first.poll()), assert_ready_ok!(third.poll()));
    assert_eq!(limiter.available(), 0);
}

#[test]
fn consume_cancelled_after_its_tokens_came_gives_them_back() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(0));
    let limiter = scene.limiter.clone();
    let mut waiting = task::spawn(limiter.consume(5));
    assert_pending!(waiting.poll());
    scene.at(ms(500));
    limiter.tick();
    assert!(waiting.is_woken());
    assert_eq!(scene.available(), 0);
    drop(waiting);
    assert_eq!(scene.available(), 5);
}

#[test]
fn get_available_capacity_does_not_change_the_state() {
    // Two buckets. Every read-only call is made on one of them all the time.
    let (mut quiet, mut watched) = (Scene::new(Quota::new(7, secs(1))), Scene::new(Quota::new(7, secs(1))));
    let mut minted = 0;
    for step in 0_u64..20_000 {
        let at = Duration::from_micros(step * 1_013);
        watched.at(at);
        let seen = watched.available();
        let _ = (watched.limiter.deficiency(), watched.limiter.estimate(3), watched.limiter.snapshot());
        if step % 97 == 0 {
            quiet.at(at);
            assert_eq!(quiet.available(), seen, "at {at:?}");
            let cost = step % 5;
            assert_eq!(quiet.take(cost), watched.take(cost), "{cost} at {at:?}");
            minted += cost;
        }
    }
    assert!(minted > 100, "the buckets must have been used");
}

#[test]
fn replenish_adds_up_to_capacity_and_the_refill_goes_on_where_it_was() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).initial(0));
    scene.at(ms(250));
    scene.limiter.replenish(3);
    assert_eq!(scene.available(), 5);
    assert_eq!(scene.last_update(ms(100)), ms(200), "the 50 ms since the last token are kept");
    scene.limiter.replenish(100);
    assert_eq!(scene.available(), 10);
    scene.at(ms(900));
    assert!(scene.take(10));
    assert_eq!(scene.last_update(ms(100)), ms(900), "full until now: no time is saved up");
}

#[test]
fn replenish_wakes_waiters_in_order() {
    let limiter = Scene::new(Quota::new(10, secs(1)).initial(0)).limiter;
    let mut waiters = [2, 2, 2].map(|cost| task::spawn(limiter.consume(cost)));
    for waiting in &mut waiters {
        assert_pending!(waiting.poll());
    }
    limiter.replenish(5);
    assert_eq!(waiters.each_ref().map(|waiting| waiting.is_woken()), [true, true, false]);
    assert_eq!(
        limiter.estimate(1),
        Some(ms(200)),
        "one token is available: one more for the third claim, and one for this"
    );
}
