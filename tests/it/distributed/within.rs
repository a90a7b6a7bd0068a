//! Claims with a deadline on an exhausted quota: refused at once with the wait that is known, and only then.

use super::nodes::{limiter, millis};
use fastrand::Rng;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::distributed::MemoryStore;
use tollgate::{Bound, ConsumeError, KeyedLimiter, Limiter, Quota};

fn wait(node: &Limiter, cost: u64) -> JoinHandle<()> {
    let node = node.clone();
    tokio::spawn(async move { node.wait(cost).await.unwrap() })
}

/// The estimate with which the claim is refused, in milliseconds. Nothing may be asked or waited for.
async fn refused(store: &MemoryStore, claim: impl Future<Output = Result<(), ConsumeError>>) -> u64 {
    let (asks, now) = (store.asks(), Instant::now());
    let error = claim.await.unwrap_err();
    assert_eq!((store.asks(), now.elapsed()), (asks, Duration::ZERO), "{error}");
    let ConsumeError::TooLate { estimate, by: Bound::Quota(0), .. } = error else { panic!("{error}") };
    estimate.as_millis() as u64
}

/// The store has promised tokens for a second to the waiters here, and not to the last of them.
#[tokio::test(start_paused = true)]
async fn a_claim_behind_waiters_without_promised_tokens_is_refused_at_once() {
    let store = MemoryStore::new();
    let node = limiter(&store, Quota::per_second(10).burst(1).initial(0));
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
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(10);
    let (one, other) = (limiter(&store, quota), limiter(&store, quota));
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

/// Half of the burst may be kept by other nodes. What they give back may reach the store before the request for a claim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_returned_tokens_serve_is_not_refused() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(100).initial(50);
    let (keeper, node) = (limiter(&store, quota), limiter(&store, quota));
    _ = keeper.try_acquire(50);
    sleep(millis(10)).await;
    assert_eq!(store.snapshot().allowance, 50);
    node.wait(1).await.unwrap();
    store.set_latency(millis(5));
    drop(keeper);
    tokio::task::yield_now().await;
    node.wait(20).within(millis(500)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_key_is_refused_at_once_with_and_without_a_limiter() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(10);
    let keys = || KeyedLimiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
    let (one, other) = (keys(), keys());
    one.wait(&"key", 10).await.unwrap();
    let waiting = tokio::spawn(async move { one.wait(&"key", 20).await });
    sleep(millis(10)).await;
    // One request tells the state of the store.
    let first = other.wait(&"key", 1).within(millis(100)).await.unwrap_err();
    assert!(matches!(first, ConsumeError::TooLate { .. }), "{first}");
    let estimate = refused(&store, other.wait(&"key", 1).within(millis(100))).await;
    assert!((1_900..=2_100).contains(&estimate), "{estimate} ms");
    // The key's limiter begins with what the reply said.
    let limiter = other.limiter(&"key").unwrap();
    let estimate = refused(&store, limiter.wait(1).within(millis(100))).await;
    assert!((1_900..=2_100).contains(&estimate), "{estimate} ms");
    waiting.await.unwrap().unwrap();
}

/// Whatever other nodes do: a claim without a deadline, made at the moment of a refusal, waits at least as long as the
/// refusal said.
#[tokio::test(start_paused = true)]
async fn no_claim_is_refused_that_would_have_been_granted_in_time() {
    let mut refusals = 0;
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (rate, burst) = (random.u64(5..50), random.u64(1..40));
        let quota = Quota::per_second(rate).burst(burst).initial(random.u64(0..=burst));
        let quota = if random.bool() { quota } else { Quota::new(rate, Duration::from_secs(1)).burst(rate).stepped() };
        let store = MemoryStore::new();
        store.set_latency(millis(random.u64(0..20)));
        let node = limiter(&store, quota);
        let mut others: Vec<_> = (0..random.usize(0..4)).map(|_| limiter(&store, quota)).collect();
        let mut waiting: Vec<JoinHandle<()>> = Vec::new();
        for _ in 0..60 {
            sleep(millis(random.u64(0..60))).await;
            let other = random.usize(0..4);
            match (random.u8(0..8), others.get(other)) {
                // Its claims are given up, and its tokens come back.
                (0, Some(_)) => others[other] = limiter(&store, quota),
                // It keeps as much as it can.
                (1, Some(other)) => drop(other.try_acquire((burst / 2).max(1))),
                (2, Some(other)) => drop(timeout(millis(random.u64(0..50)), other.wait(random.u64(1..10))).await),
                (3, Some(other)) => drop(wait(other, random.u64(1..6))),
                (4, _) => waiting.push(wait(&node, random.u64(1..6))),
                _ => {
                    // What another node gives back arrives just before a request of this one.
                    if random.bool() && !others.is_empty() {
                        others.pop();
                        tokio::task::yield_now().await;
                        others.push(limiter(&store, quota));
                    }
                    let cost = random.u64(1..12);
                    let allowed = millis(random.u64(0..500));
                    let before = Instant::now();
                    if let Err(ConsumeError::TooLate { estimate, .. }) = node.wait(cost).within(allowed).await {
                        assert_eq!(before.elapsed(), Duration::ZERO);
                        refusals += 1;
                        let node = node.clone();
                        waiting.push(tokio::spawn(async move {
                            node.wait(cost).await.unwrap();
                            assert!(
                                before.elapsed() >= estimate,
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
