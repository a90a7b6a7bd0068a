//! Several instances share limits in a store, and go on without it as their rules say.

use crate::asked::*;
use crate::{postgres_server, redis_server};
use tokio::time::Instant;
use tollgate_service::state;
use tollgate_service::store::SharedStore;

const FILE: &str = "{domain: d, descriptors: [\
    {key: window, rate_limit: {unit: year, requests_per_unit: 10}}, \
    {key: bucket, rate_limit: {unit: day, requests_per_unit: 10, burst: 5}}, \
    {key: zone, rate_limit: {unit: year, requests_per_unit: 10, time_zone: Asia/Tokyo}}, \
    {key: strict, outage: refuse, rate_limit: {unit: year, requests_per_unit: 10}}, \
    {key: patient, outage: wait, wait: 1s, rate_limit: {unit: year, requests_per_unit: 10}}, \
    {key: never, rate_limit: {unit: year, requests_per_unit: 0}}]}";

async fn instance(url: &str, file: &str) -> Service {
    let meters = Arc::<Meters>::default();
    let rules = load_shared(file, &meters).unwrap().rules;
    let store = Some(SharedStore::connect(url).await.unwrap());
    Service::new(rules, meters, Manner::default(), Maker { store, ..Maker::default() })
}

async fn share(url: &str) -> [Service; 2] {
    let [one, other] = [instance(url, FILE).await, instance(url, FILE).await];
    let long = format!("d window={}", "x".repeat(5_000));
    for (text, limit) in [
        ("d window=v", 10),
        ("d bucket=v", 5),
        ("d zone=v", 10),
        ("d window=\0\n/ \u{e4}", 10),
        (&long, 10),
        ("d never=v", 0),
    ] {
        let mut both = 0;
        for _ in 0..8 {
            both += passed(&one, text, 1).await + passed(&other, text, 1).await;
        }
        assert_eq!(both, limit, "{text:.40}");
        assert_eq!(ask(&one, text).await.reason, Some(Reason::OverLimit), "{text:.40}");
    }
    // Each descriptor is charged, as in memory.
    assert!(!ask(&one, "d window=v bucket=w").await.passes());
    assert_eq!(passed(&other, "d bucket=w", 9).await, 4);
    [one, other]
}

async fn go_on_without(one: &Service) {
    let began = Instant::now();
    assert!(ask(one, "d window=new").await.passes(), "`outage: allow` is the default");
    assert_eq!(ask(one, "d strict=new").await.reason, Some(Reason::StoreAway));
    assert_eq!(ask(one, "d patient=new").await.reason, Some(Reason::StoreAway), "after a second");
    assert!(!ask(one, "d never=v").await.passes());
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(one.totals.store_away.load(std::sync::atomic::Ordering::Relaxed) >= 3);
}

#[tokio::test]
async fn instances_share_limits_in_redis_and_go_on_when_it_is_killed() {
    let Some(server) = redis_server::Server::start() else { return };
    let [one, _other] = share(&server.url()).await;
    // Names that read alike are apart.
    let rule = |domain: &str, key: &str| {
        format!("{{domain: {domain}, descriptors: [{{key: {key}, rate_limit: {{unit: year, requests_per_unit: 1}}}}]}}")
    };
    let alike = instance(&server.url(), &format!("{}\n---\n{}", rule("a.b", "c"), rule("a", "b.c"))).await;
    assert_eq!((passed(&alike, "a.b c=v", 2).await, passed(&alike, "a b.c=v", 2).await), (1, 1));
    drop(server);
    go_on_without(&one).await;
}

#[tokio::test]
async fn instances_share_limits_in_postgresql_and_go_on_when_it_is_killed() {
    let Some(server) = postgres_server::Server::start_bare().await else { return };
    let [one, _other] = share(&server.address()).await;
    drop(server);
    go_on_without(&one).await;
}

#[tokio::test]
async fn requests_wait_for_tokens_of_a_store() {
    let Some(server) = redis_server::Server::start() else { return };
    let file =
        "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 20, burst: 1, wait: 20s}}]}";
    let [one, other] = [instance(&server.url(), file).await, instance(&server.url(), file).await];
    let (began, request) = (Instant::now(), request("d k=v"));
    let waits = (0..3).map(|_| async { tokio::join!(one.decide(&request), other.decide(&request)) });
    for (first, second) in futures::future::join_all(waits).await {
        assert!(first.unwrap().passes() && second.unwrap().passes());
    }
    assert!(began.elapsed() >= Duration::from_millis(250), "six requests at 20/s, one at once");
    let limit = "rate_limit: {unit: hour, requests_per_unit: 360, burst: 1, wait: 5m}";
    let dark = format!("{{domain: e, descriptors: [{{key: k, shadow_mode: true, {limit}}}]}}");
    let (dark, began) = (instance(&server.url(), &dark).await, Instant::now());
    assert_eq!(passed(&dark, "e k=v", 3).await, 3);
    assert!(began.elapsed() < Duration::from_secs(9), "a rule in shadow mode lets no request wait");
}

#[tokio::test]
async fn a_service_starts_while_its_store_is_away() {
    let service = instance("127.0.0.1:1", FILE).await;
    assert!(ask(&service, "d window=v").await.passes());
    sleep(Duration::from_millis(1)).await;
    assert!(SharedStore::connect("redis://[nonsense").await.unwrap_err().contains("cannot be used"));
}

#[tokio::test]
async fn levels_of_a_service_without_a_store_do_not_keep_the_next_one_from_its_store() {
    let path = std::env::temp_dir().join(format!("tollgate-service-{}-before", std::process::id()));
    let before = service(FILE);
    assert_eq!(passed(&before, "d strict=v", 9).await, 9);
    assert_eq!(state::save(&path, &before), Ok(1));
    let service = instance("127.0.0.1:1", FILE).await;
    assert_eq!(state::restore(&path, &service), Ok(0));
    assert_eq!(ask(&service, "d strict=v").await.reason, Some(Reason::StoreAway), "it asks its store");
}

#[test]
fn what_no_store_shares_is_refused_by_name() {
    for (file, expected) in [
        ("descriptors: [{key: k, classes: {a: 1}, rate_limit: {unit: day, requests_per_unit: 1}}]", "`classes`"),
        (
            "descriptors: [{key: k, rate_limit: [{unit: day, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]}]",
            "several limits",
        ),
        ("all_or_nothing: true", "`all_or_nothing`"),
        ("descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, sliding: true}}]", "sliding"),
        (
            "descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1000003, burst: 9}}]",
            "cannot be kept in a store",
        ),
        (
            "descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1, burst: 999}}]",
            "cannot be kept in a store",
        ),
    ] {
        let problems = load_shared(&format!("{{domain: d, {file}}}"), &Meters::default()).unwrap_err();
        assert!(problems[0].line().contains(expected) && problems[0].place.is_some(), "{}", problems[0]);
    }
}
