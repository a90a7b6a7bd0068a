//! Limiters over a real server, in real time.

use super::server::{FOR_EVER, Server};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::distributed::{LeaseRequest, Outage, QuotaTerms, Store, StoreError, StoreSnapshot};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Limiter, Quota, Share};
use tollgate_postgres::{PostgresStore, pool};

/// Transactions of the isolation that the database has by default fail where others would wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_isolation_refuses_no_call() {
    let Some(server) = Server::start().await else { return };
    // A transaction that holds the lock may stand still for long on a busy machine.
    server.say("ALTER FUNCTION tollgate_ask_1 SET lock_timeout = 0").await;
    for isolation in ["repeatable read", "serializable"] {
        server.say(&format!("ALTER DATABASE postgres SET default_transaction_isolation = '{isolation}'")).await;
        let connect = async |name: &str| {
            let store = PostgresStore::over(pool(&server.address()).unwrap(), name).await.unwrap();
            store.answer_timeout(FOR_EVER).outage(Outage::Fail)
        };
        let calm = |snapshot: StoreSnapshot| {
            assert_eq!((snapshot.outages, &snapshot.error), (0, &None), "{isolation}: {snapshot:?}")
        };
        let quota = Quota::per_second(3_000).burst(50);
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let store = connect(isolation).await;
            let warning = store.snapshot().warning.unwrap();
            let sets = "run `ALTER ROLE owner SET default_transaction_isolation = 'read committed'`";
            assert!(warning.contains(isolation) && warning.contains(sets), "{warning}");
            let limiter = Limiter::builder().quota(quota).distributed(store.clone()).classes().build().unwrap();
            let class = limiter.class("pages", Share::weight(1)).unwrap();
            nodes.push((store, limiter, class));
        }
        let began = Instant::now();
        let mut callers = Vec::new();
        for (.., class) in nodes.iter().cycle().take(24) {
            let class = class.clone();
            callers.push(tokio::spawn(async move {
                loop {
                    match class.consume(1).await {
                        Ok(_) => {}
                        Err(ConsumeError::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            }));
        }
        let granted = || nodes.iter().map(|(_, limiter, _)| limiter.snapshot().granted).sum::<u64>();
        while granted() < 4_000 && callers.iter().all(|caller| !caller.is_finished()) {
            assert!(began.elapsed() < FOR_EVER, "{}", granted());
            sleep(Duration::from_millis(1)).await;
        }
        nodes.iter().for_each(|(_, limiter, _)| limiter.close());
        for caller in callers {
            caller.await.unwrap();
        }
        let most = 50 + (began.elapsed().as_nanos() * 3_000 / 1_000_000_000) as u64;
        assert!(granted() <= most, "{} of {most}", granted());
        nodes.iter().for_each(|(store, ..)| calm(store.snapshot()));

        // Claims for one key at the same time, from two nodes.
        let store = connect(&format!("{isolation} keys")).await;
        let keyed = || DistributedKeyedLimiter::builder(store.clone()).quota(Quota::per_day(100)).build().unwrap();
        let users: [DistributedKeyedLimiter<u64>; 2] = [keyed(), keyed()];
        let claims = (0..120).map(|number| {
            let users = users[number % 2].clone();
            tokio::spawn(async move { users.consume(&1, 1).within(Duration::ZERO).await.map(drop) })
        });
        let mut granted = 0;
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.unwrap() {
                Ok(()) => granted += 1,
                Err(ConsumeError::TooLate { .. } | ConsumeError::TimedOut { .. }) => {}
                Err(error) => panic!("{error}: {:?}", store.snapshot()),
            }
        }
        assert!((1..=100).contains(&granted), "{granted}");
        calm(store.snapshot());
        while store.sweep(10).await.unwrap() > 0 {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_deletes_what_equals_a_new_store_and_nothing_else() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("x").await;
    let fills_soon = QuotaTerms::of(&Quota::per_second(1_000).burst(10)).unwrap();
    let fills_late = QuotaTerms::of(&Quota::per_day(10)).unwrap();
    for (count, terms) in [(30, fills_soon), (5, fills_late)] {
        for number in 0..count {
            let mut ask = LeaseRequest::new(1, 1, terms);
            (ask.want, ask.ttl) = (1, 100_000);
            store.beside(&format!("{terms} {number}")).unwrap().ask(ask).await.unwrap();
        }
    }
    assert_eq!(server.count("SELECT count(*) FROM tollgate").await, 70);
    sleep(Duration::from_millis(2_200)).await;
    assert_eq!(store.sweep(20).await, Ok(20));
    assert_eq!(store.sweep(20).await, Ok(10));
    assert_eq!(store.sweep(20).await, Ok(0));
    assert_eq!(server.count("SELECT count(*) FROM tollgate").await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_ended_are_deleted_without_an_operator() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("x").await.sweep_every(Duration::from_millis(100));
    let ask = |number, quota| {
        let mut ask = LeaseRequest::new(1, number, QuotaTerms::of(&quota).unwrap());
        (ask.want, ask.ttl) = (1, 100_000);
        ask
    };
    for number in 0..30 {
        let quota = Quota::per_second(1_000).burst(10);
        store.beside(&number.to_string()).unwrap().ask(ask(1, quota)).await.unwrap();
    }
    let began = Instant::now();
    for number in 1.. {
        store.ask(ask(number, Quota::per_day(10))).await.unwrap();
        // The bucket of this store and its node.
        if server.count("SELECT count(*) FROM tollgate").await == 2 {
            return;
        }
        assert!(began.elapsed() < FOR_EVER, "the rows stay");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The statements of docs/operations.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runbook_reads_and_resets_a_bucket() {
    let Some(server) = Server::start().await else { return };
    let terms = QuotaTerms::of(&Quota::per_second(5).burst(7)).unwrap();
    server.store("api").await.ask(LeaseRequest::new(1, 1, terms)).await.unwrap();
    let page = include_str!("../../../../docs/operations.md");
    let all = page.lines().filter(|line| line.contains(" FROM tollgate WHERE store = '{api}'"));
    let [level, nodes, reset] = all.collect::<Vec<_>>()[..] else { panic!("three statements") };
    assert_eq!((server.count(level).await, server.count(nodes).await), (7, 1));
    server.say(reset).await;
    assert_eq!(server.count(nodes).await, -1);
}

/// A request that says a period in which the server's clock is not is told the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_another_period_is_told_the_clock() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("period").await;
    let ask = |begins, ends| {
        let terms = QuotaTerms::from_numbers(&[5, 1_000_000, 5, 5, 9, 0, begins, ends]).unwrap();
        let mut ask = LeaseRequest::new(1, 1, terms);
        (ask.want, ask.first) = (3, 3);
        ask
    };
    let Err(StoreError::OtherPeriod { clock }) = store.ask(ask(7, 8)).await else { panic!("it was answered") };
    // No sweep would find a row without numbers.
    assert_eq!(server.count("SELECT count(*) FROM tollgate").await, 0);
    assert_eq!(store.ask(ask(clock - 1, clock + 3_600_000_000)).await.map(|grant| grant.now), Ok(3));
}
