//! All tests of the service.

// The servers of the stores' own tests.
#[cfg(all(feature = "redis", feature = "postgres"))]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tollgate-postgres/tests/it/server.rs"]
mod postgres_server;
#[cfg(all(feature = "redis", feature = "postgres"))]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tollgate-redis/tests/it/server.rs"]
mod redis_server;

mod asked;
mod contrib;
mod page;
mod ports;
mod problems;
mod process;
mod proxies;
mod reference;
mod reloading;
mod schema;
mod settings;
#[cfg(all(feature = "redis", feature = "postgres"))]
mod stores;
#[cfg(feature = "otlp")]
mod traces;
mod waiting;
