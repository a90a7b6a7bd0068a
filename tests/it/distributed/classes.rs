//! Classes that share one quota over many nodes, in paused time.

use super::class_fleet::{Fleet, Node, POLICY};
use super::nodes::millis;
use crate::fixture::*;

/// The table of the issue: 4 to 1 within 2 %, over 2 and over 16 nodes.
#[tokio::test(start_paused = true)]
async fn classes_have_their_shares_of_the_fleet_whichever_nodes_their_callers_are_on() {
    type Ingress = fn(usize, usize) -> [(&'static str, usize); 2];
    let ingresses: [(&str, Ingress); 4] =
        [
            ("balanced", |_, _| [("pages", 60), ("backup", 60)]),
            (
                "skewed",
                |node, _| if node == 0 { [("pages", 200), ("backup", 20)] } else { [("pages", 15), ("backup", 60)] },
            ),
            ("one-sided", |node, nodes| {
                if node < nodes / 2 { [("pages", 60), ("backup", 0)] } else { [("pages", 0), ("backup", 60)] }
            }),
            ("all of one class on one node", |node, _| {
                if node == 0 { [("pages", 100), ("backup", 0)] } else { [("pages", 0), ("backup", 60)] }
            }),
        ];
    for nodes in [2, 16] {
        for (name, tasks) in ingresses {
            let fleet = Fleet::of_two();
            let _nodes: Vec<Node> = (0..nodes).map(|node| fleet.node(&tasks(node, nodes))).collect();
            sleep(millis(1_000)).await;
            fleet.check_policy(millis(6_000), &format!("{nodes} nodes, {name}")).await;
            fleet.assert_lawful(500, 50);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shares_hold_while_nodes_join_and_leave() {
    let fleet = Fleet::of_two();
    let mut nodes = vec![fleet.node(&[("pages", 60)]), fleet.node(&[("backup", 60)])];
    sleep(millis(1_000)).await;
    for round in 0..3 {
        nodes.extend((0..3).map(|_| fleet.node(&[("backup", 60)])));
        nodes.push(fleet.node(&[("pages", 60), ("backup", 30)]));
        sleep(millis(500)).await;
        fleet.check_policy(millis(3_000), &format!("round {round}, joined")).await;
        nodes.truncate(2);
        sleep(millis(500)).await;
        fleet.check_policy(millis(3_000), &format!("round {round}, left")).await;
    }
    fleet.assert_lawful(500, 50);
}

#[tokio::test(start_paused = true)]
async fn a_small_weight_is_no_starvation() {
    let fleet = Fleet::new(Quota::per_second(500).burst(50), &[("large", 99), ("small", 1)]);
    let _large: Vec<Node> = (0..7).map(|_| fleet.node(&[("large", 60)])).collect();
    let _small = fleet.node(&[("small", 20)]);
    sleep(millis(1_000)).await;
    let [large, small] = fleet.granted_in(millis(10_000), ["large", "small"]).await;
    assert!((48.0..=52.0).contains(&small) && large + small >= 4_990.0, "{large} to {small}");
}

#[tokio::test(start_paused = true)]
async fn nested_classes_share_what_their_parents_get() {
    let fleet = Fleet::new(Quota::per_second(500).burst(50), &[("a", 3), ("a/x", 2), ("a/y", 1), ("b", 1)]);
    let nodes = [fleet.node(&[("a/x", 60)]), fleet.node(&[("a/y", 60), ("b", 60)]), fleet.node(&[("b", 60)])];
    sleep(millis(1_000)).await;
    let [x, y, b] = fleet.granted_in(millis(6_000), ["a/x", "a/y", "b"]).await;
    assert!((1_470.0..=1_530.0).contains(&x), "{x}, {y}, {b}");
    assert!((735.0..=765.0).contains(&y) && (735.0..=765.0).contains(&b), "{x}, {y}, {b}");
    // What `y` does not need stays in its parent.
    let [first, mut second, third] = nodes;
    second.tasks.shutdown().await;
    fleet.consume(&mut second, "b", 60, 1);
    sleep(millis(500)).await;
    let [x, b] = fleet.granted_in(millis(6_000), ["a/x", "b"]).await;
    assert!((2_205.0..=2_295.0).contains(&x) && x + b >= 2_990.0, "{x}, {b}");
    drop((first, third));
}

/// Random fleets, whose nodes come and go with claims of any cost up to half of the burst, keep the law of one bucket.
#[tokio::test(start_paused = true)]
async fn random_fleets_with_classes_keep_the_rate_law_and_lose_no_waiter() {
    const CLASSES: &[(&str, u64)] = &[("a", 5), ("a/x", 3), ("a/y", 1), ("b", 1), ("c", 1_000)];
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (rate, burst) = (random.u64(20..400), random.u64(8..100));
        let fleet = Fleet::new(Quota::per_second(rate).burst(burst), CLASSES);
        let latency = Duration::from_micros(random.u64(0..20_000));
        fleet.store.set_latency(latency);
        let mut nodes: Vec<Node> = Vec::new();
        for _ in 0..40 {
            match random.u32(..10) {
                0..3 if nodes.len() < 6 => nodes.push(fleet.node(&[])),
                3 if !nodes.is_empty() => drop(nodes.swap_remove(random.usize(..nodes.len()))),
                4 => fleet.store.lose_answers(1),
                _ => {}
            }
            if !nodes.is_empty() {
                let node = random.usize(..nodes.len());
                match random.u32(..8) {
                    0 => nodes[node].tasks.abort_all(),
                    1 => _ = nodes[node].classes["b"].try_acquire(1),
                    2 => nodes[node].limiter.pause_for(millis(random.u64(..600))),
                    _ => {
                        let (class, _) = CLASSES[random.usize(..CLASSES.len())];
                        let cost = random.u64(1..=burst / 2);
                        fleet.consume(&mut nodes[node], class, random.usize(1..10), cost);
                    }
                }
            }
            sleep(millis(random.u64(..300))).await;
        }
        let excess = fleet.ledger.excess(rate, burst);
        let most = rate as f64 * latency.as_secs_f64();
        assert!(excess <= most, "seed {seed}: {excess} above a burst of {burst} at {rate}/s, with {latency:?}");
        // Each claim that waits is granted in the end.
        for node in &mut nodes {
            node.tasks.abort_all();
        }
        for node in &nodes {
            for class in node.classes.values() {
                timeout(millis(600_000), class.wait(1)).await.expect("granted in the end").unwrap();
            }
        }
    }
}

/// Tokens that come during a pause are kept as far as the node may keep tokens, and no further: the store mints others.
#[tokio::test(start_paused = true)]
async fn tokens_for_a_class_that_come_during_a_pause_do_not_pass_on_top_of_a_full_bucket() {
    let fleet = Fleet::new(Quota::per_second(100).burst(100).initial(0), POLICY);
    let (paused, other) = (fleet.node(&[]), fleet.node(&[]));
    for (node, cost) in [(&paused, 50), (&other, 50)] {
        let (class, ledger) = (node.classes["pages"].clone(), fleet.ledger.clone());
        let pause = cost;
        tokio::spawn(async move {
            class.wait(cost).await.unwrap();
            ledger.note(pause);
        });
        sleep(millis(2)).await;
    }
    paused.limiter.pause_for(millis(20_000));
    sleep(millis(19_998)).await;
    let (class, ledger) = (other.classes["pages"].clone(), fleet.ledger.clone());
    class.wait(100).await.unwrap();
    ledger.note(100);
    sleep(millis(5_000)).await;
    assert_eq!(fleet.ledger.total(), 200);
    fleet.assert_lawful(100, 100);
}

#[tokio::test(start_paused = true)]
async fn an_outage_fails_the_claims_of_classes_or_lets_them_wait() {
    for outage in [Outage::Wait, Outage::Fail] {
        let store = MemoryStore::new().outage(outage);
        let quota = Quota::per_second(10).burst(10);
        let limiter = Limiter::builder().quota(quota).distributed(store.clone()).classes().build().unwrap();
        let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
        a.wait(10).await.unwrap();
        store.set_reachable(false);
        let waiting: Vec<_> = [&a, &b, &a, &b]
            .into_iter()
            .cloned()
            .map(|class| tokio::spawn(async move { class.wait(9).await }))
            .collect();
        sleep(millis(5_000)).await;
        let arrived = timeout(millis(1), b.wait(9)).await;
        if outage == Outage::Fail {
            assert!(waiting.iter().all(|claim| claim.is_finished()), "no tokens are promised to them");
            assert_eq!(arrived, Ok(Err(ConsumeError::Unreachable)));
        }
        store.set_reachable(true);
        for claim in waiting {
            match timeout(millis(60_000), claim).await.expect("it ends").unwrap() {
                Ok(()) => {}
                Err(error) => assert_eq!((outage, error), (Outage::Fail, ConsumeError::Unreachable)),
            }
        }
        // The node notices with its next request.
        let served = async {
            while b.wait(1).await.is_err() {
                sleep(millis(10)).await;
            }
        };
        timeout(millis(60_000), served).await.expect("the store is back");
    }
}

#[tokio::test(start_paused = true)]
async fn what_classes_cannot_do_over_many_nodes_is_a_typed_error() {
    let quota = Quota::per_second(10);
    let limiter = Limiter::builder().quota(quota).distributed(MemoryStore::new()).classes().build().unwrap();
    let class = limiter.class("a", Share::weight(1)).unwrap();
    for (part, share) in [("floor", Share::weight(1).floor(quota)), ("ceiling", Share::weight(1).ceiling(quota))] {
        let error = ConfigError::DistributedShare { class: "b".to_owned(), part };
        assert_eq!(limiter.class("b", share).unwrap_err(), error);
        assert!(class.set_share(share).is_err());
    }
    class.set_share(Share::weight(7)).unwrap();
    assert_eq!(class.snapshot().weight, 7);
    let keys = KeyedLimiter::<u64>::builder().quota(quota).parent(&class).build();
    assert_eq!(keys.unwrap_err(), ConfigError::DistributedParent);
    let other = Limiter::new(quota).unwrap();
    let error = join([(&other, 1), (&limiter, 1)]).await.unwrap_err();
    assert_eq!(error, JoinError::DistributedClasses { limiter: 1 });
    let classes: Vec<Class> =
        (1..64).map(|number| class.class(number.to_string(), Share::weight(1)).unwrap()).collect();
    let error = ConfigError::TooManyClasses { class: "last".to_owned(), most: 64 };
    assert_eq!(limiter.class("last", Share::weight(1)).unwrap_err(), error);
    drop(classes);
}

/// A limiter that was built with classes and has none yet is a leaf of its own, which never rests: nothing waits beside it.
#[tokio::test(start_paused = true)]
async fn claims_of_a_limiter_without_a_class_pass_in_an_outage() {
    for instant in 0..20 {
        let store = MemoryStore::new().outage(Outage::Share(Quota::per_second(5).burst(5)));
        let (granted, mut tasks) = (Arc::new(AtomicUsize::new(0)), tokio::task::JoinSet::new());
        for _ in 0..2 {
            let builder = Limiter::builder().quota(Quota::per_second(10).burst(10));
            let limiter = builder.distributed(store.clone()).classes().build().unwrap();
            for _ in 0..4 {
                let (limiter, granted) = (limiter.clone(), Arc::clone(&granted));
                tasks.spawn(async move {
                    while limiter.consume(5).await.is_ok() {
                        granted.fetch_add(5, Relaxed);
                    }
                });
            }
        }
        sleep(millis(3_000 + 50 * instant)).await;
        store.set_reachable(false);
        sleep(millis(5_000)).await;
        let before = granted.load(Relaxed);
        sleep(millis(10_000)).await;
        let in_outage = granted.load(Relaxed) - before;
        assert!(in_outage >= 80, "{in_outage} of 100, cut off {instant} x 50 ms later");
    }
}

/// Before, whichever claim was in service got the refusal of the first claim of the limiter itself.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_class_is_not_refused_for_what_a_claim_of_the_limiter_wants() {
    for (burst, instant) in (0..8).flat_map(|instant| [(10, instant), (50, instant)]) {
        let store = MemoryStore::new();
        let node = |version, burst| {
            let builder = Limiter::builder().quota(Quota::per_second(10).burst(burst));
            builder.distributed(store.clone().quota_version(version)).classes().build().unwrap()
        };
        let old = node(1, 50);
        old.consume(50).await.unwrap().forget();
        let mut tasks = tokio::task::JoinSet::new();
        for class in ["a", "b"] {
            let class = old.class(class, Share::weight(1)).unwrap();
            tasks.spawn(async move {
                for _ in 0..40 {
                    class.wait(1).await.unwrap();
                }
            });
        }
        sleep(millis(500)).await;
        let root = tokio::spawn(async move { old.consume(40).within(millis(3_000)).await.is_ok() });
        sleep(millis(13 * instant)).await;
        let new = node(2, burst);
        for _ in 0..20 {
            let new = new.clone();
            tokio::spawn(async move { while new.consume(5).await.is_ok() {} });
        }
        tasks.join_all().await;
        assert!(!root.await.unwrap(), "too large, or too late");
    }
}

/// What a claim had been promised that has left comes too early for the claim behind it, in another piece: the class asked
/// for the rest alone again and again, and never had it all at once.
#[tokio::test(start_paused = true)]
async fn a_claim_asks_for_all_of_its_tokens_if_those_of_its_class_come_too_early_for_it() {
    // In the second case other claims of the class wait behind it.
    let cases: [(_, _, &[u64], _, &[u64]); 2] = [
        (8, Quota::new(11, millis(500)).burst(5), &[4; 4], Some(3), &[4]),
        (20, Quota::new(5, millis(200)), &[2, 3, 4], None, &[5, 4, 4]),
    ];
    for (burst, local, served, leaves, costs) in cases {
        let store = MemoryStore::new();
        store.set_latency(millis(20));
        let builder = Limiter::builder().quota(Quota::per_second(50).burst(burst)).distributed(store);
        let limiter = builder.quota(local).classes().build().unwrap();
        let class = limiter.class("a", Share::weight(1)).unwrap();
        for cost in served {
            class.wait(*cost).await.unwrap();
        }
        if let Some(cost) = leaves {
            assert!(timeout(millis(10), class.wait(cost)).await.is_err());
        }
        let waits = futures::future::try_join_all(costs.iter().map(|cost| class.wait(*cost)));
        timeout(millis(20_000), waits).await.expect("they are served").unwrap();
    }
}

/// A node whose classes have such claims shares 100/s with a busy one. Returns how many tokens both were granted in 10 s.
async fn granted_beside(
    burst: u64,
    slow: impl FnOnce(tollgate::Builder) -> tollgate::Builder,
    claim: impl AsyncFn(&Class) + Copy + Send + 'static,
) -> (u64, u64) {
    let store = MemoryStore::new();
    store.set_latency(millis(1));
    let shared = || Limiter::builder().quota(Quota::per_second(100).burst(burst)).distributed(store.clone());
    let slow = slow(shared()).classes().build().unwrap();
    let classes = [1, 3].map(|weight| slow.class(format!("{weight}"), Share::weight(weight)).unwrap());
    let busy = shared().build().unwrap();
    let local = tokio::task::LocalSet::new();
    for task in 0..20 {
        let (class, busy) = (classes[task % 2].clone(), busy.clone());
        local.spawn_local(async move {
            loop {
                claim(&class).await;
            }
        });
        local.spawn_local(async move {
            loop {
                busy.wait(1).await.unwrap();
            }
        });
    }
    let granted = || [&slow, &busy].map(|limiter| limiter.snapshot().granted);
    local.run_until(sleep(2 * SECOND)).await;
    let before = granted();
    local.run_until(sleep(10 * SECOND)).await;
    let after = granted();
    (after[0] - before[0], after[1] - before[1])
}

/// A class asked for its part as if for debts, and left to wait what the busy node could have had.
#[tokio::test(start_paused = true)]
async fn claims_that_another_quota_holds_back_take_no_tokens_from_other_nodes() {
    let (slow, busy) =
        granted_beside(10, |b| b.quota(Quota::per_hour(1)), async |class| class.wait(1).await.unwrap()).await;
    assert!(slow == 0 && (990..=1_010).contains(&busy), "{busy}");
}

/// A class that lacked tokens which it could not use was behind all others for ever. And the store counted on claims that wait
/// for the next step: others that were ahead of their class got nothing meanwhile.
#[tokio::test(start_paused = true)]
async fn classes_that_another_quota_slows_down_leave_the_rest_to_other_nodes() {
    for (burst, quota) in [(10, Quota::per_second(5).burst(1)), (1, Quota::per_second(10).stepped())] {
        let (slow, busy) = granted_beside(burst, |b| b.quota(quota), async |class| class.wait(1).await.unwrap()).await;
        let all = slow + busy;
        assert!(slow >= 9 * quota.amount() && (990..=1_010).contains(&all), "{quota}: {slow} and {busy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_above_the_burst_of_another_quota_is_asked_for_in_installments() {
    let slow = Quota::per_second(20).burst(2);
    let (slow, busy) = granted_beside(10, |b| b.quota(slow), async |class| class.wait(5).await.unwrap()).await;
    assert!(slow >= 160 && (990..=1_010).contains(&(slow + busy)), "{slow} and {busy}");
}

/// The tokens that were promised to claims before them counted as if the cap let these pass later: more came than it let pass.
#[tokio::test(start_paused = true)]
async fn no_token_comes_to_a_class_that_a_cap_holds_back() {
    let holds = async |class: &Class| {
        let _permit = class.consume(1).await.unwrap();
        sleep(millis(400)).await;
    };
    let (slow, busy) = granted_beside(10, |b| b.max_in_flight(8), holds).await;
    assert!(slow >= 180 && (990..=1_010).contains(&(slow + busy)), "{slow} and {busy}");
}

/// Beside a class that may come back, tokens are promised for a short time. A node asked for no more than its part of that time,
/// and got one token if there were fewer.
#[tokio::test(start_paused = true)]
async fn a_class_that_comes_now_and_then_leaves_the_rest_of_a_small_burst_to_other_nodes() {
    let store = store_at(millis(5));
    let shared = || Limiter::builder().quota(Quota::per_second(1_000).burst(1)).distributed(store.clone());
    let (seldom, busy) = (shared().classes().build().unwrap(), shared().build().unwrap());
    let class = seldom.class("a", Share::weight(1)).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            class.wait(1).await.unwrap();
            sleep(millis(50)).await;
        }
    });
    for _ in 0..300 {
        let busy = busy.clone();
        tasks.spawn(async move {
            loop {
                busy.wait(1).await.unwrap();
            }
        });
    }
    sleep(2 * SECOND).await;
    let before = busy.snapshot().granted;
    sleep(10 * SECOND).await;
    let granted = busy.snapshot().granted - before;
    assert!(granted >= 9_700, "{granted} of 10,000");
}

/// It took all tokens of the store and returned them, when it renewed what it may keep, and then again and again.
#[tokio::test(start_paused = true)]
async fn a_paused_node_asks_no_tokens_for_its_classes() {
    let store = store_at(millis(1));
    let node = Limiter::builder().quota(Quota::per_second(100).burst(20)).distributed(store.clone()).classes();
    let node = node.build().unwrap();
    let class = node.class("batch", Share::weight(1)).unwrap();
    for _ in 0..50 {
        drop(class.try_acquire(1));
        sleep(millis(20)).await;
    }
    node.pause_for(SECOND * 10);
    let granted = store.snapshot().granted;
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(class.clone().consume_owned(3))).collect();
    sleep(millis(9_900)).await;
    assert_eq!(store.snapshot().granted, granted);
    try_join_all(waiting).await.unwrap().into_iter().for_each(|answer| drop(answer.unwrap()));
}
