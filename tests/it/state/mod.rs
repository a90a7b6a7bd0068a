//! States that are saved and restored: they continue as if the process had kept running, and are refused whole or
//! restored whole.

mod keyed;
mod law;
mod limiter;
mod refused;

use crate::fixture::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the wall clock shows when the tests begin.
fn begin() -> SystemTime {
    UNIX_EPOCH + 1_700_000_000 * SECOND
}

/// Writes a state and reads it again, as JSON and with postcard: both forms have all of it.
fn through<T: Serialize + DeserializeOwned>(state: &T) -> T {
    let json = serde_json::to_string(state).unwrap();
    let of_json: T = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&of_json).unwrap(), json);
    let of_postcard: T = postcard::from_bytes(&postcard::to_allocvec(state).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&of_postcard).unwrap(), json);
    of_postcard
}
