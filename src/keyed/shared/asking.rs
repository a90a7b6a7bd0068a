//! An ask for one claim: what it wants at once, or nothing. The line remembers nobody for it, and neither does anything here but
//! what the line said.

use super::core::Core;
use crate::lease::{Answer, Ask, LineError, Terms, note, random_node};
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::Instant;

/// For so many nanoseconds after an ask that nobody answered no other one is made for one claim, unless something is answered.
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

impl<K, S> Core<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Asks the key's line for `cost` tokens, once.
    ///
    /// Dropped while the ask is under way, it may have taken them: then they are lost.
    pub(super) async fn ask(&self, key: &K, hash: u64, terms: Terms, cost: u64) -> Asked {
        if self.lines.tally().is_lost() && self.time.now() < self.pause.load(Ordering::Acquire) {
            return Asked::Failed;
        }
        let line = self.line(key);
        let ask = Ask { want: cost, at_once: true, leave: true, ..Ask::new(random_node(), 1, terms) };
        let sent = Instant::now();
        let answered = line.ask(ask).await;
        let (now, took) = (self.time.now(), sent.elapsed().as_nanos() as u64);
        match answered {
            Ok(answer) => {
                note(&*line, &ask, &answer);
                line.tally().round_trip_nanos.store(took, Relaxed);
                self.shelves.note(key, hash, now, |said| said.hear(&terms, &answer, now));
                Self::outcome(cost, &answer)
            }
            Err(error) => {
                let is_away = matches!(error, LineError::Unreachable(_));
                if is_away {
                    self.pause.store(now.saturating_add(PAUSE), Ordering::Release);
                }
                line.tally().lose(&error, is_away.then_some(took));
                Asked::Failed
            }
        }
    }

    fn outcome(cost: u64, answer: &Answer) -> Asked {
        if answer.once >= cost { Asked::Granted { remaining: answer.left } } else { Asked::NotThere }
    }
}
