//! A quota that changes while nodes run: the newer version takes over in place, and conflicts are errors.

use super::law::Ledger;
use super::nodes::{consume_for, limiter, millis, wait_of};
use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;

const FOR_EVER: Duration = Duration::from_secs(600);

/// An old node and a new one of the same store.
fn nodes(store: &MemoryStore, old: Quota, new: Quota) -> [Limiter; 2] {
    [limiter(&store.clone().quota_version(1), old), limiter(&store.clone().quota_version(2), new)]
}

#[tokio::test(start_paused = true)]
async fn old_nodes_run_on_with_the_newer_quota() {
    for (old_rate, new_rate) in [(100, 1_000), (1_000, 100)] {
        let store = MemoryStore::new();
        let quota = |rate| Quota::per_second(rate).burst(50);
        let [old, new] = nodes(&store, quota(old_rate), quota(new_rate));
        let (ledger, time) = (Ledger::default(), millis(10_000));
        let old = tokio::spawn(consume_for(old, 1, time, ledger.clone()));
        sleep(millis(2_000)).await;
        let before = ledger.total();
        assert!(before.abs_diff(50 + 2 * old_rate) <= 12, "{before}");
        let new = tokio::spawn(consume_for(new, 1, millis(8_000), ledger.clone()));
        let (old, new) = (old.await.unwrap(), new.await.unwrap());
        let after = ledger.total() - before;
        // The promises of the old quota last for a share and a quarter at most: 125 ms.
        assert!(after <= 8 * new_rate + old_rate / 8 + 12, "{after}");
        assert!(after + new_rate / 4 >= 8 * new_rate, "{after}");
        assert!((old - before) * 5 > after * 2 && new * 5 > after * 2, "{old} and {new}: equal shares");
        assert!(ledger.excess(1_000, 50) <= 1.0, "{}", ledger.excess(1_000, 50));
        assert_eq!(store.snapshot().error, None);
    }
}

