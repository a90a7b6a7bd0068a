//! The state of a keyed limiter: its form for serde, saving, and restoring.

use super::periods::Calendars;
use super::quotas::{NamedQuota, Quotas};
use super::rates::{Levels, Rates};
use super::shard::{Assigned, ListedKey};
use super::{KeyedLimiter, live};
use crate::Quota;
use crate::clock::Time;
use crate::core::schedule::SavedLevel;
use crate::error::{ConfigError, StateError};
use crate::state::{Versioned, WallTime, check_level, check_quotas};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The longest time that a limiter can have run: 292 years, in nanoseconds.
const LONGEST_RUN: u64 = 1 << 63;

/// The levels of all keys of a [`KeyedLimiter`], returned by [`KeyedLimiter::state`]; see [`state`](crate::state).
///
/// To be written and read by serde, in any format, if the keys are. A state that was read is checked when a limiter is
/// [built](crate::KeyedBuilder::build) from it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyedState<K> {
    form: Versioned<Form<K>>,
    /// Whether the state may be restored to other quotas.
    #[serde(skip)]
    converts: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Form<K> {
    saved_at: WallTime,
    /// `saved_at` in nanoseconds since the limiter was built, from where stepped quotas count their periods.
    at: u64,
    /// First the common quotas, or none if `quota_by` chooses them; then those that other keys have.
    quotas: Vec<Vec<NamedQuota>>,
    /// For each calendar quota among them, in their order, when its next period begins on the wall clock.
    next_periods: Vec<Option<u64>>,
    /// The rest of the pause of all keys.
    paused_for: u64,
    keys: Vec<KeyForm<K>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeyForm<K> {
    key: K,
    /// An index into [`Form::quotas`].
    quotas: usize,
    /// Whether these are [of the key](KeyedLimiter::set_quota_for) alone.
    own: bool,
    paused_for: u64,
    /// For each quota the whole tokens, negative for a debt, and the fraction of the next one, as in [`SavedLevel`].
    levels: Vec<(i64, u64)>,
}

impl<K> KeyedState<K> {
    /// Returns when the state was saved, by the wall clock; `None` if another version of its form was read.
    pub fn saved_at(&self) -> Option<SystemTime> {
        self.form.0.as_ref().ok().map(|form| form.saved_at.time())
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.form.0.as_ref().map_or(0, |form| form.keys.len())
    }

    /// Returns true if no key is in the state: none owed tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allows to restore the state to other quotas. As with [`set_quota`](KeyedLimiter::set_quota), each quota of a key
    /// keeps the tokens of the saved one with the same index, up to its burst, and a quota without a saved one starts
    /// full.
    #[must_use = "this returns the changed state"]
    pub fn convert(self) -> Self {
        Self { converts: true, ..self }
    }

    /// Checks all but the keys, for a map with these common quotas; none if `quota_by` chooses the quotas.
    pub(super) fn checked(self, common: &[Quota], now: SystemTime) -> Result<Restored<K>, StateError> {
        let form = self.form.0?;
        let rates = form.quotas.iter().enumerate().map(|(index, quotas)| {
            let quotas = Quotas(quotas.clone());
            match quotas.check() {
                Ok(()) => Ok(Some(Arc::new(Rates::new(quotas, None)))),
                Err(ConfigError::NoQuota) => Ok(None),
                Err(_) => Err(impossible(format!("entry {index} of the quotas"), quotas)),
            }
        });
        let rates = rates.collect::<Result<_, _>>()?;
        if !self.converts {
            check_quotas(form.quotas.iter().take(1).flatten().map(|(_, quota)| *quota), common)?;
        }
        if form.at > LONGEST_RUN {
            return Err(impossible("the time since the limiter was built".to_owned(), form.at));
        }
        Ok(Restored { until: form.at + form.saved_at.offline(now), rates, form })
    }
}

impl<K> fmt::Debug for KeyedState<K> {
    /// Prints no keys: they may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedState")
            .field("saved_at", &self.saved_at())
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
    /// Returns the levels of all keys, to [restore](crate::KeyedBuilder::restore) them in another process; see
    /// [`state`](crate::state). A [parent](crate::KeyedBuilder::parent) is not included: save it separately. Waiters
    /// and tokens in flight are not a part of the state.
    ///
    /// This copies some hundred keys under each lock. Calls go on meanwhile, and each key is saved as it is when it is
    /// reached.
    ///
    /// # Panics
    ///
    /// Panics if `Clone` of a key panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tollgate::{KeyedLimiter, Quota, state::KeyedState};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// drop(users.try_acquire(&"ann".to_owned(), 9)?);
    /// let json = serde_json::to_string(&users.state())?;
    ///
    /// let state: KeyedState<String> = serde_json::from_str(&json)?;
    /// let users = KeyedLimiter::builder().quota(Quota::per_hour(10)).restore(state, SystemTime::now()).build()?;
    /// assert_eq!((users.available(&"ann".to_owned()), users.available(&"bob".to_owned())), (1, 10));
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> KeyedState<K> {
        self.save(SystemTime::now)
    }

    /// Like [`state`](Self::state), when the wall clock shows `wall_clock`: for tests, and for another source of time.
    pub fn state_at(&self, wall_clock: SystemTime) -> KeyedState<K> {
        self.save(|| wall_clock)
    }

    fn save(&self, wall_clock: impl FnOnce() -> SystemTime) -> KeyedState<K> {
        let map = &self.map;
        let common = map.common_rates();
        let mut quotas = vec![common.as_ref().map_or(Vec::new(), |rates| rates.quotas.0.clone())];
        let mut indices = HashMap::new();
        let mut index_of = |rates: &Arc<Rates>| {
            if common.as_ref().is_some_and(|common| Arc::ptr_eq(common, rates)) {
                return 0;
            }
            *indices.entry(rates.quotas.clone()).or_insert_with(|| {
                quotas.push(rates.quotas.0.clone());
                quotas.len() - 1
            })
        };
        let mut keys = Vec::new();
        for number in 0..map.shards.len() {
            keys.extend(map.list_shard(number).into_iter().map(|ListedKey { key, rates, levels, pinned }| {
                let levels = levels.unwrap_or_else(|live| live::saved(&live, &rates));
                (key, rates, levels, pinned)
            }));
        }
        // A key may have reached a later time than this thread reads. The wall clock last: the time between the two
        // readings is then not taken for time offline.
        let at = keys.iter().map(|(_, _, levels, _)| levels.at).fold(map.now(), u64::max);
        let saved_at = WallTime::of(wall_clock());
        let key = |(key, rates, levels, pinned): (K, Arc<Rates>, Levels, bool)| {
            let levels = rates.advance(&levels, at);
            (pinned || !rates.is_full(&levels)).then(|| KeyForm {
                key,
                quotas: index_of(&rates),
                own: pinned,
                paused_for: levels.gate.saturating_sub(at),
                levels: rates.parts(&levels).collect(),
            })
        };
        let keys = keys.into_iter().filter_map(key).collect();
        let periods = calendar_quotas(&quotas).filter_map(|quota| map.template.calendars.periods(quota, None));
        let next_periods = periods.map(|periods| periods.next_on_wall(at)).collect();
        let paused_for = map.template.gate().saturating_sub(at);
        let form = Form { saved_at, at, quotas, next_periods, paused_for, keys };
        KeyedState { form: Versioned(Ok(form)), converts: false }
    }
}

fn calendar_quotas(quotas: &[Vec<NamedQuota>]) -> impl Iterator<Item = &Quota> {
    quotas.iter().flatten().map(|(_, quota)| quota).filter(|quota| quota.calendar().is_some())
}

fn impossible(part: String, value: impl ToString) -> StateError {
    StateError::Impossible { part, value: value.to_string() }
}

/// A state that a new map continues from.
pub(super) struct Restored<K> {
    /// By the time of the saved map: all levels are advanced to this instant.
    until: u64,
    rates: Vec<Option<Arc<Rates>>>,
    form: Form<K>,
}

impl<K> Restored<K> {
    /// The time of the new map, which continues that of the saved one, so that stepped quotas step when they would
    /// have. If the clock has no instant that is early enough, steps come later, and none earlier.
    pub(super) fn begin(&self, time: Time) -> Time {
        time.begun_earlier(self.until).unwrap_or(time)
    }

    /// Makes the periods of all saved quotas known, so that none begins again if the wall clock is set back.
    pub(super) fn continue_periods(&self, calendars: &Calendars) {
        for (quota, next) in calendar_quotas(&self.form.quotas).zip(&self.form.next_periods) {
            calendars.periods(quota, *next);
        }
    }

    /// Gives all keys to a new map.
    pub(super) fn apply<S: BuildHasher>(self, limiter: &KeyedLimiter<K, S>) -> Result<(), ConfigError>
    where
        K: Hash + Eq + Clone,
    {
        let map = &limiter.map;
        let Form { at, paused_for: all_paused_for, keys, .. } = self.form;
        for (number, KeyForm { key, quotas, own, paused_for, levels }) in keys.into_iter().enumerate() {
            let Some(rates) = self.rates.get(quotas).and_then(Option::as_ref) else {
                return Err(impossible(format!("the index of the quotas of key {number}"), quotas).into());
            };
            if levels.len() != rates.each.len() {
                return Err(impossible(format!("the number of levels of key {number}"), levels.len()).into());
            }
            for (index, (quota, (tokens, fraction))) in rates.quotas.iter().zip(&levels).enumerate() {
                let level = SavedLevel { tokens: *tokens, fraction: *fraction, step_in: None };
                check_level(&level, &quota, format_args!("quota {index} of key {number}"))?;
            }
            // Those of the map, which know its calendars.
            let rates = map.rates(rates.quotas.clone());
            let levels = rates.advance(&rates.of_parts(at, |index| levels[index]), self.until);
            if own {
                map.assign(&key, &Assigned::Own(Arc::clone(&rates)), true)?;
            }
            // The levels are those of now. They are kept even if the map is full.
            map.enter(map.hashed(&key), true, |shard, request, context| {
                shard.at_levels(request, context, |own: &Rates, now: &mut Levels| {
                    *now = Levels { at: now.at, gate: now.gate, ..own.adopt(&rates, &levels) };
                })
            })?
            .expect("no key of a new map has a live entry");
            if at.saturating_add(paused_for) > self.until {
                limiter.pause_for(&key, Duration::from_nanos(at.saturating_add(paused_for) - self.until));
            }
        }
        let gate = at.saturating_add(all_paused_for);
        if gate > self.until {
            limiter.pause_all_for(Duration::from_nanos(gate - self.until));
        }
        Ok(())
    }
}
