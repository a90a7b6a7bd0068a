//! The keys of stores in the table.

/// The key of the store with this name.
pub(super) fn key(name: &str) -> String {
    format!("{{{name}}}")
}

/// The key of the store `name` below the store with key `own`. The length at the end keeps any two keys different,
/// whatever characters the names contain.
pub(super) fn key_among(own: &str, name: &str) -> String {
    let of = own.strip_suffix('}').unwrap_or(own);
    format!("{of}:{name}}}:{}", of.len())
}
