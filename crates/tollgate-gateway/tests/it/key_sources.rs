//! Keys in the query, and in the claims of tokens.

use super::fixture::*;
use super::process::Process;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn limits(place: &str, unlisted: &str) -> String {
    format!(
        "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\n{place}\nquota = \"1/h, burst 1\"\nunlisted = \"{unlisted}\"\n\
         [keys.listed.shop]\nkey = \"the shop\"\nquota = \"9/h, burst 3\"\n"
    )
}

async fn status(fixture: &TestGateway, path: &str, authorization: &str) -> StatusCode {
    let request = fixture.client.get(format!("http://{}{path}", fixture.address));
    request.header("authorization", authorization).send().await.unwrap().status()
}

#[tokio::test]
async fn a_key_in_the_query_counts_however_it_is_written() {
    let fixture = TestGateway::new(&limits("query = \"api_key\"", "by-key")).await;
    for path in ["/?api_key=the%20shop", "/x?a=b&api_key=the%20sho%70", "/?api%5Fkey=the%20shop&c"] {
        assert_eq!(status(&fixture, path, "").await, OK, "{path}");
    }
    assert_eq!(status(&fixture, "/?api_key=the%20shop", "").await, REFUSED);
    assert_eq!(status(&fixture, "/?api_key=other", "").await, OK);
    assert_eq!(status(&fixture, "/?api_key=other", "").await, REFUSED);
    // Without a key the address counts. With two, the upstream could take the one whose tokens are used up.
    assert_eq!(status(&fixture, "/", "").await, OK);
    assert_eq!(status(&fixture, "/", "").await, REFUSED);
    assert_eq!(status(&fixture, "/?api_key=the%20shop&api_key=fresh", "").await, StatusCode::BAD_REQUEST);
    // Some servers take these for the key whose tokens are used up.
    for name in ["+api_key", "%20api_key", "api_key%00", "api_key[]"] {
        let used = format!("/?{name}=the%20shop%20%00");
        assert_eq!(status(&fixture, &used, "").await, REFUSED, "{used}");
        let several = format!("/?api_key=made-up&{name}=the%20shop");
        assert_eq!(status(&fixture, &several, "").await, StatusCode::BAD_REQUEST, "{several}");
    }
    // Some servers end a value at a NUL, and some drop bytes that are not UTF-8, or a `%` that begins no escape.
    for used in
        ["the%20shop%00x", "the%20shop%00%ff", "the%20shop%ff", "the%20s%hop", "the%20shop%", "x&api%_key=the%20shop"]
    {
        let path = format!("/?api_key={used}");
        assert_eq!(status(&fixture, &path, "").await, StatusCode::BAD_REQUEST, "{path}");
    }
    // To some servers a `+` is a space, and to others a plus: of a key with either there would be two buckets.
    for used in ["the+shop", "+the%20shop", "the%20shop+", "the+%73hop", "a+b"] {
        let path = format!("/?api_key={used}");
        assert_eq!(status(&fixture, &path, "").await, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(status(&fixture, "/?api_key=a%2Bb&c=d+e", "").await, OK);
    assert_eq!(status(&fixture, "/?api_key=a%2bb", "").await, REFUSED);
    // The query is forwarded as it came.
    assert_eq!(fixture.upstream.came.lock().unwrap()[1].1, "/x?a=b&api_key=the%20sho%70");
}

fn token(payload: &str) -> String {
    format!(
        "Bearer {}.{}.c2ln",
        BASE64_URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}"),
        BASE64_URL_SAFE_NO_PAD.encode(payload)
    )
}

#[tokio::test]
async fn a_claim_of_a_token_is_the_key() {
    let fixture = TestGateway::new(&limits("claim = \"client\"", "by-key")).await;
    let shop = token("{\"sub\":\"x\",\"client\":\"the shop\"}");
    for _ in 0..3 {
        assert_eq!(status(&fixture, "/", &shop).await, OK);
    }
    assert_eq!(status(&fixture, "/", &shop).await, REFUSED);
    // Other tokens of one client are the same client.
    assert_eq!(status(&fixture, "/", &token("{\"client\":7,\"iat\":1}")).await, OK);
    assert_eq!(status(&fixture, "/", &token("{\"client\":7,\"iat\":2}")).await, REFUSED);
    // Malformed tokens share the bucket of the address.
    assert_eq!(status(&fixture, "/", &token("{\"client\":[]}")).await, OK);
    let long = token(&format!("{{\"client\":\"the shop\",\"x\":\"{}\"}}", "x".repeat(9_000)));
    for wrong in ["", "Bearer", "Bearer x", "Bearer a.b.c", &token("{"), &token("{}"), &long] {
        assert_eq!(status(&fixture, "/", wrong).await, REFUSED, "{wrong}");
    }
}

#[tokio::test]
async fn without_a_known_key_the_answer_says_where_to_send_it() {
    for (place, hint, challenge) in [
        ("query = \"api_key\"", "in the query parameter api_key", "query=\"api_key\""),
        ("claim = \"client\"", "a known claim client in the header authorization", "Bearer realm"),
    ] {
        let fixture = TestGateway::new(&limits(place, "refuse")).await;
        let refused = fixture.client.get(format!("http://{}/?api_key=x", fixture.address));
        let refused = refused.header("authorization", "Bearer x").send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(refused.headers()["www-authenticate"].to_str().unwrap().contains(challenge));
        let text = refused.text().await.unwrap();
        assert!(text.contains(hint), "{text}");
        assert_eq!(status(&fixture, "/?api_key=the%20shop", &token("{\"client\":\"the shop\"}")).await, OK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_the_query_is_in_no_log_line() {
    let (upstream, dead) = super::raw::RawUpstream::start().await;
    drop(upstream);
    let process = Process::start("query-keys", dead, &limits("query = \"api_key\"", "by-key"));
    let client = reqwest::Client::new();
    for path in ["/?api_key=secretsecret", "/?api_key=secretsecret&%zz", "/?api_key=the%20shop"] {
        client.get(format!("http://{}{path}", process.address)).send().await.unwrap();
    }
    process.says("upstream", 1).await;
    let metrics = client.get(format!("http://{}/metrics", process.admin)).send().await.unwrap().text().await.unwrap();
    process.signal("TERM");
    assert_eq!((process.lines("secretsecret"), metrics.contains("secretsecret")), (0, false));
    assert!(process.ended().0.success());
}

#[test]
fn keys_have_one_place() {
    for (place, caret, expected) in [
        ("", "^^^^^^", "write one of `header`, `query` and `claim`"),
        ("header = \"x\"\nclaim = \"sub\"", "^^^^^", "write one of `header`, `query` and `claim`"),
        ("query = \"\"", "^^", "`` is not a name"),
        ("claim = \"my claim\"", "^^^^^^^^^^", "`my claim` is not a name"),
        ("header = \"my header\"", "^^^^^^^^^^^", "`my header` is not a header name"),
    ] {
        let said = problem(&limits(place, "by-key"));
        assert!(said.contains(expected) && said.contains(caret), "{place}: {said}");
    }
    let empty = problem(&limits("claim = \"sub\"", "by-key").replace("the shop", ""));
    assert!(empty.contains("the key of `shop` is empty"), "{empty}");
    let spaced = problem(&limits("query = \"key\"", "by-key").replace("the shop", "a "));
    assert!(spaced.contains("matches no request: write it without spaces around it, \"a\""), "{spaced}");
    assert!(spaced.ends_with("^^^^"), "{spaced}");
    let control = problem(&limits("query = \"key\"", "by-key").replace("the shop", "a\\u0000b"));
    assert!(control.contains("cannot be sent in a query: write it without control characters"), "{control}");
}

#[tokio::test]
async fn two_keys_are_refused_and_the_connection_may_not_take_the_key_away() {
    let fixture = TestGateway::new(&limits("header = \"x-api-key\"", "refuse")).await;
    let shop = || fixture.get("/", "the shop");
    assert_eq!(shop().header("x-api-key", "other").send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(shop().header("connection", "X-Api-Key").send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(shop().send().await.unwrap().status(), OK);
    let fixture = TestGateway::new(&limits("claim = \"client\"", "by-key")).await;
    let token = token("{\"client\":\"the shop\"}");
    let twice = fixture.get("/", "").header("authorization", token).header("connection", "authorization");
    assert_eq!(twice.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
}

/// With `unlisted = "by-key"` each spelling would have a bucket of its own.
#[tokio::test]
async fn a_used_up_key_gets_no_other_bucket_by_its_spelling() {
    for unlisted in ["by-key", "by-address"] {
        let fixture = TestGateway::new(&limits("header = \"authorization\"", unlisted)).await;
        for _ in 0..3 {
            assert_eq!(status(&fixture, "/", "Bearer the shop").await, OK);
        }
        for spelling in ["the shop", "bearer the shop", "Bearer  the shop", "Bearer\tthe shop", "Bearer \t  the shop"] {
            assert_eq!(status(&fixture, "/", spelling).await, REFUSED, "{unlisted}: {spelling:?}");
        }
        let twice = fixture.client.get(format!("http://{}/", fixture.address)).header("authorization", "the shop");
        let twice = twice.header("authorization", "other").send().await.unwrap();
        assert_eq!(twice.status(), StatusCode::BAD_REQUEST, "{unlisted}");
        let other = HeaderValue::from_bytes(b"the shop\xff").unwrap();
        let other = fixture.client.get(format!("http://{}/", fixture.address)).header("authorization", other);
        let other = other.send().await.unwrap();
        assert_eq!(other.status(), StatusCode::BAD_REQUEST, "{unlisted}");
        assert!(other.text().await.unwrap().contains("send the key in ASCII characters"));
        assert_eq!(fixture.upstream.count(), 3);
        // Any other scheme too. What some servers read as base64 and others not has no key.
        let basic = |credentials: &str| format!("Basic {}", credentials.replace("KEY", "c2hvcDpzaG9w"));
        assert_eq!(status(&fixture, "/", &basic("KEY")).await, OK);
        for spelling in [basic("  KEY"), basic("KEY").replace("Basic", "bAsIc")] {
            assert_eq!(status(&fixture, "/", &spelling).await, REFUSED, "{unlisted}: {spelling:?}");
        }
        for spelling in [basic("KEY="), basic("c2hv$cDpzaG9w"), basic("c2hv cDpzaG9w")] {
            assert_eq!(status(&fixture, "/", &spelling).await, StatusCode::BAD_REQUEST, "{unlisted}: {spelling:?}");
        }
    }
}
