//! The tokens granted by a store, and the rate law.

use super::client::Answer;
use crate::distributed::QuotaTerms;
use std::time::Duration;
use tokio::time::Instant;

/// The intervals in which tokens were granted by the store's clock, on the clock of this process.
#[derive(Debug, Default)]
pub(super) struct Ledger(Vec<Granted>);

#[derive(Clone, Copy, Debug)]
struct Granted {
    early: Instant,
    late: Instant,
    tokens: u64,
}

impl Ledger {
    /// Records the tokens of an answer: those of a continuous quota.
    pub(super) fn note(&mut self, answer: &Answer, terms: &QuotaTerms) {
        let Answer { grant, sent, received, .. } = *answer;
        if grant.now > 0 {
            self.0.push(Granted { early: sent, late: received, tokens: grant.now });
        }
        for token in 1..=grant.promised {
            let parts = u128::from(grant.queued_before + token) * u128::from(terms.period()) - u128::from(grant.phase);
            let after = Duration::from_nanos((parts * 1_000 / u128::from(terms.amount())) as u64);
            self.0.push(Granted { early: sent + after, late: received + after, tokens: 1 });
        }
    }

    /// Returns a window in which more than the burst and what is minted in it was certainly granted: its length, its
    /// tokens and how many there may be. Clocks may differ by one part in a thousand.
    pub(super) fn excess(&self, terms: &QuotaTerms) -> Option<(Duration, u64, u64)> {
        let mut by_end = self.0.clone();
        by_end.sort_unstable_by_key(|granted| granted.late);
        for begin in self.0.iter().map(|granted| granted.early) {
            let mut tokens = 0;
            for granted in by_end.iter().filter(|granted| granted.early >= begin) {
                tokens += granted.tokens;
                let window = granted.late - begin;
                let most = terms.burst() + terms.minted_in((window + window / 1_000).as_nanos() as u64) + 1;
                if tokens > most {
                    return Some((window, tokens, most));
                }
            }
        }
        None
    }
}
