//! The shared bucket: the algorithm of `store.lua` of the crate `tollgate-redis`, in Rust, equal to the integer.

use super::terms::{LONGEST, MAX_DEBT};
use super::{LeaseGrant, LeaseRequest, QuotaTerms, StoreError};
use std::collections::HashMap;

/// The length of an epoch, in microseconds: nodes with waiters are counted per epoch.
const EPOCH: i64 = 250_000;

/// How long a full bucket is remembered if a new one would not begin full, in microseconds.
const IDLE: i64 = 3_600_000_000;

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
        if self.terms != ask.terms {
            let (has, asked) = (self.terms, ask.terms);
            return Err(StoreError::Refused(format!(
                "TOLLGATE the store has the quota {has}, not {asked}: give a new quota a new name"
            )));
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
        let known = self.nodes.get(&ask.node).copied();
        let before = known.unwrap_or_default();
        let others = self.held - before.allowance;
        let node = match known {
            Some(node) if node.number == ask.number => Node { until: now + ttl, ..node },
            _ if self.owes_too_much(ask) => {
                self.keep(now, ttl);
                let owed = (-self.level).max(0);
                return Err(StoreError::Refused(format!(
                    "TOLLGATE the store owes {owed} tokens and promises no more: try later"
                )));
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
        })
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
        let (amount, period, full) =
            (i128::from(amount), i128::from(period), i128::from(burst) - i128::from(self.held));
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
        if self.level > burst - others - allowance {
            (self.level, self.part) = (burst - others - allowance, 0);
        }
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

/// Converts a number of a request. Lua would round larger numbers, and no valid node requests so much.
fn exact(number: u64) -> i64 {
    number.min(1 << 53) as i64
}

fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
