//! Misuse that must not compile, or must cause a warning, with the compiler's messages; and code that must compile
//! without a warning. Each file is a crate of its own.
//!
//! After a change of the messages: `TRYBUILD=overwrite cargo test --test ui`, then review the difference.

mod public_types;

use std::path::Path;

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// These programs are examples in Cargo.toml, so clippy and every build of all targets compiles them.
#[test]
fn each_public_type_is_named_by_a_program_that_compiles_silently() {
    let programs = [include_str!("ui/silent/types.rs"), include_str!("ui/silent/features/types.rs")];
    let unnamed = public_types::unnamed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &programs);
    assert!(unnamed.is_empty(), "no file of tests/ui/silent names {unnamed:?}");
}
