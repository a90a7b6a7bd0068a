//! Calendar quotas: periods of the wall clock.

mod clocks;
mod keys;
mod law;
mod stores;
mod text;
mod waiting;
