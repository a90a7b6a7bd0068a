//! The tokens that the store has promised to this node, and the instants at which they are minted. Pure: no lock, no
//! clock, no network.
//!
//! **Guarantees of this file:** no token is minted before its instant; pieces are minted in the order in which they
//! were promised, after tokens that are there in a piece of their own; each token is minted here at most once. Tokens
//! that come while there is no space for them are `spare` and are returned to the store.

use super::{LeaseRequest, QuotaTerms, RefillPlanner, SentAway, Store};
use crate::core::arithmetic::{mul_div, wait_for};
use crate::quota::Quota;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

mod source;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    list: VecDeque<Lease>,
    /// Tokens that came and found no space.
    pub(super) spare: u64,
    /// From this instant on at most `after` tokens may be kept unused: the store may have given the space to other
    /// nodes.
    pub(super) until: u64,
    pub(super) after: u64,
    /// The claims that wait, in the order of their arrival, and at most as many others, which have left.
    pub(super) waits: VecDeque<Wait>,
    /// How many of `waits` have left.
    left: usize,
    period: Period,
    /// The node's planner.
    pub(crate) planner: Option<Box<RefillPlanner>>,
    /// The store that promises the tokens.
    pub(crate) store: Option<Arc<dyn Store>>,
}

/// Of a calendar quota, the period of the last answer. Instants are in the limiter's nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    /// By the store's clock.
    begins: u64,
    /// When its first answer came: grants that were made earlier are of other periods. `u64::MAX` once it is over.
    since: u64,
    /// When it ends, or a little earlier.
    ends: u64,
}

/// A claim that waits. Instants are in the limiter's nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The number of the claim.
    number: u64,
    pub(crate) since: u64,
    /// The deadline, or the end of time.
    pub(crate) until: u64,
    /// The claim waits no longer.
    has_left: bool,
}

impl Wait {
    /// Whether the store had no tokens in time for this claim, which lacks so many together with those before it.
    pub(crate) fn is_too_late(&self, sent_away: Option<SentAway>, lacks: u64) -> bool {
        sent_away.is_some_and(|away| self.number < away.before && self.until < away.at && lacks >= away.first)
    }
}

/// A number of tokens with the instants at which they come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// The start of `pace`, in the limiter's nanoseconds.
    pub(super) at: u64,
    pub(super) pace: Pace,
    /// Tokens of that pace that come before these: they belong to other nodes, or were taken from this lease.
    pub(super) before: u64,
    pub(super) tokens: u64,
    /// The number of the last token at the store; 0 if it has none.
    pub(super) last: u64,
    /// No store promised these tokens: the node grants them to itself while the store cannot be reached.
    pub(super) own: bool,
    /// No tokens of other nodes are minted between the previous lease, or what was taken from this one, and these tokens.
    pub(super) goes_on: bool,
}

/// How fast tokens come: `amount` in each period, evenly or at its end. `part` has elapsed of the first period, or of the
/// first token. Times are nanoseconds at a node, and microseconds in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(super) amount: u64,
    pub(super) period: u64,
    pub(super) part: u64,
    pub(super) in_steps: bool,
}

impl Pace {
    /// All tokens come at once: the first period has just ended. No quota has so large an amount.
    pub(crate) const AT_ONCE: Self = Self { amount: u64::MAX, period: 1, part: 1, in_steps: true };

    /// The pace of a store's quota, of which `part` has elapsed. It is less than a period, whatever the store says.
    pub(crate) fn of(terms: &QuotaTerms, part: u64) -> Self {
        let part = part.min(terms.period.saturating_sub(1)) * 1_000;
        Self { amount: terms.amount, period: terms.period * 1_000, part, in_steps: terms.is_stepped() }
    }

    /// How many tokens come in the next `time`.
    pub(super) fn minted(self, time: u64) -> u64 {
        let Self { amount, period, part, in_steps } = self;
        if in_steps {
            (time.saturating_add(part) / period).saturating_mul(amount)
        } else {
            mul_div(time, amount, part, period).0
        }
    }

