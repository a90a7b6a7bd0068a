//! Weighted, nested classes: an exact model, the examples and laws of its specification, and the limiter against it.

mod api;
pub(crate) mod bucket;
mod examples;
mod fixture;
pub(crate) mod fraction;
mod histories;
pub(crate) mod laws;
pub(crate) mod model;
mod traps;
