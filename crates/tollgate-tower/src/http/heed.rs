//! Makes a client's limiter follow what the server says, within bounds.

use super::advice::{Advice, is_refusal};
use super::backoff::Backoff;
use super::format::Format;
use super::heed_target::HeedTarget;
use super::items::QuotaPolicy;
use super::unit::Unit;
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{AsLimiter, Quota, Which};

/// The draft for `RateLimit` fields names this as an example of a window that is too long to be plausible.
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// The grants with which one response takes tokens: the next one takes the rest.
const MOST_GRANTS: u32 = 1_000;
/// The first pause after a refusal that names no time.
const FALLBACK: Duration = Duration::from_secs(1);

/// How a client's limiter follows responses: the stricter of the limiter and the server decides.
///
/// * If the server says to wait, the limiter pauses with [`Limiter::pause_for`](tollgate::Limiter::pause_for), for [at most](Self::at_most) ten
///   minutes. A response says so with `Retry-After` if its status is 400 or above. Any response says so if it reports a
///   quota that is used up, and the time of its reset.
/// * If a [refusal](Self::refusals) names no time, the limiter pauses for a second. While refusals go on, the pause
///   doubles up to a minute: see [`fallback`](Self::fallback).
/// * If the limiter has more tokens than the server says are left, it gives up the difference. (These tokens count as
///   granted.) A refusal by itself takes no tokens.
/// * Each quota for which [`follow`](Self::follow) was called runs at the server's rate, if that is slower.
///
/// A server that counts several resources, such as requests, input tokens and output tokens, needs a limiter for each, and
/// a `Heed` for each limiter: see [`unit`](Self::unit). A single limiter counts requests, and pauses if any of the
/// resources is used up.
///
/// Implausible values are ignored, and [counted](Self::ignored).
///
/// No response makes a quota run faster than the `fastest` of its [`follow`](Self::follow), and a quota that does not
/// follow never changes. No effect is permanent: a less strict response is followed too, and a pause ends by itself. By
/// default, responses can slow a client down to one token in ten minutes, and no further.
///
/// If a setting is made twice, the last call counts. Calls of [`follow`](Self::follow) add up.
#[derive(Clone, Debug)]
pub struct Heed {
    formats: Vec<Format>,
    /// `None`: requests, and a pause if any other unit is used up.
    unit: Option<Unit>,
    at_most: Duration,
    jitter: Duration,
    refusals: Refusals,
    /// The first pause after a refusal that names no time.
    fallback: Duration,
    backoff: Backoff,
    learns: bool,
    /// The quotas that follow the server, each with its fastest value.
    follows: Vec<(Follower, Quota)>,
    /// Clones count together.
    ignored: Arc<AtomicU64>,
}

/// A [`Which`] that owns its name.
#[derive(Clone, Debug, PartialEq)]
enum Follower {
    Index(usize),
    Name(Arc<str>),
}

/// Tells whether a response is a refusal.
type IsRefusal = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

#[derive(Clone)]
struct Refusals(Arc<IsRefusal>);

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refusals").finish_non_exhaustive()
    }
}

impl Default for Heed {
    fn default() -> Self {
        Self {
            formats: Format::ALL.to_vec(),
            unit: None,
            at_most: TEN_MINUTES,
            jitter: Duration::ZERO,
            refusals: Refusals(Arc::new(is_refusal)),
            fallback: FALLBACK,
            backoff: Backoff::default(),
            learns: false,
            follows: Vec::new(),
            ignored: Arc::default(),
        }
    }
}

impl Heed {
    /// Follows `Retry-After` and the first of these formats in which a response says anything about the
    /// [unit](Self::unit), by default about requests. The default is all formats.
    #[must_use = "this returns the changed settings"]
    pub fn formats(self, formats: impl IntoIterator<Item = Format>) -> Self {
        Self { formats: formats.into_iter().collect(), ..self }
    }

