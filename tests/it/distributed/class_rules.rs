//! What a store says to single requests with classes.

use crate::fixture::*;
use tollgate::distributed::{ClassClaims, LeaseGrant, LeaseRequest, QuotaTerms};

const FOR_EVER: u64 = 1 << 40;

/// Sends the request of a node, with what each of its classes wants and lacks, and how long its claims still wait. Times are in
/// microseconds.
fn ask(store: &MemoryStore, quota: Quota, node: u128, number: u64, at: u64, classes: &[[u64; 4]]) -> LeaseGrant {
    let mut ask = LeaseRequest::new(node, number, QuotaTerms::of(&quota).unwrap());
    ask.rtt = 1_000;
    ask.want = classes.iter().map(|[_, want, ..]| want).sum();
    let row = |[class, want, lack, useful]: [u64; 4]| {
        ClassClaims::from_numbers([class, 0, 1, want, want.min(50), lack, 0, useful])
    };
    ask.classes = classes.iter().copied().map(row).collect();
    store.answer(&ask, at).unwrap()
}

/// There are tokens for it, so its node would otherwise ask again at once, and again.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_ahead_of_others_looks_again_after_a_while() {
    let (store, quota) = (MemoryStore::new(), Quota::per_second(1_000).burst(100));
    let given = |grant: LeaseGrant| grant.classes[0].given;
    assert_eq!(given(ask(&store, quota, 2, 1, 0, &[[2, 1, 1_000, FOR_EVER]])), 1);
    assert_eq!(given(ask(&store, quota, 1, 1, 0, &[[1, 40, 1_000, FOR_EVER]])), 40);
    assert_eq!(given(ask(&store, quota, 1, 2, 0, &[[1, 40, 1_000, FOR_EVER]])), 40);
    let grant = ask(&store, quota, 1, 3, 0, &[[1, 1, 1_000, FOR_EVER]]);
    assert_eq!((grant.classes[0].given, grant.classes[0].sleep, grant.remaining), (0, 5_000, 19));
}

/// Its claim has waited for longer than those of other nodes.
#[tokio::test(start_paused = true)]
async fn a_class_keeps_its_place_while_its_node_asks_for_another_class() {
    for asks_for_another in [false, true] {
        let (store, quota) = (MemoryStore::new(), Quota::per_second(10).burst(100));
        ask(&store, quota, 3, 1, 0, &[[3, 50, 50, FOR_EVER]]);
        ask(&store, quota, 3, 2, 0, &[[3, 50, 50, FOR_EVER]]);
        let sent_away = ask(&store, quota, 1, 1, 1_000, &[[1, 50, 50, FOR_EVER]]);
        assert_eq!(sent_away.classes[0].given, 0);
        if asks_for_another {
            // Too late for that one, which gets no place.
            ask(&store, quota, 1, 2, 2_000, &[[1, 0, 50, FOR_EVER], [2, 1, 1, 0]]);
        }
        let later = ask(&store, quota, 3, 3, 500_000, &[[3, 3, 3, FOR_EVER]]);
        assert_eq!(later.classes[0].given, 0, "{asks_for_another}: of {}", later.remaining);
    }
}
