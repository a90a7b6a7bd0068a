//! What `connect` checks.

use super::server::{Server, line};
use tollgate::distributed::{MAX_NAME, StoreError};
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
