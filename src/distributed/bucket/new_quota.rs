//! A newer quota replaces that of a bucket.

use super::SharedBucket;
use crate::distributed::QuotaTerms;
use crate::distributed::terms::MAX_DEBT;

/// Integers up to here are exact in doubles.
const EXACT: f64 = (1_u64 << 53) as f64;

/// One part in so many is more than a few roundings of doubles.
const MARGIN: f64 = (1_u64 << 50) as f64;

impl SharedBucket {
    /// Replaces the quota by a newer one. Tokens stay, as far as the new burst allows. Promised instants stay too: the debt
    /// becomes as many tokens as the new quota mints in the time in which the old one would have minted the debt. So the
    /// first new promise comes after the last old one.
    ///
    /// Returns false, and keeps the old quota, if the new debt could not be counted exactly. The arithmetic is that of the
    /// script, in doubles.
    pub(super) fn take_over(&mut self, new: QuotaTerms, now: i64) -> bool {
        let old = self.terms;
        if !new.is_same_rate(&old) {
            if self.level < 0 {
                let debt = (-self.level) as f64;
                let rest = if old.kind > 0 {
                    (debt / old.amount as f64).ceil() * old.period as f64 - (now % old.period as i64) as f64
                } else {
                    rounded_up(debt * old.period as f64 - self.part as f64, old.amount as f64)
                };
                let (amount, period) = (new.amount as f64, new.period as f64);
                let (owed, part) = if new.is_calendar() {
                    // What was promised comes, and nothing is promised after it.
                    (0.0, 0.0)
                } else if new.kind > 0 {
                    (((rest + (now % new.period as i64) as f64) / period).floor() * amount, 0.0)
                } else {
                    let owed = rounded_up(rest * amount, period);
                    // The part of a token by which the debt was rounded up, if that is exact.
                    (owed, if owed * period > EXACT { 0.0 } else { owed * period - rest * amount })
                };
                if owed > MAX_DEBT as f64 {
                    return false;
                }
                (self.level, self.part) = (-(owed as i64), part as i64);
                self.withdraw_numbers();
                self.last += owed as i64;
            } else if old.kind > 0 || new.kind > 0 {
                self.part = 0;
            } else {
                // Two parts less than the doubles say, in case they were rounded up.
                let part = self.part as f64 * (new.period as f64 / old.period as f64);
                self.part = (part.floor() as i64 - 2).max(0);
            }
            // A promise that is repeated would be read by the new rate.
            self.nodes.values_mut().for_each(|node| node.promised = 0);
        }
        // A period that has begun does not begin again.
        let (begins, ends) = if new.kind == old.kind { (old.begins, old.ends) } else { (new.begins, new.ends) };
        self.terms = new.kept(begins, ends);
        self.cut(self.held);
        true
    }

    /// No token that was promised until now is promised anew.
    pub(super) fn withdraw_numbers(&mut self) {
        self.void = self.last;
        self.returned.clear();
    }
}

/// `dividend / divisor`, rounded up, and by a little more if the doubles may have been rounded down.
fn rounded_up(dividend: f64, divisor: f64) -> f64 {
    let quotient = dividend / divisor;
    if dividend > EXACT { (quotient * (1.0 + 1.0 / MARGIN)).ceil() } else { quotient.ceil() }
}
