//! Counts, for the tests of bounds, what is done once for each claim, each step of the scheduler or each class.

#[cfg(test)]
thread_local!(static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

#[inline(always)]
pub(crate) fn count() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(all(test, not(tollgate_loom)))]
pub(crate) fn take() -> u64 {
    STEPS.take()
}
