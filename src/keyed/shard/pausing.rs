//! Pauses: of one key, and of all keys of the shard.
//!
//! The pause of a key is a part of its [levels](super::Levels), or of its core. A key that is paused is not full, so it
//! is not forgotten, and its levels are not packed. The pause of all keys is kept once, in the map, and closes
//! the fast path. It is independent of the pauses of single keys: the end of one leaves the others.

use super::{FastPath, Shard, ShardContext};

impl<K> Shard<K> {
    /// The pause of all keys has changed. The next call looks at it, and opens the fast path again if it is over.
    pub(in crate::keyed) fn close_fast_path(&mut self) {
        if self.fast_path == FastPath::Open {
            self.fast_path = FastPath::Paused;
        }
    }

    /// The instant until which all keys are paused; 0 if they are not.
    pub(in crate::keyed) fn gate(&self, context: &ShardContext<'_, K>) -> u64 {
        let gate = if self.fast_path != FastPath::Open { context.template.gate() } else { 0 };
        if self.synced < gate { gate } else { 0 }
    }
}
