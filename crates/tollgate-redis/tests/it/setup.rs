//! What `connect` checks.

use super::masters::masters;
use super::server::{FOR_EVER, Server, open_store, wait_until};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tollgate::Quota;
use tollgate::distributed::{ClassClaims, LeaseRequest, Missing, QuotaTerms, ReplyKind, Store, StoreError};
use tollgate_redis::RedisStore;

/// All rights that a store needs.
const RIGHTS: &str = "~tollgate:* +eval +evalsha +time +hget +hmget +hgetall +hset +hdel +pexpire +pttl";

/// Makes the user `limits` with these rights, and returns its URL.
fn user_with(server: &Server, rights: &str) -> String {
    let rights: Vec<&str> = rights.split_whitespace().collect();
    server.say(&[&["ACL", "SETUSER", "limits", "reset", "on", ">secret"], &rights[..]].concat());
    format!("redis://limits:secret@127.0.0.1:{}/", server.port())
}

/// What is missing, and the message.
fn missing(connected: Result<RedisStore, StoreError>) -> (Missing, String) {
    match connected {
        Err(StoreError::Setup { missing, message }) => (missing, message),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it has connected"),
    }
}

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
        let warning = open_store(&server.url(), "evicted").await.snapshot().warning;
        assert_eq!(warning.is_some(), warns, "{options:?}: {warning:?}");
        assert!(warning.is_none_or(|text| text.contains(options[3]) && text.contains("noeviction")), "{options:?}");
    }
}

/// A server that takes over does not know the script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_over_and_may_evict_the_keys_is_a_warning() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "evicted").await;
    assert_eq!(store.snapshot().warning, None);
    for command in [
        &["CONFIG", "SET", "maxmemory", "64mb"][..],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        &["SCRIPT", "FLUSH"],
    ] {
        server.say(command);
    }
    store.ask(LeaseRequest::new(1, 1, QuotaTerms::of(&Quota::per_second(1)).unwrap())).await.unwrap();
    wait_until("the policy is not looked at again", || store.snapshot().warning.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_read_the_policy_connects_without_a_warning() {
    let Some(server) = Server::start_with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]) else {
        return;
    };
    let url = user_with(&server, RIGHTS);
    assert_eq!(open_store(&url, "no rights").await.snapshot().warning, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_empty_or_too_long_is_an_error() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), &"x".repeat(StoreError::MAX_NAME)).await;
    for name in ["", &"x".repeat(StoreError::MAX_NAME + 1)] {
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
    let lines = documented.lines().filter(|line| line.starts_with("ACL SETUSER tollgate "));
    let lines: Vec<String> = lines.map(|line| line.replace(">PASSWORD", ">secret")).collect();
    assert_eq!(lines.len(), 4);
    let say = |line: &String| drop(server.say(&line.split('#').next().unwrap().split_whitespace().collect::<Vec<_>>()));
    say(&lines[0]);
    let url = format!("redis://tollgate:secret@127.0.0.1:{}/", server.port());
    let store = open_store(&url, "rights").await;
    let terms = QuotaTerms::of(&Quota::per_hour(10)).unwrap();
    let mut ask = LeaseRequest::new(1, 1, terms);
    ask.want = 1;
    store.ask(ask).await.unwrap();
    // A newer quota, a node that leaves.
    let mut ask = LeaseRequest::new(2, 1, QuotaTerms::of(&Quota::per_hour(20)).unwrap().with_version(1));
    ask.leave = true;
    store.ask(ask).await.unwrap();
    // A single claim, as keyed limiters send it: for a new bucket, and for one that is there.
    let key = store.beside("key").unwrap();
    for node in 3..5 {
        let mut ask = LeaseRequest::new(node, 1, terms);
        (ask.want, ask.at_once, ask.leave) = (1, true, true);
        assert_eq!(key.ask(ask).await.unwrap().now, 1);
    }
    lines[1..].iter().for_each(say);
    let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
    for command in [&["INFO"][..], &["EXISTS", "tollgate:{rights}"], &["CLUSTER", "SLOTS"]] {
        let said = redis::cmd(command[0]).arg(&command[1..]).exec(&mut client);
        assert!(said.as_ref().err().is_none_or(|error| error.code() != Some("NOPERM")), "{command:?}: {said:?}");
    }
}

