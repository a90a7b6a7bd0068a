//! Calendar quotas: periods of the wall clock.

mod clocks;
#[cfg(feature = "keyed")]
mod keys;
mod law;
mod text;
mod waiting;
