//! The names of quotas and ceilings as small numbers, so that a refusal can carry a name and remain a plain value.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The name of a quota, the path of a class that has a ceiling, or none. Equal names have equal numbers.
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

/// A new name of a quota is kept while all names take fewer bytes than this, and a new path of a class while they take
/// fewer than a quarter of it: a program may have a class for each tenant.
const MOST_BYTES: usize = 1 << 20;

/// The bytes of a name beside its text.
const OVERHEAD: usize = 64;

/// The names of quotas and the paths of classes with ceilings, as far as there is space for them. They are never removed:
/// a program has few of them, and a refusal may outlive the limiter that refused.
#[derive(Default)]
struct Names {
    texts: Vec<&'static str>,
    /// The position of each text in `texts`.
    positions: HashMap<&'static str, u32>,
    bytes: usize,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

impl Names {
    /// Looks the text up, and keeps a copy of it for the life of the process if it is new and there is space for it in
    /// `most` bytes.
    fn keep(&mut self, text: &str, most: usize) -> Name {
        if let Some(known) = self.positions.get(text) {
            return Name(known + 1);
        }
        let bytes = self.bytes.saturating_add(text.len()).saturating_add(OVERHEAD);
        let Some(position) = u32::try_from(self.texts.len()).ok().filter(|_| bytes <= most) else {
            return Name::NONE;
        };
        let text: &'static str = Box::leak(text.into());
        self.bytes = bytes;
        self.texts.push(text);
        self.positions.insert(text, position);
        Name(position + 1)
    }
}

impl Name {
    pub(crate) const NONE: Self = Self(0);

    /// The name of a quota; none if there is no space for it.
    pub(crate) fn of(text: &str) -> Self {
        Self::within(text, MOST_BYTES)
    }

    /// The name of the ceiling of the class with this path, or the text about a bad quota or a conflict of quotas; none if
    /// there is no space for it.
    pub(crate) fn of_path(path: &str) -> Self {
        Self::within(path, MOST_BYTES / 4)
    }

    fn within(text: &str, most: usize) -> Self {
        NAMES.write().unwrap_or_else(PoisonError::into_inner).keep(text, most)
    }

    /// A name that was given before; none if it was not kept.
    #[cfg(feature = "metrics")]
    pub(crate) fn find(text: &str) -> Self {
        let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        names.positions.get(text).map_or(Self::NONE, |position| Self(position + 1))
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
mod tests;
