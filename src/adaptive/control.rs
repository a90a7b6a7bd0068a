//! The control law: which rate follows from which answers. Pure arithmetic, without a clock and without a limiter.
//!
//! Time is counted in tokens: an answer to a request that waited in the queue stands for `cost / rate` seconds of a
//! limiter that was the bottleneck. So a client that does not use its rate gains nothing, and a test needs no clock.
//!
//! A *generation* is the time between two decreases. Each request remembers the generation and the rate at which it
//! was sent. The latest decrease was already the reaction to refusals of requests of earlier generations.
//!
//! Within a generation the rate first holds and then grows, slowly at first and twice as fast after each
//! [`DOUBLING`]. This is the shape of CUBIC (RFC 9438): a plateau near the rate that was refused last, then an ever
//! faster search. The growth begins with the same amount for all rates below [`SLOW`] and grows less than in proportion
//! above it; the decrease is proportional to the rate. Clients that share a limit therefore converge to equal rates
//! (Chiu and Jain 1989, AIMD).
//!
//! The constants were chosen by simulation; `benches/adaptive` shows what they achieve.

use std::f64::consts::LN_2;

/// By how many requests per second the rate grows in each second, at the beginning of the growth.
const INCREASE: f64 = 0.2;
/// Above so many requests per second the growth begins faster, with this power of the rate: less than in proportion, so
/// that clients that share a limit still converge.
const SLOW: f64 = 100.0;
const SCALING: f64 = 0.5;
/// The growth is twice as fast after so many seconds.
const DOUBLING: f64 = 0.45;
/// Added to [`DOUBLING`]: the time of so many requests, because a slow client gets few answers.
const DOUBLING_REQUESTS: f64 = 0.5;
/// The rate is at most this factor above a rate at which a request was accepted: it does not grow without answers.
const MAX_JUMP: f64 = 1.5;
/// A refusal lowers the rate by at least this share. Above [`SLOW`] the share grows like the increase, up to
/// [`LARGEST_MARGIN`], so that the faster of several clients lose more than the slower ones.
const MARGIN: f64 = 0.02;
const LARGEST_MARGIN: f64 = 0.2;
/// A refusal lowers a rate that had not grown by at least this share: another client or a new limit is the cause, and
/// after a smaller decrease the next refusal would follow soon.
const FALL: f64 = 0.15;
/// One decrease leaves at least this share of the rate.
const DEEPEST: f64 = 0.5;
/// A hold lasts for so many requests, within [`SHORTEST_HOLD`] and the settle time.
const HOLD_REQUESTS: f64 = 140.0;
const SHORTEST_HOLD: f64 = 0.6;
/// The longest hold, in seconds.
const SETTLE: f64 = 8.5;
/// How many answers count as recent, and the bounds of the time that they cover, in seconds.
const RECENT_REQUESTS: f64 = 6.0;
const RECENT: (f64, f64) = (0.005, 0.1);
/// Where between the proven and the highest accepted rate the limit is assumed at first: 0 to 1.
const TRUST: f64 = 0.9;
/// Fewer accepted requests than this say nothing about the limit.
const FEW_REQUESTS: f64 = 4.0;
/// After so many decreases with fewer accepted requests than this between them, the requests of several clients may be in
/// step. A limit that fell to half is found after fewer.
const IN_STEP: u32 = 3;
/// tokio's timer grants up to so many seconds late.
const LATE: f64 = 0.002;
/// A guess was right if so many requests were accepted, for so many seconds.
const GUESS_REQUESTS: f64 = 20.0;
const GUESS_SECONDS: f64 = 0.5;
/// The rate changes in steps of this share, because each change makes the limiter compute all its waiters anew.
const STEP: f64 = 1.0 / 256.0;

/// The settings, in tokens and seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    /// By how many tokens per second the rate grows in each second, at the beginning of the growth; `None`: [`INCREASE`],
    /// which counts requests.
    pub(super) increase: Option<f64>,
    /// One decrease leaves at least this share of the rate.
    pub(super) decrease: f64,
    /// The longest hold.
    pub(super) settle: f64,
}

impl Law {
    pub(super) fn new(slowest: f64, fastest: f64) -> Self {
        // Rounding can make the smaller of two rates the larger one.
        let fastest = fastest.max(slowest);
        Self { slowest, fastest, increase: None, decrease: DEEPEST, settle: SETTLE }
    }
}

/// The state of the control law at the instant at which a request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    generation: u64,
    rate: f64,
    /// True if the limiter was the bottleneck: the request waited.
    limited: bool,
}

/// Why the rate fell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fall {
    /// A rate that had grown was refused: the limit is near the rate before.
    WhileGrowing,
    /// A rate that had not grown was refused: the limit is lower than it was.
    WhileHolding,
}

/// The rate has fallen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decrease {
    pub(super) fall: Fall,
    /// Hardly a request was accepted between the latest decreases. The requests may arrive in step with those of other
    /// clients, which a lower rate does not change.
    pub(super) is_in_step: bool,
}

