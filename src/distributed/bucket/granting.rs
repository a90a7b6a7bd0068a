//! What a bucket grants to the claims of a request.

use super::classes::Shares;
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
        let LeaseRequest { want, first, age, useful, .. } = *ask;
        let all = ClassClaims { want, first, lack: want, age, useful, ..ClassClaims::default() };
        let rows = if ask.classes.is_empty() { std::slice::from_ref(&all) } else { &ask.classes };
        let of = |row: &ClassClaims| {
            let [number, _, _, want, first, lack, age, useful] = row.numbers().map(|number| number as i64);
            let (first, age) = (first.min(burst), age.min(LONGEST as i64));
            Claims { number, want, first, lack, age, useful, part: 1, ..Claims::default() }
        };
        rows.iter().map(of).collect()
    }
}

/// A request while it is answered. Its node is not in the bucket meanwhile.
pub(super) struct Asked<'a> {
    pub(super) ask: &'a LeaseRequest,
    pub(super) now: i64,
    /// The node as of its last request.
    pub(super) before: Node,
    pub(super) is_repeat: bool,
    /// The allowance that the node has kept; 0 if it is not known.
    pub(super) held: i64,
    /// How far ahead tokens are promised to it.
    pub(super) reach: i64,
    pub(super) claims: Vec<Claims>,
    pub(super) shares: Shares,
    pub(super) places: Places,
}

impl Asked<'_> {
    /// Gives what the last answer gave.
    pub(super) fn repeat(&mut self) -> Node {
        let mut rest = self.before.gets();
        for claims in &mut self.claims {
            claims.given = claims.want.min(rest);
            rest -= claims.given;
        }
        Node { until: self.now + time_to_live(self.ask), ..self.before.clone() }
    }
}

/// Where the tokens of an answer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// They are there in spite of a debt.
    Credit,
    /// A node returned them before they came.
    Returned(usize),
    /// They are not promised yet.
    New,
}

impl SharedBucket {
    /// Grants `want` to each class, or the largest multiple of `first` that can be had, or nothing: only tokens that are minted
    /// within the horizon and while they are of use, and that are not left for claims of other nodes that come before.
    pub(super) fn grant(&mut self, asked: &mut Asked<'_>) -> Node {
        let (origin, given) = self.give_of_one(asked);
        let Asked { ask, now, ref before, held, ref places, .. } = *asked;
        let (burst, count) = (self.terms.burst as i64, self.nodes.len() as i64 + 1);
        let (half, fair) = (burst / 2, (burst / (2 * (count + 1))).max(1));
        let allowance = fair.max(exact(ask.minimum)).min(half - self.held).max(held);
        // Callers to come get tokens that are there and for which no claim waits; beside claims that wait, and for one that was
        // denied, those of the horizon.
        let spare = self.level + if ask.minimum > 0 || given > 0 { self.minted_within(asked.reach) } else { 0 };
        let is_new = origin == Origin::New && !self.is_outdated(ask);
        let most = if is_new { spare - given - places.all } else { 0 };
        let more = exact(ask.ahead).min(allowance - exact(ask.banked)).min(most).max(0);
        let allowance = allowance.min(exact(ask.banked) + more).max(held);
        let (owed, part) = ((-self.level).max(0), self.phase());
        let (granted, queued_before, last) = self.take(origin, given + more);
        let promised = given + more - granted;
        self.cut(self.held + allowance);
        self.pass_epochs(now, owed);
        let mut epoch = before.epoch;
        if ask.want > 0 && !ask.at_once && epoch != self.epoch {
            self.busy += 1;
            epoch = self.epoch;
        }
        if !self.classes.is_empty() {
            self.charge(&asked.shares, &asked.claims);
        }
        let (number, until, at) = (ask.number, now + time_to_live(ask), self.clock);
        let last = if promised > 0 { last } else { 0 };
        Node { number, allowance, until, epoch, granted, promised, queued_before, part, at, last, places: Vec::new() }
    }

    /// All tokens of an answer have one origin: those that are there in spite of a debt, returned ones that come after all that
    /// the node still has, or those that are not promised yet.
    fn give_of_one(&self, asked: &mut Asked<'_>) -> (Origin, i64) {
        let kept = exact(asked.ask.last) - exact(asked.ask.unused);
        let credit = (self.level < 0).then_some(Origin::Credit);
        let returned = (0..self.returned.len()).filter(|index| self.returned[*index].from >= kept);
        let origins = credit.into_iter().chain(returned.map(Origin::Returned)).chain([Origin::New]);
        let mut all = origins.map(|origin| (origin, self.give(asked, origin)));
        all.find(|(_, given)| *given > 0).unwrap_or((Origin::New, 0))
    }

    /// Gives each class `want`, or a multiple of `first`, or nothing, of tokens with this origin. Returns how many in all.
    fn give(&self, asked: &mut Asked<'_>, origin: Origin) -> i64 {
        let (ask, minted) = (asked.ask, self.minted());
        let in_time = |returned: &Returned, within: i64| (returned.to.min(minted + within) - returned.from).max(0);
        let of_origin = |within: i64| match origin {
            Origin::Credit => self.credit,
            Origin::Returned(index) => in_time(&self.returned[index], within),
            Origin::New => self.level + within,
        };
        let all = |within: i64| match self.level + within {
            later if self.level >= 0 => later,
            later => self.credit + self.returned.iter().map(|run| in_time(run, within)).sum::<i64>() + later.max(0),
        };
        let mut sum = 0;
        for claims in &mut asked.claims {
            let older = if ask.at_once { asked.places.all } else { claims.older };
            let can = of_origin(claims.within).min(all(claims.within) - older) - sum;
            claims.given = match can {
                _ if claims.is_ahead || self.is_outdated(ask) => 0,
                can if claims.want <= can => claims.want,
                _ if ask.at_once => 0,
                can => can.max(0) - can.max(0) % claims.first.max(1),
            };
            sum += claims.given;
        }
        sum
    }

    /// Whether the node has chosen its numbers by an older quota. It asks anew when it knows the newer one.
    fn is_outdated(&self, ask: &LeaseRequest) -> bool {
        !ask.at_once && !ask.terms.is_same_quota(&self.terms)
    }

    /// Takes so many tokens. Returns how many of them are there, how many that are promised come before the others, and the
    /// number of the last one.
    fn take(&mut self, origin: Origin, tokens: i64) -> (i64, i64, i64) {
        let (there, owed, minted) = (self.level.min(tokens).max(0), (-self.level).max(0), self.minted());
        match origin {
            Origin::Credit => {
                self.credit -= tokens;
                (tokens, owed, 0)
            }
            Origin::Returned(index) => {
                let from = &mut self.returned[index].from;
                let queued_before = *from - minted;
                *from += tokens;
                let last = *from;
                self.returned.retain(|returned| returned.from < returned.to);
                (there, queued_before, last)
            }
            Origin::New => {
                self.level -= tokens;
                self.last += tokens - there;
                (there, owed, self.last)
            }
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
