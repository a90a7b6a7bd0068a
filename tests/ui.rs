//! Misuse that must not compile, or must be warned of, and what the compiler then says.
//!
//! After a change of wording: `TRYBUILD=overwrite cargo test --test ui`, and read the difference.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