/// The rate, and the evidence from the answers so far.
#[derive(Debug)]
pub(super) struct Control {
    law: Law,
    rate: f64,
    /// The exact rate, in tokens per second; `rate` follows it in steps of [`STEP`].
    target: f64,
    generation: u64,
    /// The rate at which this generation began.
    base: f64,
    /// Present if `base` is a guess.
    guess: Option<Guess>,
    /// For how many seconds the limiter was the bottleneck in this generation.
    elapsed: f64,
    /// The value of `elapsed`, in seconds, up to which the rate is held.
    hold: f64,
    /// By how much the rate would have grown without [`MAX_JUMP`], plus the amount at which the growth began. `None`
    /// until the growth begins.
    growth: Option<f64>,
    /// Tokens accepted while `elapsed` was counted.
    accepted: f64,
    /// The rate of the latest request of this generation that was accepted.
    reached: f64,
    /// How many of the latest decreases came after fewer than [`FEW_REQUESTS`] accepted requests.
    refused_again: u32,
    late: Late,
    recent: Recent,
    /// How much of the growth is kept when a grown rate is refused, from 0 to 1; see [`TRUST`].
    trust: f64,
}

/// The rates between which the limit was assumed when a rate that had grown was refused.
#[derive(Clone, Copy, Debug)]
struct Guess {
    /// The highest rate that was accepted for long.
    proven: f64,
    /// The highest rate that was accepted.
    highest: f64,
}

/// Requests that were granted at the rate before the latest decrease, but are only sent now, because timers are late.
#[derive(Debug, Default)]
struct Late {
    tokens: f64,
    rate: f64,
}

/// The tokens accepted recently, and the seconds in which the schedule granted these tokens and the refused ones. Both
/// numbers decay.
#[derive(Debug, Default)]
struct Recent {
    accepted: f64,
    seconds: f64,
}

impl Recent {
    fn add(&mut self, accepted: bool, cost: f64, rate: f64) {
        let seconds = cost / rate;
        let memory = (RECENT_REQUESTS * seconds).clamp(RECENT.0, RECENT.1);
        let decay = (-seconds / memory).exp();
        self.accepted = self.accepted * decay + if accepted { cost } else { 0.0 };
        self.seconds = self.seconds * decay + seconds;
    }
}

/// The rate at which `accepted` tokens were let through in `seconds`. Half a request more on both sides keeps a
/// single refusal from looking like a limit of zero.
fn delivered(accepted: f64, seconds: f64, cost: f64, rate: f64) -> f64 {
    (accepted + cost / 2.0) / (seconds + cost / 2.0 / rate)
}

impl Control {
    pub(super) fn new(law: Law, start: f64) -> Self {
        let start = start.clamp(law.slowest, law.fastest);
        Self {
            law,
            rate: start,
            target: start,
            generation: 0,
            base: start,
            guess: None,
            elapsed: 0.0,
            hold: 0.0,
            growth: None,
            accepted: 0.0,
            reached: 0.0,
            refused_again: 0,
            late: Late::default(),
            recent: Recent::default(),
            trust: TRUST,
        }
    }

