//! What the classes of a node were served lately, from which follows what they need. Pure.

use crate::core::classes::ClassId;
use std::collections::HashMap;

/// Within how many share times a report that was wrong is made up for by the next ones.
const CORRECTED_IN: f64 = 4.0;

/// So few tokens in a share time are averaged over a longer time.
const FEW: f64 = 2.0;

/// What each class of a node was served lately.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// When it was measured.
    at: u64,
    classes: HashMap<ClassId, ClassUsage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassUsage {
    /// All that the class was served so far, and for how long claims have waited in it.
    served: u64,
    waited: u64,
    /// What it was served in a share time, on average over time.
    average: f64,
    /// What it was served in a share time, on average over the measurements, and (`waits`) the part of the time in which
    /// claims waited. A busy class is measured more often, so this is above the average over time: few callers that come
    /// again at once ask for more than they use.
    recent: f64,
    waits: f64,
    /// What was last reported that it needs in a share time, if that is what it is served.
    reported: Option<f64>,
    /// By how much more was reported so far than it was served, in tokens.
    excess: f64,
}

impl ClassUsage {
    /// The estimated use in a share time, corrected so that all reports add up to what was served. An average of few claims is
    /// wrong, and what is reported and not used is lost to the other nodes of the class.
    fn corrected(&self) -> f64 {
        (self.average - self.excess / CORRECTED_IN).clamp(self.average / 2.0, self.average * 2.0)
    }

    /// The use as of `elapsed` nanoseconds later, which are so many share times.
    fn next(self, served: u64, waited: u64, share_times: f64, elapsed: f64) -> Self {
        let tokens = served.saturating_sub(self.served) as f64;
        let waits = waited.saturating_sub(self.waited) as f64 / elapsed;
        // Half of the average is from the last half of a share time, however often it is measured. It is from a longer time if
        // there are few claims: else it would be 0 between them.
        let lately = tokens / share_times;
        let half = if self.average.max(lately) < FEW { 2.0 } else { 0.5 };
        let old = 0.5_f64.powf(share_times / half);
        let excess = self.reported.map_or(0.0, |reported| self.excess + reported * share_times - tokens);
        let most = CORRECTED_IN * (1.0 + self.average);
        Self {
            served,
            waited,
            average: self.average * old + lately * (1.0 - old),
            recent: (self.recent + lately) / 2.0,
            waits: (self.waits + waits) / 2.0,
            reported: self.reported,
            excess: excess.clamp(-most, most),
        }
    }
}

impl Usage {
    /// What a class was served in a share time, and what it can use: up to twice that, if claims waited in it all the time.
    pub(crate) fn of(&self, class: ClassId) -> (f64, f64) {
        let usage = self.classes.get(&class).copied().unwrap_or_default();
        (usage.corrected(), usage.recent * (1.0 + usage.waits * usage.waits))
    }

    /// Records what is reported that the class needs in a share time: `None` if it could use more.
    pub(crate) fn note_report(&mut self, class: ClassId, needs: Option<f64>) {
        if let Some(usage) = self.classes.get_mut(&class) {
            usage.reported = needs;
        }
    }

    /// Measures anew, if half a share time has passed: by what each class was served so far, and for how long claims have
    /// waited in it.
    pub(crate) fn measure(&mut self, served: impl Iterator<Item = (ClassId, u64, u64)>, share_time: u64, now: u64) {
        let elapsed = now.saturating_sub(self.at);
        if elapsed < share_time / 2 {
            return;
        }
        let before = std::mem::take(&mut self.classes);
        let elapsed = elapsed.max(1) as f64;
        self.classes.extend(served.map(|(class, served, waited)| {
            let then = before.get(&class).copied().unwrap_or(ClassUsage { served, waited, ..ClassUsage::default() });
            (class, then.next(served, waited, elapsed / share_time as f64, elapsed))
        }));
        self.at = now;
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const TENTH: u64 = 100_000_000;

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn usage_is_counted_per_share_time() {
        let mut usage = Usage::default();
        usage.measure([(1, 500, 3)].into_iter(), TENTH, TENTH);
        assert_eq!(usage.of(1), (0.0, 0.0), "it is not known for how long the class is there");
        usage.measure([(1, 532, 3), (2, 7, 0)].into_iter(), TENTH, 3 * TENTH);
        // 16 in each of two share times: all but a 16th of the average.
        assert_eq!([1, 2].map(|class| usage.of(class)), [(15.0, 8.0), (0.0, 0.0)]);
        usage.measure([(1, 999, 3)].into_iter(), TENTH, 3 * TENTH + TENTH / 3);
        assert_eq!(usage.of(1), (15.0, 8.0), "too early");
        usage.measure([(1, 540, 3), (2, 15, TENTH)].into_iter(), TENTH, 4 * TENTH);
        assert_eq!(usage.of(1), (9.75, 8.0));
        assert_eq!(usage.of(2), (6.0, 5.0), "claims of the second have waited");
        usage.measure([(2, 15, TENTH)].into_iter(), TENTH, 5 * TENTH);
        assert_eq!(usage.of(1), (0.0, 0.0), "the class is gone");
    }

    #[test]
    fn the_average_is_one_over_time_however_often_it_is_measured() {
        let (mut usage, mut at, mut served) = (Usage::default(), 0, 0);
        usage.measure([(1, 0, 0)].into_iter(), TENTH, TENTH);
        for _ in 0..40 {
            for share_times in [1, 3] {
                (at, served) = (at + share_times * TENTH, served + 6);
                usage.measure([(1, served, 0)].into_iter(), TENTH, TENTH + at);
            }
        }
        // 6 in one share time and 6 in three: 3 on average, of which the last count most, and not (6 + 2) / 2.
        assert!((2.0..3.0).contains(&usage.of(1).0), "{:?}", usage.of(1));
    }

    #[test]
    fn what_was_reported_and_not_used_is_made_up_for_by_the_next_reports() {
        let mut usage = Usage::default();
        let (mut reported, mut served) = (0.0, 0_u64);
        usage.measure([(1, 0, 0)].into_iter(), TENTH, TENTH);
        for round in 1..400 {
            // A claim of 9 tokens in every third share time; measured after one share time, and after two.
            served += if round % 2 == 0 { 9 } else { 0 };
            let now = TENTH * (1 + (round / 2) * 3 + if round % 2 == 0 { 0 } else { 1 });
            usage.measure([(1, served, 0)].into_iter(), TENTH, now);
            let needs = usage.of(1).0;
            usage.note_report(1, Some(needs));
            reported += needs * if round % 2 == 0 { 1.0 } else { 2.0 };
        }
        assert!((reported / served as f64 - 1.0).abs() < 0.02, "{reported} of {served}");
        usage.note_report(1, None);
        usage.measure([(1, served, 0)].into_iter(), TENTH, 700 * TENTH);
        let (needs, _) = usage.of(1);
        assert_near(needs, 0.0);
    }
}
