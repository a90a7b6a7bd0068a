//! Which random histories are run.

use std::ops::Range;

/// The seeds from 0 to `count`, unless `TOLLGATE_SHARES` names others: a number of them, or a range such as
/// `20742..20743`.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let Ok(named) = std::env::var("TOLLGATE_SHARES") else { return 0..count };
    let seed = |text: &str| text.parse().expect("TOLLGATE_SHARES is a number of histories or a range of seeds");
    named.split_once("..").map_or_else(|| 0..seed(&named), |(first, end)| seed(first)..seed(end))
}
