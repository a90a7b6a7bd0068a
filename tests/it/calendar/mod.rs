//! Calendar quotas: periods of the wall clock.

mod clocks;
mod law;
mod text;
