//! The series of a distributed quota's store.

use super::scrape;
use crate::distributed::failing::Failing;
use crate::fixture::*;
use std::process::Command;
use tokio::task::JoinHandle;
use tollgate::distributed::{ReplyKind, StoreError, StoreSnapshot};
use tollgate::metrics::{INSTRUMENTS, Meter};

#[tokio::test(start_paused = true)]
async fn the_figures_of_the_store_are_published_with_those_of_its_limiter() {
    let store = MemoryStore::new().quota_version(3);
    store.set_latency(Duration::from_millis(5));
    let quota = Quota::per_second(10).burst(40);
    let limiter = Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
    let meter = Meter::new("api", &limiter).unwrap();
    drop(limiter.consume(30).await.unwrap());
    let values = scrape(|| meter.publish());
    let snapshot = store.snapshot();
    assert_eq!(values.counter("store_requests_total{key=api}"), snapshot.round_trips);
    assert_eq!(values.counter("store_leased_tokens_total{key=api}"), snapshot.granted);
    assert_eq!((snapshot.round_trip, snapshot.answer_age), (Duration::from_millis(10), Some(Duration::ZERO)));
    let within = |bound| values.counter(&format!("store_round_trips_total{{key=api,le={bound}}}"));
    assert_eq!(["0.005", "0.01", "+Inf"].map(within), [0, snapshot.round_trips, snapshot.round_trips]);
    assert_eq!(values.gauge("store_level_tokens{key=api}"), snapshot.level as f64);
    assert_eq!((snapshot.level, snapshot.next_token, snapshot.quota_version), (10, Duration::ZERO, 3));
    assert_eq!(values.gauge("store_quota_version{key=api}"), 3.0);
    assert_eq!(values.gauge("store_allowance_tokens{key=api}"), snapshot.allowance as f64);
    assert_eq!(values.counter("store_errors_total{key=api,kind=out_of_memory}"), 0);
    assert_eq!((values.gauge("store_out{key=api}"), values.counter("store_outages_total{key=api}")), (0.0, 0));
    drop(limiter.consume(39).await.unwrap());
    let (snapshot, values) = (store.snapshot(), scrape(|| meter.publish()));
    assert!(snapshot.level < 0 && snapshot.sent_away > 0, "{snapshot:?}");
    assert!(snapshot.next_token > Duration::ZERO && snapshot.next_token <= Duration::from_millis(400), "{snapshot:?}");
    let gauges = ["level_tokens", "next_token_seconds", "answer_age_seconds"];
    let age = snapshot.answer_age.unwrap().as_secs_f64();
    assert_eq!(
        gauges.map(|name| values.gauge(&format!("store_{name}{{key=api}}"))),
        [snapshot.level as f64, snapshot.next_token.as_secs_f64(), age]
    );
    assert!(age > 0.1, "the tokens came after their promise: {age}");
    assert_eq!(values.counter("store_sent_away_total{key=api}"), snapshot.sent_away);
    store.set_reachable(false);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.consume(20).await.map(drop) }
    });
    sleep(Duration::from_secs(1)).await;
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("store_out{key=api}"), values.counter("store_outages_total{key=api}")), (1.0, 1));
    assert!(values.gauge("store_outage_seconds{key=api}") > 0.5);
    store.forget();
    store.set_reachable(true);
    waiting.await.unwrap().unwrap();
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("store_out{key=api}"), values.counter("store_losses_total{key=api}")), (0.0, 1));
    assert_eq!(values.counter("store_excess_tokens_total{key=api}"), store.snapshot().excess_estimate);
    assert!(store.snapshot().excess_estimate > 0);
}

#[tokio::test(start_paused = true)]
async fn callers_that_are_refused_for_errors_of_the_server_are_in_an_outage_by_the_figures_too() {
    let refused = StoreError::Refused("it owes too much".to_owned());
    let replies = ReplyKind::all().map(|kind| StoreError::Reply { kind, message: "no".to_owned() });
    for error in replies.into_iter().chain([refused]) {
        let store = Failing::over(MemoryStore::new().outage(Outage::Fail));
        let limiter = Limiter::builder().quota(Quota::per_second(10)).distributed(store.clone()).build().unwrap();
        let meter = Meter::new("api", &limiter).unwrap();
        drop(limiter.consume(1).await.unwrap());
        store.fail(error.clone());
        assert!(matches!(limiter.consume(10).await, Err(ConsumeError::Unreachable)), "{error}");
        sleep(Duration::from_secs(2)).await;
        let values = scrape(|| meter.publish());
        let outage = (values.gauge("store_out{key=api}"), values.counter("store_outages_total{key=api}"));
        assert_eq!(outage, (1.0, 1), "{error}");
        assert!(values.gauge("store_outage_seconds{key=api}") > 1.0, "{error}");
        let circuits = |state| values.gauge(&format!("store_circuits{{key=api,state={state}}}"));
        assert_eq!(["closed", "open", "half_open"].map(circuits), [1.0, 1.0, 0.0]);
        if let StoreError::Reply { kind, .. } = error {
            assert!(values.counter(&format!("store_errors_total{{key=api,kind={kind}}}")) > 0);
        }
        let snapshot = store.store.snapshot();
        assert_eq!(snapshot.error, Some(error.to_string()));
        assert!(snapshot.error_age.unwrap() < Duration::from_secs(1), "of the last attempt: {snapshot:?}");
        store.fail(None);
        sleep(Duration::from_secs(2)).await;
        drop(limiter.consume(1).await.unwrap());
        assert_eq!(scrape(|| meter.publish()).gauge("store_out{key=api}"), 0.0, "{error}");
        let snapshot = store.store.snapshot();
        assert_eq!((snapshot.error, snapshot.error_age), (None, None), "the store has recovered");
    }
}