/// The settings of docs/operations.md: a replica that is gone stops the writes that a failover would lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runbook_sets_up_a_server() {
    let (Some(server), Some(mut replica)) = (Server::start(), Server::start()) else { return };
    replica.follow(&server);
    let page = include_str!("../../../../docs/operations.md");
    let mut set = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        let spans = |cell: usize| cells[cell].split('`').skip(1).step_by(2);
        for (setting, value) in spans(1).zip(spans(2)) {
            server.say(&["CONFIG", "SET", setting, value]);
            set.push(setting);
        }
    }
    let settings = ["maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag"];
    assert_eq!(set, settings);
    let store = open_store(&server.url(), "settings").await;
    let ask = || store.ask(LeaseRequest::new(1, 1, QuotaTerms::of(&Quota::per_second(1)).unwrap()));
    // Until the replica has reported, and later until its last report is too old.
    let becomes = async |replies: bool| {
        let becomes = async {
            loop {
                match ask().await {
                    Err(StoreError::Reply { kind: ReplyKind::NoReplicas, .. }) if !replies => return,
                    answer if answer.is_ok() && replies => return,
                    _ => sleep(Duration::from_millis(20)).await,
                }
            }
        };
        timeout(FOR_EVER, becomes).await.expect("the replica does not count");
    };
    becomes(true).await;
    replica.kill();
    becomes(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named_with_the_line_that_gives_it() {
    let Some(server) = Server::start() else { return };
    for without in RIGHTS.split(' ') {
        let rights = format!(" {RIGHTS} ").replacen(&format!(" {without} "), " ", 1);
        let (what, message) = missing(RedisStore::connect(user_with(&server, &rights), "rights").await);
        assert_eq!(what, Missing::Rights, "{without}: {message}");
        let named = without.strip_prefix('+').map_or("the keys `tollgate:*`".to_owned(), |name| format!("`{name}`"));
        assert!(message.contains(&format!("no right to {named}: run `ACL")), "{without}: {message}");
        // The line that the message recommends.
        let line = message.split('`').find(|text| text.starts_with("ACL SETUSER")).unwrap();
        server.say(&line.split(' ').collect::<Vec<_>>());
        let url = format!("redis://limits:secret@127.0.0.1:{}/", server.port());
        RedisStore::connect(url, "rights").await.unwrap();
    }
    assert_eq!(server.knows("tollgate:{rights}"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_missing_or_wrong_is_named() {
    let Some(server) = Server::start() else { return };
    let port = server.port();
    user_with(&server, RIGHTS);
    server.say(&["ACL", "SETUSER", "default", "resetpass", ">other"]);
    for login in ["", ":wrong@", "limits:wrong@", "unknown:secret@"] {
        let url = format!("redis://{login}127.0.0.1:{port}/");
        let (what, message) = missing(RedisStore::connect(url, "password").await);
        assert_eq!(what, Missing::Authentication, "{login}: {message}");
        assert!(message.contains("redis://user:password@host/"), "{message}");
    }
    let cluster = RedisStore::connect_cluster([format!("redis://:wrong@127.0.0.1:{port}/")], "password").await;
    assert_eq!(missing(cluster).0, Missing::Authentication);
    RedisStore::connect(format!("redis://limits:secret@127.0.0.1:{port}/"), "password").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_connect_that_the_server_needs_is_named() {
    let (Some(server), Some(replica)) = (Server::start(), Server::start()) else { return };
    let Some(sentinel) = Server::start_sentinel("main", &server) else { return };
    let cluster = RedisStore::connect_cluster([server.url()], "way").await;
    let (what, message) = missing(cluster);
    assert!(what == Missing::Cluster && message.contains("use `connect`"), "{what:?}: {message}");

    let (what, message) = missing(RedisStore::connect(sentinel.url(), "way").await);
    assert!(what == Missing::Scripts && message.contains("`connect_sentinels`"), "{what:?}: {message}");

    for (address, master) in [(sentinel.url(), "redis://other/"), (server.url(), "redis://main/")] {
        let (what, message) = missing(RedisStore::connect_sentinels([address], master, "way").await);
        assert!(what == Missing::Sentinel && message.contains("name"), "{what:?}: {message}");
    }
    RedisStore::connect_sentinels([sentinel.url()], "redis://main/", "way").await.unwrap();

    replica.follow(&server);
    let (what, message) = missing(RedisStore::connect(replica.url(), "way").await);
    assert!(what == Missing::Master && message.contains("replica"), "{what:?}: {message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_a_cluster_is_named_unless_it_keeps_the_store() {
    let Some(masters) = masters() else { return };
    let mut keepers = 0;
    for master in &masters {
        match RedisStore::connect(master.url(), "node").await {
            Ok(_) => keepers += 1,
            refused => {
                let (what, message) = missing(refused);
                assert!(what == Missing::OtherNodes && message.contains("`connect_cluster`"), "{what:?}: {message}");
            }
        }
    }
    assert_eq!(keepers, 1);
}

/// The commands of docs/operations.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runbook_reads_and_resets_a_bucket() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "api").await;
    let terms = QuotaTerms::of(&Quota::per_second(5).burst(7)).unwrap();
    let page = include_str!("../../../../docs/operations.md");
    for (classes, fields) in [(vec![], "3"), (vec![ClassClaims::from_numbers([5, 0, 1, 0, 0, 0, 0, 0])], "4")] {
        let mut ask = LeaseRequest::new(1, 1, terms);
        ask.classes = classes;
        store.ask(ask).await.unwrap();
        let commands = page.lines().filter_map(|line| line.strip_prefix("redis-cli "));
        let said: Vec<String> = commands
            .map(|line| line.split('#').next().unwrap_or_default().replace('"', ""))
            .map(|line| server.say(&line.split_whitespace().collect::<Vec<_>>()))
            .collect();
        let said: Vec<&str> = said.iter().map(|said| said.trim()).collect();
        assert_eq!(said, ["7", &*terms.to_string(), fields, "1"]);
    }
}
