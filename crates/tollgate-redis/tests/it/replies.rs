//! Error replies of Redis: the connection stays open, each error is counted by its kind, and other stores are not
//! affected.

use super::server::{FOR_EVER, Server, open_store, wait_until};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::distributed::{LeaseRequest, Outage, QuotaTerms, ReplyKind, Store, StoreError};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Limiter, Quota};
use tollgate_redis::{Circuit, RedisStore};

const QUOTA: Quota = Quota::per_hour(1_000);

fn ask(node: u128, number: u64) -> LeaseRequest {
    let mut ask = LeaseRequest::new(node, number, QuotaTerms::of(&QUOTA).unwrap());
    ask.want = 1;
    ask
}

/// The kind of the error reply to a request.
async fn refused(store: &RedisStore, ask: LeaseRequest) -> ReplyKind {
    match timeout(FOR_EVER, store.ask(ask)).await.expect("the request hangs") {
        Err(StoreError::Reply { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

fn made(store: &RedisStore) -> u64 {
    store.servers()[0].connections
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_replies_are_counted_by_kind_and_keep_the_connection_open() {
    let Some(server) = Server::start() else { return };
    let (well, store) = (open_store(&server.url(), "well").await, open_store(&server.url(), "other").await);
    let of_the_wrong_type = store.beside("wrong").unwrap();
    server.say(&["SET", of_the_wrong_type.key(), "text"]);
    assert_eq!(refused(&of_the_wrong_type, ask(1, 1)).await, ReplyKind::WrongType);
    let advice = of_the_wrong_type.ask(ask(1, 1)).await.unwrap_err().to_string();
    assert!(advice.contains("rename the store"), "{advice}");
    well.ask(ask(1, 1)).await.unwrap();

    let full = store.beside("full").unwrap();
    server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(refused(&full, ask(1, 1)).await, ReplyKind::OutOfMemory);
    server.say(&["CONFIG", "SET", "maxmemory", "0"]);
    full.ask(ask(1, 1)).await.unwrap();

    let forbidden = store.beside("forbidden").unwrap();
    server.say(&["ACL", "SETUSER", "default", "resetkeys", "~tollgate:{well}"]);
    assert_eq!(refused(&forbidden, ask(1, 1)).await, ReplyKind::NoPermission);
    well.ask(ask(1, 2)).await.unwrap();
    server.say(&["ACL", "SETUSER", "default", "allkeys"]);
    forbidden.ask(ask(1, 1)).await.unwrap();

    server.say(&["SCRIPT", "FLUSH"]);
    store.ask(ask(1, 1)).await.unwrap();

    let counts = |store: &RedisStore| {
        let kinds = [ReplyKind::WrongType, ReplyKind::OutOfMemory, ReplyKind::NoPermission, ReplyKind::NoScript];
        kinds.map(|kind| store.snapshot().error_replies(kind))
    };
    assert_eq!(counts(&of_the_wrong_type), [2, 0, 0, 1], "the script was not loaded before");
    assert_eq!([counts(&full), counts(&forbidden), counts(&store)], [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]);
    assert!(ReplyKind::all().iter().all(|kind| well.snapshot().error_replies(*kind) == 0));
    assert_eq!((made(&store), made(&well)), (1, 1));
    let breaker = &store.servers()[0].breaker;
    assert_eq!((breaker.circuit, breaker.opened), (Circuit::Closed, 0));
}

/// No store is served meanwhile: the circuit opens, and closes when the script ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_with_a_script_is_tried_until_it_is_not() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "busy").await;
    store.ask(ask(1, 1)).await.unwrap();
    server.say(&["CONFIG", "SET", "lua-time-limit", "20"]);
    let mut client = server.client();
    let script = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut client).unwrap_err();
    });
    wait_until("the script does not begin", || redis::cmd("PING").exec(&mut server.client()).is_err());
    assert_eq!(refused(&store, ask(1, 2)).await, ReplyKind::Busy);
    assert!(matches!(store.ask(ask(1, 2)).await, Err(StoreError::NotSent(_))));
    redis::cmd("SCRIPT").arg("KILL").exec(&mut server.client()).unwrap();
    script.join().unwrap();
    let again = async {
        while store.ask(ask(1, 2)).await.is_err() {
            store.backoff(1).await
        }
    };
    timeout(FOR_EVER, again).await.expect("the request is not repeated");
    assert_eq!((made(&store), store.snapshot().error_replies(ReplyKind::Busy)), (1, 1));
    let [server] = &store.servers()[..] else { panic!("one server") };
    assert_eq!((store.circuits(), server.breaker.opened), (vec![Circuit::Closed], 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_field_is_named_and_removed_and_the_store_continues() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "visited").await.outage(Outage::Fail);
    store.ask(ask(1, 1)).await.unwrap();
    let node = format!("{:032x}", 7);
    let script = "redis.call('HSET', KEYS[1], 'visitor', 'x', ARGV[1], 'y') return 'OK'";
    server.say(&["EVAL", script, "1", store.key(), &node]);
    let is_clean =
        || !server.knows(store.key()).iter().any(|field| field.starts_with("visitor") || field.starts_with(&node));
    // The script examines the nodes every half a second. No request fails.
    let mut number = 1;
    let began = Instant::now();
    while !is_clean() {
        assert!(began.elapsed() < FOR_EVER, "{:?}", server.knows(store.key()));
        number += 1;
        store.ask(ask(1, number)).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    let snapshot = store.snapshot();
    assert_eq!((snapshot.error_replies(ReplyKind::ForeignField), snapshot.error), (1, None));
    let error = snapshot.warning.unwrap();
    assert!(error.contains("\"visitor\"") || error.contains(&node), "{error}");
    assert!(error.contains(store.key()) && error.contains("2 such fields"), "{error}");
    // The field of the requesting node.
    let own = format!("{:032x}", 1);
    server.say(&["EVAL", "redis.call('HSET', KEYS[1], ARGV[1], 'mine') return 'OK'", "1", store.key(), &own]);
    store.ask(ask(1, number + 1)).await.unwrap();
    assert_eq!(store.snapshot().error_replies(ReplyKind::ForeignField), 2);
    assert_eq!(made(&store), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_overwritten_sums_is_fenced_and_others_are_not() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "damaged").await;
    for field in ["s", "q"] {
        let damaged = store.beside(field).unwrap();
        damaged.ask(ask(1, 1)).await.unwrap();
        server.say(&["EVAL", "redis.call('HSET', KEYS[1], ARGV[1], '1 2 x') return 'OK'", "1", damaged.key(), field]);
        assert_eq!(refused(&damaged, ask(1, 2)).await, ReplyKind::Damaged);
        server.say(&["EVAL", "redis.call('DEL', KEYS[1]) return 'OK'", "1", damaged.key()]);
        damaged.ask(ask(1, 2)).await.unwrap();
    }
    store.ask(ask(1, 1)).await.unwrap();
    assert_eq!(made(&store), 1);
}

/// Makes the server refuse writes because it cannot save.
fn break_the_disk(server: &Server) {
    let (_, folder): (String, String) = redis::cmd("CONFIG").arg("GET").arg("dir").query(&mut server.client()).unwrap();
    server.say(&["CONFIG", "SET", "save", "3600 1"]);
    std::fs::create_dir(format!("{folder}/dump.rdb")).unwrap();
    server.say(&["BGSAVE"]);
    wait_until("the server saves", || server.say(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err"));
}

/// The servers answer, with errors: this is an outage in the figures of the store, as it is for callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_replies_to_a_limiter_are_an_outage_that_ends_with_its_cause() {
    let causes: [(ReplyKind, &[&str], &[&str]); 5] = [
        (ReplyKind::OutOfMemory, &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (
            ReplyKind::NoPermission,
            &["ACL", "SETUSER", "default", "resetkeys"],
            &["ACL", "SETUSER", "default", "allkeys"],
        ),
        // Of the commands in the script.
        (ReplyKind::NoPermission, &["ACL", "SETUSER", "default", "-hset"], &["ACL", "SETUSER", "default", "+hset"]),
        (
            ReplyKind::NoReplicas,
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        // The first words are those that end a failed save.
        (ReplyKind::NotSaved, &[], &["CONFIG", "SET", "save", ""]),
    ];
    let Some(server) = Server::start() else { return };
    for (kind, cause, remedy) in causes {
        let store = open_store(&server.url(), &kind.to_string()).await.outage(Outage::Fail);
        let users = DistributedKeyedLimiter::<u64>::builder(store.beside("users").unwrap()).quota(QUOTA);
        let users = users.build().unwrap();
        let limiter = Limiter::builder().quota(QUOTA).distributed(store.clone()).build().unwrap();
        if cause.is_empty() {
            break_the_disk(&server)
        } else {
            drop(server.say(cause))
        }
        for error in [
            timeout(FOR_EVER, limiter.consume(1)).await.expect("the claim hangs").map(drop).unwrap_err(),
            timeout(FOR_EVER, users.consume(&1, 1)).await.expect("the claim hangs").map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, ConsumeError::Unreachable), "{kind}: {error:?}");
        }
        for snapshot in [store.snapshot(), users.snapshot().store] {
            assert!(snapshot.is_out && snapshot.outages == 1, "{kind}: {snapshot:?}");
            assert!(snapshot.error_replies(kind) > 0, "{kind}: {snapshot:?}");
            assert!(snapshot.error.is_some() && snapshot.error_age.is_some(), "{kind}: {snapshot:?}");
        }
        server.say(remedy);
        let again = async {
            while limiter.consume(1).await.is_err() || users.consume(&1, 1).await.is_err() {
                sleep(Duration::from_millis(5)).await
            }
        };
        timeout(FOR_EVER, again).await.expect("the outage does not end");
        for snapshot in [store.snapshot(), users.snapshot().store] {
            assert_eq!((snapshot.is_out, snapshot.error), (false, None), "{kind}");
        }
    }
}

/// Each number of the record in turn, where the script writes none below 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_negative_number_is_a_typed_error_or_is_removed() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "negative").await;
    let node = format!("{:032x}", 1);
    for (field, count, may_be_negative) in [(&*node, 10, &[3][..]), ("s", 16, &[0, 5])] {
        for position in (0..count).filter(|position| !may_be_negative.contains(position)) {
            let store = store.beside(&format!("{field} {position}")).unwrap();
            store.ask(ask(1, 1)).await.unwrap();
            let mut client = server.client();
            let mut record: Vec<u8> = redis::cmd("HGET").arg(store.key()).arg(field).query(&mut client).unwrap();
            assert_eq!(record.len(), 8 * count);
            record[8 * position..][..8].copy_from_slice(&(-5_f64).to_le_bytes());
            redis::cmd("HSET").arg(store.key()).arg(field).arg(record).exec(&mut client).unwrap();
            let answer = store.ask(ask(1, 2)).await;
            // A field of a node that no node wrote is removed, and the request is repeated.
            let is_node = field == node;
            assert_eq!(answer.is_ok(), is_node, "{field} {position}: {answer:?}");
            let kind = if is_node { ReplyKind::ForeignField } else { ReplyKind::Damaged };
            assert_eq!(store.snapshot().error_replies(kind), 1, "{field} {position}: {answer:?}");
        }
    }
}
