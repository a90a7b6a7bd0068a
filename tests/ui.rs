//! Misuse that must not compile, or must be warned of, and what the compiler then says; and what must compile without a
//! warning. Each file is a crate of its own.
//!
//! After a change of wording: `TRYBUILD=overwrite cargo test --test ui`, and read the difference.

#[test]
fn misuse_does_not_compile_and_the_documented_lines_compile_silently() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/silent/*.rs");
}
