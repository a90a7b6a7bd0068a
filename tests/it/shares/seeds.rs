//! Which random histories are run.

use std::ops::Range;

/// The seeds from 0 to `count`, unless `TOLLGATE_SHARES` names others: `5x` for five times as many, a number of them, or a
/// range such as `20742..20743`.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let Ok(named) = std::env::var("TOLLGATE_SHARES") else { return 0..count };
    let number =
        |text: &str| text.parse::<u64>().expect("TOLLGATE_SHARES is a number of histories or a range of seeds");
    if let Some(times) = named.strip_suffix('x') {
        return 0..count * number(times);
    }
    named.split_once("..").map_or_else(|| 0..number(&named), |(first, end)| number(first)..number(end))
}
