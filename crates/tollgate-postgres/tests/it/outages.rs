//! The server ends, refuses, or loses its connections.

use super::nodes::limiter;
use super::server::{FOR_EVER, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::distributed::{
    BreakerSnapshot, Circuit, LeaseGrant, LeaseRequest, Outage, QuotaTerms, ReplyKind, Store, StoreError,
};
use tollgate::{ConsumeError, Limiter, Quota};
use tollgate_postgres::{Pool, PostgresStore, pool};

fn ask(node: u128, number: u64, want: u64) -> LeaseRequest {
    let mut ask = LeaseRequest::new(node, number, QuotaTerms::of(&Quota::per_day(100)).unwrap());
    ask.want = want;
    ask
}

/// The answer, once the circuit is closed.
async fn asked_again(store: &PostgresStore, ask: LeaseRequest) -> LeaseGrant {
    let again = async {
        loop {
            match store.ask(ask.clone()).await {
                Ok(grant) => return grant,
                Err(error) => {
                    assert!(matches!(error, StoreError::Unreachable(_) | StoreError::NotSent(_)), "{error:?}")
                }
            }
            store.backoff(1).await;
        }
    };
    timeout(FOR_EVER, again).await.expect("the circuit does not close")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_and_comes_back_continues_to_the_token() {
    let Some(mut server) = Server::start().await else { return };
    let store = server.store("crash").await;
    assert_eq!(store.ask(ask(1, 1, 30)).await.unwrap().remaining, 70);
    server.stop();
    let quick = store.clone().answer_timeout(Duration::from_millis(300));
    let error = quick.ask(ask(1, 2, 20)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_) | StoreError::NotSent(_)), "{error:?}");
    server.restart().await;
    let grant = asked_again(&store, ask(1, 2, 20)).await;
    assert_eq!((grant.before, grant.remaining), (1, 50));
    assert_eq!(store.ask(ask(1, 2, 20)).await.unwrap().remaining, 50, "a repeat is counted once");
}

/// Servers and proxies end connections that were idle for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_ended_are_no_outage() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("ended").await;
    for number in 1..=5 {
        let grant = store.ask(ask(1, number, 1)).await.unwrap();
        assert_eq!(grant.remaining, 100 - number);
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
        assert!(server.count(&format!("{end} AND query LIKE 'SELECT tollgate_ask_1%'")).await > 0);
    }
}

/// A proxy to a server. Connections made before the last change of `cut` are closed with the next data that the client
/// sends: until then they look sound.
#[derive(Default)]
struct Proxy {
    cut: AtomicU64,
    /// The server gets that data, and its answer is lost.
    loses_answers: AtomicBool,
    connections: AtomicU64,
}

impl Proxy {
    /// Starts it, and returns its port.
    async fn before(port: u16) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let proxy = Arc::<Self>::default();
        let all = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                all.connections.fetch_add(1, Relaxed);
                tokio::spawn(Arc::clone(&all).pass(client, port, all.cut.load(Relaxed)));
            }
        });
        (proxy, own)
    }

    async fn pass(self: Arc<Self>, client: TcpStream, port: u16, made: u64) -> std::io::Result<()> {
        let (mut client_reads, mut client_writes) = client.into_split();
        let (mut reads, mut writes) = TcpStream::connect(("127.0.0.1", port)).await?.into_split();
        let answers = tokio::spawn(async move {
            _ = copy(&mut reads, &mut client_writes).await;
            (reads, client_writes)
        });
        let mut data = [0; 4_096];
        loop {
            let len = client_reads.read(&mut data).await?;
            let is_cut = self.cut.load(Relaxed) != made;
            if is_cut {
                answers.abort();
            }
            if len == 0 || is_cut && !self.loses_answers.load(Relaxed) {
                return Ok(());
            }
            writes.write_all(&data[..len]).await?;
            if is_cut {
                // The server ends the connection once it has carried out the request.
                return writes.shutdown().await;
            }
        }
    }
}

