//! A place for each type: is it `Send`, `Sync`, `Unpin`? And is there a place for each public type of a crate?

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Asks the compiler whether types have these traits.
macro_rules! assert_traits {
    ($($send:ident $sync:ident $unpin:ident: $($type:ty),+;)*) => {
        #[test]
        fn every_public_type_has_the_listed_traits() {
            $($(
                assert_traits!(@ $type, Send, $send);
                assert_traits!(@ $type, Sync, $sync);
                assert_traits!(@ $type, Unpin, $unpin);
            )+)*
        }
    };
    (@ $type:ty, $trait:ident, yes) => {{
        fn is<T: $trait + ?Sized>() {}
        is::<$type>();
    }};
    // If the type has the trait, there are two implementations of `Ambiguous`, and the compiler cannot choose one.
    (@ $type:ty, $trait:ident, no) => {{
        trait Ambiguous<A> {
            fn some() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        struct HasIt;
        impl<T: $trait + ?Sized> Ambiguous<HasIt> for T {}
        <$type as Ambiguous<_>>::some();
    }};
}

pub(crate) use assert_traits;

/// Checks that `list` names each public type, trait and constant of the crate in `folder`.
pub(crate) fn assert_each_is_named(folder: &str, list: &str) {
    let src = Path::new(folder).join("src");
    let named: HashSet<&str> = words(list).collect();
    let mut names = Vec::new();
    collect(&src.join("lib.rs"), &src, &mut names);
    assert!(names.len() > 2, "the public names of {} were not found", src.display());
    names.retain(|name| !named.contains(&**name));
    assert!(names.is_empty(), "the list does not name {names:?}");
}

/// Collects the public names of the module in `file`, whose modules are in `folder`.
fn collect(file: &Path, folder: &Path, names: &mut Vec<String>) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = format!("\n{}", lines.join("\n"));
    // Only at the beginning of a line: what is indented belongs to a type, or to a module that is not public.
    let after = |start: &'static str| code.split(start).skip(1);
    for reexport in after("\npub use ").filter_map(|rest| rest.split(';').next()) {
        // What `*` stands for cannot be read here.
        names.extend(words(reexport).chain(reexport.contains('*').then_some(reexport)).map(str::to_owned));
    }
    for item in ["\npub struct ", "\npub enum ", "\npub trait ", "\npub type ", "\npub union ", "\npub const "] {
        names.extend(after(item).filter_map(|rest| words(rest.split_whitespace().next()?).next()).map(str::to_owned));
    }
    for module in after("\npub mod ").map(|rest| rest.split_whitespace().next().unwrap_or_default()) {
        let Some(module) = module.strip_suffix(';') else { panic!("a module within {}", file.display()) };
        let (flat, inner) = (folder.join(format!("{module}.rs")), folder.join(module));
        let file = if flat.exists() { flat } else { inner.join("mod.rs") };
        collect(&file, &inner, names);
    }
}

/// The capitalized words of a text, which are names of types, traits and constants.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
}
