//! Two quotas of the same version on one store, as an error for callers.

use super::{QuotaTerms, StoreError};
use crate::error::QuotaConflict;
use crate::name::Name;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

/// Texts are kept for the life of the process, so their number is bounded. Further conflicts get a text without quotas.
const MOST_TEXTS: usize = 1_000;

/// The conflicts that have a text.
static TEXTS: LazyLock<Mutex<HashSet<[QuotaTerms; 2]>>> = LazyLock::new(Mutex::default);

impl StoreError {
    /// The error that callers get; `None` if this is no conflict.
    pub(crate) fn conflict(&self) -> Option<QuotaConflict> {
        let Self::QuotaConflict { stored, asked } = self else { return None };
        let both = [**stored, *asked].map(|terms| terms.kept(0, 0));
        let mut texts = TEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let has_text = texts.contains(&both) || texts.len() < MOST_TEXTS && texts.insert(both);
        let text = if has_text { self.to_string() } else { QuotaConflict::UNNAMED.to_owned() };
        Some(QuotaConflict { text: Name::of_few(&text) })
    }
}
