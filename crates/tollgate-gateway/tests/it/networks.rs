//! The limits of blocks of addresses.

use super::app::request::name::Name;
use super::fixture::*;

use reqwest::StatusCode;

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn limits(networks: &str) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n\
         unlisted = \"by-key\"\nproxies_before = 1\n[keys.listed.ann]\nkey = \"k-ann\"\n{networks}"
    )
}

async fn from(fixture: &TestGateway, address: &str, key: &str) -> StatusCode {
    fixture.get("/", key).header("x-forwarded-for", address).send().await.unwrap().status()
}

#[tokio::test]
async fn a_block_and_each_address_in_it_have_quotas_and_the_longest_prefix_decides() {
    let fixture = TestGateway::new(&limits(
        "[[networks]]\ncidr = \"10.0.0.0/8\"\nquota = \"1/h, burst 4\"\naddress_quota = \"1/h, burst 2\"\n\
         [[networks]]\ncidr = \"10.1.0.0/16\"\n\
         [[networks]]\ncidr = \"10.2.0.0/16\"\nrefuse = true\n\
         [[networks]]\ncidr = \"2001:db8::/32\"\naddress_quota = \"1/h, burst 1\"\n",
    ))
    .await;
    // Also listed keys, and whatever the key.
    for (address, key, expected) in [
        ("10.0.0.1", "a", OK),
        ("10.0.0.1", "k-ann", OK),
        ("10.0.0.1", "b", REFUSED),
        ("10.0.0.2", "b", OK),
        ("10.0.0.3", "b", OK),
        ("10.9.9.9", "c", REFUSED),
        ("10.1.0.1", "c", OK),
        ("10.2.0.1", "k-ann", StatusCode::FORBIDDEN),
        ("192.0.2.1", "c", OK),
        ("2001:db8::1", "c", OK),
        ("2001:db8::2", "d", REFUSED),
        ("2001:db8:0:1::1", "d", OK),
    ] {
        assert_eq!(from(&fixture, address, key).await, expected, "{address} {key}");
    }
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.refused_rule, counts.unknown, counts.answered), (3, 1, 8));
    let block = fixture.gateway.limits.rules.shared(Name::new("network 10.0.0.0/8")).unwrap();
    let snapshot = block.limiter.snapshot();
    assert_eq!((snapshot.granted - snapshot.refunded, snapshot.in_flight), (4, Some(0)));
    let refused = fixture.get("/", "z").header("x-forwarded-for", "10.7.7.7").send().await.unwrap();
    let policy = refused.headers()["ratelimit-policy"].to_str().unwrap();
    assert!(policy.ends_with("\"network 10.0.0.0/8\";q=1;w=3600;tollgate-burst=4"), "{policy}");
    let metrics = fixture.page("/metrics").await;
    for (reason, limit) in [
        ("rule_quota", "network 10.0.0.0/8 each"),
        ("blocked", "network 10.2.0.0/16"),
        ("rule_quota", "network 2001:db8::/32 each"),
    ] {
        let series = format!("gateway_refusals_total{{reason=\"{reason}\",limit=\"{limit}\"}}");
        assert!(metrics.contains(&series), "{series}");
    }
}

/// A client that waits for its part of a rule gives back what it has, when it is refused by the next limit.
#[tokio::test]
async fn a_refusal_by_a_block_gives_the_tokens_of_the_address_back() {
    let fixture = TestGateway::new(&limits(
        "[[networks]]\ncidr = \"0.0.0.0/0\"\nquota = \"1/h, burst 1\"\naddress_quota = \"1/h, burst 2\"\n",
    ))
    .await;
    assert_eq!(from(&fixture, "10.0.0.1", "a").await, OK);
    for _ in 0..3 {
        assert_eq!(from(&fixture, "10.0.0.1", "a").await, REFUSED);
    }
    change(&fixture, &limits("[[networks]]\ncidr = \"0.0.0.0/0\"\naddress_quota = \"1/h, burst 2\"\n")).unwrap();
    assert_eq!(from(&fixture, "10.0.0.1", "a").await, OK);
    assert_eq!(from(&fixture, "10.0.0.1", "a").await, REFUSED);
}

#[test]
fn wrong_blocks_are_refused_with_their_line() {
    for (network, caret, expected) in [
        ("cidr = \"10.0.0.1/8\"", "^^^^^^^^^^^^", "`10.0.0.1/8` is not a block of addresses"),
        ("cidr = \"everywhere\"", "^^^^^^^^^^^^", "write one like \"10.0.0.0/8\""),
        ("cidr = \"::/0\"\nrefuse = true\nquota = \"1/s\"", "^^^^", "leave out `refuse`, or the limits"),
        ("cidr = \"::/0\"\n[[networks]]\ncidr = \"::/0\"", "^^^^^^", "`::/0` is there twice"),
        ("cidr = \"::/0\"\nquota = \"1/s\"\n[[routes]]\npath = \"/r\"\ncost = 9", "^^^^^", "a cost of 9 waits for 8s"),
        ("cidr = \"::/0\"\nquotas = 1", "^^^^^^", "there is no setting `quotas` here"),
    ] {
        let said = problem(&limits(&format!("[[networks]]\n{network}\n")));
        assert!(said.contains(expected) && said.contains(caret), "{network}: {said}");
    }
}

#[tokio::test]
async fn a_request_that_waits_for_its_block_holds_no_place_of_its_route() {
    let networks =
        "[[networks]]\ncidr = \"10.0.0.0/8\"\nquota = \"1/s, burst 1\"\n[[routes]]\npath = \"/x\"\nin_flight = 5\n";
    let fixture = TestGateway::new(&limits(networks).replace("\"0s\"", "\"1h\"")).await;
    let send = || fixture.get("/x", "a").header("x-forwarded-for", "10.0.0.1").send();
    let shared = |name: &str| fixture.gateway.limits.rules.shared(Name::new(name)).unwrap();
    assert_eq!(send().await.unwrap().status(), OK);
    until("its place is free", || shared("route /x").limiter.snapshot().in_flight == Some(0)).await;
    let waits = tokio::spawn(send());
    until("it waits", || shared("network 10.0.0.0/8").fair_queue.waiting() == 1).await;
    assert_eq!(shared("route /x").limiter.snapshot().in_flight, Some(0));
    fixture.advance(SECOND);
    assert_eq!(waits.await.unwrap().unwrap().status(), OK);
}
