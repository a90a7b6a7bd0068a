//! The tokens of the last answers, which the store may have lost. Pure: no lock, no clock, no network.

use std::collections::VecDeque;

/// The tokens of answers within such a part of the time for which they are remembered are added up.
const MOST_GRANTS: u64 = 16;

/// The tokens of one answer, or of several.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// The number of the request.
    number: u64,
    tokens: u64,
    /// From this instant on a bucket that has forgotten them is no fuller than one that has not.
    until: u64,
    /// `until` of the first of them, if they are those of several answers.
    first_until: u64,
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
        let step = until.saturating_sub(now) / MOST_GRANTS;
        if let Some(last) = self.0.back_mut().filter(|last| until.saturating_sub(last.first_until) < step) {
            last.tokens += tokens;
            (last.number, last.until) = (number, last.until.max(until));
            return;
        }
        self.0.push_back(Granted { number, tokens, until, first_until: until });
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
