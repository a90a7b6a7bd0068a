//! When the requests of a history are sent.

use super::Part;
use fastrand::Rng;
use std::time::Duration;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, SharedBucket};

/// A day in microseconds.
pub(crate) const DAY: i64 = 86_400_000_000;

/// The lengths of slots that are tried, in microseconds: on a busy machine longer ones.
pub(crate) const SLOTS: [i64; 3] = [200_000, 800_000, 1_600_000];

/// Within this time, in microseconds, a store need not look for leases that have ended. Each step is longer.
const SWEEP: i64 = 250_000;

/// By the store's own clock: for how many quarters of a slot a node is remembered.
const LEASES: [i64; 2] = [9, 25];

/// How far ahead a store promises tokens to a node next to it, in microseconds.
const HORIZON: i64 = 250_000;

/// The clock of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Each request has the instant that the test chooses.
    Chosen,
    /// The store's own, which the test cannot read. All quotas mint one token per slot, or none, and requests are sent in
    /// the middle between two tokens. So an answer is known exactly, if it comes in time.
    Own {
        /// The length of a slot, in microseconds.
        slot: i64,
    },
}

impl Clock {
    pub(crate) fn part(self) -> Part {
        match self {
            Self::Chosen => Part::TimedHistory,
            Self::Own { .. } => Part::History,
        }
    }

    /// How many requests a history has.
    pub(crate) fn requests(self) -> u32 {
        match self {
            Self::Chosen => 150,
            Self::Own { .. } => 80,
        }
    }

    /// How much later than expected an answer may be given, in microseconds.
    pub(crate) fn slack(self) -> i64 {
        match self {
            Self::Chosen => 0,
            Self::Own { slot } => slot / 8,
        }
    }

    pub(crate) fn quotas(self) -> Vec<QuotaTerms> {
        let day = Duration::from_micros(DAY as u64);
        let quotas = match self {
            Self::Chosen => vec![
                Quota::per_second(10),
                Quota::per_second(10_000).burst(1),
                Quota::per_second(1_000_003).burst(77_777),
                Quota::new(3, Duration::from_nanos(7)).burst(1 << 40),
                Quota::new(99_991, day).burst(500).initial(100),
                Quota::new(1, 10_000 * day).burst(3),
                Quota::per_minute(60).stepped(),
                Quota::new(5, Duration::from_millis(3)).burst(12).stepped(),
                Quota::new(1 << 40, Duration::from_millis(10)).burst(1 << 50),
            ],
            Self::Own { slot } => {
                let one = Quota::new(1, Duration::from_micros(slot as u64));
                vec![
                    one.burst(10),
                    one.burst(100),
                    one.burst(7),
                    one.burst(1),
                    one.burst(1 << 30),
                    Quota::new(1, day).burst(20),
                ]
            }
        };
        let terms = quotas.iter().map(|quota| QuotaTerms::of(quota).expect("the quotas of this crate are valid"));
        // Of two calendars; the period is chosen with the instant.
        let calendars = match self {
            Self::Chosen => &[[40, 700_000, 5], [7, 900_000_000, 6], [12, 900_000_000, 6]][..],
            Self::Own { .. } => &[],
        };
        let of_calendar = calendars.iter().map(|[amount, period, kind]| {
            let numbers = [*amount, *period, *amount, *amount - *kind, *kind, 0, 0, 1];
            QuotaTerms::from_numbers(&numbers).expect("the calendars of this crate are valid")
        });
        terms.chain(of_calendar).collect()
    }

    /// Lets a request for a calendar quota say a period: mostly the one that `now` is in. They are of two lengths in turn.
    pub(crate) fn choose_period(terms: QuotaTerms, now: i64, random: &mut Rng) -> QuotaTerms {
        let mut numbers = terms.numbers();
        let [_, _, _, _, _, _, begins, ends] = &mut numbers[..] else { return terms };
        let period = terms.period() * 5 / 2;
        let (pair, is_second) = (now as u64 / period * period, now as u64 % period >= terms.period());
        (*begins, *ends) = match (random.u32(..12), is_second) {
            (0, _) => (0, 0),
            (1, _) => (pair - period, pair),
            (2, _) | (_, true) => (pair + terms.period(), pair + period),
            _ => (pair, pair + terms.period()),
        };
        QuotaTerms::from_numbers(&numbers).expect("only the period was chosen")
    }

