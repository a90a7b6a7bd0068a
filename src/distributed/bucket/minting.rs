//! What a bucket mints, how long that takes, and when its nodes and the bucket itself are forgotten.

use super::{LAST, SharedBucket};
use crate::distributed::terms::{LONGEST, MAX_DEBT};
use crate::distributed::{Pace, QuotaTerms};

/// How long a full bucket is remembered if a new one would not begin full, or as the clock may be set back to before the
/// period of a calendar, in microseconds.
const IDLE: i64 = 3_600_000_000;

impl SharedBucket {
    /// The progress towards the next token, in parts of the period; of a stepped quota, the time since the period began. As if
    /// all periods of a calendar were of one length.
    pub(super) fn phase(&self) -> i64 {
        let period = self.terms.period as i64;
        match self.terms.kind {
            0 => self.part,
            1 => self.stamp % period,
            _ => period - self.rest().min(period),
        }
    }

    fn pace(&self) -> Pace {
        let QuotaTerms { amount, period, kind, .. } = self.terms;
        Pace { amount, period, part: self.phase() as u64, in_steps: kind > 0 }
    }

    /// How many tokens are minted in the next `micros` microseconds, up to 2^52.
    pub(super) fn minted_within(&self, micros: i64) -> i64 {
        self.pace().minted(micros as u64).min(MAX_DEBT) as i64
    }

    /// In how many microseconds so many tokens are minted, up to 2^52; 0 if there are that many already.
    pub(super) fn time_to(&self, tokens: i64) -> i64 {
        self.time_by(self.pace(), tokens)
    }

    fn time_by(&self, pace: Pace, tokens: i64) -> i64 {
        match tokens {
            ..=0 => 0,
            _ if self.terms.is_calendar() => self.rest(),
            _ => pace.wait(tokens as u64).map_or(LONGEST, |micros| micros.min(LONGEST)) as i64,
        }
    }

    /// The most tokens that there may be beside these allowances. After a change of the quota the nodes may hold more than the
    /// burst. A debt is paid off all the same.
    pub(super) fn most(&self, held: i64) -> i64 {
        let burst = self.terms.burst as i64;
        (burst - held).max(self.fill.min(burst)).max(0)
    }

    /// Lowers the level to what may be there beside allowances of `held`. While tokens are promised, claims up to half of the
    /// burst are saved up at their nodes: what is there beside them and the allowances is within the other half. A full bucket
    /// has no part of a token: it mints the next token from now on.
    pub(super) fn cut(&mut self, held: i64) {
        let most = self.most(held);
        self.credit = self.credit.min(self.terms.burst as i64 / 2 - held).max(0);
        if self.level < 0 {
            return;
        }
        self.level += std::mem::take(&mut self.credit);
        if self.level >= most {
            (self.level, self.part) = (most, 0);
        }
    }

    pub(super) fn mint(&mut self, now: i64) {
        let QuotaTerms { amount, period, kind, .. } = self.terms;
        let (amount, period) = (i128::from(amount), i128::from(period));
        let (mut minted, mut left) = (0, i128::from(self.part));
        if kind == 1 {
            minted = (i128::from(now) / period - i128::from(self.stamp) / period).max(0) * amount;
        } else if kind == 0 && now > self.stamp {
            let sum = i128::from(now - self.stamp) * amount + left;
            (minted, left) = (sum / period, sum % period);
            self.part = left as i64;
        }
        self.clock += (now - self.stamp).max(0);
        if now < self.stamp {
            self.withdraw_numbers();
        }
        self.stamp = now;
        let (level, full) = (i128::from(self.level), i128::from(self.most(self.held)));
        if kind == 0 && (level + minted > full || level + minted == full && left >= amount) {
            self.part = 0;
        }
        if minted > 0 {
            self.level = level.max(full.min(level + minted)) as i64;
        }
        let minted = self.minted();
        for returned in &mut self.returned {
            let from = returned.from.max(returned.to.min(minted));
            self.credit += from - returned.from;
            returned.from = from;
        }
        self.returned.retain(|returned| returned.from < returned.to);
        if self.credit > 0 {
            self.cut(self.held);
        }
        // They begin anew if no node knows them, or they become too large.
        if self.last > LAST || self.nodes.is_empty() && self.level >= 0 {
            (self.last, self.void) = (-self.level.min(0), 0);
            self.returned.clear();
        }
    }

    /// In how many microseconds the bucket mints these tokens, rounded up to periods.
    pub(super) fn fills(&self, tokens: i64) -> i64 {
        self.time_by(Pace { part: 0, in_steps: true, ..self.pace() }, tokens)
    }

    /// Updates the instant until which the bucket must be remembered. A node may use what it keeps until the end of its time
    /// to live, and only then does the bucket mint these tokens. The node with the last end need not be the one that
    /// asks. A changed quota never makes the bucket forgotten sooner: a node with the old quota would get a new bucket.
    pub(super) fn keep(&mut self, now: i64) {
        let burst = self.terms.burst as i64;
        let is_kept = self.terms.initial < self.terms.burst || self.terms.is_calendar();
        let idle = if is_kept { IDLE } else { 0 };
        let fills = self.fills((burst - self.level).max(0)) + idle;
        let keep = fills.max(self.last_until - now + self.fills(self.held.min(burst))).min(LONGEST as i64);
        let least = if self.terms.version > 0 { self.ends } else { 0 };
        self.ends = least.max(now + ((keep + 999) / 1_000 + 1) * 1_000);
    }

    /// Forgets the nodes that have reached the end of their time to live. Until then a node may use what it keeps, so the
    /// bucket has space for these tokens only from then on: it mints up to the last of these ends first. If the clock has
    /// stepped back, the ends step back with it: no node is forgotten sooner or later for that.
    pub(super) fn sweep(&mut self, now: i64) {
        if now < self.swept {
            // Places are void after a long step, and not moved.
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
}