    /// In which time so many tokens come; `None` if that overflows.
    pub(crate) fn wait(self, tokens: u64) -> Option<u64> {
        let Self { amount, period, part, in_steps } = self;
        if in_steps {
            Some(tokens.div_ceil(amount).checked_mul(period)?.saturating_sub(part))
        } else {
            wait_for(tokens, period, part, amount)
        }
    }
}

impl Lease {
    pub(crate) fn new(at: u64, pace: Pace, before: u64, tokens: u64) -> Self {
        Self { at, pace, before, tokens, last: 0, own: false, goes_on: false }
    }

    pub(super) fn take(&mut self, tokens: u64) {
        self.before += tokens;
        self.tokens -= tokens;
    }

    /// The tokens that a node grants itself from `at` on, by a checked quota.
    pub(crate) fn of_our_own(at: u64, quota: &Quota) -> Self {
        let terms = QuotaTerms::of(quota).expect("the share of an outage was checked");
        Self { own: true, ..Self::new(at, Pace::of(&terms, 0), 0, 1 << 61) }
    }

    /// The instant at which its last token comes; `None` if that overflows the clock.
    fn ends(&self) -> Option<u64> {
        self.instant(self.tokens)
    }

    /// How many of the tokens have come by `now`.
    pub(super) fn due_by(&self, now: u64) -> u64 {
        let minted = now.checked_sub(self.at).map_or(0, |elapsed| self.pace.minted(elapsed));
        minted.saturating_sub(self.before).min(self.tokens)
    }

    /// The instant at which the `nth` token comes; `None` if that overflows the clock.
    pub(crate) fn instant(&self, nth: u64) -> Option<u64> {
        self.at.checked_add(self.pace.wait(self.before.checked_add(nth)?)?)
    }
}

impl Leases {
    pub(crate) fn of(planner: RefillPlanner) -> Self {
        Self { planner: Some(Box::new(planner)), ..Self::default() }
    }

    pub(crate) fn push(&mut self, lease: Lease) {
        if lease.tokens > 0 {
            self.list.push_back(lease);
        }
    }

    /// Takes tokens that are there. They come before promised ones, unless they continue the last piece of these, or are fewer
    /// than the front claim needs, which waits for promised ones: it has no use for them.
    pub(crate) fn push_here(&mut self, lease: Lease, need: u64) {
        if lease.goes_on || lease.tokens < need {
            return self.push(lease);
        }
        if lease.tokens > 0 {
            // The piece that was first begins anew behind them.
            self.list.front_mut().into_iter().for_each(|next| next.goes_on = false);
            self.list.push_front(lease);
        }
    }

    /// Tokens that were promised and are not minted yet.
    pub(crate) fn promised(&self) -> u64 {
        self.list.iter().filter(|lease| !lease.own).map(|lease| lease.tokens).sum()
    }

    /// Whether all promised tokens come by the rate of these terms.
    pub(crate) fn are_minted_by(&self, terms: &QuotaTerms) -> bool {
        let is_alike = |pace: Pace| pace == Pace::AT_ONCE || Pace { part: 0, ..pace } == Pace::of(terms, 0);
        self.list.iter().all(|lease| lease.own || is_alike(lease.pace))
    }

    /// The instant from which on no more promised tokens come. Tokens that are there may be behind promised ones.
    pub(crate) fn ends(&self) -> Option<u64> {
        self.list.iter().filter(|lease| !lease.own).filter_map(Lease::ends).max()
    }

    /// Takes `tokens` of the tokens that came by `now` from the first piece, which ends at index `end`.
    fn take(&mut self, end: usize, now: u64, mut tokens: u64) {
        for lease in self.list.range_mut(..end) {
            let taken = lease.due_by(now).min(tokens);
            lease.take(taken);
            lease.goes_on |= taken > 0;
            tokens -= taken;
        }
        while self.list.front().is_some_and(|lease| lease.tokens == 0) {
            self.list.pop_front();
        }
    }

    /// How many tokens of these leases have come by `now`.
    fn due_by(&self, leases: Range<usize>, now: u64) -> u64 {
        self.list.range(leases).map(|lease| lease.due_by(now)).sum()
    }

