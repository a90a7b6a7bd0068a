//! The shared bucket: the rules of a store as a state machine without a clock, a server or a network.

use super::terms::LONGEST;
use super::{ClassGrant, LeaseGrant, LeaseRequest, QuotaTerms, StoreError};
use std::collections::HashMap;

mod classes;
mod granting;
mod minting;
mod new_quota;
mod periods;
mod places;
mod returns;

pub(super) use classes::Class;
use granting::{Asked, Claims};
pub(super) use places::Place;

/// The shortest length of an epoch, in microseconds: nodes with waiters are counted per epoch.
const EPOCH: i64 = 250_000;

/// A store promises tokens that are minted within so many microseconds, or within 2.5 round trips of the asking node if that
/// is more, up to the second number.
const HORIZON: i64 = 250_000;
const LONGEST_HORIZON: i64 = 1_000_000;
/// A node keeps its place so long after it was expected, or 1.25 round trips if that is more, up to the second number.
const GRACE: i64 = 100_000;
const LONGEST_GRACE: i64 = 1_250_000;
/// The longest sleep of a node with a place, unless it has waited for more than twice as long.
const SLEEP: i64 = 700_000;
/// A class that is ahead of others looks again after this time.
const LOOK: i64 = 5_000;
/// The most places: the next node gets none, and is told the same wait.
const MOST_PLACES: usize = 1_000;

/// The numbers of promised tokens begin again beyond this one.
const LAST: i64 = 1 << 52;

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
/// let terms = QuotaTerms::of(&Quota::per_second(10)).unwrap();
/// let mut request = LeaseRequest::new(1, 1, terms);
/// (request.want, request.useful) = (12, 250_000); // the claims wait for 250 ms more
/// let grant = ask(&mut records, "api", &request, 1_700_000_000_000_000).unwrap();
/// assert_eq!((grant.now, grant.promised), (10, 2));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The tokens of all places, and up to how many tokens the bucket fills for the oldest one.
    pub(super) placed: i64,
    pub(super) fill: i64,
    /// The number of the last promised token. Each promised token has a number of its own, and is minted at one instant. While
    /// the level is below 0, `last + level` is the number of the last one that was minted.
    pub(super) last: i64,
    /// While the level is below 0: tokens that are there all the same, as nodes returned them.
    pub(super) credit: i64,
    /// Tokens up to this number are lost if they return before they come: the clock has stepped back since they were promised,
    /// or the quota has changed, so later numbers may come before them.
    pub(super) void: i64,
    /// Promised tokens that nodes returned before they were minted, by their numbers.
    pub(super) returned: Vec<Returned>,
    /// The sum of all allowances.
    pub(super) held: i64,
    pub(super) nodes: HashMap<u128, Node>,
    /// The classes that nodes asked for lately. Empty without classes; else class 0 comes first.
    pub(super) classes: Vec<Class>,
    /// No node is remembered for longer than until this instant.
    pub(super) last_until: i64,
    /// The instant from which the bucket may be forgotten.
    pub(super) ends: i64,
}

/// What a bucket knows of one node, with the answer to its last request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The number of the last token that it promised; 0 if it promised none.
    pub(super) last: i64,
    /// The classes for which the last answer did not give all that they lack. Without classes, claims are those of class 0.
    pub(super) places: Vec<Place>,
}

