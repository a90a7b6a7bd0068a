//! Claims with a deadline on an exhausted quota: refused at once with the wait that is known, and only then.

use super::nodes::{limiter, millis, nodes, one_node};
use fastrand::Rng;
use std::fmt::Debug;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::distributed::{LeaseRequest, MemoryStore, QuotaTerms};
use tollgate::{Bound, ConsumeError, DistributedKeyedLimiter, Limiter, Quota};

fn wait(node: &Limiter, cost: u64) -> JoinHandle<()> {
    let node = node.clone();
    tokio::spawn(async move { node.wait(cost).await.unwrap() })
}

/// The estimate with which the claim is refused, in milliseconds. Nothing may be asked or waited for.
async fn refused<G: Debug>(store: &MemoryStore, claim: impl Future<Output = Result<G, ConsumeError>>) -> u64 {
    let (asks, now) = (store.asks(), Instant::now());
    let error = claim.await.unwrap_err();
    assert_eq!((store.asks(), now.elapsed()), (asks, Duration::ZERO), "{error}");
    let ConsumeError::TooLate { estimate, by: Bound::Quota(0), .. } = error else { panic!("{error}") };
    estimate.as_millis() as u64
}

/// The store has promised tokens for a second to the waiters here, and not to the last of them.
#[tokio::test(start_paused = true)]
async fn a_claim_behind_waiters_without_promised_tokens_is_refused_at_once() {
    let (store, node) = one_node(Quota::per_second(10).burst(1).initial(0));
    let waiting: Vec<_> = (0..20).map(|_| wait(&node, 1)).collect();
    sleep(millis(50)).await;
    assert_eq!(node.estimate(1), None);
    // No other node is there that could give tokens back.
    let estimate = refused(&store, node.wait(1).within(millis(1_000))).await;
    assert!((2_000..=2_100).contains(&estimate), "{estimate} ms");
    waiting.iter().for_each(JoinHandle::abort);
}

/// Another node has taken everything, and this one was promised nothing.
#[tokio::test(start_paused = true)]
async fn a_claim_is_refused_until_the_tokens_promised_to_other_nodes_have_come() {
    let (store, [one, other]) = nodes(Quota::per_second(10).burst(10));
    one.wait(10).await.unwrap();
    let waiting = wait(&one, 20);
    sleep(millis(10)).await;
    // The first answer: 20 tokens are promised, and this node's is the next.
    assert!(timeout(millis(10), other.wait(1)).await.is_err());
    sleep(millis(100)).await;
    let waiter = wait(&other, 1);
    tokio::task::yield_now().await;
    let estimate = refused(&store, other.wait(5).within(millis(1_000))).await;
    assert!((1_700..=2_000).contains(&estimate), "{estimate} ms");
    waiter.await.unwrap();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_key_is_refused_at_once_with_and_without_a_limiter() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(10);
    let keys = || DistributedKeyedLimiter::builder(store.clone()).quota(quota).build().unwrap();
    let (one, other) = (keys(), keys());
    one.consume(&"key", 10).await.unwrap();
    let waiting = tokio::spawn(async move { one.consume(&"key", 20).await });
    sleep(millis(10)).await;
    // One request tells the state of the store.
    let first = other.consume(&"key", 1).within(millis(100)).await.unwrap_err();
    assert!(matches!(first, ConsumeError::TooLate { .. }), "{first}");
    let estimate = refused(&store, other.consume(&"key", 1).within(millis(100))).await;
    assert!((1_900..=2_100).contains(&estimate), "{estimate} ms");
    // The key's limiter begins with what the reply said.
    let limiter = other.limiter(&"key").unwrap();
    let estimate = refused(&store, limiter.wait(1).within(millis(100))).await;
    assert!((1_900..=2_100).contains(&estimate), "{estimate} ms");
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_not_refused_while_the_tokens_of_its_own_node_are_on_the_way_back() {
    let store = MemoryStore::new();
    store.set_latency(millis(50));
    let node = limiter(&store, Quota::per_second(10).burst(100));
    _ = node.try_acquire(20);
    sleep(millis(600)).await;
    assert_eq!((store.snapshot().allowance, store.asks()), (20, 1));
    // It was idle for long enough: its tokens are on the way to the store.
    sleep(millis(80)).await;
    node.wait(100).within(millis(1_000)).await.unwrap();
}

/// Nodes keep allowances of the old burst, and what they give back fills the new one.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_refused_that_the_allowances_of_a_larger_old_burst_serve() {
    let store = MemoryStore::new();
    let old = QuotaTerms::of(&Quota::per_second(1).burst(100).initial(30), 0).unwrap();
    let mut keeps = LeaseRequest::new(7, 1, old);
    (keeps.ahead, keeps.allowance, keeps.minimum) = (30, 30, 30);
    assert_eq!(store.answer(&keeps, 0).unwrap().allowance, 30);
    let node = limiter(&store.clone().quota_version(1), Quota::per_second(1).burst(10));
    node.wait(1).await.unwrap();
    sleep(millis(100)).await;
    let mut leaves = LeaseRequest::new(7, 2, old);
    (leaves.leave, leaves.back) = (true, 30);
    assert_eq!(store.answer(&leaves, 1_100_000).unwrap().remaining, 10);
    node.wait(10).within(millis(3_000)).await.unwrap();
}

