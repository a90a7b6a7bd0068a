//! How much a node with classes takes at a time, and when: its part of the quota, in whole claims. Pure.
//!
//! A node takes its [part](super::shares) of what all nodes are minted in a share time, and then the next part, shortly
//! before the last of these tokens comes. Its claims do not add up to just that, so the rest is *credit*. A claim that
//! costs more than the part is taken at once, and the node then waits for as many share times as it takes to pay the rest
//! back, unless the store has tokens for which no node asks.

use super::ClassDemand;
use crate::core::classes::ClassId;
use std::collections::HashMap;

/// For how long what other nodes reported is used after an answer, in nanoseconds: as long as a store remembers a node.
const KNOWN_FOR: u64 = super::LeaseRequest::LEASE_TIME.as_nanos() as u64;

/// What a node with classes knows of the others, and what it took.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The demand on the other nodes, and when that is out of date.
    others: Vec<ClassDemand>,
    known_until: u64,
    /// What is due to this node in a share time, in tokens. `None` if the demand on other nodes is not known.
    pub(crate) part: Option<f64>,
    /// Below 0: what was taken beyond the part.
    credit: f64,
    /// When it was taken.
    taken_at: u64,
    /// The next claim is of a class that needs less than its part: what other classes took does not hold it back.
    pub(crate) serves_light: bool,
    /// The last report had claims that wait.
    pub(crate) has_reported: bool,
    pub(crate) usage: Usage,
}

/// What each class of a node was served lately.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// When it was measured.
    at: u64,
    classes: HashMap<ClassId, ClassUsage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassUsage {
    /// All that the class was served so far, and how often the last of its claims was granted.
    served: u64,
    emptied: u64,
    /// What it was served in a share time, on average.
    average: f64,
    /// Claims have waited in it all the time since the measurement before.
    is_backlogged: bool,
}

impl Usage {
    /// What a class can use in a share time: twice what it was served, if claims were left all the time.
    pub(crate) fn of(&self, class: ClassId) -> f64 {
        let usage = self.classes.get(&class).copied().unwrap_or_default();
        if usage.is_backlogged { 2.0 * usage.average } else { usage.average }
    }

    /// Measures anew, if half a share time has passed: by what each class was served so far, and how often the last of its
    /// claims was granted.
    pub(crate) fn measure(&mut self, served: impl Iterator<Item = (ClassId, u64, u64)>, share_time: u64, now: u64) {
        let elapsed = now.saturating_sub(self.at);
        if elapsed < share_time / 2 {
            return;
        }
        let before = std::mem::take(&mut self.classes);
        self.classes.extend(served.map(|(class, served, emptied)| {
            let known = before.get(&class).copied();
            let then = known.unwrap_or(ClassUsage { served, emptied, ..ClassUsage::default() });
            let lately = served.saturating_sub(then.served) as f64 * share_time as f64 / elapsed.max(1) as f64;
            let is_backlogged = known.is_some() && then.emptied == emptied;
            (class, ClassUsage { served, emptied, average: (then.average + lately) / 2.0, is_backlogged })
        }));
        self.at = now;
    }
}

impl Turns {
    /// Records the demand on the other nodes.
    pub(crate) fn learn(&mut self, others: Vec<ClassDemand>, now: u64) {
        (self.others, self.known_until) = (others, now.saturating_add(KNOWN_FOR));
    }

    /// The demand on the other nodes, if it is known.
    pub(crate) fn others(&self, now: u64) -> Option<&[ClassDemand]> {
        (now < self.known_until).then_some(&self.others)
    }

    /// How many tokens the node may take now, at least one claim.
    pub(crate) fn share(&self) -> Option<u64> {
        self.part.map(|part| if self.credit < 0.0 { 0 } else { (part + self.credit) as u64 })
    }

    /// The instant before which the node takes no tokens; 0 if it may. A share time lasts `share_time` nanoseconds.
    pub(crate) fn resumes_at(&self, share_time: u64) -> u64 {
        match self.part {
            Some(_) if self.credit < 0.0 && !self.serves_light => self.pays_until(share_time),
            _ => 0,
        }
    }

    /// The instant by which the node has paid back what it took beyond its part.
    fn pays_until(&self, share_time: u64) -> u64 {
        let share_times = 1.0 - self.credit / self.part.unwrap_or(0.0).max(f64::MIN_POSITIVE);
        self.taken_at.saturating_add((share_times * share_time as f64) as u64)
    }

