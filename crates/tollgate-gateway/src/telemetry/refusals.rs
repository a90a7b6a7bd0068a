//! The refusals of the last minute by client and reason, and all since the start by reason and limit. Memory is bounded: what
//! further unlisted clients are refused in a window counts as that of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::limit::Limit;
use crate::limits::reason::Reason;
use crate::request::client::Client;
use crate::request::client_hash::ClientHash;

/// A minute, in windows.
const WINDOWS: usize = 6;
const WINDOW: Duration = Duration::from_secs(10);
/// Refusals of different clients rarely wait for each other's lock.
const PARTS: usize = 16;
/// How many clients and reasons a part of a window has, besides those of listed keys, whose number the file bounds.
const MAX_ENTRIES: usize = 64;

/// The client that a refusal is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RefusedClient {
    Client(Client),
    /// The request was refused before its client was known.
    Unidentified,
    /// Unlisted clients beyond those that are told apart.
    Others,
}

type RefusalKey = (RefusedClient, Reason, Option<Limit>);
type Counts = HashMap<RefusalKey, Count, ClientHash>;
/// How many refusals there were for each reason and limit. The names of limits are from the file, so they are few.
type Totals = BTreeMap<(Reason, Option<Limit>), u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) count: u64,
    pub(crate) last: Instant,
}

pub(crate) struct Refusals {
    began: Instant,
    parts: [Mutex<Part>; PARTS],
}

/// The refusals of some clients.
#[derive(Default)]
struct Part {
    windows: [Window; WINDOWS],
    /// Since the start.
    totals: Totals,
}

#[derive(Default)]
struct Window {
    /// The time of this window, in windows since the start.
    number: u64,
    counts: Counts,
}

/// Refusals of one client for one reason.
pub(crate) type Kind = (RefusedClient, Reason, Option<Limit>, Count);

/// The refusals of about the last minute.
pub(crate) struct RecentRefusals {
    /// How long this time is.
    pub(crate) span: Duration,
    pub(crate) count: u64,
    /// How many kinds of refusals there were: by client and reason.
    pub(crate) kinds: usize,
    /// Those with the most refusals, the most first.
    pub(crate) most: Vec<Kind>,
}

impl Refusals {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), parts: Default::default() }
    }

    pub(crate) fn note(&self, client: Option<Client>, reason: Reason, limit: Option<Limit>) {
        let refused_client = client.map_or(RefusedClient::Unidentified, RefusedClient::Client);
        let (now, number) = self.now();
        let mut part = self.part_of(&refused_client);
        *part.totals.entry((reason, limit)).or_default() += 1;
        let window = &mut part.windows[number as usize % WINDOWS];
        if window.number != number {
            *window = Window { number, counts: Counts::default() };
        }
        let always = !matches!(refused_client, RefusedClient::Client(Client::Key { .. } | Client::Address(_)));
        let fits =
            always || window.counts.len() < MAX_ENTRIES || window.counts.contains_key(&(refused_client, reason, limit));
        let place = if fits { (refused_client, reason, limit) } else { (RefusedClient::Others, reason, limit) };
        let count = window.counts.entry(place).or_insert(Count { count: 0, last: now });
        count.count += 1;
        count.last = now;
    }

    fn part_of(&self, refused_client: &RefusedClient) -> MutexGuard<'_, Part> {
        // The low bits of the hash depend on those of an address only, which names have in common.
        let number = (ClientHash::default().hash_one(refused_client) >> 32) as usize % PARTS;
        self.parts[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_parts(&self) -> impl Iterator<Item = MutexGuard<'_, Part>> {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The refusals since the start.
    pub(crate) fn totals(&self) -> Totals {
        let mut all = Totals::new();
        for part in self.all_parts() {
            part.totals.iter().for_each(|(place, count)| *all.entry(*place).or_default() += count);
        }
        all
    }

    /// The refusals of about the last minute, and the `shown` kinds of which there were the most. There may be thousands of
    /// kinds, and this is called several times a second: only those that are shown are sorted, and their names are not read.
    pub(crate) fn recent(&self, shown: usize) -> RecentRefusals {
        let (now, number) = self.now();
        let oldest = number.saturating_sub(WINDOWS as u64 - 1);
        let mut all = Counts::default();
        for part in self.all_parts() {
            let windows = part.windows.iter().filter(|window| window.number >= oldest);
            for (place, seen) in windows.flat_map(|window| &window.counts) {
                let sum = all.entry(*place).or_insert(Count { count: 0, last: seen.last });
                sum.count += seen.count;
                sum.last = sum.last.max(seen.last);
            }
        }
        let count = all.values().map(|seen| seen.count).sum();
        let mut most: Vec<Kind> = all
            .into_iter()
            .map(|((refused_client, reason, limit), seen)| (refused_client, reason, limit, seen))
            .collect();
        let (kinds, rank) = (most.len(), |kind: &Kind| (Reverse(kind.3.count), kind.0, kind.1, kind.2));
        if shown < kinds {
            most.select_nth_unstable_by_key(shown, rank);
            most.truncate(shown);
        }
        most.sort_unstable_by_key(rank);
        let span = now - (self.began + WINDOW * u32::try_from(oldest).unwrap_or(u32::MAX));
        RecentRefusals { span, count, kinds, most }
    }

    fn now(&self) -> (Instant, u64) {
        let now = Instant::now();
        (now, (now - self.began).as_secs() / WINDOW.as_secs())
    }
}

