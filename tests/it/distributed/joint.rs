//! Joint claims over limiters of two stores, whose answers come at different instants.

use super::law::Ledger;
use super::nodes::{limiter, millis, nodes};
use crate::fixture::*;

const RATE: u64 = 50;
const NODES: usize = 4;

/// Claims of some nodes: joint ones and, beside them, single ones of the kinds 1 and 2. Some have a short deadline, and some are
/// dropped. Returns how many of the others failed, and the worst excess over both stores.
async fn claim(latencies: [u64; 2], burst: u64, most: u64, kinds: &[u8]) -> (usize, f64) {
    let stores = latencies.map(|latency| store_at(millis(latency)));
    let quota = Quota::per_second(RATE).burst(burst);
    let nodes = [0; NODES].map(|_| stores.each_ref().map(|store| limiter(store, quota)));
    let ledgers = [Ledger::default(), Ledger::default()];
    let mut tasks = JoinSet::new();
    for index in 0..90 {
        let ([a, b], ledgers) = (nodes[index / 3 % NODES].clone(), ledgers.clone());
        let kind = kinds[index % kinds.len()];
        let cost = 1 + index as u64 * 7 % most;
        tasks.spawn(async move {
            sleep(millis(index as u64 * 37 % 500)).await;
            let patience = if index % 10 == 9 { millis(30) } else { Duration::from_secs(60) };
            let claim = async {
                let is_granted = match kind {
                    0 => join([(&a, cost), (&b, 1 + most - cost)]).within(patience).await.is_ok(),
                    1 => a.consume(cost).within(patience).await.is_ok(),
                    _ => b.consume(1 + most - cost).within(patience).await.is_ok(),
                };
                let of_kind = |store: usize| kind == 0 || usize::from(kind) == store + 1;
                ledgers
                    .iter()
                    .enumerate()
                    .filter(|(store, _)| is_granted && of_kind(*store))
                    .for_each(|(store, it)| it.note(if store == 0 { cost } else { 1 + most - cost }));
                is_granted
            };
            let leaves_at = if index % 10 == 4 { millis(40) } else { Duration::from_secs(70) };
            timeout(leaves_at, claim).await.unwrap_or(false) || index % 5 == 4
        });
    }
    let failed = tasks.join_all().await.into_iter().filter(|is_served| !is_served).count();
    (failed, ledgers.iter().map(|ledger| ledger.excess(RATE, burst)).fold(f64::MIN, f64::max))
}

/// Before, each limiter lost the tokens of a joint claim at the instant at which they came, because the other one had none then.
#[tokio::test(start_paused = true)]
async fn joint_claims_over_two_stores_are_granted_and_keep_the_law() {
    for latencies in [[0, 0], [1, 1], [10, 10], [0, 10], [10, 1]] {
        for (burst, cost) in [(1, 1), (5, 1), (50, 1), (12, 8), (38, 37)] {
            for kinds in [&[0][..], &[0, 1], &[0, 1, 2]] {
                let (failed, excess) = claim(latencies, burst, cost, kinds).await;
                let ways = 2 * latencies.into_iter().max().unwrap_or(0);
                // Each node keeps the tokens of one joint claim.
                let most = (NODES as u64 * cost) as f64 + (RATE * ways) as f64 / 1e3;
                assert_eq!(failed, 0, "{latencies:?}, burst {burst}, kinds {kinds:?}");
                assert!(excess <= most + 1e-6, "{latencies:?}, burst {burst}, kinds {kinds:?}: {excess} above {most}");
            }
        }
    }
}

/// Before, the claim lost its tokens at the instant at which they came; with a claim behind it, when both left.
#[tokio::test(start_paused = true)]
async fn a_joint_claim_that_waits_for_another_limiter_keeps_its_own_tokens_only_and_returns_them() {
    for is_followed in [false, true] {
        let (_store, [one, two]) = nodes(Quota::per_day(1).burst(10));
        let never = Limiter::builder().quota(Quota::per_day(1).initial(0)).build().unwrap();
        let mut joint = tokio_test::task::spawn(join([(&one, 4), (&never, 1)]));
        assert!(joint.poll().is_pending());
        let mut behind = is_followed.then(|| tokio_test::task::spawn(one.consume(1)));
        behind.iter_mut().for_each(|behind| assert!(behind.poll().is_pending()));
        sleep(millis(5_000)).await;
        drop(timeout(millis(1_000), two.consume(6)).await.expect("the others are there").unwrap());
        let mut last = tokio_test::task::spawn(two.consume(4));
        assert!(timeout(millis(5_000), &mut last).await.is_err(), "the joint claim keeps four");
        drop((joint, behind));
        drop(timeout(millis(5_000), last).await.expect("they return").unwrap());
    }
}
