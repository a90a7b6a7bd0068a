//! The last hour: a ring of sixty minutes for each rule that was asked for.

use crate::bucket::Reason;
use crate::meter::{Meter, read};
use crate::service::Service;
use std::collections::HashMap;
use std::sync::Arc;

/// The minutes that are kept.
pub const MINUTES: usize = 60;
/// The most rules with a history: those that were asked for first. Each takes 6 KiB.
pub const MOST_RULES: usize = 1_000;

/// What was counted: since the start, or in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were granted; of the whole service, requests that passed.
    pub granted: u64,
    /// Tokens above the limit that a rule in shadow mode let pass; of the whole service, requests.
    pub shadow: u64,
    /// Requests that were granted after a wait.
    pub waits: u64,
    /// How long they waited, in nanoseconds.
    pub waited: u64,
    /// Of the whole service, descriptors for which the store was away.
    pub store_away: u64,
    /// Refused requests by reason.
    pub refused: [u64; Reason::ALL.len()],
}

impl Counts {
    fn of(meter: &Meter) -> Self {
        Self {
            granted: read(&meter.within_limit),
            shadow: read(&meter.shadow_mode),
            waits: read(&meter.waits),
            waited: read(&meter.waited),
            refused: std::array::from_fn(|reason| read(&meter.refused[reason])),
            store_away: 0,
        }
    }

    fn of_all(service: &Service) -> Self {
        let totals = &service.totals;
        let refused: [u64; Reason::ALL.len()] = std::array::from_fn(|reason| read(&totals.refused[reason]));
        let granted = read(&totals.requests).saturating_sub(refused.iter().sum());
        let (shadow, store_away) = (read(&totals.shadowed), read(&totals.store_away));
        Self { granted, shadow, store_away, refused, ..Self::default() }
    }

    fn map(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            granted: each(self.granted, other.granted),
            shadow: each(self.shadow, other.shadow),
            waits: each(self.waits, other.waits),
            waited: each(self.waited, other.waited),
            store_away: each(self.store_away, other.store_away),
            refused: std::array::from_fn(|reason| each(self.refused[reason], other.refused[reason])),
        }
    }

    /// Returns the refused requests for all reasons.
    pub fn refusals(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// One line of the history.
#[derive(Debug)]
pub struct Row {
    /// The counters at the last look.
    last: Counts,
    /// The present minute is the last.
    pub minutes: Box<[Counts; MINUTES]>,
}

impl Default for Row {
    fn default() -> Self {
        Self { last: Counts::default(), minutes: Box::new([Counts::default(); MINUTES]) }
    }
}

impl Row {
    fn turn(&mut self, passed: usize) {
        self.minutes.rotate_left(passed % MINUTES);
        self.minutes[MINUTES - passed..].fill(Counts::default());
    }

    /// Takes what was counted since the last look into the present minute.
    fn look(&mut self, counts: Counts) {
        // Counters are read one after the other, so a difference of two of them may go back for a moment.
        let more = counts.map(self.last, u64::saturating_sub);
        self.minutes[MINUTES - 1] = self.minutes[MINUTES - 1].map(more, u64::wrapping_add);
        self.last = counts;
    }

    /// Returns what the last `n` minutes counted together.
    pub fn sum(&self, n: usize) -> Counts {
        self.minutes.iter().rev().take(n).fold(Counts::default(), |sum, minute| sum.map(*minute, u64::wrapping_add))
    }
}

/// The history of all rules, and of the service.
#[derive(Debug, Default)]
pub struct History {
    /// The present minute since 1970.
    pub minute: u64,
    /// All requests.
    pub total: Row,
    /// The rules, by the address of their meters. No meter is ever dropped.
    rows: HashMap<usize, Row>,
    /// How many rules have no history because there are too many.
    pub left_out: usize,
}

impl History {
    /// Takes over what the counters of a service say now.
    pub fn look(&mut self, service: &Service) {
        let minute = service.maker.now().as_secs() / 60;
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64) as usize;
        self.rows.values_mut().chain([&mut self.total]).for_each(|row| row.turn(passed));
        self.minute = minute;
        self.total.look(Counts::of_all(service));
        let mut sums: HashMap<usize, Counts> = HashMap::new();
        service.meters.each(|meter| {
            let sum = sums.entry(address(meter.within.as_ref().unwrap_or(meter))).or_default();
            *sum = sum.map(Counts::of(meter), u64::wrapping_add);
        });
        self.left_out = 0;
        for (meter, counts) in sums.into_iter().filter(|(_, counts)| *counts != Counts::default()) {
            if self.rows.len() < MOST_RULES || self.rows.contains_key(&meter) {
                self.rows.entry(meter).or_default().look(counts);
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Returns the line of the rule that counts under this meter, if it was asked for.
    pub fn row(&self, meter: &Arc<Meter>) -> Option<&Row> {
        self.rows.get(&address(meter))
    }
}

fn address(meter: &Arc<Meter>) -> usize {
    Arc::as_ptr(meter) as usize
}
