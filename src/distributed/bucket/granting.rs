//! What a bucket grants to the claims of a request.

use super::places::Places;
use super::{EPOCH, Node, Returned, SharedBucket, exact, time_to_live};
use crate::distributed::terms::LONGEST;
use crate::distributed::{ClassClaims, LeaseRequest};

/// The claims of one class in a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    pub(super) class: usize,
    pub(super) number: i64,
    pub(super) want: i64,
    pub(super) first: i64,
    pub(super) lack: i64,
    pub(super) age: i64,
    pub(super) useful: i64,
    /// The tokens of the places before them, and how many are surely given before they get some.
    pub(super) older: i64,
    pub(super) sooner: i64,
    /// How far ahead tokens are promised, and how many are minted in time.
    pub(super) reach: i64,
    pub(super) within: i64,
    /// The class gets nothing until others have caught up.
    pub(super) is_ahead: bool,
    pub(super) part: i64,
    pub(super) given: i64,
}

impl Claims {
    /// The claims of a request: without classes, those of class 0.
    pub(super) fn of(ask: &LeaseRequest, burst: i64) -> Vec<Self> {
        let all = ClassClaims {
            want: ask.want,
            first: ask.first,
            lack: ask.want,
            age: ask.age,
            useful: ask.useful,
            ..ClassClaims::default()
        };
        let rows = if ask.classes.is_empty() { std::slice::from_ref(&all) } else { &ask.classes };
        let of = |row: &ClassClaims| Claims {
            number: exact(row.class),
            want: exact(row.want),
            first: exact(row.first).min(burst),
            lack: exact(row.lack),
            age: exact(row.age).min(LONGEST as i64),
            useful: exact(row.useful),
            part: 1,
            ..Claims::default()
        };
        rows.iter().map(of).collect()
    }
}

impl SharedBucket {
    /// Grants `want` to each class, or the largest multiple of `first` that can be had, or nothing: only tokens that are minted
    /// within the horizon and while they are of use, and that are not left for claims of other nodes that come before.
    #[allow(clippy::too_many_arguments, reason = "one step of `answer`, of which it needs all")]
    pub(super) fn grant(
        &mut self,
        ask: &LeaseRequest,
        now: i64,
        others: i64,
        known: Option<&Node>,
        reach: i64,
        places: &Places,
        claims: &mut [Claims],
    ) -> Node {
        let burst = self.terms.burst as i64;
        let count = self.nodes.len() as i64 + i64::from(known.is_none());
        let held = if known.is_some() { exact(ask.held) } else { 0 };
        // The node has chosen these numbers by an older quota. It asks anew when it knows the newer one.
        let is_outdated = !ask.at_once && !ask.terms.is_same_quota(&self.terms);
        let minted = self.minted();
        let in_time = |returned: &Returned, within: i64| (returned.to.min(minted + within) - returned.from).max(0);
        let all = |within: i64| match self.level + within {
            later if self.level >= 0 => later,
            later => self.credit + self.returned.iter().map(|run| in_time(run, within)).sum::<i64>() + later.max(0),
        };
        // Of the tokens of one source, `want`, or a multiple of `first`, or nothing for each class. Returns how many in all.
        let give = |claims: &mut [Claims], source: &dyn Fn(i64) -> i64| {
            let mut sum = 0;
            for claims in claims {
                let older = if ask.at_once { places.all } else { claims.older };
                let can = source(claims.within).min(all(claims.within) - older) - sum;
                claims.given = match can {
                    _ if is_outdated || claims.is_ahead => 0,
                    can if claims.want <= can => claims.want,
                    _ if ask.at_once => 0,
                    can => can.max(0) - can.max(0) % claims.first.max(1),
                };
                sum += claims.given;
            }
            sum
        };
        // All tokens of an answer come from one source: those that are there in spite of a debt, returned ones that come after
        // all that the node still has, or those that are not promised yet.
        let kept = exact(ask.last) - exact(ask.unused);
        let mut again = None;
        let there = if self.level < 0 { give(claims, &|_| self.credit) } else { 0 };
        let mut given = there;
        for (index, run) in self.returned.iter().enumerate().filter(|(_, run)| run.from >= kept) {
            if given == 0 {
                given = give(claims, &|within| in_time(run, within));
                again = (given > 0).then_some(index);
            }
        }
        if given == 0 {
            given = give(claims, &|within| self.level + within);
        }
        let is_new = there == 0 && again.is_none();
        let (half, fair) = (burst / 2, (burst / (2 * (count + 1))).max(1));
        let allowance = fair.max(exact(ask.minimum)).min(half - others).max(held);
        // Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
        // denied, those of the horizon.
        let spare = self.level + if ask.minimum > 0 || given > 0 { self.minted_within(reach) } else { 0 };
        let most = if is_outdated || !is_new { 0 } else { spare - given - places.all };
        let more = exact(ask.ahead).min(allowance - exact(ask.banked)).min(most).max(0);
        let tokens = given + more;
        let allowance = allowance.min(exact(ask.banked) + more).max(held);
        let (owed, part) = ((-self.level).max(0), self.phase());
        let (mut granted, mut queued_before) = (self.level.min(tokens).max(0), owed);
        let mut last = self.last + tokens - granted;
        match again {
            _ if there > 0 => {
                granted = there;
                self.credit -= there;
            }
            Some(index) => {
                let from = &mut self.returned[index].from;
                queued_before = *from - minted;
                *from += given;
                last = *from;
                self.returned.retain(|returned| returned.from < returned.to);
            }
            None => {
                self.level -= tokens;
                self.last = last;
            }
        }
        let promised = tokens - granted;
        self.cut(others + allowance);
        self.pass_epochs(now, owed);
        let mut seen = known.map_or(-1, |node| node.epoch);
        if ask.want > 0 && !ask.at_once && seen != self.epoch {
            self.busy += 1;
            seen = self.epoch;
        }
        Node {
            number: ask.number,
            allowance,
            until: now + time_to_live(ask),
            epoch: seen,
            granted,
            promised,
            queued_before,
            part,
            at: self.clock,
            last: if promised > 0 { last } else { 0 },
            places: Vec::new(),
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
