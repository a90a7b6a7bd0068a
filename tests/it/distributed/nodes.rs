//! Nodes of a fleet: limiters over one store.

use super::law::Ledger;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tollgate::distributed::{MemoryStore, Store};
use tollgate::{Limiter, Quota};

pub(crate) fn limiter(store: &(impl Store + Clone), quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap()
}

/// A store in memory, and a node of it.
pub(crate) fn one_node(quota: Quota) -> (MemoryStore, Limiter) {
    let store = MemoryStore::new();
    let node = limiter(&store, quota);
    (store, node)
}

/// A store in memory, and two nodes of it.
pub(crate) fn nodes(quota: Quota) -> (MemoryStore, [Limiter; 2]) {
    let store = MemoryStore::new();
    let nodes = [limiter(&store, quota), limiter(&store, quota)];
    (store, nodes)
}

/// How long the claim waits.
pub(crate) async fn wait_of<T, E: Debug>(claim: impl Future<Output = Result<T, E>>) -> Duration {
    let began = Instant::now();
    drop(claim.await.unwrap());
    began.elapsed()
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Consumes one claim after the other for `time`, and records the grants.
pub(crate) async fn consume_for(limiter: Limiter, cost: u64, time: Duration, ledger: Ledger) -> u64 {
    let mut got = 0;
    let consume = async {
        while limiter.consume(cost).await.is_ok() {
            ledger.note(cost);
            got += cost;
        }
    };
    _ = timeout(time, consume).await;
    got
}

/// What a random caller does. Times are in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    pub(crate) end: Instant,
    /// The largest cost, which half of the claims have or nearly have.
    pub(crate) most: u64,
    /// The longest time before it gives up.
    pub(crate) patience: u64,
    /// One claim in so many is settled for more or less.
    pub(crate) settles: u32,
    /// One rest in so many is long, and how long.
    pub(crate) rests: (u32, u64),
}

/// One random caller of some node: it waits, cancels, tries, settles, rests.
pub(crate) async fn behave(nodes: Vec<Limiter>, seed: u64, habits: Habits, ledger: Ledger) {
    let Habits { end, most, patience, settles, rests } = habits;
    let mut random = fastrand::Rng::with_seed(seed);
    while Instant::now() < end {
        let node = &nodes[random.usize(..nodes.len())];
        let cost = if random.bool() { random.u64(1..=most) } else { most - random.u64(..=most / 8) };
        let cost = cost.max(1);
        match random.u32(..10) {
            0..4 => {
                let max_wait = Duration::from_micros(random.u64(..patience));
                if let Ok(Ok(mut grant)) = timeout(max_wait, node.consume(cost)).await {
                    ledger.note(cost);
                    // The tokens stay in flight for a while, where there is a cap.
                    sleep(Duration::from_micros(random.u64(..20_000))).await;
                    if random.u32(..settles) == 0 {
                        grant.settle(cost + random.u64(..3));
                    }
                }
            }
            4..7 => {
                if timeout(end - Instant::now(), node.consume(cost)).await.is_ok_and(|answer| answer.is_ok()) {
                    ledger.note(cost);
                }
            }
            7 | 8 => {
                if node.try_acquire(cost).is_ok() {
                    ledger.note(cost);
                }
                sleep(Duration::from_micros(random.u64(..5_000))).await;
            }
            _ => {
                let tired = if random.u32(..rests.0) == 0 { rests.1 } else { 50_000 };
                sleep(Duration::from_micros(random.u64(..tired))).await;
            }
        }
    }
}
