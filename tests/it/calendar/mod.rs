//! Calendar quotas: periods of the wall clock.

mod clocks;
#[cfg(feature = "keyed")]
mod keys;
#[cfg(feature = "keyed")]
mod law;
#[cfg(feature = "distributed")]
mod stores;
mod text;
mod waiting;