    /// Follows quotas that count this unit, and no others: for a client with a limiter for each unit.
    ///
    /// By default, the limiter follows quotas that count requests, and also pauses while any other quota is used up.
    ///
    /// # Examples
    ///
    /// A client of a language model, with a limiter for requests and one for tokens. Both start slowly, and run as fast
    /// as the server says.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_tower::http::Heed;
    /// let requests = Limiter::new(Quota::per_minute(60).burst(1))?;
    /// let tokens = Limiter::new(Quota::per_minute(1_000).burst(100))?;
    /// let heed = Heed::default().unit("requests").follow(0, Quota::per_minute(10_000).burst(5));
    /// let heed_tokens = Heed::default().unit("tokens").follow(0, Quota::per_minute(10_000_000).burst(20_000));
    ///
    /// let response = http::Response::builder()
    ///     .header("x-ratelimit-limit-requests", "5000")
    ///     .header("x-ratelimit-remaining-requests", "4999")
    ///     .header("x-ratelimit-reset-requests", "12ms")
    ///     .header("x-ratelimit-limit-tokens", "160000")
    ///     .header("x-ratelimit-remaining-tokens", "159976")
    ///     .header("x-ratelimit-reset-tokens", "9ms")
    ///     .body(())?;
    /// heed.heed(&requests, response.status(), response.headers());
    /// heed_tokens.heed(&tokens, response.status(), response.headers());
    /// assert_eq!(requests.snapshot().quotas[0].quota, Quota::per_minute(5_000).burst(5));
    /// assert_eq!(tokens.snapshot().quotas[0].quota, Quota::per_minute(160_000).burst(20_000));
    /// # Ok(()) }
    /// ```
    #[must_use = "this returns the changed settings"]
    pub fn unit(self, unit: impl Into<Unit>) -> Self {
        Self { unit: Some(unit.into()), ..self }
    }

    /// Pauses for no longer than this at a time, whatever the server says. The [jitter](Self::jitter) comes on top. The
    /// default is ten minutes.
    #[must_use = "this returns the changed settings"]
    pub fn at_most(self, pause: Duration) -> Self {
        Self { at_most: pause, ..self }
    }

    /// Lengthens each pause by a random time of up to `most`, so that clients refused together do not come back
    /// together.
    #[must_use = "this returns the changed settings"]
    pub fn jitter(self, most: Duration) -> Self {
        Self { jitter: most, ..self }
    }

    /// Sets the pause after a refusal that names no time. While refusals go on, each pause is twice as long as the one
    /// before, up to a minute, or up to `first` if that is longer. A response that is no refusal ends the series. Zero
    /// makes no pause. The default is a second.
    ///
    /// Refusals that arrive during such a pause, of requests that were sent before, do not lengthen it. Each limiter and
    /// each key has a series of its own, which clones share, and which tokio's clock measures.
    ///
    /// # Examples
    ///
    /// See [`refusals`](Self::refusals).
    #[must_use = "this returns the changed settings"]
    pub fn fallback(self, first: Duration) -> Self {
        Self { fallback: first, ..self }
    }

    /// Sets which responses are refusals, in place of the default: those with status 429 and 503.
    ///
    /// # Examples
    ///
    /// GitHub's secondary limit refuses with status 403, while units of the primary limit are left, and names no time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Quota};
    /// use tollgate_tower::http::Heed;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_hour(5_000)).clock(ManualClock::new()).build()?;
    /// let heed = Heed::default().fallback(Duration::from_secs(60)).refusals(|status, headers| {
    ///     matches!(status.as_u16(), 429 | 503) || status == 403 && headers.contains_key("x-ratelimit-limit")
    /// });
    /// let response = http::Response::builder()
    ///     .status(403)
    ///     .header("x-ratelimit-limit", "5000")
    ///     .header("x-ratelimit-remaining", "4290")
    ///     .body(())?;
    /// heed.heed(&limiter, response.status(), response.headers());
    /// assert_eq!(limiter.snapshot().paused_for, Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    #[must_use = "this returns the changed settings"]
    pub fn refusals(self, is_refusal: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        Self { refusals: Refusals(Arc::new(is_refusal)), ..self }
    }

    /// Lets the quotas that [`follow`](Self::follow) learn the rate of a server that sends no window: from its limit,
    /// what remains of it, and the reset. The default is not to.
    ///
    /// Such a server begins a new window at the reset. The quota takes the rate at which the remaining units last until
    /// then, written as the limit in a window, within the bounds of [`follow`](Self::follow). If the client uses its
    /// units evenly, this is the server's quota. [`Format::Draft11`], [`Format::OpenAi`], [`Format::Anthropic`] and limits
    /// with a window (`100;w=21600`) are followed anyway.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_tower::http::Heed;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fastest = Quota::per_second(50);
    /// let limiter = Limiter::new(fastest)?;
    /// let response = http::Response::builder()
    ///     .header("x-ratelimit-limit", "120")
    ///     .header("x-ratelimit-remaining", "100")
    ///     .header("x-ratelimit-reset-after", "50.000")
    ///     .body(())?;
    /// Heed::default().follow(0, fastest).learn().heed(&limiter, response.status(), response.headers());
    /// assert_eq!(limiter.snapshot().quotas[0].quota, Quota::per_minute(120).burst(50));
    /// # Ok(()) }
    /// ```
    #[must_use = "this returns the changed settings"]
    pub fn learn(self) -> Self {
        Self { learns: true, ..self }
    }

