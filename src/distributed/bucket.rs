//! The shared bucket: the rules of a store as a state machine without a clock, a server or a network.

use super::terms::{LONGEST, MAX_DEBT};
use super::{LeaseGrant, LeaseRequest, QuotaTerms, StoreError};
use std::collections::HashMap;

/// The shortest length of an epoch, in microseconds: nodes with waiters are counted per epoch.
const EPOCH: i64 = 250_000;

/// How long a full bucket is remembered if a new one would not begin full, in microseconds.
const IDLE: i64 = 3_600_000_000;

/// Integers up to here are exact in doubles.
const EXACT: f64 = (1_u64 << 53) as f64;
/// One part in so many is more than a few roundings of doubles.
const MARGIN: f64 = (1_u64 << 50) as f64;

/// The state of one [`Store`](super::Store), and the rules by which it answers requests: a state machine without a clock,
/// a server or a network.
///
/// A store that can replace a record atomically needs nothing else. It reads the record of its bucket and the time of its
/// own clock, calls [`answer`](Self::answer), and writes the record back if no other request has written it meanwhile:
/// with one compare-and-swap, or inside one transaction. If it was written, the store starts again with the new record.
/// [`to_bytes`](Self::to_bytes) and [`from_bytes`](Self::from_bytes) convert a bucket to a record.
///
/// [`MemoryStore`](super::MemoryStore) uses this type. The scripts of the crates `tollgate-redis` and `tollgate-postgres`
/// follow the same rules in the languages of their servers, and give the same answers, to the integer.
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::distributed::{LeaseGrant, LeaseRequest, SharedBucket, StoreError};
///
/// /// One transaction; `now` is the time in microseconds by the clock of the database.
/// fn ask(
///     records: &mut HashMap<String, Vec<u8>>, name: &str, ask: &LeaseRequest, now: i64,
/// ) -> Result<LeaseGrant, StoreError> {
///     let record = records.get(name).map(Vec::as_slice);
///     let mut bucket = SharedBucket::open(record, ask, now)?;
///     let answer = bucket.answer(ask, now);
///     // Also if the answer is a refusal: the tokens minted until now are part of the state.
///     records.insert(name.to_owned(), bucket.to_bytes());
///     answer
/// }
///
/// # use tollgate::{Quota, distributed::QuotaTerms};
/// let mut records = HashMap::new();
/// let terms = QuotaTerms::of(&Quota::per_second(10), 0).unwrap();
/// let mut request = LeaseRequest::new(1, 1, terms);
/// request.want = 12;
/// let grant = ask(&mut records, "api", &request, 1_700_000_000_000_000).unwrap();
/// assert_eq!((grant.now, grant.promised), (10, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBucket {
    pub(super) terms: QuotaTerms,
    /// The tokens that are there. Below 0: tokens that are promised and not minted yet.
    pub(super) level: i64,
    /// The instant of the last request.
    pub(super) stamp: i64,
    /// The progress towards the next token, in parts of the period.
    pub(super) part: i64,
    /// When nodes that had reached the end of their time to live were last forgotten.
    pub(super) swept: i64,
    /// The epoch of the last grant, and the number of nodes with waiters in it and in the one before.
    pub(super) epoch: i64,
    pub(super) busy: i64,
    pub(super) was: i64,
    /// The total time for which the bucket has minted, in microseconds. It does not step back with the server's clock.
    pub(super) clock: i64,
    /// The sum of all allowances.
    pub(super) held: i64,
    pub(super) nodes: HashMap<u128, Node>,
    /// No node is remembered for longer than until this instant.
    pub(super) last_until: i64,
    /// The instant from which the bucket may be forgotten.
    pub(super) ends: i64,
}

/// What a bucket knows of one node, with the answer to its last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) allowance: i64,
    /// When the node is forgotten.
    pub(super) until: i64,
    /// The last epoch in which the node had waiters; -1 if there was none.
    pub(super) epoch: i64,
    /// The tokens that the last answer gave at once (`once` in the scripts).
    pub(super) granted: i64,
    /// The tokens that it promised (`later` in the scripts).
    pub(super) promised: i64,
    /// The tokens that had been promised to other nodes before those (`behind` in the scripts).
    pub(super) queued_before: i64,
    /// The progress towards the next token when it was given.
    pub(super) part: i64,
    /// When the last request was answered, by [`SharedBucket::clock`].
    pub(super) at: i64,
}

