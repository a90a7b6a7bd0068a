//! What documents name exists: tests, plants and files in `DESIGN.md`, types on the front page of rustdoc.

use crate::assert_traits::words;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The texts between backticks in that section.
fn names() -> Vec<String> {
    let design = fs::read_to_string("DESIGN.md").unwrap();
    let (_, defence) = design.split_once("## How it is defended").unwrap();
    defence.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// All Rust code below `folder`.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn everything_that_design_names_as_a_defence_exists() {
    let mut code = String::new();
    for folder in ["src", "tests", "examples", "crates"] {
        sources(Path::new(folder), &mut code);
    }
    let is_test = |name: &str| name.matches('_').count() >= 2 && name.chars().all(|c| c == '_' || c.is_alphanumeric());
    let (mut files, mut tests) = (0, 0);
    for name in names() {
        if name.contains('/') {
            assert!(Path::new(&name).exists(), "DESIGN.md names a file that is not there: {name}");
            files += 1;
        } else if is_test(&name) {
            let is_plant = Path::new(&format!("tests/plants/{name}.plant")).exists();
            let exists = is_plant || code.contains(&format!("fn {name}("));
            assert!(exists, "DESIGN.md names a test or a plant that is not there: {name}");
            tests += 1;
        }
    }
    assert!(files > 15 && tests > 8, "the table was not found completely: {files} files, {tests} tests and plants");
}

#[test]
fn the_front_page_of_rustdoc_says_for_what_each_type_of_the_crate_root_is_named() {
    let (docs, code) = include_str!("../../src/lib.rs").split_once("#![forbid(unsafe_code)]").unwrap();
    let (_, table) = docs.split_once("# Types of the crate root").unwrap();
    let reexports = code.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let types: BTreeSet<&str> = reexports.flat_map(words).collect();
    assert!((40..=60).contains(&types.len()), "{types:?}");
    let missing: Vec<_> = types.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "no reason for {missing:?}");
}
