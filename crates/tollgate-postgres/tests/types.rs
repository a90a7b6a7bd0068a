//! A program that names each public type of this crate compiles without a warning. It is a test crate of its own, so that
//! `deny(warnings)` applies to this program only.

#![deny(warnings, clippy::all)]

#[path = "../../../tests/public_types/mod.rs"]
mod public_types;

use tollgate::distributed::{Outage, StoreError};
use tollgate_postgres::{MIGRATION, Pool, PostgresStore, pool};

/// A store that connects with its first request.
fn store(pool: &Pool, name: &str) -> Result<PostgresStore, StoreError> {
    Ok(PostgresStore::lazy(pool.clone(), name)?.outage(Outage::Fail))
}

#[tokio::test]
async fn a_store_that_cannot_be_built_says_why() {
    assert!(MIGRATION.contains("tollgate_ask_"));
    let pool = pool("postgres://127.0.0.1/app").unwrap();
    let error = store(&pool, "").unwrap_err();
    assert!(matches!(error, StoreError::Misnamed(_)), "{error}");
}

#[test]
fn each_public_type_is_named_here() {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let unnamed = public_types::unnamed(&src, &[include_str!("types.rs")]);
    assert!(unnamed.is_empty(), "this program does not name {unnamed:?}");
}
