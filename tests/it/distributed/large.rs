//! Large claims: half of a burst, or more tokens than will ever be minted.

use super::law::Ledger;
use super::link::{Cut, Link, LostTime};
use super::nodes::{Habits, behave, limiter, millis, nodes};
use crate::fixture::*;
use tollgate::distributed::{LeaseRequest, QuotaTerms};

#[tokio::test(start_paused = true)]
async fn a_claim_above_the_burst_is_too_large() {
    let store = MemoryStore::new();
    for (quota, most) in [(Quota::per_day(1).burst(10), 10), (Quota::per_second(100).burst(10), 10)] {
        let store = store.beside(&quota.to_string());
        let (one, two) = (limiter(&store, quota), limiter(&store, quota));
        for cost in [most + 1, 1 << 48, u64::MAX] {
            let refused = one.consume(cost).await.map(drop);
            assert_eq!(refused, Err(too_large(cost, most, Bound::Quota(0))));
            assert_eq!(one.estimate(cost), None);
            let plain = Limiter::new(Quota::per_second(1_000)).unwrap();
            assert!(tollgate::join([(&one, cost), (&plain, 1)]).await.is_err());
        }
        drop(timeout(millis(5_000), two.consume(1)).await.expect("no tokens were taken").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_claim_when_cancelled_delays_others_by_nothing() {
    let quota = Quota::per_second(10).burst(100).initial(0);
    let (store, [one, two]) = nodes(quota);
    assert!(timeout(millis(9_900), one.consume(100)).await.is_err());
    let began = Instant::now();
    drop(timeout(millis(600_000), two.consume(90)).await.expect("the store continues").unwrap());
    assert!(began.elapsed() <= millis(1), "{:?}", began.elapsed());
    // A debt is paid in turns: it delays the node that owes it, and the others only in turns.
    drop(one);
    let three = limiter(&store, quota);
    let mut grant = three.consume(1).await.unwrap();
    grant.settle(1 << 40);
    sleep(millis(1_000)).await;
    let began = Instant::now();
    drop(timeout(millis(600_000), two.consume(1)).await.expect("the store continues").unwrap());
    assert!(began.elapsed() <= millis(1_000), "{:?}", began.elapsed());
}

/// Claims that wait are told of a newer quota with a smaller burst. A joint claim held up its node for ever.
#[tokio::test(start_paused = true)]
async fn a_claim_above_a_newer_burst_is_turned_away() {
    let store = MemoryStore::new();
    let node = limiter(&store, Quota::per_second(1).burst(10).initial(0));
    let other = Limiter::new(Quota::per_second(1)).unwrap();
    let mut joint = tokio_test::task::spawn(join([(&node, 10), (&other, 1)]));
    assert!(joint.poll().is_pending());
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { node.wait(10).await }
    });
    sleep(millis(500)).await;
    let newer = limiter(&store.clone().quota_version(1), Quota::per_second(1).burst(5));
    newer.wait(1).await.unwrap();
    let refused = timeout(millis(10_000), waiting).await.expect("it is turned away").unwrap();
    let error = too_large(10, 5, None);
    assert_eq!((joint.await.map(drop), refused), (Err(JoinError::Refused { limiter: 0, error }), Err(error)));
}

/// Beside an allowance of 5 the bucket fills up to 10 for a claim of 10. Its node dies, or the claim leaves; then another node
/// asks.
#[test]
fn tokens_saved_up_for_a_claim_that_is_gone_are_given_to_no_other() {
    let terms = QuotaTerms::of(&Quota::per_second(10).burst(10)).unwrap();
    for leaves in [false, true] {
        let store = MemoryStore::new();
        let mut keeper = LeaseRequest::new(1, 1, terms);
        (keeper.ahead, keeper.minimum) = (5, 5);
        assert_eq!(store.answer(&keeper, 1_000_000).unwrap().allowance, 5);
        let mut large = LeaseRequest::new(2, 1, terms);
        (large.want, large.first, large.useful) = (10, 10, 1 << 40);
        assert_eq!(store.answer(&large, 1_000_000).unwrap().now, 0);
        if leaves {
            let gone = store.answer(&LeaseRequest::new(2, 2, terms), 2_000_000).unwrap();
            assert_eq!(gone.remaining, 5, "at once");
        }
        let mut other = LeaseRequest::new(3, 1, terms);
        (other.want, other.first) = (10, 1);
        let answer = store.answer(&other, 2_000_000).unwrap();
        assert_eq!((answer.now, answer.remaining), (5, 0), "{leaves}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_cancelled_claim_are_not_added_to_the_next_lease() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(100).initial(0);
    let nodes: Vec<Limiter> = (0..5).map(|_| limiter(&store, quota)).collect();
    let ledger = Ledger::default();
    let mut tasks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let (first, second) = (node.clone(), (node.clone(), ledger.clone()));
        // The claim is cancelled half-way through its turn. The next claim of its node is promised the other half much
        // later.
        let max_wait = millis(5_000 * number as u64 + 2_500);
        tasks.push(tokio::spawn(async move { assert!(timeout(max_wait, first.consume(50)).await.is_err()) }));
        sleep(millis(1)).await;
        tasks.push(tokio::spawn(async move {
            let (node, ledger) = second;
            drop(node.consume(50).await.unwrap());
            ledger.note(50);
        }));
        // Of two claims that came at one instant, either may be first.
        sleep(millis(1)).await;
    }
    for task in tasks {
        timeout(millis(600_000), task).await.expect("a caller hangs").unwrap();
    }
    // Timers are late by up to a millisecond.
    assert!(ledger.excess(10, 100) <= 0.01, "{} tokens above the law", ledger.excess(10, 100));
}

/// Many nodes and callers over one store, with pauses, clocks that step back and, in every other history, lost answers.
#[tokio::test(start_paused = true)]
async fn claims_of_half_a_burst_keep_the_law() {
    let (mut total, mut wrong) = (0, Vec::new());
    for seed in 0..200 {
        let answers_are_lost = seed % 2 == 1;
        let mut random = fastrand::Rng::with_seed(seed);
        let rate = [5, 20, 100, 1_000][random.usize(..4)];
        let burst = [4, 10, 20, 50][random.usize(..4)];
        let latency = [0, 0, 1, 5][random.usize(..4)];
        let store = store_at(millis(latency));
        let lost_time = LostTime::of(&store, millis(latency));
        let quota = Quota::per_second(rate).burst(burst);
        let count = random.usize(2..5);
        let links: Vec<Link> = (0..count)
            .map(|_| Link::to(&store, [Outage::Wait, Outage::Fail][random.usize(..2)]).measuring(&lost_time))
            .collect();
        let nodes: Vec<Limiter> = links.iter().map(|link| limiter(link, quota)).collect();
        let (ledger, end) = (Ledger::default(), Instant::now() + millis(8_000));
        let callers: Vec<_> = (0..random.u64(1..12))
            .map(|caller| {
                let habits = Habits { end, most: burst / 2, patience: 3_000_000, settles: 4, rests: (5, 4_000_000) };
                tokio::spawn(behave(nodes.clone(), seed << 32 | caller, habits, ledger.clone()))
            })
            .collect();
        while Instant::now() < end {
            sleep(Duration::from_micros(random.u64(..400_000))).await;
            let link = &links[random.usize(..count)];
            match random.u32(..8) {
                0 if answers_are_lost => link.cut([Cut::Before, Cut::After][random.usize(..2)]),
                1 if answers_are_lost => store.lose_answers(random.u64(..3)),
                2 => lost_time.step_clock(-random.i64(0..2_000_000)),
                3 => nodes[random.usize(..count)].pause_for(millis(random.u64(..100))),
                _ => links.iter().for_each(|link| link.cut(Cut::Nowhere)),
            }
        }
        try_join_all(callers).await.unwrap();
        // Tokens that are granted at once may be late by the latency from the store to the node. Timers are late by up
        // to a millisecond.
        let late = (latency + 1) as f64 / 1_000.0;
        // A lease whose answer was lost may be late by the lost time.
        let excess = ledger.excess(rate, burst) - (late + lost_time.seconds()) * rate as f64;
        if excess > 1e-6 {
            wrong.push(format!("seed {seed}: {excess} above {quota}, {count} nodes, {latency} ms"));
        }
        total += ledger.total();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(total > 1_000, "{total}");
}