impl fmt::Display for RefusedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => client.fmt(f),
            Self::Unidentified => f.write_str("(not identified)"),
            Self::Others => f.write_str("(other clients)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::name::Name;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_told_apart_for_a_minute_and_then_only_totalled() {
        let refusals = Refusals::new();
        let ann = Client::Listed(Name::new("ann"));
        for _ in 0..3 {
            refusals.note(Some(ann), Reason::OwnQuota, Some(Limit::Own));
        }
        refusals.note(None, Reason::Unknown, None);
        let seen: Vec<_> = refusals
            .recent(9)
            .most
            .into_iter()
            .map(|(client, reason, _, count)| (client.to_string(), reason, count.count))
            .collect();
        let expected = [("ann".to_owned(), Reason::OwnQuota, 3), ("(not identified)".to_owned(), Reason::Unknown, 1)];
        assert_eq!(seen, expected);
        tokio::time::advance(Duration::from_secs(45)).await;
        refusals.note(Some(ann), Reason::OwnQuota, Some(Limit::Own));
        assert_eq!(refusals.recent(9).most[0].3.count, 4);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(refusals.recent(9).most[0].3.count, 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(refusals.recent(9).most, []);
        let totals = [((Reason::OwnQuota, Some(Limit::Own)), 4), ((Reason::Unknown, None), 1)];
        assert_eq!(refusals.totals(), totals.into());
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_keys_take_bounded_memory_and_hide_no_listed_key() {
        let refusals = Refusals::new();
        for number in 0..100_000 {
            refusals.note(Some(Client::of_key(&number.to_string())), Reason::OwnQuota, Some(Limit::Own));
        }
        let names: Vec<_> = (0..100).map(|number| Client::Listed(Name::new(&format!("listed-{number}")))).collect();
        names.iter().for_each(|name| refusals.note(Some(*name), Reason::AllWait, Some(Limit::All)));
        let RecentRefusals { count, kinds, most, .. } = refusals.recent(usize::MAX);
        assert!(kinds <= PARTS * (MAX_ENTRIES + 1) + names.len(), "{kinds}");
        assert_eq!((count, most.len()), (100_100, kinds));
        assert_eq!(most[0].0, RefusedClient::Others);
        // The first ones are the same, whatever the number that is shown, and at each call.
        let first = |shown| refusals.recent(shown).most.iter().map(|kind| (kind.0, kind.3.count)).collect::<Vec<_>>();
        assert!([1, 12, 300].into_iter().all(|shown| first(shown) == first(usize::MAX)[..shown]));
        let shown = |name| most.iter().any(|(client, ..)| *client == RefusedClient::Client(name));
        assert!(names.into_iter().all(shown));
    }

    #[test]
    fn kinds_with_equal_counts_are_shown_in_one_order() {
        let (refusals, ann) = (Refusals::new(), Client::Listed(Name::new("ann")));
        let rules: Vec<_> = (0..50).map(|number| Limit::Rule(Name::new(&format!("route {number:02}")))).collect();
        rules.iter().for_each(|rule| refusals.note(Some(ann), Reason::RuleQuota, Some(*rule)));
        let shown: Vec<_> = refusals.recent(12).most.into_iter().filter_map(|(_, _, limit, _)| limit).collect();
        assert_eq!(shown, rules[..12]);
    }
}
