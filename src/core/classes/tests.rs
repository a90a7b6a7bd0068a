//! Tests of the scheduler inside a limiter. `tests/it/shares` tests classes through the public API.

mod arrivals;
mod bounded_work;
mod lock_holds;
