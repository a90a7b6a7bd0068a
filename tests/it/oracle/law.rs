//! The one invariant, checked on a list of grants without a model: in every window, tokens granted less tokens refunded
//! <= burst + rate x window.

use super::bucket::WALL;
use super::{Granted, Int, Refill, Rule};

/// Tokens that came outside of the schedule: a refund is subtracted from the grants of its window, a replenish adds to
/// what the window may grant, which is the same sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) at: Int,
    pub(crate) tokens: Int,
}

/// The first window with more grants than `rule` allows, as text.
///
/// The grants are in their order; one noticed at `at` was due at most `late(at)` nanoseconds earlier. Tokens are saved
/// for a claim larger than the burst, so a window may open with one. Time is counted in whole nanoseconds, so the one
/// in which a window opens counts.
pub(crate) fn broken(
    rule: Rule,
    grants: &[Granted],
    given: &[Given],
    late: impl Fn(&Granted) -> Int,
) -> Option<String> {
    for (place, opens) in grants.iter().enumerate().filter(|(_, opens)| opens.cost > 0) {
        let from = opens.at - late(opens);
        let mut granted = 0;
        for closes in &grants[place..] {
            granted += closes.cost;
            let back = given.iter().filter(|it| (from..=closes.at).contains(&it.at)).map(|it| it.tokens).sum::<Int>();
            let most = rule.burst.max(opens.cost) + back + minted(rule.refill, from, closes.at);
            if granted > most {
                return Some(format!(
                    "{granted} tokens granted from {opens:?} to {closes:?}, at most {most} by {rule:?}"
                ));
            }
        }
    }
    None
}

/// The tokens that `from ..= to` can have brought.
fn minted(refill: Refill, from: Int, to: Int) -> Int {
    match refill {
        Refill::Continuous { amount, period } => (to - from + 1) * amount / period,
        Refill::Stepped { amount, period } => (to / period - from / period) * amount,
        Refill::Calendar { amount, period } => ((to + WALL) / period - (from + WALL) / period) * amount,
        Refill::Sliding { amount, period } => (to - from) / period * amount,
        Refill::Manual => 0,
    }
}
