//! Quotas of calendar periods. Feature `calendar`.

use super::calendar::{Calendar, Unit, Zone};
use super::{Quota, Refill};
use crate::error::ConfigError;

/// Quotas whose periods begin at instants of the wall clock, such as midnight in Los Angeles. Feature `calendar`.
///
/// **Within one period, tokens granted less tokens refunded <= amount.** When a period begins, the bucket has the amount,
/// whatever was left: nothing is carried over. (Only a claim for more than the amount waits for the amounts of several
/// periods, and is granted whole in the last of them.) A refund of tokens that were granted in an earlier period frees
/// nothing, and neither does one of a call that would have waited in a [dry run](crate::Builder::dry_run), nor in the parent
/// of a keyed limiter one of a key.
///
/// The wall clock is [`Clock::wall`](crate::Clock::wall), by default the system's. It is read when a period is about to
/// begin, and at least every minute while callers wait, or when a call comes. So a limiter notices a clock that was set,
/// and a machine that was suspended, within a minute. A period never begins twice: if the clock is set back over the
/// beginning of a period, that period goes on. (A state over a restart remembers the last two periods.)
///
/// Of a distributed limiter, it is the store's clock that counts, and periods have at least a second. A store that was not
/// asked for an hour beyond a period has forgotten the quota, and begins with its [`initial`](Self::initial) tokens.
///
/// Which instants these are is decided by the [`jiff`](https://docs.rs/jiff) crate, by the system's database of time zones, or
/// by its own where the system has none.
///
/// | case | rule |
/// |---|---|
/// | daylight saving begins or ends | the day has 23 or 25 hours; a period of a day, week, month or year begins at the first instant of its first day |
/// | a month without the day on which it begins, such as the 31st | it begins on its last day |
/// | a zone whose rules change | once its new rules are in the database, they apply to the periods that begin from then on |
///
/// # Examples
///
/// Days of 23 hours, of 24, and of 25, months from the 31st, and a zone that has given up daylight saving:
///
/// ```
/// use std::time::SystemTime;
/// use tollgate::{Limiter, ManualClock, Quota};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let until_next = |quota: Quota, now: &str| -> Result<u64, Box<dyn std::error::Error>> {
///     let clock = ManualClock::new();
///     clock.set_wall(SystemTime::from(now.parse::<jiff::Timestamp>()?));
///     let limiter = Limiter::builder().quota(quota).clock(clock).build()?;
///     let _all = limiter.try_acquire(quota.amount())?;
///     Ok(limiter.estimate(1).expect("a clock tells").as_secs() / 3_600)
/// };
/// let day = Quota::per_calendar_day(10_000).in_time_zone("America/Los_Angeles")?;
/// assert_eq!(until_next(day, "2026-03-07T00:00-08[America/Los_Angeles]")?, 24);
/// assert_eq!(until_next(day, "2026-03-08T00:00-08[America/Los_Angeles]")?, 23);
/// assert_eq!(until_next(day, "2026-11-01T00:00-07[America/Los_Angeles]")?, 25);
///
/// let month = Quota::per_calendar_month(50_000).starting_on(31);
/// assert_eq!(until_next(month, "2026-01-31T00:00Z")? / 24, 28);
/// assert_eq!(until_next(month, "2026-02-28T00:00Z")? / 24, 31);
///
/// let brazil = Quota::per_calendar_day(10_000).in_time_zone("America/Sao_Paulo")?;
/// assert_eq!(until_next(brazil, "2018-11-04T01:00-02")?, 23);
/// assert_eq!(until_next(brazil, "2019-11-03T00:00-03")?, 24);
/// # Ok(()) }
/// ```
impl Quota {
    const fn per_calendar(amount: u64, unit: Unit) -> Self {
        Self { refill: Refill::Calendar(Calendar::new(unit)), ..Self::new(amount, unit.length()) }
    }

    /// Creates a quota of `amount` tokens in each second of the wall clock.
    pub const fn per_calendar_second(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Second)
    }

    /// Creates a quota of `amount` tokens in each minute of the wall clock.
    pub const fn per_calendar_minute(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Minute)
    }

    /// Creates a quota of `amount` tokens in each hour of the wall clock, in UTC unless
    /// [`in_time_zone`](Self::in_time_zone) says otherwise.
    pub const fn per_calendar_hour(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Hour)
    }

    /// Creates a quota of `amount` tokens in each day from midnight, in UTC unless [`in_time_zone`](Self::in_time_zone)
    /// says otherwise.
    pub const fn per_calendar_day(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Day)
    }

    /// Creates a quota of `amount` tokens in each week from Monday, or from the day that
    /// [`starting_on`](Self::starting_on) says.
    pub const fn per_calendar_week(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Week)
    }

    /// Creates a quota of `amount` tokens in each month from the first, or from the day that
    /// [`starting_on`](Self::starting_on) says.
    pub const fn per_calendar_month(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Month)
    }

    /// Creates a quota of `amount` tokens in each year from the first of January.
    pub const fn per_calendar_year(amount: u64) -> Self {
        Self::per_calendar(amount, Unit::Year)
    }

    /// Makes each period begin on this day: of a week, 1 (Monday) to 7 (Sunday); of a month, 1 to 31. A month that has no
    /// such day begins on its last one.
    ///
    /// Limiters and [`check`](Self::check) refuse a day that the period cannot have. A quota without a calendar stays as it is.
    #[must_use = "this returns the changed quota"]
    pub const fn starting_on(mut self, day: u8) -> Self {
        if let Refill::Calendar(calendar) = self.refill {
            self.refill = Refill::Calendar(Calendar { day, ..calendar });
        }
        self
    }

    /// Counts the periods of a calendar quota in the time zone of this name, such as `America/Los_Angeles`.
    ///
    /// # Errors
    ///
    /// * [`UnknownTimeZone`](ConfigError::UnknownTimeZone) if the database of time zones has no such name.
    /// * [`NoCalendar`](ConfigError::NoCalendar) if the quota has no calendar.
    pub fn in_time_zone(mut self, name: &str) -> Result<Self, ConfigError> {
        let calendar = self.calendar().filter(|calendar| calendar.unit != Unit::Epoch);
        let calendar = calendar.ok_or(ConfigError::NoCalendar { quota: self })?;
        let zone = Zone::of(name).ok_or_else(|| ConfigError::UnknownTimeZone { name: name.to_owned() })?;
        self.refill = Refill::Calendar(Calendar { zone, ..calendar });
        Ok(self)
    }

    /// Makes all tokens of a period arrive at its beginning, which is a multiple of the period since 1970, as the fixed
    /// windows of other systems do. All that is said of calendar quotas holds for it. A manual quota stays as it is.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// clock.set_wall(std::time::UNIX_EPOCH + Duration::from_secs(1_007));
    /// let quota = Quota::new(5, Duration::from_secs(10)).stepped().from_epoch();
    /// let limiter = Limiter::builder().quota(quota).clock(clock).build()?;
    /// let _all = limiter.try_acquire(5)?;
    /// assert_eq!(limiter.estimate(5), Some(Duration::from_secs(3)));
    /// # Ok(()) }
    /// ```
    #[must_use = "this returns the changed quota"]
    pub const fn from_epoch(mut self) -> Self {
        if !matches!(self.refill, Refill::Manual | Refill::Calendar(_)) {
            self.refill = Refill::Calendar(Calendar::new(Unit::Epoch));
        }
        self
    }
}
