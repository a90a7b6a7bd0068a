//! Limiters over a store in memory, in paused time.

use super::law::Ledger;
use super::nodes::{consume_for, limiter, millis, nodes, one_node, wait_of};
use crate::fixture::*;
use std::sync::atomic::AtomicI64;

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_denial_is_exact() {
    let (_store, [one, two]) = nodes(Quota::per_second(10).initial(0));
    let began = Instant::now();
    let first = tokio::spawn(async move { drop(one.consume(4).await.unwrap()) });
    sleep(millis(1)).await;
    let second = tokio::spawn(async move { drop(two.consume(2).await.unwrap()) });
    first.await.unwrap();
    assert_eq!(began.elapsed(), millis(400));
    second.await.unwrap();
    assert_eq!(began.elapsed(), millis(600));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_two_nodes_are_served_in_the_order_in_which_they_came_within_a_batch() {
    let (_store, nodes) = nodes(Quota::per_second(1_000).burst(100).initial(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = Vec::new();
    for number in 0..1_000 {
        let (node, order) = (nodes[number % 2].clone(), order.clone());
        all.push(tokio::spawn(async move {
            drop(node.consume(1).await.unwrap());
            order.lock().unwrap().push(number);
        }));
        sleep(Duration::from_micros(100)).await;
    }
    try_join_all(all).await.unwrap();
    let order = order.lock().unwrap();
    // A turn of one node is a tenth of a second's tokens for both nodes, so no claim is out of order by more than two
    // turns.
    for (place, number) in order.iter().enumerate() {
        assert!(place.abs_diff(*number) <= 100, "claim {number} was granted as number {place}");
    }
    for node in 0..2 {
        assert!(
            order.iter().filter(|number| *number % 2 == node).is_sorted(),
            "each node's own queue is strictly in order"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_finds_the_tokens_on_retry() {
    let (_store, limiter) = one_node(Quota::per_second(10));
    assert!(matches!(limiter.try_acquire(3), Err(TryAcquireError::Denied(denied)) if denied.by == Bound::Quota(0)));
    sleep(millis(1)).await;
    drop(limiter.try_acquire(3).unwrap());
    assert!(matches!(limiter.try_acquire(6), Err(TryAcquireError::TooLarge { most: 5, .. })));
    // All available tokens, then one that is not minted yet: the denial tells the wait.
    let mut tries = 0;
    let wait = loop {
        tries += 1;
        assert!(tries < 1_000, "no denial has a retry_after");
        if let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(1)
            && let Some(wait) = denied.retry_after
        {
            break wait;
        }
        sleep(millis(1)).await;
    };
    assert!(wait <= millis(100), "{wait:?}");
    sleep(wait).await;
    drop(limiter.try_acquire(1).unwrap());
}

/// The fast path's tokens are taken back first: callers could take them without reading the clock.
#[tokio::test(start_paused = true)]
async fn an_idle_node_returns_its_tokens_and_is_forgotten() {
    for stride in [None, Some(1_000)] {
        let (store, quota) = (MemoryStore::new(), Quota::per_second(10).burst(100));
        let builder = Limiter::builder().quota(quota).distributed(store.clone());
        let one = stride.into_iter().fold(builder, Builder::stride).build().unwrap();
        for _ in 0..30 {
            drop(one.consume(1).await.unwrap());
            sleep(millis(1)).await;
        }
        assert!(one.available() > 0, "the node has requested tokens in advance");
        sleep(millis(1_500)).await;
        assert!(one.try_acquire(1).is_err() && one.available() == 0);
        // 70, and 15 that were minted meanwhile.
        assert_eq!(wait_of(limiter(&store, quota).consume(80)).await, Duration::ZERO);
        let asks = store.asks();
        sleep(millis(60_000)).await;
        assert!(store.asks() <= asks + 4, "an idle node sends no requests");
    }
}

/// The store has forgotten the node when the request comes again.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_while_the_answer_is_lost_has_lost_nothing() {
    let (store, limiter) = one_node(Quota::per_day(1).burst(10));
    limiter.wait(1).await.unwrap();
    sleep(millis(400)).await;
    store.lose_answers(1);
    sleep(millis(5_000)).await;
    let snapshot = store.snapshot();
    assert_eq!((snapshot.outages, snapshot.nodes, snapshot.losses), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_share_is_nothing_does_not_ask_for_it_again_and_again() {
    let (store, node) = one_node(Quota::per_minute(6).burst(1_000));
    store.set_latency(millis(5));
    for _ in 0..999 {
        node.wait(1).await.unwrap();
    }
    let asks = store.asks();
    sleep(millis(90)).await;
    assert!(store.asks() <= asks + 2, "{} requests", store.asks() - asks);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_limiter_returns_its_tokens() {
    let (store, [one, two]) = nodes(Quota::per_day(1).burst(100));
    for _ in 0..50 {
        drop(one.consume(1).await.unwrap());
        sleep(millis(1)).await;
    }
    let unused = one.available();
    assert!(unused > 0);
    drop(one);
    sleep(millis(1)).await;
    let snapshot = store.snapshot();
    assert_eq!(snapshot.granted - snapshot.returned, 50, "{snapshot:?}");
    assert_eq!(wait_of(two.consume(50)).await, Duration::ZERO);
}

/// The store would count these tokens as kept, but they have been spent since.
#[tokio::test(start_paused = true)]
async fn a_dropped_limiter_does_not_return_tokens_lost_to_a_full_bucket() {
    let (_store, [one, two]) = nodes(Quota::per_second(1_000).burst(100));
    for _ in 0..30 {
        drop(one.consume(1).await.unwrap());
        sleep(millis(1)).await;
    }
    let mut unused = one.consume(30).await.unwrap();
    // Until the buckets of the store and of the node are full again.
    sleep(millis(200)).await;
    let kept = one.available();
    assert!(kept > 0, "the node has requested tokens in advance");
    unused.settle(0);
    assert_eq!(one.available(), kept, "the bucket has no space for them");
    // They return to the store, which is full too.
    sleep(millis(1)).await;
    drop(one.try_acquire(kept).unwrap());
    drop(unused);
    let began = Instant::now();
    drop(one);
    sleep(millis(2)).await;
    drop(two.consume(103 - kept).await.unwrap());
    assert!(began.elapsed() >= millis(3), "{kept} and {} in {:?}", 103 - kept, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn tokens_of_cancelled_claims_serve_the_next() {
    let (store, limiter) = one_node(Quota::per_second(100).burst(50).initial(0));
    let began = Instant::now();
    let first = timeout(millis(5), limiter.consume(10));
    assert!(first.await.is_err());
    drop(limiter.consume(10).await.unwrap());
    assert_eq!(began.elapsed(), millis(100), "the tokens were promised for that instant");
    assert_eq!(store.snapshot().granted, 10);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_repeated() {
    let (store, limiter) = one_node(Quota::per_second(10).burst(10));
    store.lose_answers(3);
    drop(limiter.consume(10).await.unwrap());
    let waited = wait_of(limiter.consume(1)).await;
    assert!(waited <= millis(100), "ten tokens were taken once: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn unsupported_settings_are_errors_of_the_builder() {
    let store = MemoryStore::new();
    let build = |quota: Quota| Limiter::builder().quota(quota).distributed(store.clone()).build().map(drop);
    assert_eq!(build(Quota::manual(5)), Err(QuotaError::DistributedManual.into()));
    let inexact = Err(QuotaError::DistributedInexact.into());
    assert_eq!(build(Quota::new((1 << 61) - 1, millis(1_000))), inexact);
    assert_eq!(build(Quota::new(1, Duration::from_nanos(7)).stepped()), inexact);
    let named = |quota| Limiter::builder().quota_named("day", quota).distributed(store.clone()).build().map(drop);
    assert_eq!(
        named(Quota::manual(5)),
        Err(ConfigError::BadQuota { quota: 0, quota_name: Some("day"), reason: QuotaError::DistributedManual })
    );
    assert_eq!(build(Quota::new(1 << 40, millis(10)).burst(1 << 50)), Ok(()));
    // Tokens carried over are added, so the sum would not be exact.
    assert_eq!(build(Quota::new((1 << 26) - 1, Duration::from_micros((1 << 27) + 2))), inexact);
    let none = Limiter::builder().distributed(store.clone()).quota(Quota::per_second(1)).build();
    assert_eq!(none.map(drop), Err(ConfigError::DistributedQuotaCount));
    let one = || Limiter::builder().quota(Quota::per_second(1)).distributed(store.clone());
    assert_eq!(one().distributed(store.clone()).build().map(drop), Err(ConfigError::DistributedQuotaCount));
    let outside = Err(ConfigError::DistributedOutsideRuntime);
    assert_eq!(one().clock(ManualClock::new()).build().map(drop), outside);
    let builder = one();
    assert_eq!(thread::spawn(move || builder.build().map(drop)).join().unwrap(), outside);
    let changed = one().build().unwrap().set_quota(0, Quota::per_second(8));
    assert_eq!(changed, Err(QuotaError::DistributedQuota.into()));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_data_grants_a_burst_more_and_no_lease_twice() {
    let (store, nodes) = nodes(Quota::per_second(100).burst(50));
    let ledger = Ledger::default();
    let all = nodes.map(|node| tokio::spawn(consume_for(node, 1, millis(4_000), ledger.clone())));
    sleep(millis(2_000)).await;
    store.forget();
    try_join_all(all).await.unwrap();
    let excess = ledger.excess(100, 50);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.losses, 2, "each node counts the loss");
    // The estimate bounds the excess, and is not far above: the bucket, and what was promised to the nodes.
    assert!(excess.ceil() as u64 <= snapshot.excess_estimate, "{excess} of {}", snapshot.excess_estimate);
    assert!(snapshot.excess_estimate <= 50 + 2 * 25, "{}", snapshot.excess_estimate);
    // A full bucket too many, and the tokens promised to the two nodes before they heard of it: a turn and a quarter
    // each.
    assert!(excess <= 50.0 + 25.0, "{excess}");
}

/// Also a node that asks less than once in a lease notices that its store has begun anew. A bucket that was full and
/// forgotten, and a leap of the server's clock, are no loss.
#[tokio::test(start_paused = true)]
async fn a_store_that_begins_anew_is_noticed_by_nodes_that_ask_seldom() {
    enum Event {
        Forgets,
        Fills,
        Leaps,
    }
    for (event, rate, others, losses) in [
        (Event::Forgets, Quota::per_minute(1), 0, 1),
        (Event::Forgets, Quota::per_minute(1), 3, 1),
        (Event::Fills, Quota::per_second(1), 0, 0),
        (Event::Fills, Quota::per_second(1), 3, 0),
        (Event::Leaps, Quota::per_minute(1), 0, 0),
    ] {
        let store = MemoryStore::new();
        let node = limiter(&store, rate.burst(20));
        node.wait(15).await.unwrap();
        for _ in 0..others {
            limiter(&store, rate.burst(20)).wait(1).await.unwrap();
        }
        match event {
            Event::Forgets => {
                sleep(millis(30_000)).await;
                store.forget();
                // Another node is there before this one.
                limiter(&store, rate.burst(20)).wait(1).await.unwrap();
                sleep(millis(10_000)).await;
            }
            Event::Fills => sleep(millis(60_000)).await,
            Event::Leaps => store.step_clock(60_000_000),
        }
        node.wait(1).await.unwrap();
        let snapshot = store.snapshot();
        assert_eq!(snapshot.losses, losses, "{others} others");
        assert!(losses == 0 || (15..=20).contains(&snapshot.excess_estimate), "{snapshot:?}");
    }
}

/// Wherever the refill task fails, no promised token is lost or early, and the waiters are served at most one retry later.
/// Answers take some time, so the last reading before an answer is from before the store gave it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_fails_in_the_background_costs_no_tokens_and_brings_none_early() {
    for latency in [0, 20] {
        let mut took = Vec::new();
        for sound in (0..60).chain([1_000_000]) {
            let start = Instant::now();
            let left = AtomicI64::new(sound);
            // In background tasks three readings panic. The test itself is not a task.
            let clock = ClockFn::moving(move || {
                if tokio::task::try_id().is_some() && (-2..=0).contains(&left.fetch_sub(1, Relaxed)) {
                    // Not `panic!`: the panic is intended, and its message would only clutter the output.
                    std::panic::resume_unwind(Box::new("a clock that fails"));
                }
                start.elapsed()
            });
            let quota = Quota::per_second(1_000).burst(10).initial(0);
            let store = store_at(millis(latency));
            let limiter = Limiter::builder().quota(quota).distributed(store).clock(clock).build().unwrap();
            for _ in 0..30 {
                drop(timeout(millis(10_000), limiter.consume(10)).await.expect("the waiter is stranded").unwrap());
            }
            took.push(start.elapsed());
        }
        let sound = took.pop().unwrap();
        assert!(took.iter().all(|took| *took <= sound + millis(8)), "{latency} ms, {sound:?}: {took:?}");
        assert!(took.iter().all(|took| *took >= sound), "{latency} ms, {sound:?}: {took:?}");
    }
}