/// A share of the old quota would be minted for seconds by the new one.
#[tokio::test(start_paused = true)]
async fn a_new_node_is_served_as_soon_as_the_promises_of_the_old_quota_have_come() {
    for latency in [0, 10] {
        let store = store_at(millis(latency));
        let quota = |rate| Quota::per_second(rate).burst(50);
        let [old, new] = nodes(&store, quota(1_000), quota(40));
        let callers: Vec<_> =
            (0..400).map(|_| tokio::spawn(consume_for(old.clone(), 1, FOR_EVER, Ledger::default()))).collect();
        sleep(millis(2_000)).await;
        for call in 0..20 {
            let waited = wait_of(new.consume(1)).await;
            // The promises of the old quota last for a share and a quarter. Then the nodes take turns with two tokens each.
            assert!(waited <= millis(225 + 2 * latency), "call {call}, {latency} ms: {waited:?}");
        }
        callers.iter().for_each(|caller| caller.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_needed_the_newer_quota_finds_its_tokens_after_another_round_trip() {
    let store = store_at(millis(5));
    let [old, new] = nodes(&store, Quota::per_second(10).burst(10), Quota::per_second(10).burst(40));
    drop(new.consume(1).await.unwrap());
    sleep(millis(5_000)).await;
    assert!(old.try_acquire(20).is_err(), "more than the older quota allows");
    assert!(old.try_acquire(5).is_err(), "the node has no tokens yet");
    sleep(millis(21)).await;
    drop(old.try_acquire(5).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_larger_burst_is_minted_and_not_granted_anew() {
    let store = MemoryStore::new();
    let [old, new] = nodes(&store, Quota::per_second(10).burst(100), Quota::per_second(10).burst(1_000));
    drop(old.consume(100).await.unwrap());
    assert_eq!(wait_of(new.consume(10)).await, millis(1_000));
    drop((old, new));
    sleep(millis(200_000)).await;
    let [_, new] = nodes(&store, Quota::per_second(10).burst(100), Quota::per_second(10).burst(1_000));
    assert_eq!(wait_of(new.consume(1_000)).await, Duration::ZERO, "it filled up to the new burst");
}

/// The exact instants, when the rate rises, falls, or the tokens come in steps.
#[tokio::test(start_paused = true)]
async fn promised_instants_stay_and_new_promises_come_after_them() {
    let even = |rate| Quota::per_second(rate).burst(20).initial(0);
    let steps = |amount, time| Quota::new(amount, millis(time)).burst(20).initial(0).stepped();
    for (old, new, cost, due, next) in [
        (even(100), even(1_000), 10, 100, 101),
        (even(100), even(10), 20, 200, 300),
        (even(100), steps(5, 300), 20, 200, 300),
        (steps(2, 50), even(10), 8, 200, 300),
        (steps(2, 50), steps(7, 400), 7, 200, 400),
    ] {
        let store = MemoryStore::new();
        let [one, two] = nodes(&store, old, new);
        let began = Instant::now();
        let first = tokio::spawn(async move {
            drop(one.consume(cost).await.unwrap());
            (began.elapsed(), one)
        });
        sleep(Duration::from_micros(100)).await;
        drop(two.consume(1).await.unwrap());
        assert_eq!(began.elapsed(), millis(next), "{old} becomes {new}");
        let (took, _one) = first.await.unwrap();
        assert_eq!(took, millis(due), "{old} becomes {new}");
    }
}

/// A lost answer is repeated across the change: its promise was made at the old rate, and is void.
#[tokio::test(start_paused = true)]
async fn a_promise_whose_answer_was_lost_is_not_read_by_the_new_rate() {
    let store = MemoryStore::new();
    let [old, new] =
        nodes(&store, Quota::per_second(100).burst(1).initial(0), Quota::per_second(1_000).burst(1).initial(0));
    drop(old.consume(1).await.unwrap());
    let began = Instant::now();
    store.lose_answers(1);
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let old = old.clone();
            tokio::spawn(async move {
                drop(old.consume(1).await.unwrap());
                began.elapsed()
            })
        })
        .collect();
    sleep(millis(1)).await;
    let promised = store.snapshot().granted;
    drop(new.consume(1).await.unwrap());
    assert_eq!(began.elapsed(), millis(101), "ten tokens were promised, {promised} known");
    // They were lost with the answer, and ten more are minted at the new rate behind one token.
    for waiting in waiting {
        let took = waiting.await.unwrap();
        assert!(took > millis(101) && took < millis(130), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_an_older_version_starts_with_the_newer_quota() {
    let store = MemoryStore::new();
    let [old, new] = nodes(&store, Quota::per_second(10).burst(10), Quota::per_second(1_000).burst(10));
    drop(new.consume(10).await.unwrap());
    assert_eq!(wait_of(old.consume(10)).await, millis(10));
    // And it tells a store that has lost its data of the newer quota.
    store.forget();
    drop(old.consume(10).await.unwrap());
    let waited = wait_of(old.consume(10)).await;
    assert!(waited <= millis(20), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn two_quotas_with_one_version_are_an_immediate_error_that_names_both() {
    for outage in [Outage::Wait, Outage::Fail, Outage::Share(Quota::per_second(1_000))] {
        let store = MemoryStore::new().outage(outage).quota_version(3);
        store.set_latency(millis(5));
        let (one, two) = (limiter(&store, Quota::per_second(7)), limiter(&store, Quota::per_minute(8)));
        drop(one.consume(1).await.unwrap());
        let began = Instant::now();
        let Err(ConsumeError::QuotaConflict(conflict)) = two.consume(1).await else { panic!("{outage:?}") };
        assert_eq!(began.elapsed(), millis(10), "one round trip");
        let text = conflict.to_string();
        for part in ["`7/s, burst 7`", "`8/min, burst 8`", "version 3", "quota_version"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("reached"), "{text}");
        assert!(matches!(two.consume(2).await, Err(ConsumeError::QuotaConflict(_))));
        assert!(matches!(two.try_acquire(2), Err(TryAcquireError::QuotaConflict(_))));
        assert_eq!(began.elapsed(), millis(10), "the callers after it at once");
        assert!(store.snapshot().error.unwrap().contains("8/min, burst 8"));
        assert_eq!(store.snapshot().outages, 0, "the store can be reached");
        // The store forgets a bucket that is full.
        drop(one);
        sleep(millis(10_000)).await;
        drop(timeout(FOR_EVER, two.consume(1)).await.expect("the claim hangs").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_ends_what_the_node_granted_itself_during_an_outage() {
    let store = MemoryStore::new().outage(Outage::Share(Quota::per_second(1_000)));
    let [one, two] = [7, 8].map(|rate| limiter(&store, Quota::per_second(rate)));
    drop(one.consume(1).await.unwrap());
    store.set_reachable(false);
    drop(two.consume(8).await.unwrap());
    store.set_reachable(true);
    sleep(millis(1_000)).await;
    assert!(matches!(two.consume(1).await, Err(ConsumeError::QuotaConflict(_))));
    assert_eq!(two.available(), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_follow_the_newer_quota_and_report_conflicts() {
    let store = MemoryStore::new().outage(Outage::Fail);
    let keyed = |quota, version| {
        let store = store.clone().quota_version(version);
        DistributedKeyedLimiter::<u64>::builder(store).quota(quota).build().unwrap()
    };
    let (old, new) = (keyed(Quota::per_second(10), 1), keyed(Quota::per_second(1_000).burst(10), 2));
    let other = keyed(Quota::per_second(20), 2);
    drop(old.consume(&1, 10).await.unwrap());
    drop(new.consume(&1, 1).await.unwrap());
    for calls in [1, 20] {
        // First by single requests, then by a limiter of the key.
        let began = Instant::now();
        for _ in 0..calls {
            drop(old.consume(&1, 5).await.unwrap());
        }
        assert!(began.elapsed() <= millis(5 * calls + 30), "{calls} calls: {:?}", began.elapsed());
        assert!(matches!(other.consume(&1, 1).await, Err(ConsumeError::QuotaConflict(_))));
    }
    // The conflict concerns this key only, and does not stop requests for other keys.
    let seen = other.snapshot().store;
    assert!(seen.error.unwrap().contains("`20/s, burst 20`") && !seen.is_out);
    drop(other.consume(&2, 1).await.unwrap());
}

/// A keyed limiter in memory whose parent has a conflict.
#[tokio::test(start_paused = true)]
async fn a_conflict_of_the_parent_is_an_error_of_its_children() {
    let store = MemoryStore::new();
    let (one, parent) = (limiter(&store, Quota::per_second(7)), limiter(&store, Quota::per_second(8)));
    drop(one.consume(1).await.unwrap());
    let keyed = KeyedLimiter::<u64>::builder().quota(Quota::per_second(5)).parent(&parent).build().unwrap();
    for _ in 0..2 {
        let error = timeout(FOR_EVER, keyed.consume(&1, 1)).await.expect("the claim hangs").map(drop);
        assert!(matches!(error, Err(ConsumeError::QuotaConflict(_))), "{error:?}");
    }
}

/// The law of docs/distributed.md over random changes, with nodes of three versions that come and go.
#[tokio::test(start_paused = true)]
async fn rolling_deploys_keep_the_rate_law_of_the_larger_quota() {
    let (mut wrong, mut total) = (Vec::new(), 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = MemoryStore::new();
        let latency = [0, 0, 1, 40][random.usize(..4)];
        store.set_latency(millis(latency));
        let mut quotas = Vec::new();
        for _ in 0..3 {
            let rate = [5, 100, 1_000, 4_000][random.usize(..4)];
            let burst = [2, 7, 100, 2_000][random.usize(..4)];
            quotas.push((rate, burst));
        }
        let rate = quotas.iter().map(|(rate, _)| *rate).max().unwrap();
        let (least, burst) = (
            quotas.iter().map(|(_, burst)| *burst).min().unwrap(),
            quotas.iter().map(|(_, burst)| *burst).max().unwrap(),
        );
        let (ledger, end) = (Ledger::default(), Instant::now() + millis(6_000));
        let mut all = Vec::new();
        for step in 0..9 {
            // The versions 0, 1 and 2 overlap.
            let version = (step / 3_usize).saturating_sub(random.usize(..2)).min(2);
            let (rate, burst) = quotas[version];
            let node = limiter(&store.clone().quota_version(version as u32), Quota::per_second(rate).burst(burst));
            let life = millis(random.u64(500..3_000)).min(end - Instant::now());
            for _ in 0..random.u64(1..8) {
                let cost = random.u64(1..=(least / 2).clamp(1, 5));
                all.push(tokio::spawn(consume_for(node.clone(), cost, life, ledger.clone())));
            }
            sleep(millis(random.u64(..700))).await;
            if random.u32(..4) == 0 {
                store.lose_answers(1);
            }
        }
        try_join_all(all).await.unwrap();
        let excess = ledger.excess(rate, burst) - ((latency + 1) * rate) as f64 / 1_000.0;
        if excess > 1e-6 {
            wrong.push(format!("seed {seed}: {excess} above {rate}/s, burst {burst}: {quotas:?}, {latency} ms"));
        }
        total += ledger.total();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(total > 200_000, "{total}");
}