    /// Tokens per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn is_holding(&self) -> bool {
        self.elapsed < self.hold
    }

    /// Stamps a request of `cost` tokens that is about to be sent.
    pub(super) fn stamp(&mut self, limited: bool, cost: f64) -> Stamp {
        if cost > 0.0 && self.late.tokens >= cost {
            self.late.tokens -= cost;
            return Stamp { generation: self.generation - 1, rate: self.late.rate, limited };
        }
        Stamp { generation: self.generation, rate: self.rate, limited }
    }

    /// A request of `cost` tokens was accepted. Returns true if the rate has grown.
    pub(super) fn accepted(&mut self, stamp: Stamp, cost: f64) -> bool {
        if cost <= 0.0 {
            return false;
        }
        self.recent.add(true, cost, stamp.rate);
        if stamp.generation != self.generation || !stamp.limited {
            return false;
        }
        let seconds = cost / stamp.rate;
        self.accepted += cost;
        self.reached = stamp.rate;
        self.elapsed += seconds;
        if self.elapsed <= self.hold {
            return false;
        }
        self.grow(stamp, cost, seconds);
        let has_stepped = self.target >= self.rate * (1.0 + STEP) || self.target >= self.law.fastest;
        if has_stepped && self.target > self.rate {
            self.rate = self.target;
            return true;
        }
        false
    }

    fn grow(&mut self, stamp: Stamp, cost: f64, seconds: f64) {
        // Nothing is known of the limit in the first generation: search fast.
        let waiting_for_answers = if self.generation == 0 { 0.0 } else { DOUBLING_REQUESTS * seconds };
        let doubling = DOUBLING + waiting_for_answers;
        let increase = self.law.increase.unwrap_or_else(|| {
            let requests = self.base / cost;
            INCREASE * cost * (requests / SLOW).max(1.0).powf(SCALING)
        });
        // Its derivative at the beginning is `increase`.
        let before = self.growth.unwrap_or(increase * doubling / LN_2);
        // The bound applies to each step and not to `growth`: if `growth` stopped at a bound, all later steps would be 0.
        let step = (before * (LN_2 * seconds / doubling).exp_m1()).min(self.law.fastest);
        self.growth = Some(before + step);
        let most = (stamp.rate * MAX_JUMP).min(self.law.fastest);
        self.target = (self.target + step).min(most).max(self.target);
    }

    /// A request of `cost` tokens was refused. Returns why the rate has fallen, or `None` if it has fallen for this
    /// event already.
    pub(super) fn refused(&mut self, stamp: Stamp, cost: f64) -> Option<Decrease> {
        let cost = cost.max(1.0);
        self.recent.add(false, cost, stamp.rate);
        if stamp.generation != self.generation {
            return None;
        }
        let is_again = self.generation > 0 && self.accepted < FEW_REQUESTS * cost;
        self.refused_again = if is_again { self.refused_again.saturating_add(1) } else { 0 };
        // Requests at intervals below the timer's resolution arrive together anyway.
        let is_in_step = self.refused_again >= IN_STEP && cost / stamp.rate > LATE;
        let has_grown = stamp.rate > self.base * (1.0 + STEP / 2.0) && self.accepted >= FEW_REQUESTS * cost;
        let (rate, fall) = if has_grown { self.after_growth(stamp, cost) } else { self.after_hold(stamp, cost) };
        let share = (MARGIN * (stamp.rate / cost / SLOW).max(1.0).powf(SCALING)).min(LARGEST_MARGIN);
        let rate = rate.min(stamp.rate * (1.0 - share)).max(stamp.rate * self.law.decrease);
        self.begin(rate.clamp(self.law.slowest, self.law.fastest), cost, fall);
        Some(Decrease { fall, is_in_step })
    }

    /// The rate after a refusal of a rate that had grown. The limit is between the rate that this generation delivered
    /// and the refused one. A server that tolerates no burst refuses at once, so the limit is near the refused rate;
    /// one that tolerates a burst refuses late. Whether the guess is refused shows which kind of server it is.
    fn after_growth(&mut self, stamp: Stamp, cost: f64) -> (f64, Fall) {
        let seconds = self.elapsed + cost / stamp.rate;
        let proven = if self.generation == 0 {
            delivered(self.recent.accepted, self.recent.seconds, cost, stamp.rate)
        } else {
            let average = delivered(self.accepted, seconds, cost, stamp.rate);
            (self.base * (1.0 - MARGIN / 2.0)).max(average * (1.0 - MARGIN))
        };
        let highest = self.reached.min(stamp.rate * (1.0 - MARGIN)).max(proven);
        self.guess = Some(Guess { proven, highest });
        let guess = proven + (highest - proven) * self.trust;
        self.trust = (self.trust * 1.2).min(TRUST);
        (guess, Fall::WhileGrowing)
    }

    /// The rate after a refusal of a rate that had not grown: the proven rate, if the refused one was a guess; else
    /// the rate that was delivered lately.
    fn after_hold(&mut self, stamp: Stamp, cost: f64) -> (f64, Fall) {
        let lately = delivered(self.recent.accepted, self.recent.seconds, cost, stamp.rate);
        let is_young = self.accepted < GUESS_REQUESTS * cost || self.elapsed < GUESS_SECONDS;
        let is_wrong = |guess: &mut Guess| is_young && guess.proven < stamp.rate * (1.0 - MARGIN / 2.0);
        if let Some(Guess { proven, highest }) = self.guess.take_if(is_wrong) {
            let average = (self.accepted + cost / 2.0) / (self.elapsed + cost / stamp.rate);
            let measured = ((average - proven).max(0.0) / (highest - proven)).min(self.trust);
            self.trust = ((self.trust + measured) / 2.0).max(MARGIN);
            return (proven.max(lately).max(average * (1.0 - MARGIN)), Fall::WhileGrowing);
        }
        (lately.min(stamp.rate * (1.0 - FALL)), Fall::WhileHolding)
    }

    /// Begins a generation. The rate holds if it is known to be near the limit. Else it grows soon, because the
    /// limit may be anywhere between it and the refused rate.
    fn begin(&mut self, rate: f64, cost: f64, fall: Fall) {
        self.hold = match fall {
            Fall::WhileGrowing => {
                let longest = self.law.settle;
                (HOLD_REQUESTS * cost / rate).clamp(SHORTEST_HOLD.min(longest), longest)
            }
            Fall::WhileHolding => FEW_REQUESTS * cost / rate,
        };
        if fall == Fall::WhileHolding {
            self.guess = None;
        }
        self.late = Late { tokens: self.rate * LATE, rate: self.rate };
        (self.rate, self.target, self.base, self.reached) = (rate, rate, rate, 0.0);
        (self.elapsed, self.accepted, self.growth) = (0.0, 0.0, None);
        self.generation += 1;
    }
}
