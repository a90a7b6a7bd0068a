//! Keyed limiters: what they promise for each key, in how much memory, and whatever the keys do.
#![cfg(all(feature = "keyed", not(tollgate_loom)))]

#[path = "keyed/hands.rs"]
mod hands;
#[path = "keyed/histories.rs"]
mod histories;
mod oracle;
#[path = "oracle/words.rs"]
mod words;
