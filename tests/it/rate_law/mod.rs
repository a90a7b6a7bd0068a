//! Tokens granted <= burst + rate x window, over every window; over a year, exactly that, to the token.

mod windows;
mod year;

/// Reproducible random numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
