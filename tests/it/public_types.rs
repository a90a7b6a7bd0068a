//! Each public type is named by a program that compiles without a warning.

#[path = "../public_types/mod.rs"]
mod names;

use std::path::Path;

/// These programs are examples in Cargo.toml, so every build of all targets compiles them.
#[test]
fn each_public_type_is_named_by_a_program_that_compiles_silently() {
    let programs = [include_str!("../ui/silent/types.rs"), include_str!("../ui/silent/features/types.rs")];
    let unnamed = names::unnamed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &programs);
    assert!(unnamed.is_empty(), "no file of tests/ui/silent names {unnamed:?}");
}
