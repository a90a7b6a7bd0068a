//! The layer and its responses. Fixtures that the tests of `tollgate` use too are taken from there.

#[path = "../../../../tests/it/assert_traits.rs"]
mod assert_traits;
mod auto_traits;
#[path = "../../../../tests/it/metrics/book.rs"]
#[allow(dead_code, reason = "the tests of `tollgate` use the rest")]
mod book;
#[cfg(feature = "http")]
mod http;
#[path = "../../../../tests/it/oracle/mod.rs"]
#[allow(dead_code, reason = "the tests of `tollgate` use the rest")]
mod oracle;
mod tower;
#[path = "../../../../tests/it/turns.rs"]
mod turns;