    /// Makes one quota of the limiter, by index or by name, follow the server. Several calls make several quotas follow. A
    /// second call for the same index or name replaces `fastest`.
    ///
    /// The quota takes the rate and the burst of the slowest policy that the server sends, but never more than those
    /// of `fastest`, and never less than one token in the longest [pause](Self::at_most). A limiter that has no such quota
    /// stays unchanged, and so does one for which `fastest` is [manual](Quota::manual).
    ///
    /// The burst is one token less than the server's. Requests take varying times on their way, so some arrive closer
    /// together than they were sent, and the server could count one too many. If the server's burst is one token, its
    /// window is lengthened by a tenth instead. A [sliding](Quota::sliding) quota stays sliding. One that is stepped or has a
    /// calendar is continuous for as long as the server allows less, because no server says when its windows begin.
    ///
    /// If a quota of [`Format::OpenAi`] or [`Format::Anthropic`] is used up, a limiter that follows pauses only until
    /// the server has one more unit, because the limiter refills as the server does. If the window of the quota is
    /// unknown, and without `follow`, the limiter pauses until the reset, when the whole limit is available again.
    #[must_use = "this returns the changed settings"]
    pub fn follow<'q>(mut self, which: impl Into<Which<'q>>, fastest: Quota) -> Self {
        let follower = match which.into() {
            Which::Index(index) => Follower::Index(index),
            Which::Name(name) => Follower::Name(name.into()),
        };
        self.follows.retain(|(other, _)| *other != follower);
        self.follows.push((follower, fastest));
        self
    }

    /// Adds the follow settings of `earlier` for quotas that have none here.
    pub(super) fn and_follow(mut self, earlier: Self) -> Self {
        let mut follows = earlier.follows;
        follows.retain(|(other, _)| self.follows.iter().all(|(own, _)| own != other));
        self.follows.append(&mut follows);
        self
    }

    /// Follows one response, and returns what it read: for clients without tower. If `limiter` is a class, its limiter
    /// follows.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_tower::http::Heed;
    /// use tollgate::{Limiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_second(10))?;
    /// let response = http::Response::builder().status(429).header("retry-after", "3").body(())?;
    /// Heed::default().heed(&limiter, response.status(), response.headers());
    /// let paused_for = limiter.snapshot().paused_for.unwrap();
    /// assert!(paused_for.as_secs_f64() > 2.9 && paused_for.as_secs() <= 3);
    /// # Ok(()) }
    /// ```
    pub fn heed(&self, limiter: &impl AsLimiter, status: StatusCode, headers: &HeaderMap) -> Advice {
        self.heed_target(limiter.limiter(), status, headers)
    }

    /// Follows one response with one key of a keyed limiter: for clients without tower, with a limit for each host.
    ///
    /// A key that follows a quota gets [quotas of its own](tollgate::KeyedLimiter::set_one_quota_for). So what the server
    /// said lasts however long no request is made, and the key stays in memory and counts toward
    /// [`max_keys`](tollgate::KeyedBuilder::max_keys). Once that many keys are in memory, quotas of new keys do not follow.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// use tollgate_tower::http::Heed;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fastest = Quota::per_second(10).burst(4);
    /// let hosts = KeyedLimiter::new(fastest)?;
    /// let response = http::Response::builder().header("ratelimit-policy", r#""a";q=60;w=60"#).body(())?;
    /// Heed::default().follow(0, fastest).heed_key(&hosts, &"a.example", response.status(), response.headers());
    /// assert_eq!(hosts.quotas(&"a.example").get(0), Some(Quota::per_minute(60).burst(4)));
    /// assert_eq!(hosts.quotas(&"b.example").get(0), Some(fastest));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "keyed")]
    pub fn heed_key<K, S>(
        &self,
        limiter: &tollgate::KeyedLimiter<K, S>,
        key: &K,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Advice
    where
        K: std::hash::Hash + Eq + Clone,
        S: BuildHasher,
    {
        self.heed_target(&super::HeedKey::new(limiter.clone(), key.clone()), status, headers)
    }

    pub(super) fn heed_target(&self, limiter: &impl HeedTarget, status: StatusCode, headers: &HeaderMap) -> Advice {
        let is_refusal = (self.refusals.0)(status, headers);
        let advice = Advice::read_head(is_refusal, status, headers, &self.formats, self.unit.as_ref());
        if let Some(policy) = advice.policy.as_ref().or(advice.spread.as_ref().filter(|_| self.learns)) {
            self.follows.iter().for_each(|(follower, fastest)| follow(limiter, follower, self.pace(policy, *fastest)));
        }
        if let Some(available) = advice.available {
            give_up(limiter, available);
        }
        self.ignored.fetch_add(advice.ignored, Ordering::Relaxed);
        let id = limiter.id(&self.backoff.hasher);
        let mut wait = self.wait(&advice);
        if !is_refusal {
            self.backoff.reset(id);
        } else if wait.is_none() {
            wait = Some(self.backoff.after_refusal(id, self.fallback, self.at_most));
        }
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            limiter.pause_for(wait.min(self.at_most).saturating_add(up_to(self.jitter)));
        }
        advice
    }

    /// Returns how many values of responses were ignored so far because they were malformed or implausible. Clones
    /// count together.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_tower::http::{Heed, HeedLayer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = tollgate::Limiter::new(tollgate::Quota::per_second(10))?;
    /// let heed = Heed::default();
    /// let layer = HeedLayer::new(&limiter).with(heed.clone());
    /// # let _ = layer;
    /// let response = http::Response::builder().status(429).header("retry-after", "soon").body(())?;
    /// heed.heed(&limiter, response.status(), response.headers());
    /// assert_eq!(heed.ignored(), 1);
    /// # Ok(()) }
    /// ```
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    fn wait(&self, advice: &Advice) -> Option<Duration> {
        advice.next_unit.filter(|_| !self.follows.is_empty()).or(advice.wait)
    }

    /// Returns the slower rate and the smaller burst of the two.
    fn pace(&self, policy: &QuotaPolicy, fastest: Quota) -> Quota {
        if fastest.is_manual() {
            return fastest;
        }
        let mut window = Duration::from_secs(policy.window.unwrap_or(u64::MAX));
        let burst = match policy.burst.unwrap_or(policy.quota) {
            ..=1 => {
                window = window.saturating_add(window / 10);
                1
            }
            burst => fastest.capacity().min(burst - 1),
        };
        let slowest = Quota::new(1, self.at_most.max(fastest.period()));
        let from_server =
            if is_slower(policy.quota, window, slowest) { slowest } else { Quota::new(policy.quota, window) };
        let paced = if is_slower(from_server.amount(), from_server.period(), fastest) {
            from_server.burst(burst)
        } else if burst < fastest.capacity() {
            Quota::new(fastest.amount(), fastest.period()).burst(burst)
        } else {
            return fastest;
        };
        if fastest.is_sliding() { slide(paced, fastest.period().as_nanos()) } else { paced }
    }
}

