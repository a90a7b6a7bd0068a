//! The places of nodes that were sent away: advice, not tokens.

use super::{LONGEST_GRACE, SharedBucket, longest_sleep};
use std::cmp::Reverse;

/// A class that lacks tokens on a node, and its place there, if it was sent away: advice, not tokens. While the node is
/// expected, claims that come after it leave `first` tokens for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::distributed) struct Place {
    pub(in crate::distributed) class: i64,
    /// 0 if the class has no place.
    pub(in crate::distributed) first: i64,
    /// When the first claim arrived, and until when the place is kept: a little later than the node is expected.
    pub(in crate::distributed) since: i64,
    pub(in crate::distributed) until: i64,
}

impl Place {
    /// Whether the node is expected. A place further ahead than a node may come is void: the clock was set back.
    pub(super) fn is_kept(&self, now: i64) -> bool {
        let latest = now + longest_sleep(now - self.since) + LONGEST_GRACE;
        self.first > 0 && (now..=latest).contains(&self.until)
    }
}

/// A place in the order in which they are served: by the lead of the class, by age, and of one age the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ordered {
    lead: i64,
    since: i64,
    first: Reverse<i64>,
    class: i64,
}

/// The places of other nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) list: Vec<Ordered>,
    /// The tokens of all of them.
    pub(super) all: i64,
}

impl Places {
    /// The tokens of those before a claim of a class, and how many are surely given before it gets some: the first place of
    /// another class gets its tokens, and the others may come behind it then.
    pub(super) fn before(&self, class: i64, lead: i64, since: i64) -> (i64, i64) {
        let before = || self.list.iter().filter(|place| (place.lead, place.since) < (lead, since));
        let tokens = |place: &Ordered| place.first.0;
        let own: i64 = before().filter(|place| place.class == class).map(tokens).sum();
        let first = before().filter(|place| place.class != class).min();
        (before().map(tokens).sum(), own + first.map_or(0, tokens))
    }
}

impl SharedBucket {
    /// The places of all nodes but the one that asks.
    pub(super) fn places(&self, now: i64) -> Places {
        let mut places = Places::default();
        if self.placed == 0 {
            return places;
        }
        let kept = self.nodes.values().flat_map(|node| &node.places).filter(|place| place.is_kept(now));
        for place in kept {
            let first = place.first.min(self.terms.burst as i64);
            places.all += first;
            places.list.push(self.ordered(place, first));
        }
        places
    }

    /// Records the tokens of all places, and up to how many tokens the bucket fills: while the first place in order lacks more
    /// than the allowances leave, they come on top of these.
    pub(super) fn note_places(&mut self, own: &[Place], others: &Places) {
        let own = own.iter().filter(|place| place.first > 0);
        self.placed = others.all + own.clone().map(|place| place.first).sum::<i64>();
        let own = own.map(|place| self.ordered(place, place.first));
        self.fill = others.list.iter().copied().chain(own).min().map_or(0, |place| place.first.0);
    }

    fn ordered(&self, place: &Place, first: i64) -> Ordered {
        let Place { class, since, .. } = *place;
        Ordered { lead: self.lead_of(class), since, first: Reverse(first), class }
    }
}
