//! An ask for one claim: what it wants at once, or nothing. The line remembers nobody for it, and neither does anything here but
//! what the line said.

use super::map::DistributedMap;
use crate::core::sync::Ordering;
use crate::distributed::{Answer, Ask, Outage, Store, StoreError, Terms, first, note, random_node};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// For so many nanoseconds after an ask that was not answered no other one is made for one claim to the same shard, unless that
/// answers something.
const PAUSE: u64 = 100_000_000;

/// What came of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreReply {
    /// Its tokens, and how many were left there.
    Granted { remaining: u64 },
    /// They are not there, and nothing was taken.
    NotThere,
    /// The line did not answer with tokens. If the answer got lost, the claim's tokens are.
    Failed,
    /// The ask was not sent, so nothing was taken.
    NotSent,
    /// The ask was not sent in the time that the caller allowed.
    TimedOut { waited: Duration },
}

impl<K, S> DistributedMap<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Asks the key's line for `cost` tokens. An ask that was not sent is made again once the line can be asked, if callers are to
    /// wait for that: for `allowed` at most.
    ///
    /// Dropped while the ask is under way, it may have taken them: then they are lost.
    pub(super) async fn ask(
        &self,
        key: &K,
        hash: u64,
        terms: Terms,
        cost: u64,
        allowed: Option<Duration>,
    ) -> StoreReply {
        let store = self.store(key);
        let began = Instant::now();
        for failures in 1.. {
            let asked = self.ask_once(&*store, key, hash, terms, cost).await;
            if asked != StoreReply::NotSent || self.stores.outage() != Outage::Wait {
                return asked;
            }
            let again = first(self.closing(), store.backoff(failures));
            match allowed {
                None => _ = again.await,
                Some(allowed) => {
                    let left = allowed.saturating_sub(began.elapsed());
                    if timeout(left, again).await.is_err() {
                        return StoreReply::TimedOut { waited: began.elapsed() };
                    }
                }
            }
            if self.is_closed() || self.limiter_here(key, hash).is_some() {
                return StoreReply::NotThere;
            }
        }
        StoreReply::Failed
    }

    async fn ask_once(&self, store: &dyn Store, key: &K, hash: u64, terms: Terms, cost: u64) -> StoreReply {
        let pause = store.shard().map(|shard| self.pause(shard));
        if pause.is_some_and(|pause| self.time.now() < pause.load(Ordering::Acquire)) {
            return StoreReply::Failed;
        }
        let ask = Ask { want: cost, at_once: true, leave: true, ..Ask::new(random_node(), 1, terms) };
        let sent = Instant::now();
        let answered = store.ask(ask).await;
        let (now, took) = (self.time.now(), sent.elapsed().as_nanos() as u64);
        match answered {
            Ok(answer) => {
                if let Some(pause) = pause.filter(|pause| pause.load(Ordering::Relaxed) != 0) {
                    pause.store(0, Ordering::Release);
                }
                note(store, &ask, &answer);
                store.tally().round_trip_nanos.store(took, Relaxed);
                self.shards.note(key, hash, now, |cached| cached.hear(&terms, &answer, now));
                Self::outcome(cost, &answer)
            }
            Err(error) => {
                if let (StoreError::Unreachable(_), Some(pause)) = (&error, pause) {
                    pause.store(now.saturating_add(PAUSE), Ordering::Release);
                }
                let is_not_sent = matches!(error, StoreError::NotSent(_));
                let is_away = is_not_sent || matches!(error, StoreError::Unreachable(_));
                store.tally().lose(&error, is_away.then_some(took));
                if is_not_sent { StoreReply::NotSent } else { StoreReply::Failed }
            }
        }
    }

    fn outcome(cost: u64, answer: &Answer) -> StoreReply {
        if answer.once >= cost { StoreReply::Granted { remaining: answer.left } } else { StoreReply::NotThere }
    }
}
