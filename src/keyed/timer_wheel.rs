//! A timer wheel: jobs by due instant, in slots of about a millisecond.
//!
//! A heap costs many cache misses for each entry that is removed and added again. Timers are up to a millisecond late
//! anyway, so all entries due within the same slot are stored together, in no order. Each entry carries its own exact
//! instant.

use std::collections::{BTreeMap, VecDeque};

/// A slot is 2^20 ns, about one step of tokio's timers.
const SLOT_NANOS: u32 = 20;

/// The capacity up to which an emptied slot's memory is reused; a larger one may be that of a past burst.
const MAX_SPARE: usize = 1_024;

#[derive(Debug)]
pub(super) struct TimerWheel<T> {
    /// The slots by number, the instant divided by the length of a slot. No slot is empty.
    slots: BTreeMap<u64, Vec<(u64, T)>>,
    /// The memory of an emptied slot, so that a new slot each millisecond does not have to grow each time.
    spare: Vec<(u64, T)>,
    len: usize,
}

impl<T> TimerWheel<T> {
    pub(super) fn new() -> Self {
        Self { slots: BTreeMap::new(), spare: Vec::new(), len: 0 }
    }

    pub(super) fn add(&mut self, at: u64, job: T) {
        self.slots.entry(at >> SLOT_NANOS).or_insert_with(|| std::mem::take(&mut self.spare)).push((at, job));
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes the jobs for which `is_kept` returns false. Visits each entry.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.slots.retain(|_, slot| {
            slot.retain(|(_, job)| is_kept(job));
            slot.shrink_to_fit();
            !slot.is_empty()
        });
        self.len = self.slots.values().map(Vec::len).sum();
    }

    /// The earliest due instant. Visits each entry of the first slot.
    pub(super) fn next(&self) -> Option<u64> {
        let (_, slot) = self.slots.first_key_value()?;
        slot.iter().map(|(at, _)| *at).min()
    }

    /// Moves all jobs that are due by `now` into `due`.
    pub(super) fn take_due(&mut self, now: u64, due: &mut VecDeque<T>) {
        let before = due.len();
        self.take_slots(now, due);
        self.len -= due.len() - before;
    }

    fn take_slots(&mut self, now: u64, due: &mut VecDeque<T>) {
        while let Some(mut first) = self.slots.first_entry() {
            if *first.key() > now >> SLOT_NANOS {
                return;
            }
            if *first.key() < now >> SLOT_NANOS {
                let mut slot = first.remove();
                due.extend(slot.drain(..).map(|(_, job)| job));
                if (self.spare.capacity()..=MAX_SPARE).contains(&slot.capacity()) {
                    self.spare = slot;
                }
                continue;
            }
            let slot = first.get_mut();
            let mut index = 0;
            while index < slot.len() {
                if slot[index].0 <= now {
                    due.push_back(slot.swap_remove(index).1);
                } else {
                    index += 1;
                }
            }
            if slot.is_empty() {
                first.remove();
            }
            return;
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_at_their_instant_and_not_before() {
        let mut wheel = TimerWheel::new();
        let instants =
            [5, 0, 1 << SLOT_NANOS, (1 << SLOT_NANOS) + 7, (1 << SLOT_NANOS) - 1, 90 << SLOT_NANOS, u64::MAX, 5];
        instants.iter().for_each(|&at| wheel.add(at, at));
        let mut sorted = instants.to_vec();
        sorted.sort();
        let mut taken = VecDeque::new();
        while let Some(next) = wheel.next() {
            assert_eq!(next, sorted[taken.len()]);
            if next > 0 {
                let before = taken.len();
                wheel.take_due(next - 1, &mut taken);
                assert_eq!(taken.len(), before, "nothing is due before {next}");
            }
            wheel.take_due(next, &mut taken);
        }
        taken.make_contiguous().sort();
        assert_eq!(taken, sorted);
        assert_eq!(wheel.len(), 0);
    }

    #[test]
    fn removed_entries_are_not_taken() {
        let mut wheel = TimerWheel::new();
        (0..1_000_u64).for_each(|n| wheel.add(n << (SLOT_NANOS - 3), n));
        wheel.retain(|n| n % 3 == 0);
        assert_eq!(wheel.len(), 334);
        let mut taken = VecDeque::new();
        wheel.take_due(u64::MAX, &mut taken);
        assert!(taken.iter().all(|n| n % 3 == 0));
        assert_eq!((taken.len(), wheel.len(), wheel.next()), (334, 0, None));
    }
}