impl SharedBucket {
    /// Creates the bucket of a store that has no record. All instants are microseconds of the store's clock since the Unix
    /// epoch; a stepped quota needs that origin for its periods.
    pub fn new(terms: QuotaTerms, now: i64) -> Self {
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
            last_until: now,
            ends: now,
        }
    }

    /// Returns the bucket of a store with this record: a new one if there is no record, or if the recorded one may be
    /// forgotten.
    ///
    /// # Errors
    ///
    /// [`StoreError::Reply`] of the kind [`Damaged`](super::ReplyKind::Damaged) if the record was not written by
    /// [`to_bytes`](Self::to_bytes).
    pub fn open(record: Option<&[u8]>, ask: &LeaseRequest, now: i64) -> Result<Self, StoreError> {
        let recorded = record.map(Self::from_bytes).transpose()?;
        let kept = recorded.filter(|bucket| !bucket.is_forgotten(now));
        Ok(kept.unwrap_or_else(|| Self::new(ask.terms, now)))
    }

    /// Answers a request at the instant `now` of the store's clock, and changes the bucket accordingly. The store must keep
    /// the changed bucket before the answer is sent, also if the answer is an error.
    ///
    /// A repeat of the node's last request gets the same answer, whose `age` tells how long ago it was first given. If the
    /// clock has stepped back since the last request, no time has passed.
    ///
    /// A request with an older version of another quota is told the bucket's quota and gets no tokens, unless it wants them
    /// at once: the node asks anew by the newer quota.
    ///
    /// # Errors
    ///
    /// [`StoreError::QuotaConflict`] if the request has a different quota than the bucket and the same version;
    /// [`StoreError::Refused`] if a later request of its node has overtaken it, or the bucket owes too many tokens.
    pub fn answer(&mut self, ask: &LeaseRequest, now: i64) -> Result<LeaseGrant, StoreError> {
        let (stored, asked) = (self.terms, ask.terms);
        if asked.version == stored.version && !asked.is_same_quota(&stored) {
            return Err(StoreError::QuotaConflict { stored, asked });
        }
        if let Some(Node { number, .. }) = self.nodes.get(&ask.node)
            && ask.number < *number
        {
            return Err(StoreError::Refused(format!("TOLLGATE request {} comes after {number}", ask.number)));
        }
        let ttl = time_to_live(ask);
        if self.nodes.is_empty() || now >= self.swept + (ttl + 3) / 4 || now < self.swept {
            self.sweep(now);
        }
        // The bucket forgets a node that leaves. While it still remembers other nodes, it keeps their record for longer than it
        // must, as the script in Redis does.
        if !ask.leave || !self.nodes.is_empty() {
            self.last_until = self.last_until.max(now + ttl);
        }
        self.mint(now);
        if asked.version > stored.version && !self.take_over(asked, now) {
            self.keep(now);
            return Err(owes(-self.level));
        }
        let known = self.nodes.get(&ask.node).copied();
        let before = known.unwrap_or_default();
        let others = self.held - before.allowance;
        let node = match known {
            Some(node) if node.number == ask.number => Node { until: now + ttl, ..node },
            _ if self.owes_too_much(ask) => {
                self.keep(now);
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
        self.keep(now);
        Ok(LeaseGrant {
            before: before.number,
            age: (self.clock - node.at) as u64,
            now: node.granted as u64,
            promised: node.promised as u64,
            queued_before: node.queued_before as u64,
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
            self.nodes.values_mut().for_each(|node| node.promised = 0);
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

    /// Updates the instant until which the bucket must be remembered. A node may use what it keeps until the end of its time
    /// to live, and only then does the bucket mint these tokens. The node with the last end need not be the one that
    /// asks.
    fn keep(&mut self, now: i64) {
        let burst = self.terms.burst as i64;
        let idle = if self.terms.initial < self.terms.burst { IDLE } else { 0 };
        let fills = self.fills((burst - self.level).max(0)) + idle;
        let keep = fills.max(self.last_until - now + self.fills(self.held.min(burst))).min(LONGEST as i64);
        self.ends = now + (div_ceil(keep, 1_000) + 1) * 1_000;
    }

    /// In how many microseconds the bucket mints these tokens, rounded up to periods.
    fn fills(&self, tokens: i64) -> i64 {
        let periods = div_ceil(tokens, self.terms.amount as i64);
        (i128::from(periods) * i128::from(self.terms.period)).min(i128::from(LONGEST)) as i64
    }

    /// Returns the instant, in microseconds of the store's clock, after which the store may delete the record: by then all
    /// nodes have reached the end of their time to live, and the bucket is full. With `initial` tokens below the burst it is
    /// an hour later, because a new bucket would have fewer tokens.
    pub fn ends(&self) -> i64 {
        self.ends
    }

    /// Returns whether the store may delete the record at `now`: whether [`ends`](Self::ends) has passed.
    pub fn is_forgotten(&self, now: i64) -> bool {
        self.ends < now
    }

    /// Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
    /// bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
    /// stepped back, the ends step back with it: no node is forgotten sooner or later for that.
    fn sweep(&mut self, now: i64) {
        if now < self.swept {
            self.nodes.values_mut().for_each(|node| node.until -= self.stamp - now);
        }
        let last_end = self.nodes.values().map(|node| node.until).filter(|until| *until <= now).max();
        if let Some(end) = last_end.filter(|end| *end > self.stamp) {
            self.mint(end);
        }
        self.nodes.retain(|_, node| node.until > now);
        self.last_until = self.nodes.values().map(|node| node.until).max().unwrap_or(now);
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
        // The node has chosen these numbers by an older quota. It asks anew when it knows the newer one.
        let is_outdated = !ask.at_once && !ask.terms.is_same_quota(&self.terms);
        let (want, ahead) = if is_in_vain || is_outdated { (0, 0) } else { (exact(ask.want), exact(ask.ahead)) };
        let half = burst / 2;
        let fair = (burst / (2 * (count + 1))).max(1);
        let allowance = exact(ask.allowance).min(fair).max(exact(ask.minimum)).min(half - others).max(held);
        let mut more = ahead.min(allowance - exact(ask.banked)).max(0);
        if want == 0 {
            more = more.min(self.level.max(exact(ask.minimum)).max(0));
        }
        let tokens = want + more;
        let allowance = allowance.min(exact(ask.banked) + more).max(held);
        let granted = self.level.min(tokens).max(0);
        let queued_before = (-self.level).max(0);
        let part = if self.terms.stepped { now % self.terms.period as i64 } else { self.part };
        self.level -= tokens;
        self.cut(burst - others - allowance);
        self.pass_epochs(now, queued_before);
        let mut seen = known.map_or(-1, |node| node.epoch);
        if want > 0 && !ask.at_once && seen != self.epoch {
            self.busy += 1;
            seen = self.epoch;
        }
        Node {
            number: ask.number,
            allowance,
            until: now + time_to_live(ask),
            epoch: seen,
            granted,
            promised: tokens - granted,
            queued_before,
            part,
            at: self.clock,
        }
    }

    /// Begins a new epoch if the last one is over. While the bucket owes tokens, each node with waiters asks again before
    /// its own have come. So an epoch lasts until what the bucket `owed` before this request has been minted, and all of
    /// them are counted in it, however far from the store they are.
    fn pass_epochs(&mut self, now: i64, owed: i64) {
        let (this, length) = (now / EPOCH, 1 + (self.fills(owed) + EPOCH / 2) / EPOCH);
        let passed = this - self.epoch;
        if (0..length).contains(&passed) {
            return;
        }
        self.was = if (0..2 * length).contains(&passed) { self.busy } else { 0 };
        (self.busy, self.epoch) = (0, this);
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

/// For how long the node is remembered: no longer than a bucket may take to fill up, so that its end can be recorded.
fn time_to_live(ask: &LeaseRequest) -> i64 {
    ask.ttl.min(LONGEST) as i64
}

fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