/// Whatever other nodes do: a claim without a deadline, made at the moment of a refusal, waits at least as long as the
/// refusal said.
#[tokio::test(start_paused = true)]
async fn no_claim_is_refused_that_would_have_been_granted_in_time() {
    let mut refusals = 0;
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (mut rate, mut burst) = (random.u64(5..50), random.u64(1..40));
        let mut version = 0;
        let (is_stepped, can_change) = (random.bool(), random.bool());
        let quota = |rate, burst| match is_stepped {
            true => Quota::new(rate, Duration::from_secs(1)).burst(rate).stepped(),
            false => Quota::per_second(rate).burst(burst),
        };
        let first = quota(rate, burst);
        let mut quota_now = if is_stepped { first } else { first.initial(random.u64(0..=burst)) };
        let mut store = MemoryStore::new();
        let node = limiter(&store, quota_now);
        let mut others: Vec<_> = (0..random.usize(0..4)).map(|_| limiter(&store, quota_now)).collect();
        let mut waiting: Vec<JoinHandle<()>> = Vec::new();
        for _ in 0..60 {
            store.set_latency(millis(random.u64(0..20)));
            sleep(millis(random.u64(0..60))).await;
            let other = random.usize(0..4);
            match (random.u8(0..12), others.get(other)) {
                // Its claims are given up, and its tokens come back.
                (0, Some(_)) => others[other] = limiter(&store, quota_now),
                // It keeps as much as it can.
                (1, Some(other)) => drop(other.try_acquire((burst / 2).max(1))),
                (2, Some(other)) => drop(timeout(millis(random.u64(0..50)), other.wait(random.u64(1..10))).await),
                (3, Some(other)) => drop(wait(other, random.u64(1..6))),
                (4, _) => waiting.push(wait(&node, random.u64(1..6))),
                (5, _) => store.lose_answers(1),
                // It is idle until it gives back what it keeps.
                (6, _) => {
                    _ = node.try_acquire(random.u64(1..=(burst / 2).max(1)));
                    sleep(millis(random.u64(650..720))).await;
                }
                // A newer quota takes over, slower and with a smaller burst: another one could serve claims earlier.
                (7, _) if can_change => {
                    (rate, burst, version) = (random.u64(1..=rate), random.u64(1..=burst), version + 1);
                    quota_now = quota(rate, burst);
                    store = store.quota_version(version);
                    let new = limiter(&store, quota_now);
                    drop(timeout(millis(random.u64(0..50)), new.wait(1)).await);
                }
                _ => {
                    // What another node gives back arrives just before a request of this one.
                    if random.bool() && !others.is_empty() {
                        others.pop();
                        tokio::task::yield_now().await;
                        others.push(limiter(&store, quota_now));
                    }
                    let cost = random.u64(1..12);
                    let allowed = millis(random.u64(0..500));
                    let before = Instant::now();
                    // Promised instants count from the arrival of an answer. A later answer that is faster by some
                    // milliseconds can bring tokens so much before them.
                    let jitter = millis(if node.estimate(cost).is_some() { 20 } else { 0 });
                    if let Err(ConsumeError::TooLate { estimate, .. }) = node.wait(cost).within(allowed).await {
                        assert_eq!(before.elapsed(), Duration::ZERO);
                        refusals += 1;
                        let node = node.clone();
                        waiting.push(tokio::spawn(async move {
                            node.wait(cost).await.unwrap();
                            assert!(
                                before.elapsed() + jitter >= estimate,
                                "seed {seed}: {:?} of {estimate:?}",
                                before.elapsed()
                            );
                        }));
                    }
                }
            }
        }
        for waiter in waiting {
            waiter.await.unwrap();
        }
    }
    assert!(refusals > 1_000, "{refusals}");
}

/// The same for keys without limiters, whose replies take longer than the next request.
#[tokio::test(start_paused = true)]
async fn no_claim_of_a_key_is_refused_that_a_faster_request_would_have_served() {
    let mut refusals = 0;
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let burst = random.u64(1..10);
        let quota = Quota::per_second(random.u64(5..50)).burst(burst);
        let store = MemoryStore::new();
        let keys = || DistributedKeyedLimiter::builder(store.clone()).quota(quota).build().unwrap();
        let (node, other) = (keys(), keys());
        for _ in 0..random.u8(1..4) {
            drop(timeout(millis(random.u64(0..50)), other.consume(&"key", random.u64(1..10))).await);
        }
        store.set_latency(millis(random.u64(0..100)));
        _ = node.consume(&"key", random.u64(1..=burst)).within(millis(random.u64(0..50))).await;
        store.set_latency(Duration::ZERO);
        sleep(millis(random.u64(0..50))).await;
        let (asks, before, cost) = (store.asks(), Instant::now(), random.u64(1..=burst));
        let claim = node.consume(&"key", cost).within(millis(random.u64(0..200))).await;
        if let Err(ConsumeError::TooLate { estimate, .. }) = claim
            && store.asks() == asks
        {
            refusals += 1;
            node.consume(&"key", cost).await.unwrap();
            assert!(before.elapsed() >= estimate, "seed {seed}: {:?} of {estimate:?}", before.elapsed());
        }
    }
    assert!(refusals > 20, "{refusals}");
}