    /// For how long a node is remembered.
    pub(crate) fn ttl(self, random: &mut Rng) -> u64 {
        match (self, random.u32(..40)) {
            (Self::Chosen, 0) => u64::MAX >> 1,
            (Self::Chosen, 1..20) => random.u64(1..=5_000_000) >> random.u32(..8),
            (Self::Chosen, _) => 2_000_000,
            // No lease ends when a token comes, whether it began between two tokens or when one came.
            (Self::Own { slot }, 0..20) => (LEASES[0] * slot / 4) as u64,
            (Self::Own { slot }, _) => (LEASES[1] * slot / 4) as u64,
        }
    }

    /// How long the claims of a node have waited, how long they still wait, and the round trip. By the store's own clock no
    /// two nodes began to wait at nearly the same instant, and no bound lies between two tokens.
    pub(crate) fn times(self, random: &mut Rng, node: usize) -> [u64; 3] {
        match self {
            Self::Chosen => {
                let mut some = |most: u64| random.u64(..most) >> random.u32(..20);
                [some(1 << 33), some(1 << 26), some(1 << 21)]
            }
            Self::Own { slot } => {
                let age = random.u64(1..20) * 9_600_000 + 33_000 * node as u64;
                [age, if random.bool() { 0 } else { 1 << 40 }, round_trip(slot) as u64]
            }
        }
    }

    /// Returns the instant of the next request to the model.
    pub(crate) fn next(self, random: &mut Rng, now: i64, model: Option<&SharedBucket>) -> i64 {
        match (self, model) {
            (Self::Own { slot }, Some(model)) => {
                if random.u32(..8) > 0 {
                    return now;
                }
                let slots = if random.u32(..8) == 0 { 8 } else { random.i64(0..2) };
                self.between_tokens(model, now + SWEEP.max(slots * slot), slot)
            }
            _ => {
                now + match random.u32(..30) {
                    0 => -random.i64(0..3_000_000),
                    1 => random.i64(0..20_000_000_000),
                    2..6 => 0,
                    6..14 => random.i64(0..3_000_000) >> random.u32(..8),
                    _ => random.i64(0..3_000),
                }
            }
        }
    }

    /// The first instant from `at` on that is in the middle between two tokens, and at which nothing ends.
    fn between_tokens(self, model: &SharedBucket, mut at: i64, slot: i64) -> i64 {
        let record = String::from_utf8_lossy(&model.to_bytes()).into_owned();
        let numbers: Vec<i64> = record.split([' ', '\n']).filter_map(|word| word.parse().ok()).collect();
        // Something may end at any instant of the record, or at the next time when the store looks for it.
        let is_near = |at: i64, instant: i64| {
            [0, round_trip(slot) * 5 / 4, slot / 2, 3 * slot / 2]
                .iter()
                .any(|looks| (instant + looks - at).abs() <= 2 * self.slack())
        };
        // A lease that ends while the bucket is full moves the tokens after it, if the store looks for ended leases.
        let is_between = |at: i64, ttl: i64| {
            let [level, progress] = level_at(model, at, ttl);
            let is_full = progress == 0 && level_at(model, at - slot / 4, ttl) == [level, 0];
            is_full || (7 * slot / 16 + 1..=slot / 2).contains(&(progress % slot))
        };
        while numbers.iter().any(|number| is_near(at, *number))
            || ![1, LEASES[1] * slot / 4].iter().all(|ttl| is_between(at, *ttl))
        {
            at += slot / 16;
        }
        at
    }
}

/// The level of the model at an instant, and the progress towards the next token, after a request with this time to live.
fn level_at(model: &SharedBucket, at: i64, ttl: i64) -> [i64; 2] {
    let mut model = model.clone();
    let record = model.to_bytes();
    let terms = String::from_utf8_lossy(&record).lines().nth(1).and_then(QuotaTerms::from_text);
    let mut look = LeaseRequest::new(97, 1, terms.expect("a record has a quota"));
    (look.ttl, look.leave) = (ttl as u64, true);
    model.answer(&look, at).expect("the model answers a request with its own quota");
    // The third line of a record has the level, the instant of the last request, and the progress then.
    let record = String::from_utf8_lossy(&model.to_bytes()).into_owned();
    let bucket = record.lines().nth(2).unwrap_or_default();
    let numbers: Vec<i64> = bucket.split(' ').filter_map(|word| word.parse().ok()).collect();
    [numbers[0], numbers[2]]
}

/// A round trip whose horizon ends between two tokens, whether a lease ended a quarter of a slot before, or half of one. A place
/// lasts for 1.25 of it after its node was expected.
fn round_trip(slot: i64) -> i64 {
    let odd = (1..).step_by(2).find(|eighths| eighths * slot / 8 > HORIZON).expect("some horizon is long enough");
    odd * slot / 20
}
