//! A share of the calls, such as 0.1 %.

use std::fmt;
use std::str::FromStr;

const WHOLE: f64 = 1e9;

/// Parts of 10^9, so that a limit of 0.1 % of 3,000 calls is 3 calls and not 2.999....
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// How many of `count` the share is, rounded down.
    pub fn of(self, count: usize) -> usize {
        (u128::from(self.0) * count as u128 / WHOLE as u128) as usize
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, parts) = match text.trim().strip_suffix('%') {
            Some(number) => (number.trim_end(), WHOLE / 100.0),
            None => (text.trim(), WHOLE),
        };
        let share = number.parse::<f64>().ok().map(|number| number * parts);
        let share = share.filter(|share| (0.0..=WHOLE).contains(share));
        let wrong = || format!("`{text}` is no share of the calls: write 0.1% or 0.001, from 0% to 100%");
        Ok(Self(share.ok_or_else(wrong)?.round() as u64))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 as f64 * 100.0 / WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_exact_to_a_billionth() {
        for text in ["0.1%", "0.1 %", "0.001"] {
            let share: Share = text.parse().unwrap();
            assert_eq!((share.of(2_999), share.of(3_000), share.to_string()), (2, 3, "0.1%".into()), "{text}");
        }
        assert_eq!("100%".parse::<Share>().unwrap().of(7), 7);
    }

    #[test]
    fn what_is_no_share_is_named() {
        for text in ["", "some", "-1%", "101%", "2", "NaN"] {
            assert!(text.parse::<Share>().unwrap_err().starts_with(&format!("`{text}` is no share")), "{text}");
        }
    }
}