    /// Forgets what was paid back by now.
    pub(crate) fn end_debt(&mut self, share_time: u64, now: u64) {
        if self.credit < 0.0 && self.pays_until(share_time) <= now {
            self.credit = 0.0;
        }
    }

    /// Records that `tokens` were taken. `is_all`: no claim that waits lacks more.
    pub(crate) fn take(&mut self, tokens: u64, is_all: bool, now: u64) {
        let Some(part) = self.part else { return };
        let most = if is_all { 0.0 } else { part };
        if self.serves_light && self.credit < 0.0 {
            return;
        }
        self.credit = (self.credit.max(0.0) + part - tokens as f64).min(most);
        self.taken_at = now;
    }

    /// What was taken beyond the part is not paid back.
    pub(crate) fn forgive(&mut self) {
        self.credit = self.credit.max(0.0);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const TENTH: u64 = 100_000_000;

    fn turns(part: f64) -> Turns {
        Turns { part: Some(part), ..Turns::default() }
    }

    #[test]
    fn fractions_of_the_part_add_up() {
        let mut turns = turns(1.25);
        let mut taken = 0;
        for turn in 1..=40 {
            let share = turns.share().unwrap();
            assert_eq!(turns.resumes_at(TENTH), 0);
            turns.take(share, false, turn * TENTH);
            taken += share;
        }
        assert_eq!(taken, 50);
    }

    #[test]
    fn a_claim_above_the_part_is_paid_back_before_the_next() {
        let mut turns = turns(2.5);
        turns.take(10, false, TENTH);
        assert_eq!(turns.resumes_at(TENTH), 5 * TENTH, "10 tokens are four parts, and these take four share times");
        // The part has grown meanwhile.
        turns.part = Some(7.5);
        assert_eq!(turns.resumes_at(TENTH), 3 * TENTH);
        // A class that needs little does not wait for that, and one claim of it at a time.
        turns.serves_light = true;
        assert_eq!((turns.resumes_at(TENTH), turns.share()), (0, Some(0)));
        turns.take(1, false, 2 * TENTH);
        turns.serves_light = false;
        assert_eq!(turns.resumes_at(TENTH), 3 * TENTH);
        turns.end_debt(TENTH, 3 * TENTH - 1);
        assert_eq!(turns.resumes_at(TENTH), 3 * TENTH);
        turns.end_debt(TENTH, 3 * TENTH);
        assert_eq!((turns.resumes_at(TENTH), turns.share()), (0, Some(7)));
        turns.take(10, false, 3 * TENTH);
        turns.forgive();
        assert_eq!(turns.resumes_at(TENTH), 0);
    }

    #[test]
    fn a_node_that_needs_less_than_its_part_saves_no_credit() {
        let mut turns = turns(10.0);
        turns.take(3, true, TENTH);
        assert_eq!(turns.share(), Some(10));
        turns.take(7, false, TENTH);
        assert_eq!(turns.share(), Some(13));
        turns.take(1, false, TENTH);
        assert_eq!(turns.share(), Some(20), "a part at most");
        turns.forgive();
        assert_eq!(turns.share(), Some(20), "what is saved stays");
    }

    #[test]
    fn usage_is_counted_per_share_time() {
        let mut usage = Usage::default();
        usage.measure([(1, 500, 3)].into_iter(), TENTH, TENTH);
        assert_eq!(usage.of(1), 0.0, "it is not known for how long the class is there");
        usage.measure([(1, 532, 4), (2, 7, 0)].into_iter(), TENTH, 3 * TENTH);
        assert_eq!([1, 2].map(|class| usage.of(class)), [8.0, 0.0]);
        usage.measure([(1, 999, 4)].into_iter(), TENTH, 3 * TENTH + TENTH / 3);
        assert_eq!(usage.of(1), 8.0, "too early");
        usage.measure([(1, 540, 5), (2, 9, 0)].into_iter(), TENTH, 4 * TENTH);
        assert_eq!([1, 2].map(|class| usage.of(class)), [8.0, 2.0], "claims of the second were left all the time");
        usage.measure([(2, 9, 0)].into_iter(), TENTH, 5 * TENTH);
        assert_eq!(usage.of(1), 0.0, "the class is gone");
    }

    #[test]
    fn what_others_reported_is_out_of_date_after_a_lease() {
        let mut turns = Turns::default();
        assert_eq!((turns.others(0), turns.share(), turns.resumes_at(TENTH)), (None, None, 0));
        turns.learn(Vec::new(), TENTH);
        assert_eq!((turns.others(21 * TENTH - 1), turns.others(21 * TENTH)), (Some(&[][..]), None));
    }
}
