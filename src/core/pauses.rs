//! The pauses of a queue: its own, and the common one of all keys of a keyed limiter.

/// The pauses of one queue. The later end counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// The end of the queue's own pause, in nanoseconds; 0 if there was none.
    pub(crate) own: u64,
    pub(crate) common: CommonPause,
}

impl Pauses {
    /// The instant before which no claim passes.
    pub(crate) fn gate(&self) -> u64 {
        self.own.max(self.common.gate)
    }
}

/// The pause of all keys of a keyed limiter, as one of its shards or one of its keys knows it.
///
/// Each shard and each live entry learns of a call on all keys separately, and of two calls at the same time in any
/// order. So that all of them end in the same state, the calls of `resume_all` are numbered from 1, and a pause carries the
/// number of the last one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonPause {
    /// The end of the pause, in nanoseconds; 0 if there was none, or if it was ended.
    gate: u64,
    /// The number of the last `resume_all` that was applied, or that came before the pause.
    resume_count: u64,
}

impl CommonPause {
    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    /// The number that a pause carries which begins now; the next `resume_all` has the number after it.
    pub(crate) fn resume_count(&self) -> u64 {
        self.resume_count
    }

    /// Pauses until `gate`. A shorter pause never shortens a longer one. Returns false, with nothing changed, if a
    /// `resume_all` that was applied here came after the pause.
    pub(crate) fn pause_until(&mut self, gate: u64, resume_count: u64) -> bool {
        let is_next = resume_count >= self.resume_count;
        if resume_count > self.resume_count {
            *self = Self { gate, resume_count };
        } else if is_next {
            self.gate = self.gate.max(gate);
        }
        is_next
    }

    /// Ends the pauses that began before the `resume_all` with this number. Returns false, with nothing changed, if this call
    /// or a later one was applied before.
    pub(crate) fn end(&mut self, resume_count: u64) -> bool {
        let is_next = resume_count > self.resume_count;
        if is_next {
            *self = Self { gate: 0, resume_count };
        }
        is_next
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::CommonPause;

    #[test]
    fn calls_that_come_in_any_order_leave_the_same_pause() {
        type Call = fn(&mut CommonPause) -> bool;
        // A pause until 9, its end, and two pauses after it.
        let calls: [Call; 4] = [
            |pause| pause.pause_until(9, 0),
            |pause| pause.end(1),
            |pause| pause.pause_until(5, 1),
            |pause| pause.pause_until(4, 1),
        ];
        for order in 0..256_u32 {
            let order = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6];
            if (0..4).all(|call| order.contains(&call)) {
                let mut pause = CommonPause::default();
                order.iter().for_each(|call| _ = calls[*call as usize](&mut pause));
                assert_eq!(pause.gate(), 5, "{order:?}");
            }
        }
    }
}
