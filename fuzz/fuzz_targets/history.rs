//! Bytes become a history; the limiter and the oracle must agree on it.
//!
//! `scripts/prove fuzz` runs it; `tests/fuzz_corpus.rs` replays what was found worth keeping.
#![no_main]

#[path = "../../tests/oracle/bytes.rs"]
mod bytes;
#[path = "../../tests/oracle/checks.rs"]
mod checks;
#[path = "../../tests/oracle/echo.rs"]
mod echo;
#[path = "../../tests/oracle/hands.rs"]
mod hands;
#[allow(dead_code, reason = "other test roots use the rest of it")]
#[path = "../../tests/oracle/mod.rs"]
mod oracle;
#[path = "../../tests/oracle/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let case = bytes::decoded(bytes);
    if let Err(error) = case.run() {
        panic!("{case:?}\n{error}");
    }
});
