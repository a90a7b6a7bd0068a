//! The layer and its responses. Fixtures shared with the tests of `tollgate` are included from there.

#[path = "../../../../tests/it/assert_traits.rs"]
mod assert_traits;
mod auto_traits;
#[path = "../../../../tests/it/cooperation.rs"]
mod cooperation;
#[cfg(feature = "http")]
mod http;
#[path = "../../../../tests/it/oracle/mod.rs"]
#[allow(dead_code, reason = "the tests of `tollgate` use the rest")]
mod oracle;
#[path = "../../../../tests/it/metrics/recorder.rs"]
#[allow(dead_code, reason = "the tests of `tollgate` use the rest")]
mod recorder;
mod tower;

/// The program in the README of `tollgate` is compiled as a part of this crate's README.
#[test]
fn the_program_in_the_root_readme_is_the_one_that_is_compiled() {
    let [root, own] = [include_str!("../../../../README.md"), include_str!("../../README.md")];
    let (_, program) = own.split_once("```rust,no_run\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    assert!(program.contains("fn main()") && root.contains(program), "keep the two READMEs equal");
}
