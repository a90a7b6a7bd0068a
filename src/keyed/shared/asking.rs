//! An ask for one claim: what it wants at once, or nothing. The line remembers nobody for it, and neither does anything here but
//! what the line said.

use super::core::Core;
use crate::lease::{Answer, Ask, Line, LineError, Terms, note, random_node};
use crate::sync::{AtomicU64, Ordering};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::Instant;

/// For so many nanoseconds after a line was out of reach nobody asks for one claim.
const PAUSE: u64 = 100_000_000;

/// What came of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its tokens, and how many were left there.
    Granted { remaining: u64 },
    /// They are not there, and nothing was taken.
    NotThere,
    /// Nobody answered. If the answer got lost, the claim's tokens are.
    Failed,
}

/// Whether the lines are out of reach, as far as those know who ask for one claim.
#[derive(Debug, Default)]
pub(super) struct Away {
    is_on: AtomicBool,
    until: AtomicU64,
}

impl Away {
    /// Whether it need not be tried at `now`.
    pub(super) fn is_on(&self, now: u64) -> bool {
        self.is_on.load(Ordering::Acquire) && now < self.until.load(Ordering::Acquire)
    }

    fn begin_or_go_on(&self, line: &dyn Line, error: &LineError, took: u64, now: u64) {
        self.until.store(now.saturating_add(PAUSE), Ordering::Release);
        let is_new = !self.is_on.swap(true, Ordering::AcqRel);
        line.tally().lose(error, took, is_new);
    }

    fn end(&self, line: &dyn Line) {
        if self.is_on.load(Ordering::Acquire) && self.is_on.swap(false, Ordering::AcqRel) {
            line.tally().find();
        }
    }
}

impl<K, S> Core<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Asks the key's line for `cost` tokens, once.
    ///
    /// Dropped while the ask is under way, it may have taken them: then they are lost.
    pub(super) async fn ask(&self, key: &K, hash: u64, terms: Terms, cost: u64) -> Asked {
        if self.away.is_on(self.time.now()) {
            return Asked::Failed;
        }
        let line = self.line(key);
        let ask = Ask { want: cost, at_once: true, leave: true, ..Ask::new(random_node(), 1, terms) };
        let sent = Instant::now();
        let answered = line.ask(ask).await;
        let (now, took) = (self.time.now(), sent.elapsed().as_nanos() as u64);
        match answered {
            Ok(answer) => {
                self.away.end(&*line);
                note(&*line, &ask, &answer);
                line.tally().round_trip_nanos.store(took, Relaxed);
                self.shelves.note(key, hash, now, |said| said.hear(&terms, &answer, now));
                Self::outcome(cost, &answer)
            }
            Err(error) => {
                self.away.begin_or_go_on(&*line, &error, took, now);
                Asked::Failed
            }
        }
    }

    fn outcome(cost: u64, answer: &Answer) -> Asked {
        if answer.once >= cost { Asked::Granted { remaining: answer.left } } else { Asked::NotThere }
    }
}
