//! Replays the corpus of the fuzzer: see `fuzz/`.
//!
//! The corpus covers every line of code that the fuzzer has reached. A single file:
//! `HISTORY=fuzz/artifacts/history/crash-... cargo test --test it fuzz_corpus:: -- --nocapture`.

use crate::oracle::{self, bytes};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

fn corpus() -> Vec<PathBuf> {
    if let Some(asked) = std::env::var_os("HISTORY") {
        return vec![asked.into()];
    }
    let mut files: Vec<_> = fs::read_dir("fuzz/corpus/history").unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_history_of_the_corpus_agrees() {
    let corpus = corpus();
    let mut failed = Vec::new();
    for file in &corpus {
        let case = bytes::decoded(&fs::read(file).unwrap());
        if std::env::var_os("HISTORY").is_some() {
            println!("{case:?}");
        }
        if let Err(error) = case.run() {
            failed.push(format!("{}: {case:?}\n{error}", file.display()));
        }
    }
    println!("{} histories of the corpus replayed", corpus.len());
    assert!(!corpus.is_empty(), "the corpus is empty");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

proptest! {
    #![proptest_config(oracle::ops::config(1_000))]

    /// The fuzzer's check with random bytes, for machines without a fuzzer.
    #[test]
    fn histories_out_of_random_bytes_agree(
        case in prop::collection::vec(any::<u8>(), 0..500).prop_map(|bytes| bytes::decoded(&bytes)),
    ) {
        case.run()?;
    }
}
