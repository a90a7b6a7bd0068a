//! Keyed limiters: what they promise for each key, in how much memory, and whatever the keys do.
#![cfg(all(feature = "keyed", not(tollgate_loom)))]

#[path = "keyed/bounded.rs"]
mod bounded;
#[path = "keyed/clocks.rs"]
mod clocks;
#[path = "keyed/hands.rs"]
mod hands;
#[path = "keyed/histories.rs"]
mod histories;
#[path = "keyed/hostile.rs"]
mod hostile;
#[path = "keyed/large.rs"]
mod large;
#[allow(dead_code, reason = "a part of it is for other tests")]
mod oracle;
#[path = "keyed/page.rs"]
mod page;
#[path = "keyed/pieces.rs"]
mod pieces;
#[path = "keyed/places.rs"]
mod places;
#[path = "keyed/rests.rs"]
mod rests;
#[path = "keyed/roofed.rs"]
mod roofed;
#[path = "keyed/seed_004.rs"]
mod seed_004;
#[path = "keyed/storm.rs"]
mod storm;
#[path = "keyed/waiting.rs"]
mod waiting;
#[path = "keyed/within.rs"]
mod within;
#[allow(dead_code, reason = "a part of it is for other tests")]
#[path = "oracle/words.rs"]
mod words;
