//! The shared bucket: the algorithm of `store.lua` of the crate `tollgate-redis`, in Rust, equal to the integer.

use super::terms::{LONGEST, MAX_DEBT};
use super::{LeaseGrant, LeaseRequest, QuotaTerms, StoreError};
use std::collections::HashMap;

/// The length of an epoch, in microseconds: nodes with waiters are counted per epoch.
const EPOCH: i64 = 250_000;

/// How long a full bucket is remembered if a new one would not begin full, in microseconds.
const IDLE: i64 = 3_600_000_000;

/// Integers up to here are exact in doubles.
const EXACT: f64 = (1_u64 << 53) as f64;
/// One part in so many is more than a few roundings of doubles.
const MARGIN: f64 = (1_u64 << 50) as f64;

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    terms: QuotaTerms,
    level: i64,
    stamp: i64,
    part: i64,
    swept: i64,
    epoch: i64,
    busy: i64,
    was: i64,
    /// The total time for which the bucket has minted, in microseconds. It does not step back with the server's clock.
    clock: i64,
    held: i64,
    nodes: HashMap<u128, Node>,
    /// The instant from which the bucket may be forgotten.
    ends: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    number: u64,
    allowance: i64,
    until: i64,
    epoch: i64,
    once: i64,
    later: i64,
    behind: i64,
    part: i64,
    at: i64,
}

impl Bucket {
    pub(super) fn new(terms: QuotaTerms, now: i64) -> Self {
        Self {
            terms,
            level: terms.initial as i64,
            stamp: now,
            part: 0,
            swept: now,
            epoch: 0,
            busy: 0,
            was: 0,
            clock: 0,
            held: 0,
            nodes: HashMap::new(),
            ends: i64::MAX,
        }
    }

    pub(super) fn answer(&mut self, ask: &LeaseRequest, now: i64) -> Result<LeaseGrant, StoreError> {
        let (stored, asked) = (self.terms, ask.terms);
        if asked.version == stored.version && !asked.is_same_quota(&stored) {
            return Err(StoreError::QuotaConflict { stored, asked });
        }
        if let Some(Node { number, .. }) = self.nodes.get(&ask.node)
            && ask.number < *number
        {
            return Err(StoreError::Refused(format!("TOLLGATE request {} comes after {number}", ask.number)));
        }
        let ttl = ask.ttl as i64;
        if now >= self.swept + (ttl + 3) / 4 || now < self.swept {
            self.sweep(now, ttl);
        }
        self.mint(now);
        if asked.version > stored.version && !self.take_over(asked, now) {
            self.keep(now, ttl);
            return Err(owes(-self.level));
        }
        let known = self.nodes.get(&ask.node).copied();
        let before = known.unwrap_or_default();
        let others = self.held - before.allowance;
        let node = match known {
            Some(node) if node.number == ask.number => Node { until: now + ttl, ..node },
            _ if self.owes_too_much(ask) => {
                self.keep(now, ttl);
                return Err(owes(-self.level));
            }
            _ => self.grant(ask, now, others, known),
        };
        if ask.leave {
            self.nodes.remove(&ask.node);
            self.held = others;
        } else {
            self.nodes.insert(ask.node, node);
            self.held = others + node.allowance;
        }
        self.keep(now, ttl);
        Ok(LeaseGrant {
            before: before.number,
            age: (self.clock - node.at) as u64,
            now: node.once as u64,
            promised: node.later as u64,
            queued_before: node.behind as u64,
            phase: node.part as u64,
            allowance: if ask.leave { 0 } else { node.allowance as u64 },
            nodes: self.nodes.len() as u64,
            busy: self.busy.max(self.was).max(1) as u64,
            remaining: self.level.max(0) as u64,
            terms: (!self.terms.is_same_quota(&asked)).then_some(self.terms),
        })
    }

