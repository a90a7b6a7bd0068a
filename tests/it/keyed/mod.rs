//! Keyed limiters: what they promise for each key, in how much memory, and whatever the keys do.

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
mod rests;
mod roofed;
mod several;
mod storm;
mod waiting;
mod within;
