//! What is done with a grant: tokens are released, settled for, or given back, in the parent too if there is one.

use super::Core;
use crate::core::classes::ClassId;
use crate::core::rovers::Rovers;
use crate::core::state::{CatchUp, Reach, Refund, Sample, State};
use crate::error::{Bound, ConsumeError, ReleaseError};
use crate::observe::GrantWord;

/// A grant whose cost is changed.
#[derive(Clone, Copy)]
pub(crate) struct Settled {
    pub(crate) class: ClassId,
    /// The cost before the change.
    pub(crate) cost: u64,
    /// If the cost falls, the class is not charged for so many tokens any more.
    pub(crate) uncharged: u64,
    pub(crate) word: GrantWord,
}

impl Settled {
    /// A grant of `cost` with this word, of which nothing was charged to a class.
    pub(crate) fn new(class: ClassId, cost: u64, word: GrantWord) -> Self {
        Self { class, cost, uncharged: 0, word }
    }
}

impl Core {
    /// Refuses growth by `tokens` of a grant that has `held` tokens in flight, if the cap, here or in the parent, has no space
    /// for both. Such a claim would wait at the front of the queue for tokens that its own grant holds.
    pub(crate) fn check_growth(&self, held: u64, tokens: u64) -> Result<(), ConsumeError> {
        if !self.capped {
            return Ok(());
        }
        let state = self.state.lock();
        let most = state.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens.saturating_sub(held));
        if state.closed || tokens <= most {
            drop(state);
            let in_parent = self.capped_parent().map(|parent| parent.check_growth(held, tokens));
            return in_parent.unwrap_or(Ok(())).map_err(ConsumeError::as_parent);
        }
        Err(ConsumeError::TooLarge { cost: tokens, most, by: Some(Bound::InFlight), quota_name: None })
    }

    /// Returns a grant of `cost` tokens in a class that no caller has seen.
    pub(crate) fn give_back(&self, class: ClassId, cost: u64, word: GrantWord) {
        self.leaving(|state, rovers, _| {
            state.give_back(rovers, Refund::new(class, cost, word.refundable(cost), word));
        });
        self.give_back_to_parent(cost);
    }

    /// How many tokens remain after a grant in a class with this word. If the word tells the instant of the grant, the number
    /// is that of now, as of the last reading of the clock.
    pub(crate) fn remaining(&self, class: ClassId, word: GrantWord) -> u64 {
        if word.instant().is_none() {
            return word.remaining();
        }
        let mut state = self.state.lock();
        let now = state.supply.synced();
        state.shown_available(&self.rovers, class, now)
    }

    /// Releases `cost` tokens from the in-flight cap.
    #[inline]
    pub(crate) fn release(&self, cost: u64) {
        if self.has_parent || !self.rovers.try_release(cost) {
            self.release_slowly(cost);
        }
    }

    /// Releases to claims that wait, and in the parent.
    ///
    /// A panic may be dropping the grant: so if the clock panics, the last sample is used. Waiters that are due by then are
    /// served. If the front waiter is due later, the driver is woken, and reads the clock again until the clock does not
    /// panic.
    #[cold]
    fn release_slowly(&self, cost: u64) {
        if !self.rovers.try_release(cost) {
            self.leaving(|state, rovers, _| state.release(rovers, cost));
        }
        self.capped_parent().into_iter().for_each(|parent| parent.release(cost));
    }

    pub(crate) fn forget(&self, cost: u64) {
        if self.has_own_cap() {
            self.rovers.add_owed(cost);
        }
        self.capped_parent().into_iter().for_each(|parent| parent.forget(cost));
    }

    fn has_own_cap(&self) -> bool {
        self.parent_link().map_or(self.capped, |link| link.has_cap)
    }

    pub(crate) fn release_owed(&self, asked: u64) -> Result<(), ReleaseError> {
        self.take_owed(asked)?;
        self.release(asked);
        Ok(())
    }

    /// Takes `asked` tokens off the count of forgotten grants. The caller must release them.
    pub(crate) fn take_owed(&self, asked: u64) -> Result<(), ReleaseError> {
        if !self.capped {
            return Err(ReleaseError::NotCapped);
        }
        let has_own = self.has_own_cap();
        if has_own {
            self.rovers.take_owed(asked).map_err(|owed| ReleaseError::TooMuch { asked, owed })?;
        }
        let in_parent = self.capped_parent().map_or(Ok(()), |parent| parent.take_owed(asked));
        if has_own && in_parent.is_err() {
            self.rovers.add_owed(asked);
        }
        in_parent
    }

    /// Changes the cost of a grant to `actual`, here and in the parent, if there is one: both are charged the same. Returns
    /// the cost from now on.
    ///
    /// # Panics
    /// If `sample` panics; then nothing has changed.
    pub(crate) fn resettle(&self, sample: impl FnOnce(&Self) -> Option<Sample>, grant: Settled, actual: u64) -> u64 {
        let Some(link) = self.parent_link() else { return self.resettle_here(sample, grant, actual) };
        let Settled { class, cost, word, .. } = grant;
        let most = cost.saturating_add(link.parent.state.lock().extra_charge(cost, actual.max(cost)));
        let settled = self.resettle_here(sample, grant, actual.min(most));
        let in_parent = link.parent.resettle(Some((link.key, link.weight())), cost, settled);
        // The parent charges less if no more fits between its rovers.
        self.resettle_here(Self::sample_or_last, Settled::new(class, settled, word), in_parent)
    }

    /// Changes the cost of a grant to `actual` as of `sample`; without one, as of the last.
    pub(crate) fn resettle_here(
        &self,
        sample: impl FnOnce(&Self) -> Option<Sample>,
        Settled { class, cost, uncharged, word }: Settled,
        actual: u64,
    ) -> u64 {
        if actual == cost {
            return cost;
        }
        let sample = sample(self);
        if actual > cost {
            let charge = |state: &mut State, rovers: &Rovers, _| {
                let more = state.extra_charge(cost, actual);
                state.charge_more(rovers, class, more, word)
            };
            return cost + self.sampled(sample, Reach::Now, CatchUp::Fully, charge);
        }
        self.sampled(sample, Reach::Now, CatchUp::Batch, |state, rovers, _| {
            let refund = Refund::new(class, cost - actual, uncharged, word);
            state.give_back(rovers, refund);
        });
        actual
    }
}
