//! The tokens of the last answers, which the store may have lost. Pure: no lock, no clock, no network.

use std::collections::VecDeque;

/// The answers whose tokens are remembered singly; those before are added up.
const MOST_GRANTS: usize = 16;

/// The tokens of one answer.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// The number of the request.
    number: u64,
    tokens: u64,
    /// From this instant on a bucket that has forgotten them is no fuller than one that has not.
    until: u64,
}

/// The last answers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Grants(VecDeque<Granted>);

impl Grants {
    /// Remembers the `tokens` granted by the answer to request `number`. From `until` on a bucket is as full without them.
    pub(crate) fn note(&mut self, number: u64, tokens: u64, until: u64, now: u64) {
        self.0.retain(|grant| grant.until > now);
        if tokens == 0 || self.0.back().is_some_and(|last| last.number == number) {
            return;
        }
        self.0.push_back(Granted { number, tokens, until });
        if self.0.len() > MOST_GRANTS
            && let Some(oldest) = self.0.pop_front()
            && let Some(next) = self.0.front_mut()
        {
            next.tokens += oldest.tokens;
            next.until = next.until.max(oldest.until);
        }
    }

    /// The store knows nothing of the requests after number `before`. Returns how many of the tokens granted to them a
    /// bucket could still lack, and forgets them.
    pub(crate) fn take_lost(&mut self, before: u64, now: u64) -> u64 {
        let is_lost = |grant: &&Granted| grant.number > before && grant.until > now;
        let lost = self.0.iter().filter(is_lost).map(|grant| grant.tokens).sum();
        self.0.clear();
        lost
    }
}
