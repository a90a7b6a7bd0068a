//! What the classes of a node were served lately, from which follows what they need. Pure.

use crate::core::classes::ClassId;
use std::collections::HashMap;

/// Within how many share times a report that was wrong is made up for by the next ones.
const CORRECTED_IN: f64 = 4.0;

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
    /// What it was served in a share time, and the part of the time in which claims waited in it, on average.
    average: f64,
    waits: f64,
    /// What was last reported that it needs in a share time, if that is what it is served.
    reported: Option<f64>,
    /// By how much more was reported so far than it was served, in tokens.
    excess: f64,
}

impl ClassUsage {
    /// What the class is served in a share time, such that all reports together say what it was served. An average of few
    /// claims is wrong, and what is reported and not used is lost to the other nodes of the class.
    fn corrected(&self) -> f64 {
        (self.average - self.excess / CORRECTED_IN).clamp(self.average / 2.0, self.average * 2.0)
    }

    fn next(self, served: u64, waited: u64, share_times: f64, elapsed: f64) -> Self {
        let tokens = served.saturating_sub(self.served) as f64;
        let waits = waited.saturating_sub(self.waited) as f64 / elapsed;
        // Half of the average is from the last half of a share time, however often it is measured: an average over
        // measurements would be above the one over time, because a busy class is measured more often.
        let old = 0.5_f64.powf(share_times / 0.5);
        let excess = self.reported.map_or(0.0, |reported| self.excess + reported * share_times - tokens);
        let most = CORRECTED_IN * (1.0 + self.average);
        Self {
            served,
            waited,
            average: self.average * old + tokens / share_times * (1.0 - old),
            waits: self.waits * old + waits * (1.0 - old),
            reported: self.reported,
            excess: excess.clamp(-most, most),
        }
    }
}

impl Usage {
    /// What a class was served in a share time, and what it can use: up to twice that, if claims waited in it all the time.
    pub(crate) fn of(&self, class: ClassId) -> (f64, f64) {
        let usage = self.classes.get(&class).copied().unwrap_or_default();
        (usage.corrected(), usage.average * (1.0 + usage.waits * usage.waits))
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