/// A node has its place until it is granted, its claims leave, or its limiter is dropped, with classes too.
#[tokio::test(start_paused = true)]
async fn the_places_and_the_nodes_of_a_store_are_published() {
    for has_classes in [false, true] {
        let store = MemoryStore::new();
        let quota = Quota::new(1, Duration::from_secs(10)).burst(1);
        let build = || {
            let builder = Limiter::builder().quota(quota).distributed(store.clone());
            if has_classes { builder.classes().build() } else { builder.build() }.unwrap()
        };
        let mut limiters = [build(), build(), build()].map(Some);
        let meter = Meter::new("api", limiters[0].as_ref().unwrap()).unwrap();
        let seen = || {
            let values = scrape(|| meter.publish());
            let [places, nodes] = ["places", "nodes"].map(|name| values.gauge(&format!("store_{name}{{key=api}}")));
            assert_eq!([places, nodes], [store.snapshot().places, store.snapshot().nodes].map(|count| count as f64));
            places
        };
        let mut claims = limiters.each_ref().map(|limiter| {
            let limiter = limiter.clone().unwrap();
            let class = has_classes.then(|| limiter.class("pages", Share::weight(1)).unwrap());
            tokio::spawn(async move {
                match class {
                    Some(class) => class.consume_owned(1).await.map(drop),
                    None => limiter.consume_owned(1).await.map(drop),
                }
            })
        });
        sleep(Duration::from_secs(1)).await;
        assert_eq!((seen(), store.snapshot().nodes), (2.0, 3), "the third was granted");
        let waiting = |claims: &[JoinHandle<_>; 3]| (0..3).filter(|i| !claims[*i].is_finished()).collect::<Vec<_>>();
        let [first, second] = waiting(&claims)[..] else { panic!("two wait") };
        claims[first].abort();
        sleep(Duration::from_millis(10)).await;
        assert_eq!(seen(), 1.0, "claims leave");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((seen(), claims[second].is_finished()), (0.0, true), "it is granted");
        let limiter = limiters[second].take().unwrap();
        claims[second] = tokio::spawn(async move { limiter.consume_owned(1).await.map(drop) });
        sleep(Duration::from_secs(1)).await;
        assert_eq!(seen(), 1.0);
        claims[second].abort();
        sleep(Duration::from_millis(10)).await;
        assert_eq!(seen(), 0.0, "its limiter is dropped");
    }
}

/// So the alert for a store that is not asked is none for a scarce quota.
#[tokio::test(start_paused = true)]
async fn a_node_that_sleeps_while_claims_wait_has_a_place() {
    let store = MemoryStore::new();
    let quota = Quota::per_hour(1).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap();
    let waiting = tokio::spawn(async move { limiter.wait(1).await });
    let mut oldest = Duration::ZERO;
    while !waiting.is_finished() {
        sleep(Duration::from_secs(1)).await;
        let StoreSnapshot { answer_age, places, .. } = store.snapshot();
        let age = answer_age.unwrap();
        assert!(age <= Duration::from_secs(2) || places == 1, "{age:?}");
        oldest = oldest.max(age);
    }
    assert!(oldest > Duration::from_secs(60), "{oldest:?}");
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_all_keys_stores_are_published_together() {
    let store = MemoryStore::new();
    let users = tollgate::DistributedKeyedLimiter::<u64>::builder(store.clone());
    let users = users.quota(Quota::per_second(10)).build().unwrap();
    let meter = Meter::new("users", &users).unwrap();
    for user in 0..7 {
        drop(users.consume(&user, 1).await.unwrap());
    }
    let values = scrape(|| meter.publish());
    assert_eq!(values.counter("store_requests_total{key=users}"), 7);
}

/// The rules of docs/operations.md.
#[tokio::test]
async fn the_alert_rules_of_the_runbook_are_valid_and_name_series_that_are_published() {
    let page = include_str!("../../../docs/operations.md");
    let rules = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let named = page.match_indices("rate_limit_").map(|(start, _)| {
        let end = page[start..].find(|byte: char| !byte.is_ascii_lowercase() && byte != '_').unwrap();
        page[start..].split_at(end)
    });
    let (names, rests): (Vec<&str>, Vec<&str>) = named.unzip();
    let unknown = names.iter().filter(|name| !INSTRUMENTS.iter().any(|instrument| instrument.name == **name));
    assert_eq!((names.len(), unknown.collect::<Vec<_>>()), (16, vec![]));
    // The label of a series that is selected by one.
    let limiter = Limiter::builder().quota(Quota::per_second(10)).distributed(MemoryStore::new()).build().unwrap();
    let meter = Meter::new("api", &limiter).unwrap();
    let published = scrape(|| meter.publish());
    let labels = rests.iter().filter_map(|rest| rest.strip_prefix('{')?.split_once('}'));
    let labels: Vec<String> = labels.map(|(label, _)| label.replace(['!', '"'], "")).collect();
    let missing = labels.iter().filter(|label| !published.0.keys().any(|series| series.contains(*label)));
    assert_eq!((labels.len(), missing.collect::<Vec<_>>()), (3, vec![]));
    let file = std::env::temp_dir().join(format!("tollgate-{}-rules.yaml", std::process::id()));
    std::fs::write(&file, rules).unwrap();
    match Command::new("promtool").args(["check", "rules"]).arg(&file).output() {
        Err(_) => eprintln!("promtool is not installed: NOT CHECKED"),
        Ok(output) => assert!(output.status.success(), "{output:?}"),
    }
    std::fs::remove_file(&file).unwrap();
}
