//! The state of a limiter.

use super::bytes::{self, Contents, Put, Type};
use super::{StateError, WallTime};
use crate::Limiter;
use crate::core::schedule::SavedLevel;
use crate::core::state::saved::Saved;
use crate::core::supply::Supply;
use crate::quota::Quota;
use std::time::SystemTime;

/// The state of a [`Limiter`] at an instant, returned by [`Limiter::state`]; see [`state`](crate::state).
///
/// Serialized to [bytes](Self::to_bytes), or with the feature `serde`. Both have a version and a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "wire::Wire", try_from = "wire::Wire"))]
pub struct LimiterState {
    saved_at: WallTime,
    saved: Saved,
    /// Whether the state may be restored to other quotas.
    converts: bool,
}

impl LimiterState {
    /// Returns when the state was saved, by the wall clock.
    pub fn saved_at(&self) -> SystemTime {
        self.saved_at.time()
    }

    /// Returns the quotas that the state belongs to.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> + '_ {
        self.saved.quotas.iter().map(|(quota, _)| *quota)
    }

    /// Allows to restore the state to other quotas. As with [`set_quota`](Limiter::set_quota), each quota keeps the
    /// tokens of the saved one with the same index, up to its burst, and a quota without a saved one starts full.
    #[must_use = "this returns the changed state"]
    pub fn convert(self) -> Self {
        Self { converts: true, ..self }
    }

    /// Returns the state as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = bytes::head(Type::Limiter).to_vec();
        bytes.extend(bytes::frame(&self.contents()));
        bytes
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = Vec::new();
        contents.put(self.saved_at.0.into());
        contents.put(self.saved.paused_for.into());
        contents.put(self.saved.quotas.len() as u128);
        for (quota, level) in &self.saved.quotas {
            contents.put_quota(quota);
            contents.put_signed(level.tokens.into());
            contents.put(level.fraction.into());
            contents.put_optional(level.step_in);
        }
        contents
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// Returns a [`StateError`] if they are not the state of a limiter, truncated or damaged.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, StateError> {
        bytes::read_head(&mut bytes, Type::Limiter)?;
        let contents = bytes::read_frame(&mut bytes)?;
        if !bytes.is_empty() {
            return Err(StateError::Damaged { part: "what comes after its end" });
        }
        Self::of(Contents(&contents)).ok_or(StateError::Damaged { part: "a level" })
    }

    fn of(mut contents: Contents<'_>) -> Option<Self> {
        let (saved_at, paused_for, count) =
            (WallTime(contents.small()?), contents.small()?, contents.small::<usize>()?);
        let mut quotas = Vec::new();
        for _ in 0..count {
            let quota = contents.quota()?;
            let level = SavedLevel {
                tokens: contents.small_signed()?,
                fraction: contents.small()?,
                step_in: contents.optional()?,
            };
            quotas.push((quota, level));
        }
        Self { saved_at, saved: Saved { quotas, paused_for }, converts: false }.checked(contents.is_empty())
    }

    /// `None` if a quota or a level is impossible.
    fn checked(self, is_complete: bool) -> Option<Self> {
        let is_possible = |(quota, level): &(Quota, SavedLevel)| quota.check(0).is_ok() && level.is_possible(quota);
        Some(self).filter(|state| is_complete && state.saved.quotas.iter().all(is_possible))
    }

    /// Checks that the state belongs to `quotas`, or converts.
    pub(crate) fn check(&self, quotas: &[Quota]) -> Result<(), StateError> {
        if self.converts {
            return Ok(());
        }
        let saved: Vec<Quota> = self.quotas().collect();
        check_quotas(&saved, quotas)
    }

    /// The supply of a limiter that continues from this state.
    pub(crate) fn supply(&self, quotas: &[Quota], cap: Option<u64>, start: u64, now: SystemTime) -> Supply {
        Supply::restored(quotas, &self.saved, cap, start, self.saved_at.offline(now))
    }
}