/// A store by way of a proxy at this port, and its pool, in which four connections with a prepared request are idle: more than a
/// request has repeats.
async fn pooled(port: u16, name: &str) -> (PostgresStore, Pool) {
    let pool = pool(&format!("postgres://owner@127.0.0.1:{port}/postgres")).unwrap();
    let mut lent = Vec::new();
    for _ in 0..4 {
        lent.push(pool.get().await.unwrap());
        let text = "SELECT tollgate_ask_1($1, $2, $3, $4, $5, $6)";
        lent.last().unwrap().prepare_cached(text).await.unwrap();
    }
    (PostgresStore::lazy(pool.clone(), name).unwrap().answer_timeout(FOR_EVER), pool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_full_of_connections_that_were_ended_is_no_outage() {
    let Some(server) = Server::start().await else { return };
    let (proxy, port) = Proxy::before(server.port()).await;
    let (store, _) = pooled(port, "pooled").await;
    store.ask(ask(1, 1, 1)).await.unwrap();
    proxy.cut.store(1, Relaxed);
    assert_eq!(store.ask(ask(1, 2, 1)).await.unwrap().before, 1);
    assert_eq!(store.server().opened, 0);
}

/// The server forgets a node that leaves. So it cannot tell a repeat of its claim, and carries out each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_node_that_leaves_is_carried_out_twice_at_most() {
    let Some(server) = Server::start().await else { return };
    let (proxy, port) = Proxy::before(server.port()).await;
    let (store, pool) = pooled(port, "leaves").await;
    assert_eq!(store.ask(ask(1, 1, 1)).await.unwrap().remaining, 99);
    proxy.loses_answers.store(true, Relaxed);
    proxy.cut.store(1, Relaxed);
    let mut claim = ask(2, 1, 10);
    (claim.at_once, claim.leave) = (true, true);
    assert_eq!(store.ask(claim).await.unwrap().now, 10);
    // Until the server has carried out what it got from connections that are gone.
    let others =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tollgate' AND pid <> pg_backend_pid()";
    while server.count(others).await > pool.status().size as i64 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.ask(ask(1, 2, 0)).await.unwrap().remaining, 99 - 2 * 10);
    assert_eq!(store.server().opened, 0);
}

/// While nodes run: the processes of the server stand still, its table is truncated, or answers are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_busy_server_exceed_nothing_but_what_it_forgets() {
    let Some(server) = Server::start().await else { return };
    let (proxy, port) = Proxy::before(server.port()).await;
    proxy.loses_answers.store(true, Relaxed);
    for fault in ["stops", "truncated", "loses answers"] {
        let pool = pool(&format!("postgres://owner@127.0.0.1:{port}/postgres")).unwrap();
        // What stands still must be noticed.
        let timeout = if fault == "stops" { Duration::from_secs(1) } else { FOR_EVER };
        let store = || PostgresStore::lazy(pool.clone(), fault).unwrap().answer_timeout(timeout);
        let (stores, began) = ([store(), store()], Instant::now());
        let limiters = stores.each_ref().map(|store| limiter(store, Quota::per_second(1_000).burst(100).initial(0)));
        let mut callers = JoinSet::new();
        for limiter in limiters.iter().cycle().take(20) {
            let limiter = limiter.clone();
            callers.spawn(async move { while limiter.wait(1).await.is_ok() {} });
        }
        let granted = || limiters.iter().map(|limiter| limiter.snapshot().granted).sum::<u64>();
        let comes = async |what: &str, so: &dyn Fn() -> bool| {
            while !so() {
                assert!(began.elapsed() < FOR_EVER, "{fault}: {what} never comes");
                sleep(Duration::from_millis(1)).await;
            }
        };
        let goes_on = async || {
            let before = granted();
            comes("a grant", &|| granted() >= before + 200).await;
        };
        goes_on().await;
        let seen = || stores.each_ref().map(PostgresStore::snapshot);
        match fault {
            "stops" => {
                server.signal("-STOP");
                comes("the outage", &|| seen().iter().all(|seen| seen.is_out)).await;
                server.signal("-CONT");
            }
            "truncated" => {
                server.say("TRUNCATE tollgate").await;
                comes("the loss", &|| seen().iter().all(|seen| seen.losses == 1)).await;
            }
            _ => {
                for _ in 0..5 {
                    proxy.cut.fetch_add(1, Relaxed);
                    goes_on().await;
                }
            }
        }
        goes_on().await;
        limiters.iter().for_each(Limiter::close);
        callers.join_all().await;
        let forgotten: u64 = seen().iter().map(|seen| seen.excess_estimate).sum();
        let most = (began.elapsed().as_micros() / 1_000) as u64 + forgotten;
        assert!(granted() <= most, "{fault}: {} of {most}", granted());
        assert_eq!(fault == "truncated", forgotten > 0, "{fault}: {forgotten}");
    }
}

