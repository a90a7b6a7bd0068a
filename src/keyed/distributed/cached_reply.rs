//! What a line said last of its key. Pure: no lock, no clock, no network.
//!
//! The line said how many tokens there were; since then it has minted at its rate, and others can only have taken some. So what
//! cannot be there by this is not worth an ask. (What others give back can come earlier; it is found when this says that tokens
//! can be there.) What is wrong here, or forgotten, costs a round trip or a token's time, and never grants anything.

use crate::distributed::{Answer, Lease, Pace, Terms};

/// So many asks within [`SPELL`] make a key worth a limiter of its own, which takes some three asks to come and go.
const OFTEN: u32 = 8;
const SPELL: u64 = 1_000_000_000;

/// Instants in the limiter's nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedReply {
    level: Option<Level>,
    /// How often the key was asked for since `began`.
    asks: u32,
    began: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    at: u64,
    /// Below 0: tokens promised that are not minted yet.
    tokens: i64,
    part: u64,
    /// When the bucket is full, if nobody takes anything.
    full: u64,
}

impl CachedReply {
    /// Of a key of which nothing is known.
    pub(super) fn nothing(now: u64) -> Self {
        Self { level: None, asks: 0, began: now }
    }

    /// The line has answered, and the answer came at `now`. (The line's instant was earlier: what is refused by this is
    /// granted to whoever comes back when told to.)
    pub(super) fn hear(&mut self, terms: &Terms, answer: &Answer, now: u64) {
        // Nothing was promised for later, so what is left is the level, or what was promised to others is.
        let tokens = answer.left as i64 - answer.behind as i64;
        let mut level = Level { at: now, tokens, part: answer.part, full: 0 };
        level.full = level.earliest(terms, terms.burst());
        self.level = Some(level);
    }

    /// Counts an ask. False if the key is asked for so often that it should have a limiter.
    pub(super) fn count(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.began) >= SPELL {
            (self.asks, self.began) = (0, now);
        }
        self.asks += 1;
        self.asks < OFTEN
    }

    /// The earliest instant at which `cost` tokens can be there; 0 if that was said, or nothing was.
    pub(super) fn earliest(&self, terms: &Terms, cost: u64) -> u64 {
        self.level.map_or(0, |level| level.earliest(terms, cost))
    }

    /// How many tokens there can be at least, as of what was said.
    pub(super) fn remaining(&self) -> u64 {
        self.level.map_or(0, |level| level.tokens.max(0) as u64)
    }

    /// Whether it says nothing any more: the bucket is full by now, and the key is not asked for often.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        self.level.is_none_or(|level| level.full <= now) && now.saturating_sub(self.began) >= SPELL
    }
}

impl Level {
    fn earliest(&self, terms: &Terms, cost: u64) -> u64 {
        let need = cost.saturating_sub(self.tokens.max(0) as u64);
        if need == 0 {
            return 0;
        }
        let behind = (-self.tokens).max(0) as u64;
        Lease::new(self.at, Pace::of(terms, self.part), behind, need).instant(need).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    const MILLI: u64 = 1_000_000;

    fn cached(terms: &Terms, left: u64, behind: u64, part: u64, at: u64) -> CachedReply {
        let mut cached = CachedReply::nothing(at);
        cached.hear(terms, &Answer { left, behind, part, ..Answer::default() }, at);
        cached
    }

    #[test]
    fn what_is_minted_since_is_expected_to_the_nanosecond() {
        let terms = Terms::of(&Quota::per_second(100).burst(20), 0).unwrap();
        let cached = cached(&terms, 3, 0, 0, 5 * MILLI);
        assert_eq!(cached.earliest(&terms, 3), 0);
        assert_eq!(cached.earliest(&terms, 4), 15 * MILLI);
        assert_eq!(cached.earliest(&terms, 20), 175 * MILLI);
        assert_eq!(cached.remaining(), 3);
    }

    #[test]
    fn what_others_were_promised_comes_first() {
        let terms = Terms::of(&Quota::per_second(100).burst(20), 0).unwrap();
        let cached = cached(&terms, 0, 7, 0, 0);
        assert_eq!(cached.earliest(&terms, 1), 80 * MILLI);
        assert_eq!(cached.remaining(), 0);
    }

    #[test]
    fn steps_come_at_the_ends_of_the_lines_periods() {
        let terms = Terms::of(&Quota::per_second(5).stepped(), 0).unwrap();
        // 300 ms of the period had passed.
        let cached = cached(&terms, 1, 0, 300_000, 0);
        assert_eq!(cached.earliest(&terms, 2), 700 * MILLI);
        assert_eq!(cached.earliest(&terms, 7), 1_700 * MILLI);
    }

    #[test]
    fn it_is_stale_once_the_bucket_is_full_and_not_before() {
        let terms = Terms::of(&Quota::per_second(10).burst(20), 0).unwrap();
        let cached = cached(&terms, 0, 0, 0, 0);
        assert!(!cached.is_stale(2_000 * MILLI - 1));
        assert!(cached.is_stale(2_000 * MILLI));
    }

    #[test]
    fn who_is_asked_for_often_is_told() {
        let mut cached = CachedReply::nothing(0);
        assert!((1..OFTEN).all(|_| cached.count(0)));
        assert!(!cached.count(SPELL - 1));
        assert!(cached.count(SPELL));
    }
}
