//! The layer and its responses. Fixtures shared with the tests of `tollgate` are included from there.
#![allow(clippy::incompatible_msrv, reason = "tests are built by the newest compiler")]

#[path = "../../../../tests/it/assert_traits.rs"]
mod assert_traits;
mod auto_traits;
#[path = "../../../../tests/it/cooperation.rs"]
mod cooperation;
#[cfg(feature = "http")]
mod http;
#[path = "../../../../tests/it/oracle/mod.rs"]
#[allow(dead_code, reason = "the tests of `tollgate` use the rest")]
mod oracle;
mod tower;