/// Another session that holds the lock of a store does not make connections pile up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_store_is_a_typed_error_and_leaks_no_connection() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("locked").await;
    store.ask(ask(1, 1, 1)).await.unwrap();
    let mut holder = pool(&server.address()).unwrap().get().await.unwrap();
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("SELECT * FROM tollgate FOR UPDATE").await.unwrap();
    let error = store.ask(ask(1, 2, 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Reply { kind: ReplyKind::Busy, .. }), "{error:?}");
    // Other stores are served.
    store.beside("free").unwrap().ask(ask(1, 1, 1)).await.unwrap();
    // A limiter's callers are in an outage.
    let limiter = limiter(&store.clone().outage(Outage::Fail), Quota::per_day(100));
    let error = timeout(FOR_EVER, limiter.consume(1)).await.expect("the claim hangs").map(drop).unwrap_err();
    assert!(matches!(error, ConsumeError::Unreachable), "{error:?}");
    let snapshot = store.snapshot();
    assert!(snapshot.is_out && snapshot.outages == 1, "{snapshot:?}");
    let error = snapshot.error.unwrap();
    assert!(error.contains("`55P03 ") && error.contains("pg_terminate_backend"), "{error}");
    assert!(!error.contains("SCRIPT"), "a command of Redis: {error}");
    drop(lock);
    drop(holder);
    let again = async {
        while limiter.consume(1).await.is_err() {
            sleep(Duration::from_millis(5)).await
        }
    };
    timeout(FOR_EVER, again).await.expect("the outage does not end");
    assert_eq!((store.snapshot().is_out, store.snapshot().error), (false, None));
    assert_eq!(store.ask(ask(1, 2, 1)).await.unwrap().before, 1);
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT tollgate_ask_1%'";
    assert!(server.count(connections).await <= 2);
}

/// As behind a pooler that gives each transaction another connection of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_not_prepared_is_blamed_on_the_pooler() {
    let Some(server) = Server::start().await else { return };
    let pool = pool(&server.address()).unwrap();
    let store = PostgresStore::over(pool.clone(), "pooled").await.unwrap().answer_timeout(FOR_EVER);
    pool.get().await.unwrap().batch_execute("DEALLOCATE ALL").await.unwrap();
    let error = store.ask(ask(1, 1, 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Reply { kind: ReplyKind::Setup, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("`26000 ") && text.contains("PgBouncer 1.21") && text.contains("pool_mode"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_write_is_unreachable_and_its_connections_are_replaced() {
    let Some(server) = Server::start().await else { return };
    let store = PostgresStore::connect(&server.address(), "demoted").await.unwrap().answer_timeout(FOR_EVER);
    store.ask(ask(1, 1, 1)).await.unwrap();
    server.say("ALTER ROLE owner SET default_transaction_read_only = on").await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
    server.count(&format!("{end} AND query LIKE 'SELECT tollgate_ask_1%'")).await;
    let error = store.ask(ask(1, 2, 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    assert_eq!(store.snapshot().error_replies(ReplyKind::ReadOnly), 1);
    server.say("BEGIN READ WRITE; ALTER ROLE owner RESET default_transaction_read_only; COMMIT").await;
    assert_eq!(asked_again(&store, ask(1, 2, 1)).await.before, 1);
}

/// No server: it accepts connections and closes them. Callers of many stores come, and only trials connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_asked_by_trials_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("postgres://owner@{}/postgres", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, Relaxed);
            drop(connection);
        }
    });
    let store = PostgresStore::lazy(pool(&address).unwrap(), "gone").unwrap().answer_timeout(FOR_EVER);
    for number in 1..=200 {
        let other = store.beside(&number.to_string()).unwrap();
        let error = other.ask(ask(1, 1, 1)).await.unwrap_err();
        assert!(matches!(error, StoreError::NotSent(_)), "{error:?}");
    }
    let BreakerSnapshot { circuit, opened, not_sent, .. } = store.server();
    assert!(circuit != Circuit::Closed && (opened, not_sent) == (1, 199), "{:?}", store.server());
    assert!(matches!(store.circuits()[..], [Circuit::Open | Circuit::HalfOpen]), "{:?}", store.server());
    // The first request, and its repeat. A trial is counted when it begins.
    let accepted = accepted.load(Relaxed);
    let BreakerSnapshot { trials, .. } = store.server();
    assert!(accepted <= 2 + trials, "{accepted} connections, {trials} trials");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_something_else_wrote_is_a_typed_error() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("edited").await;
    for edit in ["numbers = '{1,2}'", "quota = NULL", "numbers = '{NULL}'"] {
        let edited = store.beside(edit).unwrap();
        edited.ask(ask(1, 1, 1)).await.unwrap();
        server.say(&format!("UPDATE tollgate SET {edit} WHERE node = ''")).await;
        let error = edited.ask(ask(1, 2, 1)).await.unwrap_err();
        assert!(matches!(error, StoreError::Reply { kind: ReplyKind::Damaged, .. }), "{edit}: {error:?}");
        assert_eq!(edited.snapshot().error_replies(ReplyKind::Damaged), 1, "{edit}");
    }
}
