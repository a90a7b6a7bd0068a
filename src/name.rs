//! The names of quotas as small numbers, so that a refusal can carry a name and remain a plain value.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The name of a quota, or none. Equal names have equal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name(u32);

/// The names of a limiter's quotas, as text and for refusals. Empty if no quota has one.
pub(crate) type QuotaNames = Arc<[Option<(Arc<str>, Name)>]>;

pub(crate) fn quota_names<'a>(names: impl Iterator<Item = &'a Option<Arc<str>>> + Clone) -> QuotaNames {
    if names.clone().all(Option::is_none) {
        return QuotaNames::default();
    }
    names.map(|name| name.as_ref().map(|name| (Arc::clone(name), Name::of(name)))).collect()
}

/// Every name that was ever given to a quota. Names are never removed: a program has few of them, and a refusal may
/// outlive the limiter that refused.
#[derive(Default)]
struct Names {
    texts: Vec<&'static str>,
    /// The position of each text in `texts`.
    positions: HashMap<&'static str, u32>,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

impl Name {
    pub(crate) const NONE: Self = Self(0);

    /// Looks the text up, and keeps a copy of it for the life of the process if it is new.
    pub(crate) fn of(text: &str) -> Self {
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.positions.get(text) {
            return Self(known + 1);
        }
        let Ok(position) = u32::try_from(names.texts.len()) else { return Self::NONE };
        let text: &'static str = Box::leak(text.into());
        names.texts.push(text);
        names.positions.insert(text, position);
        Self(position + 1)
    }

    pub(crate) fn text(self) -> Option<&'static str> {
        let position = self.0.checked_sub(1)? as usize;
        NAMES.read().unwrap_or_else(PoisonError::into_inner).texts.get(position).copied()
    }

    /// The number for [`of_number`](Self::of_number); 0 for no name.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_and_come_back() {
        let (one, two) = (Name::of("name.rs: one"), Name::of("name.rs: two"));
        assert_ne!(one, two);
        assert_eq!(one, Name::of(&String::from("name.rs: one")));
        assert_eq!([one, two, Name::NONE].map(Name::text), [Some("name.rs: one"), Some("name.rs: two"), None]);
        assert_eq!(Name::of_number(two.number()), two);
    }
}
