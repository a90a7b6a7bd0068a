//! Divisions of tokens and times without overflow.

use std::ops::Rem;

/// `(a * b + c) / d`, saturating, and the remainder.
pub(crate) fn mul_div(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    // The common case fits in 64 bits, where a division is much cheaper than in 128 bits.
    if let Some(sum) = a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        return (sum / d, sum % d);
    }
    let (sum, d) = (a as u128 * b as u128 + c as u128, d as u128);
    (u64::try_from(sum / d).unwrap_or(u64::MAX), (sum % d) as u64)
}

/// As large a share of `new` as `part` is of `old`, rounded down. `part < old`, so the result is below `new`.
pub(super) fn share(part: u64, old: u64, new: u64) -> u64 {
    (part as u128 * new as u128 / old as u128) as u64
}

/// `(need * period - rem) / amount`, rounded up; `rem < period`.
pub(crate) fn wait_for(need: u64, period: u64, rem: u64, amount: u64) -> Option<u64> {
    if let Some(product) = need.checked_mul(period) {
        return Some((product - rem).div_ceil(amount));
    }
    let wait = (need as u128 * period as u128 - rem as u128).div_ceil(amount as u128);
    u64::try_from(wait).ok()
}

pub(crate) fn gcd<N: Copy + Default + PartialEq + Rem<Output = N>>(a: N, b: N) -> N {
    if b == N::default() { a } else { gcd(b, a % b) }
}
