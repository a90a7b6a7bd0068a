//! Misuse that must not compile, or must cause a warning, with the compiler's messages; and code that must compile
//! without a warning. Each file is a crate of its own.
//!
//! After a change of the messages: `TRYBUILD=overwrite cargo test --test ui`, then review the difference.

#[test]
fn misuse_does_not_compile_and_the_documented_code_compiles_silently() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/silent/*.rs");
    #[cfg(all(
        feature = "keyed",
        feature = "distributed",
        feature = "stream",
        feature = "io",
        feature = "metrics",
        feature = "quanta",
        feature = "fine-timer"
    ))]
    cases.pass("tests/ui/silent/features/*.rs");
}
