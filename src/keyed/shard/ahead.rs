//! Running ahead of the clock: calls on one busy key without a reading of the time.
//!
//! Reading the clock is most of what a grant costs. So when calls on one key of a shard come fast, the shard takes some
//! tokens of it, a *stride*, without one. It only counts them; the packed level of the key stays as it was at the last
//! reading. The end of the stride first finds the level of its instant as if no token of the stride had been taken, and
//! then takes them. The true level is the same or higher, because the bucket may have been full meanwhile: so never is
//! more granted than the quota allows, and at most a stride is lost. As in the core's
//! [`Stride`](crate::core::stride::Stride), a stride is at most a 64th of the burst, and there is none below a token
//! per microsecond, and none on a clock that stands still.
//!
//! All that holds only if no token of the stride was taken after the reading at which it ends. A caller may have read the
//! time before it locked the shard, and another thread may take tokens in between. So the end of a stride reads the time
//! itself, under the lock. The clock must therefore be no user code: keys run ahead on tokio's clock and quanta's only.

use super::{EntryIndex, FastPath, Left, Shard, Slot, SlotRef};
use crate::clock::Time;
use crate::core::stride::Stride;
use crate::keyed::{Hashed, ToKey};

/// Nanoseconds per token below which calls are fast.
const FAST: u64 = 1_000;
/// A stride is at most this part of the burst.
pub(super) const PART: u64 = 64;

/// The key that runs ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    hash: u64,
    index: Option<EntryIndex>,
    stride: Stride,
    /// Tokens taken by calls that read the time, or charged after such a call: the position that the stride adapts to.
    position: u64,
    /// Tokens that can still be taken before the next reading.
    free: u64,
    /// Tokens taken since the last reading, and not yet from the level.
    used: u64,
    /// Tokens of the last stride that were taken.
    last: u64,
    /// What the last grant left.
    left: Option<Left>,
}

impl<K: Eq> Shard<K> {
    /// Takes `cost` tokens without a reading of the time, if the key runs ahead, and returns what remains. Else, if it is
    /// this key's stride, ends it.
    #[inline(never)]
    pub(super) fn take_ahead(
        &mut self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        time: &Time,
    ) -> Option<Left> {
        let is_quick = self.fast_path == FastPath::Open && self.calls_left > 1;
        let ahead = &mut self.rare_fields.as_deref_mut()?.ahead;
        if ahead.hash != key.hash {
            return None;
        }
        let left = ahead.left.and_then(|left| left.minus(cost));
        let is_it = || Some(key.form.equivalent(self.slots.key(ahead.index?)?));
        let left = left.filter(|_| is_quick && cost > 0 && cost <= ahead.free && is_it() == Some(true));
        if left.is_none() {
            self.charge_stride(time.now());
            return None;
        }
        (ahead.left, ahead.free, ahead.used) = (left, ahead.free - cost, ahead.used + cost);
        self.calls_left -= 1;
        self.count_granted(cost);
        left
    }
}

impl<K> Shard<K> {
    /// Adapts the stride after a fast call took `cost` tokens, of which `left` remain, of the packed level at `index`.
    #[inline(never)]
    pub(super) fn adapt_stride(&mut self, index: EntryIndex, hash: u64, cost: u64, left: Left) {
        let (now, most) = (self.synced, self.rates.burst() / PART);
        let ahead = &mut self.rare_fields().ahead;
        if ahead.index != Some(index) || ahead.hash != hash {
            if self.runs_ahead {
                // The call read the time under this lock.
                self.charge_stride(now);
            }
            let mut stride = Stride::new(0);
            stride.adapt(0, now, most);
            self.rare_fields().ahead = Ahead { hash, index: Some(index), stride, ..Ahead::default() };
            return;
        }
        ahead.position = ahead.position.wrapping_add(cost + std::mem::take(&mut ahead.last));
        ahead.stride.adapt(ahead.position, now, most);
        // The burst may have been lowered.
        ahead.stride.shorten(most);
        (ahead.free, ahead.left) = (ahead.stride.tokens, Some(left));
        self.runs_ahead = ahead.free > 0;
    }

    /// Ends the stride: reads the time, advances the shard to it, and takes the tokens of the stride from the level of
    /// that instant. Called before the shard acts on any level but those of other keys.
    #[inline]
    pub(super) fn end_stride(&mut self, time: &Time) {
        if self.runs_ahead {
            self.charge_stride(time.now());
        }
    }

    #[inline(never)]
    fn charge_stride(&mut self, now: u64) {
        self.synced = self.synced.max(now);
        self.runs_ahead = false;
        let now = self.synced;
        let ahead = &mut self.rare_fields().ahead;
        let used = std::mem::take(&mut ahead.used);
        (ahead.free, ahead.last) = (0, used);
        let Some(index) = ahead.index.filter(|_| used > 0) else { return };
        let SlotRef::Packed(packed) = self.slots.at(index) else { return };
        let levels = self.rates.unpack(packed, now.min(self.readable_until));
        let mut levels = self.rates.advance(&levels, now);
        self.rates.charge(&mut levels, used);
        // Behind the window the level cannot be packed before the others are swept.
        self.slots.set(index, Slot::of_levels(&self.rates, &levels, now <= self.readable_until));
    }
}

/// Whether a call that took `cost` tokens, `elapsed` nanoseconds after another one in its shard, may be one of many.
#[inline]
pub(super) fn is_fast(cost: u64, elapsed: u64) -> bool {
    elapsed != 0 && elapsed <= cost.saturating_mul(FAST)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