    /// Replaces the quota by a newer one. Tokens stay, as far as the new burst allows. Promised instants stay too: the debt
    /// becomes as many tokens as the new quota mints in the time in which the old one would have minted the debt. So the
    /// first new promise comes after the last old one.
    ///
    /// Returns false, and keeps the old quota, if the new debt could not be counted exactly. The arithmetic is that of the
    /// script, in doubles.
    fn take_over(&mut self, new: QuotaTerms, now: i64) -> bool {
        let old = self.terms;
        if !new.is_same_rate(&old) {
            if self.level < 0 {
                let debt = (-self.level) as f64;
                let rest = if old.stepped {
                    (debt / old.amount as f64).ceil() * old.period as f64 - (now % old.period as i64) as f64
                } else {
                    rounded_up(debt * old.period as f64 - self.part as f64, old.amount as f64)
                };
                let (amount, period) = (new.amount as f64, new.period as f64);
                let (owed, part) = if new.stepped {
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
            } else if old.stepped || new.stepped {
                self.part = 0;
            } else {
                // Two parts less than the doubles say, in case they were rounded up.
                let part = self.part as f64 * (new.period as f64 / old.period as f64);
                self.part = (part.floor() as i64 - 2).max(0);
            }
            // A promise that is repeated would be read by the new rate.
            self.nodes.values_mut().for_each(|node| node.later = 0);
        }
        self.terms = new;
        self.cut(new.burst as i64 - self.held);
        true
    }

    /// Lowers the level to `full`, but not below 0: after a change of the quota the nodes may hold more than the burst.
    fn cut(&mut self, full: i64) {
        let full = full.max(self.level.min(0));
        if self.level > full {
            (self.level, self.part) = (full, 0);
        }
    }

    /// Whether the tokens that `ask` wants would push the debt beyond the limit up to which all numbers are exact.
    fn owes_too_much(&self, ask: &LeaseRequest) -> bool {
        let want = if ask.at_once { 0 } else { exact(ask.want) };
        (want > 0 || !ask.at_once && ask.ahead > 0) && self.level - want < -(MAX_DEBT as i64)
    }

    /// Updates the instant until which the bucket must be remembered.
    fn keep(&mut self, now: i64, ttl: i64) {
        let need = (self.terms.burst as i64 - self.level).max(0);
        let fills = i128::from(div_ceil(need, self.terms.amount as i64)) * i128::from(self.terms.period);
        let idle = if self.terms.initial < self.terms.burst { IDLE } else { 0 };
        let keep = (fills.min(i128::from(LONGEST)) as i64 + idle).max(ttl);
        self.ends = now + (div_ceil(keep, 1_000) + 1) * 1_000;
    }

    /// Whether the bucket is full and no node holds anything, so that forgetting it changes nothing.
    pub(super) fn is_forgotten(&self, now: i64) -> bool {
        self.ends < now
    }

    /// Forgets the nodes that have reached the end of their time to live.
    fn sweep(&mut self, now: i64, ttl: i64) {
        self.nodes.retain(|_, node| node.until > now);
        for node in self.nodes.values_mut() {
            node.until = node.until.min(now + ttl);
        }
        self.held = self.nodes.values().map(|node| node.allowance).sum();
        self.swept = now;
    }

    fn mint(&mut self, now: i64) {
        let QuotaTerms { amount, period, burst, .. } = self.terms;
        // After a change of the quota the nodes may hold more than the burst. A debt is paid off all the same.
        let full = (i128::from(burst) - i128::from(self.held)).max(0);
        let (amount, period) = (i128::from(amount), i128::from(period));
        let level = i128::from(self.level);
        let minted = if self.terms.stepped {
            (i128::from(now) / period - i128::from(self.stamp) / period).max(0) * amount
        } else if now > self.stamp {
            let sum = i128::from(now - self.stamp) * amount + i128::from(self.part);
            let (minted, left) = (sum / period, sum % period);
            let burned = level + minted > full || (level + minted == full && left >= amount);
            self.part = if burned { 0 } else { left as i64 };
            minted
        } else {
            if level >= full && i128::from(self.part) >= amount {
                self.part = 0;
            }
            0
        };
        if minted > 0 {
            self.level = level.max(full.min(level + minted)) as i64;
        }
        self.clock += (now - self.stamp).max(0);
        self.stamp = now;
    }

    fn grant(&mut self, ask: &LeaseRequest, now: i64, others: i64, known: Option<Node>) -> Node {
        let burst = self.terms.burst as i64;
        let count = self.nodes.len() as i64 + i64::from(known.is_none());
        let held = if known.is_some() { exact(ask.held) } else { 0 };
        // Returned tokens must have been part of the node's allowance, and be part of it no longer. While the bucket owes
        // tokens, the returned ones are lost: the promised instants are fixed, so the tokens could only be promised anew
        // beside tokens of other nodes. Two nodes would then save up a claim each at the same time, and a third one could
        // be given the allowance that has become free.
        if known.is_some() && self.level >= 0 {
            self.level += exact(ask.back).min(self.held - others - held).max(0);
        }
        let is_in_vain = ask.at_once && self.level < exact(ask.want);
        let (want, ahead) = if is_in_vain { (0, 0) } else { (exact(ask.want), exact(ask.ahead)) };
        let half = burst / 2;
        let fair = (burst / (2 * (count + 1))).max(1);
        let allowance = exact(ask.allowance).min(fair).max(exact(ask.minimum)).min(half - others).max(held);
        let mut more = ahead.min(allowance - exact(ask.banked)).max(0);
        if want == 0 {
            more = more.min(self.level.max(exact(ask.minimum)).max(0));
        }
        let tokens = want + more;
        let allowance = allowance.min(exact(ask.banked) + more).max(held);
        let once = self.level.min(tokens).max(0);
        let behind = (-self.level).max(0);
        let part = if self.terms.stepped { now % self.terms.period as i64 } else { self.part };
        self.level -= tokens;
        self.cut(burst - others - allowance);
        let epoch = now / EPOCH;
        if epoch != self.epoch {
            self.was = if epoch == self.epoch + 1 { self.busy } else { 0 };
            (self.busy, self.epoch) = (0, epoch);
        }
        let mut seen = known.map_or(-1, |node| node.epoch);
        if want > 0 && !ask.at_once && seen != epoch {
            self.busy += 1;
            seen = epoch;
        }
        Node {
            number: ask.number,
            allowance,
            until: now + ask.ttl as i64,
            epoch: seen,
            once,
            later: tokens - once,
            behind,
            part,
            at: self.clock,
        }
    }
}

/// `dividend / divisor`, rounded up, and by a little more if the doubles may have been rounded down.
fn rounded_up(dividend: f64, divisor: f64) -> f64 {
    let quotient = dividend / divisor;
    if dividend > EXACT { (quotient * (1.0 + 1.0 / MARGIN)).ceil() } else { quotient.ceil() }
}

fn owes(owed: i64) -> StoreError {
    let owed = owed.max(0);
    StoreError::Refused(format!("TOLLGATE the store owes {owed} tokens and promises no more: try later"))
}

/// Converts a number of a request. Lua would round larger numbers, and no valid node requests so much.
fn exact(number: u64) -> i64 {
    number.min(1 << 53) as i64
}

fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
