//! One or several quotas for each key: a plain value, checked when a limiter is built from it.

use crate::error::{ConfigError, QuotaError};
use crate::quota::parse;
use crate::{ParseQuotaError, Quota, Which};
use std::fmt;
use std::sync::Arc;

/// The most quotas that one key can have.
pub(super) const MAX_QUOTAS: usize = 4;

/// The quotas of a key of a [`KeyedLimiter`](super::KeyedLimiter): each grant takes its cost from all of them, or from
/// none.
///
/// Converts from a [`Quota`], and from an array or a `Vec` of quotas, with or without names. A key can have up to four.
///
/// ```
/// use tollgate::{Quota, Quotas};
/// let plain = Quotas::from([Quota::per_second(10), Quota::per_day(1_000)]);
/// let named = Quotas::from(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000));
/// assert_eq!((named.len(), named.name(0), named.name(1)), (2, None, Some("day")));
/// assert!(plain.iter().eq(named.iter()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quotas(pub(super) Vec<NamedQuota>);

pub(super) type NamedQuota = (Option<Arc<str>>, Quota);

impl Quotas {
    /// Adds a quota.
    #[must_use = "this returns the changed quotas"]
    pub fn quota(self, quota: Quota) -> Self {
        self.and((None, quota))
    }

    /// Adds a quota with a name, by which reports of refusals distinguish the quotas.
    ///
    /// Each distinct name stays in memory for the life of the process, once, however often it is used: name the kind of
    /// quota (`day`) and never the key, even where `quota_by` returns the quotas of a key. Once all names take a
    /// megabyte, refusals leave out new ones and tell the index of the quota alone.
    #[must_use = "this returns the changed quotas"]
    pub fn quota_named(self, name: impl AsRef<str>, quota: Quota) -> Self {
        self.and((Some(name.as_ref().into()), quota))
    }

    pub(super) fn and(mut self, added: NamedQuota) -> Self {
        self.0.push(added);
        self
    }

    /// Returns the quotas, in the order of the index in [`Bound::Quota`](crate::Bound::Quota).
    pub fn iter(&self) -> impl Iterator<Item = Quota> + '_ {
        self.0.iter().map(|(_, quota)| *quota)
    }

    /// Returns the number of quotas.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no quota. Only keys with a parent or an in-flight cap can do without one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the quota with this index.
    pub fn get(&self, index: usize) -> Option<Quota> {
        Some(self.0.get(index)?.1)
    }

    /// Returns the name of the quota with this index, if it has one.
    pub fn name(&self, index: usize) -> Option<&str> {
        self.0.get(index)?.0.as_deref()
    }

    /// Replaces the quota that `which` selects by `quota`, which takes its name. The result is checked.
    pub(super) fn with(&self, which: Which<'_>, quota: Quota) -> Result<Self, ConfigError> {
        let count = self.len();
        let index = match which {
            Which::Index(index) => Some(index).filter(|index| *index < count),
            Which::Name(name) => self.0.iter().position(|(known, _)| known.as_deref() == Some(name)),
        };
        let index = index.ok_or_else(|| ConfigError::UnknownQuota { which: which.to_string(), count })?;
        let mut changed = self.clone();
        changed.0[index].1 = quota;
        changed.check().map(|()| changed)
    }

    /// Checks whether a keyed limiter can be built from these quotas, such as those that were read from a file.
    ///
    /// # Errors
    ///
    /// Returns the [`ConfigError`] that [`KeyedLimiter::new`](super::KeyedLimiter::new) would return.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ConfigError, QuotaError, Quotas};
    /// let quotas: Quotas = "10/s; day: manual 5".parse().expect("they are written correctly");
    /// let error = ConfigError::BadQuota { quota: 1, quota_name: Some("day"), reason: QuotaError::KeyedManual };
    /// assert_eq!(quotas.check(), Err(error));
    /// ```
    pub fn check(&self) -> Result<(), ConfigError> {
        let count = self.len();
        if count == 0 {
            return Err(ConfigError::NoQuota);
        }
        if count > MAX_QUOTAS {
            return Err(ConfigError::TooManyQuotas { count, most: MAX_QUOTAS });
        }
        for (index, (name, quota)) in self.0.iter().enumerate() {
            check_quota(quota).map_err(|reason| reason.of(index, name.as_deref()))?;
            if let Some(name) = name {
                if self.0.iter().take(index).any(|(other, _)| other.as_ref() == Some(name)) {
                    return Err(ConfigError::DuplicateName { name: name.to_string() });
                }
            }
        }
        Ok(())
    }
}

/// Checks every rule for a quota of a key.
pub(super) fn check_quota(quota: &Quota) -> Result<(), QuotaError> {
    quota.check()?;
    let (initial, burst) = (quota.filled_at_start(), quota.capacity());
    if quota.is_manual() {
        return Err(QuotaError::KeyedManual);
    }
    if initial != burst {
        return Err(QuotaError::KeyedInitial { initial, burst });
    }
    Ok(())
}

impl std::str::FromStr for Quotas {
    type Err = ParseQuotaError;

    /// Parses quotas, separated by semicolons, each with or without a name: `10/s; day: 1000/d, burst 50`. What is
    /// written for each is the text of a [`Quota`](Quota#impl-FromStr-for-Quota).
    ///
    /// # Errors
    ///
    /// Returns an error that names the part that is wrong, says what it should be, and knows its place in the text.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, Quotas};
    /// # fn main() -> Result<(), tollgate::ParseQuotaError> {
    /// let quotas: Quotas = "10/s; day: 1000/d".parse()?;
    /// assert_eq!(quotas, Quotas::from(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000)));
    /// assert_eq!(quotas.to_string(), "10/s; day: 1000/d");
    /// # Ok(()) }
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        text.split(';').try_fold(Self::default(), |all, part| {
            Ok(match part.rsplit_once(':') {
                Some((name, quota)) => all.quota_named(name.trim(), parse(quota, text)?),
                None => all.quota(parse(part, text)?),
            })
        })
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(vec![(None, quota)])
    }
}

impl FromIterator<Quota> for Quotas {
    fn from_iter<I: IntoIterator<Item = Quota>>(quotas: I) -> Self {
        Self(quotas.into_iter().map(|quota| (None, quota)).collect())
    }
}

impl<Name: AsRef<str>> FromIterator<(Name, Quota)> for Quotas {
    fn from_iter<I: IntoIterator<Item = (Name, Quota)>>(quotas: I) -> Self {
        quotas.into_iter().fold(Self::default(), |all, (name, quota)| all.quota_named(name, quota))
    }
}

impl<T, const N: usize> From<[T; N]> for Quotas
where
    Self: FromIterator<T>,
{
    fn from(quotas: [T; N]) -> Self {
        quotas.into_iter().collect()
    }
}

impl<T> From<Vec<T>> for Quotas
where
    Self: FromIterator<T>,
{
    fn from(quotas: Vec<T>) -> Self {
        quotas.into_iter().collect()
    }
}

impl fmt::Display for Quotas {
    /// Writes the quotas with their names: `10/s; day: 1000/d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, quota)) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            match name {
                Some(name) => write!(f, "{between}{name}: {quota}")?,
                None => write!(f, "{between}{quota}")?,
            }
        }
        Ok(())
    }
}