/// Returns a sliding quota that lets no more pass at once than `paced`, and in any `window` of so many nanoseconds no more
/// than the rate of `paced`: a bucket would let its burst pass on top of that.
fn slide(paced: Quota, window: u128) -> Quota {
    let (amount, period) = (u128::from(paced.amount()).max(1), paced.period().as_nanos().max(1));
    let in_window = amount.saturating_mul(window) / period;
    let at_once = in_window.clamp(1, u128::from(paced.capacity()).max(1));
    let nanos = if in_window == 0 { period.div_ceil(amount) } else { window.div_ceil(in_window / at_once) };
    Quota::new(at_once as u64, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))).sliding()
}

/// True if `amount` per `period` is less than the rate of `quota`.
fn is_slower(amount: u64, period: Duration, quota: Quota) -> bool {
    // The products stay below 2^128: an amount from a field has 50 bits, a period at most 94.
    let product = |amount: u64, period: Duration| u128::from(amount).saturating_mul(period.as_nanos());
    product(amount, quota.period()) < product(quota.amount(), period)
}

fn follow(limiter: &impl HeedTarget, follower: &Follower, pace: Quota) {
    let quotas = limiter.quotas();
    let found = match follower {
        Follower::Index(index) => quotas.get(*index),
        Follower::Name(name) => quotas.iter().find(|quota| quota.name.as_deref() == Some(name)),
    };
    // Do not reschedule waiters if nothing changes.
    if found.is_none_or(|found| found.quota == pace) {
        return;
    }
    let which = match follower {
        Follower::Index(index) => Which::Index(*index),
        Follower::Name(name) => Which::Name(name),
    };
    // The server's policy may be invalid as a quota; then the limiter stays unchanged.
    limiter.set_quota(which, pace);
}

/// Gives up tokens so that no more than `available` are left, in as many grants as the limiter's largest cost makes it.
fn give_up(limiter: &impl HeedTarget, available: u64) {
    let quotas = limiter.quotas();
    let mut surplus = quotas.iter().map(|quota| quota.available).min().unwrap_or(0).saturating_sub(available);
    for _ in 0..MOST_GRANTS {
        let charged = if surplus > 0 { limiter.charge(surplus) } else { 0 };
        if charged == 0 {
            break;
        }
        surplus = surplus.saturating_sub(charged);
    }
}

fn up_to(most: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    // For the longest durations the float rounds up beyond `Duration::MAX`.
    Duration::try_from_secs_f64(most.as_secs_f64() * random).map_or(most, |wait| wait.min(most))
}
