//! Keyed limiters: their guarantees for each key, their memory, and hostile keys.

mod bounded;
mod clocks;
mod course_bucket;
mod handles;
mod hands;
mod histories;
mod hostile;
mod large;
mod page;
mod pausing;
mod pieces;
mod places;
mod reports;
mod rests;
mod roofed;
mod several;
mod storm;
mod top;
mod waiting;
mod within;
