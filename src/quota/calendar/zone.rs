//! Time zones by name, as plain values.

use jiff::tz::TimeZone;
use std::sync::{Mutex, PoisonError};

/// A time zone: 0 for UTC, else one more than its index in [`KNOWN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Zone(u16);

/// The zones that quotas were given. It has an entry for each name at most, so it is bounded by the database.
static KNOWN: Mutex<Vec<(&'static str, TimeZone)>> = Mutex::new(Vec::new());

impl Zone {
    pub(crate) const UTC: Self = Self(0);

    /// The zone of this name in the database, in any case; `None` if there is none.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("UTC") {
            return Some(Self::UTC);
        }
        let rules = TimeZone::get(name).ok()?;
        let name = rules.iana_name()?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let index = known.iter().position(|(known, _)| *known == name).unwrap_or(known.len());
        if index == known.len() {
            known.push((name.to_owned().leak(), rules.clone()));
        }
        u16::try_from(index + 1).ok().map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        self.known().map_or("UTC", |(name, _)| name)
    }

    /// The rules that the database has now: it is read anew when it changes. If the zone is gone, those that it had.
    pub(crate) fn rules(self) -> TimeZone {
        self.known().map_or(TimeZone::UTC, |(name, rules)| TimeZone::get(name).unwrap_or(rules))
    }

    fn known(self) -> Option<(&'static str, TimeZone)> {
        let index = usize::from(self.0).checked_sub(1)?;
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(index).cloned()
    }
}