/// The promised tokens with the numbers above `from`, up to `to`: none if `to` is not larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Returned {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl SharedBucket {
    /// Creates the bucket of a store that has no record. All instants are microseconds of the store's clock since the Unix
    /// epoch; a stepped quota needs that origin for its periods.
    pub fn new(terms: QuotaTerms, now: i64) -> Self {
        // `ends` is 0: it is nothing to remember until it has answered a request.
        let (terms, level) = (terms.kept(0, 0), terms.initial as i64);
        Self { terms, level, stamp: now, swept: now, last_until: now, ..Self::default() }
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
    /// A repeat of the node's last request gets the same tokens, and `age` tells how long ago they were first given. If the
    /// clock has stepped back since the last request, no time has passed.
    ///
    /// A request with an older version of another quota is told the bucket's quota and gets no tokens, unless it wants them
    /// at once: the node asks anew by the newer quota.
    ///
    /// # Errors
    ///
    /// [`StoreError::QuotaConflict`] if the request has a different quota than the bucket and the same version;
    /// [`StoreError::Refused`] if a later request of its node has overtaken it, or a newer quota cannot be counted with;
    /// [`StoreError::OtherPeriod`], with the bucket unchanged, if `now` is not in the period of the request's calendar.
    pub fn answer(&mut self, ask: &LeaseRequest, now: i64) -> Result<LeaseGrant, StoreError> {
        let (stored, asked) = (self.terms, ask.terms);
        if asked.version == stored.version && !asked.is_same_quota(&stored) {
            return Err(StoreError::QuotaConflict { stored: Box::new(stored), asked });
        }
        if let Some(Node { number, .. }) = self.nodes.get(&ask.node).filter(|node| ask.number < node.number) {
            return Err(StoreError::Refused(format!("TOLLGATE request {} comes after {number}", ask.number)));
        }
        self.check_period(asked, now)?;
        let begins_anew = self.turn(asked, now);
        if begins_anew || self.nodes.is_empty() || now >= self.swept + (time_to_live(ask) + 3) / 4 || now < self.swept {
            self.sweep(now);
        }
        self.mint(now);
        if asked.version > stored.version && !self.take_over(asked, now) {
            self.keep(now);
            return Err(owes(-self.level));
        }
        let mut asked = self.begin(ask, now);
        let there = self.there();
        self.judge(&mut asked, there);
        let mut node = if asked.is_repeat { asked.repeat() } else { self.grant(&mut asked) };
        let classes = self.send_away(&asked, &mut node);
        Ok(self.finish(&asked, node, classes, there))
    }

    /// Takes the node out of the bucket for the time of its request, and takes back the tokens that it returns.
    fn begin<'a>(&mut self, ask: &'a LeaseRequest, now: i64) -> Asked<'a> {
        let known = self.nodes.remove(&ask.node);
        let (is_known, is_repeat) = (known.is_some(), known.as_ref().is_some_and(|node| node.number == ask.number));
        let before = known.unwrap_or(Node { epoch: -1, ..Node::default() });
        let reach = (exact(ask.rtt).saturating_mul(5) / 2).clamp(HORIZON, LONGEST_HORIZON);
        let mut claims = Claims::of(ask, self.terms.burst as i64);
        let shares = self.shares_with(ask, &mut claims, now, 2 * reach);
        // Nothing is promised for the next period of a calendar: no debt is there when it begins.
        let reach = if self.terms.is_calendar() { 0 } else { reach };
        for claims in &mut claims {
            claims.reach = self.reach(&shares, reach, exact(ask.rtt), claims.class);
        }
        let places = self.places(now);
        // What was saved up for a node that has not come, or whose claim has left, is not there any more.
        let own = before.places.iter().filter_map(|place| {
            let claims = claims.iter().find(|claims| claims.number == place.class)?;
            let is_kept = claims.want == 0 && claims.lack > 0;
            Some(Place { first: if is_kept { place.first } else { place.first.min(claims.first) }, ..*place })
        });
        self.note_places(&own.collect::<Vec<_>>(), &places);
        self.cut(self.held);
        self.held -= before.allowance;
        let held = if is_known { exact(ask.held) } else { 0 };
        if is_known && !is_repeat {
            self.take_back(ask, self.most_back(ask, &before), self.held + held);
        }
        Asked { ask, now, before, is_repeat, held, reach, claims, shares, places }
    }

    /// Decides how much of the tokens each claim may get. So many tokens are `there`.
    fn judge(&self, asked: &mut Asked<'_>, there: i64) {
        let Asked { ask, now, ref shares, ref places, .. } = *asked;
        for claims in &mut asked.claims {
            (claims.older, claims.sooner) = places.before(claims.number, self.lead_of(claims.number), now - claims.age);
            claims.within = if ask.at_once { 0 } else { self.minted_within(claims.reach.min(claims.useful)) };
            if !self.classes.is_empty() {
                // So small a part that classes take turns several times within the horizon.
                let tokens = there + self.minted_within(claims.reach * 2 / 5);
                (claims.part, claims.is_ahead) = self.part_of(shares, claims.class, tokens, claims.first);
            }
        }
    }

    /// Returns what each class is told. A class that gets nothing, and whose claims can still be served in time, gets a place.
    fn send_away(&mut self, asked: &Asked<'_>, node: &mut Node) -> Vec<ClassGrant> {
        let Asked { ask, now, is_repeat, ref places, .. } = *asked;
        let (has_classes, is_in_vain) = (!ask.classes.is_empty(), node.gets() == 0);
        let grace = (exact(ask.rtt).saturating_mul(5) / 4).clamp(GRACE, LONGEST_GRACE);
        let mut told = Vec::new();
        for claims in &asked.claims {
            let is_sent_away = claims.given == 0 && claims.first > 0 && (is_in_vain || has_classes);
            let before = if claims.is_ahead { self.given_before(asked, claims) } else { 0 };
            let (wait, sleep) = if is_sent_away { self.wait_of(claims, before, has_classes) } else { (0, 0) };
            told.push(ClassGrant::from_numbers([claims.given, wait, sleep, claims.part].map(|number| number as u64)));
            if is_repeat || ask.at_once || claims.lack <= claims.given {
                continue;
            }
            let mut place = Place { class: claims.number, ..Place::default() };
            if claims.want == 0 {
                place = asked.before.places.iter().find(|own| own.class == claims.number).copied().unwrap_or(place);
            } else if is_sent_away && wait <= claims.useful && places.list.len() + node.places.len() < MOST_PLACES {
                let (first, since) = (claims.first, now - claims.age);
                place = Place { first, since, until: now + sleep + grace, ..place };
                if let Some(class) = self.classes.get_mut(claims.class) {
                    class.seen = class.seen.max(self.clock + sleep);
                }
            }
            if place.first > 0 || !self.classes.is_empty() {
                node.places.push(place);
            }
        }
        told
    }

    /// The tokens that the class of the same node gets first that is furthest behind these claims; 0 if none is.
    fn given_before(&self, asked: &Asked<'_>, claims: &Claims) -> i64 {
        let places = &asked.before.places;
        let lacking = asked.claims.iter().filter(|it| it.lack > it.given);
        let behind = lacking.filter_map(|it| {
            let place = || places.iter().find(|own| own.class == it.number).map_or(0, |own| own.first);
            let first = if it.want > 0 { it.first } else { place() };
            (first > 0).then_some((self.lead_of(it.number), first))
        });
        behind.filter(|(lead, _)| *lead < self.lead_of(claims.number)).min().map_or(0, |(_, first)| first)
    }

    /// For claims that get nothing: the time until the tokens for the first one are there, and the time until the node asks
    /// again.
    fn wait_of(&self, claims: &Claims, given_before: i64, has_classes: bool) -> (i64, i64) {
        // A class that is ahead of others looks again soon.
        let least = if claims.is_ahead { claims.reach + LOOK } else { 0 };
        let behind = |places: i64| least.max(self.time_to(claims.first + places.max(given_before) - self.level));
        let wait = behind(claims.older);
        // A node that does not know of classes computes its sleep from the wait.
        let soonest = if has_classes { behind(claims.sooner) } else { wait };
        (wait, (soonest - claims.reach).clamp(0, longest_sleep(claims.age)))
    }

    /// Puts the node back, and makes the answer.
    fn finish(&mut self, asked: &Asked<'_>, mut node: Node, classes: Vec<ClassGrant>, there: i64) -> LeaseGrant {
        let Asked { ask, now, ref before, reach, .. } = *asked;
        node.until = node.places.iter().map(|place| place.until).fold(node.until, i64::max);
        self.note_places(&node.places, &asked.places);
        let busy = self.busy.max(self.was).max(1);
        // One part more is left for a node that joins.
        let part = ((there + self.minted_within(reach * busy / (busy + 1))) / busy).max(1);
        let wait = classes.iter().map(|class| class.wait).filter(|wait| node.gets() == 0 && *wait > 0).min();
        let mut answer = LeaseGrant {
            before: before.number,
            age: (self.clock - node.at) as u64,
            now: node.granted as u64,
            promised: node.promised as u64,
            queued_before: node.queued_before as u64,
            phase: node.part as u64,
            wait: wait.unwrap_or(0),
            part: part as u64,
            remaining: self.there() as u64,
            last: node.last as u64,
            clock: self.clock as u64,
            terms: (!self.terms.is_same_quota(&ask.terms)).then_some(self.terms),
            classes: if ask.classes.is_empty() { Vec::new() } else { classes },
            ..LeaseGrant::default()
        };
        // The bucket forgets a node that leaves. While it still remembers other nodes, it keeps their record for longer than it
        // must, as the script in Redis does.
        if !ask.leave {
            answer.allowance = node.allowance as u64;
            self.held += node.allowance;
            self.last_until = self.last_until.max(node.until);
            self.nodes.insert(ask.node, node);
        }
        answer.nodes = self.nodes.len() as u64;
        self.keep(now);
        answer
    }

    /// The tokens that are there.
    fn there(&self) -> i64 {
        self.level.max(0) + self.credit
    }

    /// The number of the last promised token that was minted.
    fn minted(&self) -> i64 {
        self.last + self.level.min(0)
    }

    /// Returns the instant, in microseconds of the store's clock, after which the store may delete the record: by then all
    /// nodes have reached the end of their time to live, and the bucket is full. With `initial` tokens below the burst it is
    /// an hour later, because a new bucket would have fewer tokens. A changed quota makes it no earlier.
    pub fn ends(&self) -> i64 {
        self.ends
    }

    /// Returns whether the store may delete the record at `now`: whether [`ends`](Self::ends) has passed.
    pub fn is_forgotten(&self, now: i64) -> bool {
        self.ends < now
    }
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

fn longest_sleep(age: i64) -> i64 {
    SLEEP.max(age / 2)
}