    /// The instant by which `tokens` tokens of these leases have come. The leases form one piece and have at least that
    /// many.
    ///
    /// A lease usually begins where the previous one ends. But instants count from the arrival of an answer: if the
    /// previous answer took longer than the next one, the next lease begins earlier. Then tokens of both leases come
    /// side by side, and none may be delayed to keep their order.
    fn come_by(&self, leases: Range<usize>, tokens: u64) -> Option<u64> {
        let (mut need, mut at, mut is_side_by_side) = (tokens, 0, false);
        for lease in self.list.range(leases.clone()).filter(|lease| lease.tokens > 0) {
            is_side_by_side |= lease.instant(1)? < at;
            let nth = need.min(lease.tokens);
            if nth > 0 {
                at = at.max(lease.instant(nth)?);
                need -= nth;
            }
        }
        if !is_side_by_side {
            return Some(at);
        }
        let (mut early, mut late) = (0, at);
        while early < late {
            let middle = early + (late - early) / 2;
            if self.due_by(leases.clone(), middle) >= tokens { late = middle } else { early = middle + 1 }
        }
        Some(late)
    }

    /// The remaining tokens of each piece, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = u64> + Clone {
        let mut first = 0;
        std::iter::from_fn(move || {
            let (end, tokens) = self.piece(first);
            (end > std::mem::replace(&mut first, end)).then_some(tokens)
        })
    }

    /// Where the piece ends that begins with the lease at this index, and how many tokens remain in it.
    fn piece(&self, first: usize) -> (usize, u64) {
        let Some(lease) = self.list.get(first) else { return (first, 0) };
        let rest = self.list.range(first + 1..).take_while(|lease| lease.goes_on);
        rest.fold((first + 1, lease.tokens), |(end, tokens), lease| (end + 1, tokens + lease.tokens))
    }

    fn index_of_wait(&self, number: u64) -> Option<usize> {
        let index = self.waits.partition_point(|wait| wait.number < number);
        self.waits.get(index).filter(|wait| wait.number == number && !wait.has_left).map(|_| index)
    }

    /// The claim with this number.
    pub(crate) fn wait_of(&self, number: u64) -> Option<&Wait> {
        self.waits.get(self.index_of_wait(number)?)
    }

    /// Returns spare tokens with a request, and `tokens` of the last promised ones. Of these, those that are there are spare, and
    /// of the others one request can return those with numbers in one row, up to the last one. The rest returns with the next
    /// request. In an outage they are lost: they came before it, and the bucket may have filled up since.
    pub(crate) fn return_with(&mut self, ask: &mut LeaseRequest, mut tokens: u64, now: u64, is_out: bool) {
        if let Some(last) = self.list.iter().max_by_key(|lease| lease.last).filter(|lease| lease.last > 0) {
            (ask.last, ask.rest) = (last.last, last.ends().map_or(0, |ends| ends.saturating_sub(now) / 1_000));
        }
        let mut unused = 0;
        for lease in self.list.iter_mut().rev().filter(|lease| !lease.own) {
            let back = lease.tokens.min(tokens);
            if lease.pace == Pace::AT_ONCE {
                self.spare += back;
            } else if lease.last + unused == ask.last {
                unused += back;
                lease.last -= back;
            } else {
                continue;
            }
            lease.tokens -= back;
            tokens -= back;
        }
        self.list.retain(|lease| lease.tokens > 0);
        let spare = std::mem::take(&mut self.spare);
        (ask.back, ask.unused) = if is_out { (0, 0) } else { (spare, unused) };
    }

    /// The answer to a request with these terms comes at `now`, in a period that ends at `ends`.
    pub(crate) fn note_period(&mut self, terms: &QuotaTerms, now: u64, ends: u64) {
        let Period { begins, since, .. } = self.period;
        let is_first = terms.begins > begins || terms.ends == 0 || since == u64::MAX;
        self.period = Period { begins: begins.max(terms.begins), since: if is_first { now } else { since }, ends };
    }

    /// Drops spare tokens, which must not be returned any more, and all tokens that the store has promised, or those that this
    /// node granted itself.
    pub(crate) fn forget(&mut self, own: bool) {
        self.list.retain(|lease| lease.own != own);
        self.spare = 0;
    }
}
