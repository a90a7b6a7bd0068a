//! The names of listed keys and of rules.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The name of a listed key or of a rule. Each name is leaked once, so that requests copy it without a reference count,
/// and compare and hash its address.
#[derive(Clone, Copy, Debug, PartialOrd, Ord)]
pub(crate) struct Name(&'static str);

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.as_ptr().addr());
    }
}

impl Name {
    pub(crate) fn new(name: &str) -> Self {
        static KNOWN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Self(known.get(name).copied().unwrap_or_else(|| {
            let name = &*Box::leak(Box::<str>::from(name));
            known.insert(name);
            name
        }))
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[test]
fn a_name_equals_only_itself() {
    let names = ["", "a", "ab", "b"].map(Name::new);
    assert_eq!(names, ["", "a", "ab", "b"].map(String::from).map(|name| Name::new(&name)));
    for (at, name) in names.iter().enumerate() {
        assert!(names[..at].iter().all(|other| other != name && other < name), "{name}");
    }
}
