//! The migration, and what `connect` checks.

use super::server::Server;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, ReplyKind, Store, StoreError};
use tollgate_postgres::{PostgresStore, migrate, pool};

fn ask(node: u128) -> LeaseRequest {
    let mut ask = LeaseRequest::new(node, 1, QuotaTerms::of(&Quota::per_hour(10)).unwrap());
    ask.want = 4;
    ask
}

fn kind(error: &StoreError) -> Option<ReplyKind> {
    if let StoreError::Reply { kind, .. } = error { Some(*kind) } else { None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_migration_runs_again_and_at_the_same_time_and_keeps_the_stores() {
    let Some(server) = Server::start_bare().await else { return };
    let pool = pool(&server.address()).unwrap();
    let (one, two) = tokio::join!(migrate(&pool), migrate(&pool));
    one.unwrap();
    two.unwrap();
    let store = PostgresStore::connect(&server.address(), "kept").await.unwrap();
    assert_eq!(store.ask(ask(1)).await.unwrap().remaining, 6);
    migrate(&pool).await.unwrap();
    assert_eq!(store.ask(ask(2)).await.unwrap().remaining, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_says_what_is_missing() {
    let Some(server) = Server::start_bare().await else { return };
    let connect = |user: &str| {
        let address = server.address_of(user);
        async move { PostgresStore::connect(&address, "x").await.unwrap_err() }
    };
    let error = connect("owner").await;
    assert!(error.to_string().contains("run the migration"), "{error}");
    migrate(&pool(&server.address()).unwrap()).await.unwrap();

    let error = connect("stranger").await;
    assert_eq!(kind(&error), Some(ReplyKind::NoPermission), "{error}");
    server.say("CREATE ROLE limits LOGIN; GRANT SELECT, INSERT, DELETE ON tollgate TO limits").await;
    let error = connect("limits").await;
    assert_eq!(kind(&error), Some(ReplyKind::NoPermission), "{error}");
    assert!(error.to_string().contains("UPDATE on the table `tollgate`"), "{error}");
    let lazy = PostgresStore::lazy(pool(&server.address_of("limits")).unwrap(), "x").unwrap();
    let error = lazy.ask(ask(1)).await.unwrap_err();
    assert_eq!(kind(&error), Some(ReplyKind::NoPermission), "{error}");
    assert_eq!(lazy.snapshot().error_replies(ReplyKind::NoPermission), 1);

    // The documented rights are enough: also for nodes that leave, new quotas and the sweep.
    server.say("GRANT UPDATE ON tollgate TO limits").await;
    let store = PostgresStore::connect(&server.address_of("limits"), "x").await.unwrap();
    store.ask(ask(1)).await.unwrap();
    let mut leaves = ask(1);
    (leaves.number, leaves.leave) = (2, true);
    leaves.terms = QuotaTerms::of(&Quota::per_hour(20)).unwrap().with_version(1);
    store.ask(leaves).await.unwrap();
    assert_eq!(store.sweep(10).await, Ok(0));

    let nowhere = PostgresStore::connect("postgres://owner@127.0.0.1:1/postgres", "x").await.unwrap_err();
    assert!(matches!(nowhere, StoreError::Unreachable(_)), "{nowhere}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_any_text_up_to_their_bound() {
    let Some(server) = Server::start().await else { return };
    let store = server.store(&"x".repeat(StoreError::MAX_NAME)).await;
    assert_eq!(store.ask(ask(1)).await.unwrap().remaining, 6);
    for name in ["a\0b", "\u{1f600}", "a'; DROP TABLE tollgate; --"] {
        assert_eq!(store.beside(name).unwrap().ask(ask(1)).await.unwrap().remaining, 6, "{name:?}");
    }
    for name in ["", &"x".repeat(StoreError::MAX_NAME + 1)] {
        assert!(matches!(store.beside(name), Err(StoreError::Misnamed(_))), "{} bytes", name.len());
    }
    assert!(matches!(PostgresStore::connect("mysql://x", "x").await, Err(StoreError::Misnamed(_))));
}

/// The statements and settings of docs/operations.md, in a schema of the limiters' own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runbook_sets_up_a_user() {
    let Some(server) = Server::start_bare().await else { return };
    let page = include_str!("../../../../docs/operations.md");
    let span = |begin: &str| {
        let mut spans = page.split('`').skip(1).step_by(2);
        spans.find(|span| span.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}"))
    };
    let schema = span("?options=-c%20search_path");
    server.say("CREATE ROLE limits LOGIN; CREATE SCHEMA limits; GRANT USAGE ON SCHEMA limits TO limits").await;
    migrate(&pool(&(server.address() + schema)).unwrap()).await.unwrap();
    let vacuum = format!("ALTER TABLE tollgate SET ({} = 0.01)", span("autovacuum_vacuum"));
    let statements = [span("GRANT "), span("ALTER ROLE limits"), &vacuum];
    server.say(&format!("SET search_path = limits; {}", statements.join("; "))).await;
    let durability = span("?options=-c%20synchronous").replace("?options=", "%20");
    let address = format!("{}{schema}{durability}&{}", server.address_of("limits"), span("target_session_attrs"));
    let store = PostgresStore::connect(&address, "api").await.unwrap();
    assert_eq!((store.ask(ask(1)).await.unwrap().remaining, store.snapshot().warning), (6, None));
    let connection = pool(&address).unwrap().get().await.unwrap();
    connection.query_one(span("SELECT tollgate_sweep_1"), &[]).await.unwrap();
    let settings = "SELECT current_setting('synchronous_commit'), current_setting('default_transaction_isolation')";
    let settings = connection.query_one(settings, &[]).await.unwrap();
    assert_eq!((settings.get(0), settings.get(1)), ("off", "read committed"));
}

/// A pool may have other users: they must not get a connection whose transaction has failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_fails_leaves_no_transaction_behind() {
    let Some(server) = Server::start_bare().await else { return };
    server.say("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE limits LOGIN").await;
    let pool = pool(&server.address_of("limits")).unwrap();
    let error = migrate(&pool).await.unwrap_err();
    assert_eq!(kind(&error), Some(ReplyKind::NoPermission), "{error}");
    pool.get().await.unwrap().query_one("SELECT 1", &[]).await.unwrap();
    server.say("GRANT CREATE ON SCHEMA public TO limits").await;
    migrate(&pool).await.unwrap();
    let store = PostgresStore::over(pool, "x").await.unwrap();
    assert_eq!(store.ask(ask(1)).await.unwrap().remaining, 6);
}
