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
/// order. So that all of them end in the same state, each call has a number: how often a pause of all keys had been ended
/// by then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonPause {
    /// The end of the pause, in nanoseconds; 0 if there was none, or if it was ended.
    gate: u64,
    /// How often a pause of all keys had been ended when this one began.
    ends: u64,
}

impl CommonPause {
    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    /// The number with which a pause that begins now is announced; the next end has the number after it.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// Pauses until `gate`. A shorter pause never shortens a longer one. Returns false, with nothing changed, if the pause
    /// was ended already: it began before the last end.
    pub(crate) fn pause_until(&mut self, gate: u64, ends: u64) -> bool {
        let is_next = ends >= self.ends;
        if ends > self.ends {
            *self = Self { gate, ends };
        } else if is_next {
            self.gate = self.gate.max(gate);
        }
        is_next
    }

    /// Ends the pauses that began before end number `ends`, which is counted from 1. Returns false, with nothing changed,
    /// if a later call was here before.
    pub(crate) fn end(&mut self, ends: u64) -> bool {
        let is_next = ends > self.ends;
        if is_next {
            *self = Self { gate: 0, ends };
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
