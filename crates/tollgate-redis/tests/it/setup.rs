//! What `connect` checks.

use super::server::{Server, line};
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, MAX_NAME, QuotaTerms, Store, StoreError};
use tollgate_redis::RedisStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_evict_the_keys_is_a_warning() {
    for (options, warns) in [
        (&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"][..], true),
        // The keys expire.
        (&["--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl"], true),
        (&["--maxmemory", "64mb", "--maxmemory-policy", "noeviction"], false),
        (&["--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"], false),
    ] {
        let Some(server) = Server::start_with(options) else { return };
        let warning = line(&server.url(), "evicted").await.snapshot().warning;
        assert_eq!(warning.is_some(), warns, "{options:?}: {warning:?}");
        assert!(warning.is_none_or(|text| text.contains(options[3]) && text.contains("noeviction")), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_read_the_policy_connects_without_a_warning() {
    let Some(server) = Server::start_with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]) else {
        return;
    };
    server.say(&["ACL", "SETUSER", "limits", "on", ">secret", "~tollgate:*", "+eval", "+evalsha"]);
    let url = format!("redis://limits:secret@127.0.0.1:{}/", server.port());
    assert_eq!(line(&url, "no rights").await.snapshot().warning, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_empty_or_too_long_is_an_error() {
    let Some(server) = Server::start() else { return };
    let store = line(&server.url(), &"x".repeat(MAX_NAME)).await;
    for name in ["", &"x".repeat(MAX_NAME + 1)] {
        let refused = |result: Result<RedisStore, StoreError>| matches!(result, Err(StoreError::Misnamed(_)));
        assert!(refused(RedisStore::connect(server.url(), name).await), "{} bytes", name.len());
        assert!(refused(store.beside(name)), "{} bytes", name.len());
    }
}

/// The list of docs/operations.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough() {
    let Some(server) = Server::start() else { return };
    let documented = include_str!("../../../../docs/operations.md");
    let words = documented.lines().find(|line| line.contains("+hmget")).unwrap().split(' ');
    let words: Vec<&str> = words.map(|word| if word == ">PASSWORD" { ">secret" } else { word }).collect();
    server.say(&words);
    let store = line(&format!("redis://tollgate:secret@127.0.0.1:{}/", server.port()), "rights").await;
    let terms = QuotaTerms::of(&Quota::per_hour(10), 0).unwrap();
    let mut ask = LeaseRequest::new(1, 1, terms);
    ask.want = 1;
    store.ask(ask).await.unwrap();
    // A newer quota, a node that leaves.
    let mut ask = LeaseRequest::new(2, 1, QuotaTerms::of(&Quota::per_hour(20), 0).unwrap().with_version(1));
    ask.leave = true;
    store.ask(ask).await.unwrap();
}
