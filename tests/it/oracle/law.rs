//! The one invariant, counted over a list of grants with no model at all:
//! over every window, tokens granted less tokens refunded <= burst + rate x window.

use super::{Granted, Int, Refill, Rule};

/// Tokens that came at some instant other than by the schedule: a refund is subtracted from what was granted in its window, a
/// replenish adds to what the window may grant, which is the same sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) at: Int,
    pub(crate) tokens: Int,
}

/// The first window in which more was granted than `rule` allows, said in words.
///
/// The grants are listed in their order; one noticed at `at` was due `late(at)` nanoseconds earlier at most. A waiter
/// that costs more than the burst is saved up for, so a window may open with one. Time is seen in whole nanoseconds:
/// what a window is worth is counted with the nanosecond in which it opens.
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

/// What `from ..= to` can have brought.
fn minted(refill: Refill, from: Int, to: Int) -> Int {
    match refill {
        Refill::Continuous { amount, period } => (to - from + 1) * amount / period,
        Refill::Stepped { amount, period } => (to / period - from / period) * amount,
        Refill::Manual => 0,
    }
}
