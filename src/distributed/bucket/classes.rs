//! Classes of all nodes that share a bucket by weight: start-time fair queueing.
//!
//! Each class has a *lead*: how far its start tag is ahead of the virtual time, in thousandths of the tokens that all classes
//! together get meanwhile. The virtual time is the smallest start tag of a class that lacks tokens, so that its lead is 0.

use super::{Claims, LONGEST_HORIZON, Node, Place, SharedBucket};
use crate::core::classes::{MAX_DEPTH, MAX_WEIGHT};
use crate::distributed::{ClassClaims, LeaseRequest};

/// The most classes that a bucket knows: the one that was seen last of all is forgotten for a new one.
const MOST_CLASSES: usize = 128;
/// A class is remembered so long after a request, in microseconds.
const REMEMBERED: i64 = 2 * LONGEST_HORIZON;
/// The least time within which tokens are promised while a class may come back.
const LEAST_REACH: i64 = 5_000;
/// No lead is larger.
const MOST_LEAD: f64 = (1_u64 << 52) as f64;

/// What a bucket knows of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::distributed) struct Class {
    pub(in crate::distributed) number: i64,
    pub(in crate::distributed) parent: i64,
    pub(in crate::distributed) weight: i64,
    pub(in crate::distributed) lead: i64,
    /// Until when nodes lacked tokens for claims of the class itself, or are expected for them, by [`SharedBucket::clock`].
    pub(in crate::distributed) seen: i64,
}

/// How the tokens are shared at one instant. Each list has one number for each class of the bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// On how many nodes each class lacks tokens, and on how many it will if the request is granted.
    nodes: Vec<i64>,
    stay: Vec<i64>,
    /// The weights of the classes in it that do, and 1 for its own claims.
    weights: Vec<i64>,
    /// The same for the classes that did a moment ago: what classes are charged by does not depend on who lacks tokens now.
    live: Vec<i64>,
}

impl SharedBucket {
    /// The place of a class in the list. A class that is not known has that of class 0.
    fn class_at(&self, number: i64) -> usize {
        self.classes.iter().position(|class| class.number == number).unwrap_or(0)
    }

    pub(super) fn lead_of(&self, number: i64) -> i64 {
        self.classes.get(self.class_at(number)).map_or(0, |class| class.lead)
    }

    /// Records the classes of a request. A class in another class begins with the largest lead of its siblings there: a new
    /// name is no way around what the others have had.
    fn note_classes(&mut self, claims: &[ClassClaims]) {
        let clock = self.clock;
        let weights = self.weights(|class| clock - class.seen < REMEMBERED);
        let mut is_known = weights.iter().map(|weight| *weight > 0);
        self.classes.retain(|class| is_known.next() == Some(true) || class.number == 0);
        if self.classes.len() == 1 && claims.is_empty() {
            self.classes.clear();
        }
        if self.classes.is_empty() && !claims.is_empty() {
            self.classes.push(Class { weight: 1, seen: -REMEMBERED, ..Class::default() });
        }
        for claims in claims {
            let [number, parent, weight, ..] = claims.numbers().map(|number| number as i64);
            let mut at = self.class_at(number);
            if self.classes[at].number != number {
                let siblings = self.classes.iter().filter(|class| parent != 0 && class.parent == parent);
                let lead = siblings.map(|class| class.lead).max().unwrap_or(0);
                if self.classes.len() == MOST_CLASSES {
                    let oldest = (1..MOST_CLASSES).min_by_key(|at| self.classes[*at].seen).unwrap_or(1);
                    self.classes.remove(oldest);
                }
                at = self.classes.len();
                self.classes.push(Class { number, lead, seen: -REMEMBERED, ..Class::default() });
            }
            let class = &mut self.classes[at];
            (class.parent, class.weight) = (parent, weight.clamp(1, MAX_WEIGHT as i64));
            if claims.lack > 0 {
                class.seen = class.seen.max(clock);
            }
        }
    }

