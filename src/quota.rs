//! A quota: how many tokens may pass in which time. A plain value, checked when a limiter is built from it.

#[cfg(feature = "serde")]
mod as_serde;
#[cfg_attr(not(feature = "calendar"), path = "quota/no_calendar.rs")]
mod calendar;
#[cfg(feature = "calendar")]
mod calendar_quotas;
mod checks;
mod text;

pub(crate) use calendar::Calendar;
pub(crate) use checks::{MAX_BURST, check_cap, check_max_cost};
pub use text::ParseQuotaError;
#[cfg(feature = "keyed")]
pub(crate) use text::parse;

use std::time::Duration;

/// How many tokens may pass in which time, and how many of them at once.
///
/// `Quota::per_second(100).burst(20)` lets 100 tokens pass **per second** on average, and at most 20 at once. Without
/// [`burst`](Quota::burst), the burst is the amount of one period. Buckets start full unless
/// [`initial`](Quota::initial) says otherwise.
///
/// A quota is a plain value. It is checked when a limiter or bucket is built from it, which returns a
/// [`ConfigError`](crate::ConfigError) that names what to change.
///
/// | refill | made by | tokens arrive |
/// |---|---|---|
/// | continuous | [`new`](Quota::new), [`per_second`](Quota::per_second), ... | one by one, evenly |
/// | stepped | [`stepped`](Quota::stepped) | all at each end of a period |
/// | calendar | `per_calendar_day`, ... (feature `calendar`) | all when a period of the calendar begins |
/// | manual | [`manual`](Quota::manual) | when `replenish(n)` is called |
/// | sliding | [`sliding`](Quota::sliding) | one period after they were granted |
///
/// Fractions of a token are carried exactly, at any rate from one token in a century to many in each nanosecond.
///
/// A quota can be parsed from text and prints as the same text.
///
/// # Examples
///
/// ```
/// use tollgate::Quota;
/// # fn main() -> Result<(), tollgate::ParseQuotaError> {
/// let quota: Quota = "100/s, burst 20".parse()?;
/// assert_eq!(quota, Quota::per_second(100).burst(20));
/// assert_eq!(quota.to_string(), "100/s, burst 20");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    amount: u64,
    period: Duration,
    burst: Option<u64>,
    initial: Option<u64>,
    refill: Refill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refill {
    Continuous,
    Stepped,
    #[cfg_attr(not(feature = "calendar"), allow(dead_code, reason = "no quota has a calendar then"))]
    Calendar(Calendar),
    Manual,
    Sliding,
}

impl Quota {
    /// Creates a quota of `amount` tokens in each `period`, arriving evenly.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    /// assert_eq!(Quota::new(100, Duration::from_secs(1)), Quota::per_second(100));
    /// ```
    pub const fn new(amount: u64, period: Duration) -> Self {
        Self { amount, period, burst: None, initial: None, refill: Refill::Continuous }
    }

