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
        feature = "fine-timer",
        feature = "state"
    ))]
    cases.pass("tests/ui/silent/features/*.rs");
}

/// The modules whose public types a program names from outside.
const PUBLIC: [&str; 7] = [
    include_str!("../src/lib.rs"),
    include_str!("../src/adaptive/mod.rs"),
    include_str!("../src/distributed.rs"),
    include_str!("../src/io/mod.rs"),
    include_str!("../src/metrics/mod.rs"),
    include_str!("../src/state/mod.rs"),
    include_str!("../src/stream/mod.rs"),
];
const SILENT: [&str; 2] = [include_str!("ui/silent/types.rs"), include_str!("ui/silent/features/types.rs")];

/// The capitalized words of a text, which are names of types, traits and constants.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
}

#[test]
fn each_public_type_is_named_by_a_program_that_compiles_silently() {
    let mut missing = Vec::new();
    let named: std::collections::HashSet<&str> = SILENT.iter().flat_map(|text| words(text)).collect();
    for module in PUBLIC {
        let code: Vec<&str> = module.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let reexports = code.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
        let items = ["pub struct ", "pub enum ", "pub trait "].into_iter().flat_map(|item| code.split(item).skip(1));
        let items = items.map(|rest| rest.split_inclusive(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
        missing.extend(reexports.chain(items).flat_map(words).filter(|name| !named.contains(name)).map(str::to_owned));
    }
    assert!(missing.is_empty(), "no file of tests/ui/silent names {missing:?}");
}
