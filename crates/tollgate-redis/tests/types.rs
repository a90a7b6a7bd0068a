//! A program that names each public type of this crate compiles without a warning. It is a test crate of its own, so that
//! `deny(warnings)` applies to this program only.

#![deny(warnings, clippy::all)]

#[path = "../../../tests/public_types/mod.rs"]
mod public_types;

use tollgate::distributed::{Outage, StoreError};
use tollgate_redis::{Circuit, RedisServerSnapshot, RedisStore};

/// Whether the server of a store answers.
fn is_well(store: &RedisStore) -> bool {
    store.servers().iter().all(|server: &RedisServerSnapshot| server.breaker.circuit == Circuit::Closed)
}

#[tokio::test]
async fn a_store_that_cannot_be_built_says_why() {
    match RedisStore::connect("redis://127.0.0.1/", "").await {
        Ok(store) => {
            panic!("a store without a name, on a server that is well: {}", is_well(&store.outage(Outage::Fail)))
        }
        Err(error) => assert!(matches!(error, StoreError::Misnamed(_)), "{error}"),
    }
}

#[test]
fn each_public_type_is_named_here() {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let unnamed = public_types::unnamed(&src, &[include_str!("types.rs")]);
    assert!(unnamed.is_empty(), "this program does not name {unnamed:?}");
}