/// Checks that both have the same quotas, apart from how full a bucket starts.
pub(crate) fn check_quotas(saved: &[Quota], built: &[Quota]) -> Result<(), StateError> {
    for index in 0..saved.len().max(built.len()) {
        let (saved, built) = (saved.get(index), built.get(index));
        if !saved.zip(built).is_some_and(|(saved, built)| saved.is_same_limit(built)) {
            let text = |quota: Option<&Quota>| quota.map_or("none".to_owned(), Quota::to_string);
            return Err(StateError::OtherQuota {
                which: format!("quota {index}"),
                saved: text(saved),
                built: text(built),
            });
        }
    }
    Ok(())
}

impl Contents<'_> {
    fn small_signed(&mut self) -> Option<i64> {
        self.signed()?.try_into().ok()
    }
}

impl Limiter {
    /// Returns the state of the limiter, to [restore](crate::Builder::restore) it in another process; see
    /// [`state`](crate::state). Waiters, classes and tokens in flight are not a part of it. A quota in dry run is saved as
    /// full.
    ///
    /// # Errors
    ///
    /// Returns [`StateError::Distributed`] for a distributed limiter: its store keeps the tokens.
    pub fn state(&self) -> Result<LimiterState, StateError> {
        self.state_at(SystemTime::now())
    }

    /// Like [`state`](Self::state), when the wall clock shows `wall_clock`: for tests, and for another source of time.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`state`](Self::state).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Limiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Limiter::builder().quota(Quota::per_second(10)).clock(ManualClock::new());
    /// let limiter = builder.clone().build()?;
    /// let _grant = limiter.try_acquire(10)?;
    /// let state = limiter.state_at(UNIX_EPOCH)?;
    /// let restored = builder.restore(state, UNIX_EPOCH + Duration::from_millis(300)).build()?;
    /// assert_eq!(restored.available(), 3);
    /// # Ok(()) }
    /// ```
    pub fn state_at(&self, wall_clock: SystemTime) -> Result<LimiterState, StateError> {
        let saved = self.core().with(|state, rovers, _| state.saved(rovers)).ok_or(StateError::Distributed)?;
        Ok(LimiterState { saved_at: WallTime::of(wall_clock), saved, converts: false })
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! The state in the formats of serde.

    use super::{LimiterState, Quota, Saved, SavedLevel, StateError, WallTime};
    use crate::saved::bytes::checksum;

    const VERSION: u16 = 1;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Wire {
        version: u16,
        /// Nanoseconds since 1970.
        saved_at: u64,
        paused_for: u64,
        quotas: Vec<Level>,
        checksum: u64,
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Level {
        quota: Quota,
        tokens: i64,
        fraction: u64,
        step_in: Option<u64>,
    }

    impl From<LimiterState> for Wire {
        fn from(state: LimiterState) -> Self {
            let level = |(quota, level): &(Quota, SavedLevel)| {
                let SavedLevel { tokens, fraction, step_in } = *level;
                Level { quota: *quota, tokens, fraction, step_in }
            };
            Self {
                version: VERSION,
                saved_at: state.saved_at.0,
                paused_for: state.saved.paused_for,
                quotas: state.saved.quotas.iter().map(level).collect(),
                checksum: checksum(&state.contents()),
            }
        }
    }

    impl TryFrom<Wire> for LimiterState {
        type Error = StateError;

        fn try_from(wire: Wire) -> Result<Self, StateError> {
            if wire.version > VERSION {
                return Err(StateError::Version { found: wire.version, known: VERSION });
            }
            let level = |level: Level| {
                let Level { quota, tokens, fraction, step_in } = level;
                (quota, SavedLevel { tokens, fraction, step_in })
            };
            let saved = Saved { quotas: wire.quotas.into_iter().map(level).collect(), paused_for: wire.paused_for };
            let state = Self { saved_at: WallTime(wire.saved_at), saved, converts: false };
            if checksum(&state.contents()) != wire.checksum {
                return Err(StateError::Damaged { part: "a checksum" });
            }
            state.checked(true).ok_or(StateError::Damaged { part: "a level" })
        }
    }
}
