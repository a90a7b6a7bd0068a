//! Tokens whose claims are not granted yet: those that are set aside for claims in classes, and debts that wait to be paid.

use super::Supply;

impl Supply {
    /// Records a debt of `n` tokens that waits to be paid.
    pub(crate) fn owe(&mut self, n: u64) {
        self.debts += n;
    }

    /// Takes `n` tokens for a claim that is not granted yet.
    pub(crate) fn set_aside(&mut self, n: u64) {
        self.claim(n);
        self.raise_ceiling(n);
        self.set_aside += n;
    }

    /// The claim was granted for which `n` tokens were set aside.
    pub(crate) fn grant_aside(&mut self, n: u64) {
        self.raise_ceiling(n.wrapping_neg());
        self.set_aside -= n;
    }

    /// The claim has left for which `n` tokens were set aside.
    pub(crate) fn drop_aside(&mut self, n: u64) {
        self.set_aside -= n;
    }

    /// How many tokens are taken for claims that are not granted yet.
    #[inline]
    pub(crate) fn aside(&self) -> u64 {
        self.set_aside
    }

    /// Tokens of debts that wait to be paid.
    #[inline]
    pub(crate) fn debts(&self) -> u64 {
        self.debts
    }
}