    /// Records the classes of the request, and returns how tokens are shared among the classes of all nodes.
    pub(super) fn shares_with(&mut self, ask: &LeaseRequest, claims: &mut [Claims], now: i64, recent: i64) -> Shares {
        self.note_classes(&ask.classes);
        if self.classes.is_empty() {
            return Shares::default();
        }
        if ask.classes.is_empty() && ask.want > 0 {
            self.classes[0].seen = self.classes[0].seen.max(self.clock);
        }
        claims.iter_mut().for_each(|claims| claims.class = self.class_at(claims.number));
        let (clock, mut nodes) = (self.clock, vec![0; self.classes.len()]);
        let lacking = self.nodes.values().flat_map(|node| node.lacks(now, clock, recent));
        lacking.for_each(|place| nodes[self.class_at(place.class)] += 1);
        let mut stay = nodes.clone();
        claims.iter().for_each(|claims| {
            nodes[claims.class] += i64::from(claims.lack > 0);
            stay[claims.class] += i64::from(claims.lack > claims.want);
        });
        let weights = self.weights(|class| nodes[self.class_at(class.number)] > 0);
        let live = self.weights(|class| clock - class.seen < recent);
        Shares { nodes, stay, weights, live }
    }

    /// Of each class, the weights of the classes in it of which some are `counted`, or have such classes in them, and 1 if it is
    /// itself.
    fn weights(&self, counted: impl Fn(&Class) -> bool) -> Vec<i64> {
        let mut weights = vec![0; self.classes.len()];
        for own in (0..weights.len()).filter(|own| counted(&self.classes[*own])) {
            let (mut at, mut is_new) = (own, weights[own] == 0);
            weights[own] += 1;
            while at > 0 && is_new {
                let Class { parent, weight, .. } = self.classes[at];
                at = self.class_at(parent);
                is_new = weights[at] == 0;
                weights[at] += weight;
            }
        }
        weights
    }

    /// The smallest lead of a class that lacks tokens.
    fn least_lead(&self, shares: &Shares) -> i64 {
        let lacking = self.classes.iter().zip(&shares.nodes).filter(|(_, nodes)| **nodes > 0);
        lacking.map(|(class, _)| class.lead).min().unwrap_or(0)
    }

    /// Within which time tokens are promised: while another class was there a moment ago and
    /// will lack none, it may be back at once.
    pub(super) fn reach(&self, shares: &Shares, reach: i64, rtt: i64, class: usize) -> i64 {
        let may_return =
            |at: usize| at != class && shares.stay[at] == 0 && self.clock - self.classes[at].seen < 2 * reach;
        if (0..self.classes.len()).any(may_return) { reach.min((2 * rtt).max(LEAST_REACH)) } else { reach }
    }

    /// What is due to the class of all tokens, by these weights.
    fn share_of(&self, weights: &[i64], class: usize) -> f64 {
        let mut share = 1.0 / weights[class].max(1) as f64;
        let mut at = class;
        for _ in 0..MAX_DEPTH {
            if at == 0 {
                break;
            }
            let Class { parent, weight, .. } = self.classes[at];
            at = self.class_at(parent);
            share = share * weight as f64 / weights[at].max(1) as f64;
        }
        share.min(1.0)
    }

    /// The part of one node in which the class lacks tokens, of so many, and whether the class is more than that ahead of
    /// another one that lacks tokens.
    pub(super) fn part_of(&self, shares: &Shares, class: usize, tokens: i64, first: i64) -> (i64, bool) {
        let nodes = shares.nodes[class].max(1);
        let part = (tokens as f64 * self.share_of(&shares.weights, class) / nodes as f64).floor() as i64;
        let lead = (self.classes[class].lead - self.least_lead(shares)).max(0);
        let lead = (lead as f64 * self.share_of(&shares.live, class) / 1_000.0).floor() as i64;
        (part.max(1), lead > part.max(first))
    }

    /// The classes were given tokens: the virtual time goes on to the smallest tag of those that lack some.
    pub(super) fn charge(&mut self, shares: &Shares, claims: &[Claims]) {
        for &Claims { class, given, .. } in claims {
            let charged = (given as f64 * 1_000.0 / self.share_of(&shares.live, class)).floor();
            let class = &mut self.classes[class];
            class.lead = (class.lead as f64 + charged).min(MOST_LEAD) as i64;
        }
        if claims.iter().any(|claims| claims.given > 0) {
            let least = self.least_lead(shares);
            self.classes.iter_mut().for_each(|class| class.lead = (class.lead - least).max(0));
        }
    }
}

impl Node {
    /// The tokens of its last answer.
    pub(super) fn gets(&self) -> i64 {
        self.granted + self.promised
    }

    /// For which classes the node lacks tokens, as of a moment ago or by its place.
    pub(super) fn lacks(&self, now: i64, clock: i64, recent: i64) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| clock - self.at < recent || place.is_kept(now))
    }
}