    /// Creates a quota of `amount` tokens in each second. (Not one token per `amount` seconds, as in some other
    /// limiters.)
    pub const fn per_second(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(1))
    }

    /// Creates a quota of `amount` tokens in each minute.
    pub const fn per_minute(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(60))
    }

    /// Creates a quota of `amount` tokens in each hour.
    pub const fn per_hour(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(3_600))
    }

    /// Creates a quota of `amount` tokens in each day of 24 hours.
    pub const fn per_day(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(86_400))
    }

    /// Creates a quota of `capacity` tokens that is refilled only by
    /// [`Limiter::replenish`](crate::Limiter::replenish).
    pub const fn manual(capacity: u64) -> Self {
        Self { amount: 0, period: Duration::ZERO, burst: Some(capacity), initial: None, refill: Refill::Manual }
    }

    /// Creates a quota that holds back no call: for a plan without a limit, where a quota has to be given.
    ///
    /// It is an ordinary quota of 2<sup>24</sup> tokens per nanosecond, with a burst of 2<sup>48</sup> tokens, the largest
    /// cost of a claim. It is written `unlimited`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Quota;
    /// # fn main() -> Result<(), tollgate::ParseQuotaError> {
    /// let plan = |text: &str| text.parse::<Quota>();
    /// assert_eq!((plan("unlimited")?, plan("10/s")?), (Quota::unlimited(), Quota::per_second(10)));
    /// # Ok(()) }
    /// ```
    // A higher rate would have no packed levels, and each call on a key with this quota would take the slow path.
    pub const fn unlimited() -> Self {
        Self::new(1 << 24, Duration::from_nanos(1)).burst(1 << 48)
    }

    /// Sets the burst: the most tokens that may pass at once, and that an idle bucket saves up. It replaces an earlier
    /// burst, and the capacity of a manual quota.
    #[must_use = "this returns the changed quota"]
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = Some(tokens);
        self
    }

    /// Starts with `tokens` tokens in the bucket instead of a full bucket; 0 starts empty. It replaces an earlier
    /// value.
    #[must_use = "this returns the changed quota"]
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Makes the tokens of a period arrive all at once at the end of the period.
    ///
    /// Periods count from the instant at which the limiter is built, and never drift.
    /// [`Limiter::set_quota`](crate::Limiter::set_quota) leaves them where they are if the period stays the same; its
    /// documentation says what happens otherwise.
    ///
    /// In any window, at most `burst + amount x (period ends inside the window)` tokens pass. A quota that is not
    /// continuous stays as it is.
    #[must_use = "this returns the changed quota"]
    pub const fn stepped(mut self) -> Self {
        if matches!(self.refill, Refill::Continuous) {
            self.refill = Refill::Stepped;
        }
        self
    }

    /// Makes the quota a sliding window: in **any** window of one period, at most the amount is granted, and all of it may
    /// be granted at once. Use it for a server that refuses more than the amount in a fixed window of which the client
    /// does not know where it begins. A quota that is manual or of a calendar stays as it is.
    ///
    /// Tokens come back one period after they were granted, or up to a 32nd of the period later if the amount is above
    /// 33: grants close to each other are counted together, so that memory is bounded. If the period is changed
    /// meanwhile, they come back up to three 32nds of the longest period later. There is no burst beside the amount, and
    /// a claim for more than the amount is refused as too large. [`initial`](Self::initial) tokens are there at the
    /// start; the rest counts as granted then.
    ///
    /// A refund frees its tokens at once, and nothing once they have come back anyway. In a
    /// [dry run](crate::Builder::dry_run) of this quota refunds free nothing, and beside a dry run of another one those of
    /// calls that would have waited.
    ///
    /// A key of a keyed limiter takes some 1.4 kB from its first grant until a while after its windows are empty. What it has
    /// left when it is saved, or when its quota becomes sliding, counts as granted when the key is used next.
    ///
    /// Classes, distributed limiters, parents of keyed limiters and the [`Bucket`](crate::Bucket) support no sliding
    /// quota, and return [`QuotaError::SlidingUnsupported`](crate::QuotaError::SlidingUnsupported).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_minute(3).sliding())?;
    /// drop(limiter.try_acquire(1)?);
    /// tokio::time::advance(Duration::from_secs(59)).await;
    /// drop(limiter.try_acquire(2)?);
    /// tokio::time::advance(Duration::from_secs(1)).await;
    /// assert_eq!(limiter.available(), 1, "the first token is back, the other two come at 119 s");
    /// # Ok(()) }
    /// ```
    #[must_use = "this returns the changed quota"]
    pub const fn sliding(mut self) -> Self {
        if matches!(self.refill, Refill::Continuous | Refill::Stepped) {
            self.refill = Refill::Sliding;
        }
        self
    }

    /// Returns the tokens per period; 0 for a manual quota.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the period; zero for a manual quota. Of a calendar quota, a month counts as 30 days and a year as 365.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Returns the most tokens that the bucket holds: the burst.
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) => burst,
            None => self.amount,
        }
    }

    /// Returns the number of tokens in the bucket at the start.
    pub const fn filled_at_start(&self) -> u64 {
        match self.initial {
            Some(initial) => initial,
            None => self.capacity(),
        }
    }

    /// Returns true if tokens arrive only at the ends of periods.
    pub const fn is_stepped(&self) -> bool {
        matches!(self.refill, Refill::Stepped | Refill::Calendar(_))
    }

    /// The calendar by which the periods begin, if there is one.
    pub(crate) const fn calendar(&self) -> Option<Calendar> {
        if let Refill::Calendar(calendar) = self.refill { Some(calendar) } else { None }
    }

    /// This quota with the periods of the calendar, if there is one.
    #[cfg(feature = "distributed")]
    pub(crate) fn of_calendar(self, calendar: Option<Calendar>) -> Self {
        calendar.map_or(self, |calendar| Self { burst: None, refill: Refill::Calendar(calendar), ..self })
    }

    /// Returns true if tokens arrive only by hand.
    pub const fn is_manual(&self) -> bool {
        matches!(self.refill, Refill::Manual)
    }

    /// Returns true if tokens come back one period after they were granted.
    pub const fn is_sliding(&self) -> bool {
        matches!(self.refill, Refill::Sliding)
    }

    /// Whether both quotas are the same, apart from how full a bucket starts.
    #[cfg(feature = "state")]
    pub(crate) fn is_same_limit(&self, other: &Self) -> bool {
        self.amount == other.amount
            && self.period == other.period
            && self.capacity() == other.capacity()
            && self.refill == other.refill
    }

    /// The burst, if it was set.
    pub(crate) const fn explicit_burst(&self) -> Option<u64> {
        self.burst
    }

    pub(crate) const fn refill(&self) -> Refill {
        self.refill
    }

    /// The period in nanoseconds, for a quota that was checked.
    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period.as_nanos() as u64
    }
}
