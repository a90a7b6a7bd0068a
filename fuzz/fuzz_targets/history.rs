//! Bytes become a history; the limiter and the oracle must agree on it.
//!
//! `scripts/prove fuzz` runs it; `tests/it/fuzz_corpus.rs` replays what was found worth keeping.
#![no_main]

#[allow(dead_code, reason = "other test roots use the rest of it")]
#[path = "../../tests/it/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let case = oracle::bytes::decoded(bytes);
    if let Err(error) = case.run() {
        panic!("{case:?}\n{error}");
    }
});
