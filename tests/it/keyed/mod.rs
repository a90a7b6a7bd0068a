//! Keyed limiters: their guarantees for each key, their memory, and hostile keys.

mod bounded;
mod bounded_histories;
mod clocks;
mod executor;
mod handles;
mod histories;
mod hostile;
mod idle_levels;
mod incremental_work;
mod large;
mod parent;
mod parent_histories;
mod parent_model;
mod pausing;
mod reports;
mod several;
mod storm;
mod top_keys;
mod waiting;
