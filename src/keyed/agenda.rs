//! What is to be done when, by the millisecond.
//!
//! A heap of a hundred thousand instants costs two dozen cache misses for each that is taken out and put back. Timers are a
//! millisecond late anyway, so what falls due within the same one is kept on one page, in no order: each entry tells its
//! own instant.

use std::collections::BTreeMap;

/// A page is 2^20 ns, about a step of tokio's timers.
const PAGE: u32 = 20;

#[derive(Debug)]
pub(super) struct Agenda<T> {
    pages: BTreeMap<u64, Vec<(u64, T)>>,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self { pages: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, at: u64, errand: T) {
        self.pages.entry(at >> PAGE).or_default().push((at, errand));
    }

    /// The earliest instant that is noted. Takes a step for each on its page.
    pub(super) fn next(&self) -> Option<u64> {
        let (_, page) = self.pages.first_key_value()?;
        page.iter().map(|(at, _)| *at).min()
    }

    /// Moves all that is due by `now` into `due`.
    pub(super) fn take_due(&mut self, now: u64, due: &mut Vec<T>) {
        while let Some(mut first) = self.pages.first_entry() {
            if *first.key() > now >> PAGE {
                return;
            }
            if *first.key() < now >> PAGE {
                due.extend(first.remove().into_iter().map(|(_, errand)| errand));
                continue;
            }
            let page = first.get_mut();
            due.extend(page.extract_if(.., |(at, _)| *at <= now).map(|(_, errand)| errand));
            if page.is_empty() {
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
    fn everything_is_taken_at_its_instant_and_not_before() {
        let mut agenda = Agenda::new();
        let instants = [5, 0, 1 << PAGE, (1 << PAGE) + 7, (1 << PAGE) - 1, 90 << PAGE, u64::MAX, 5];
        instants.iter().for_each(|&at| agenda.add(at, at));
        let mut sorted = instants.to_vec();
        sorted.sort();
        let mut taken = Vec::new();
        while let Some(next) = agenda.next() {
            assert_eq!(next, sorted[taken.len()]);
            if next > 0 {
                let before = taken.len();
                agenda.take_due(next - 1, &mut taken);
                assert_eq!(taken.len(), before, "nothing is due before {next}");
            }
            agenda.take_due(next, &mut taken);
        }
        taken.sort();
        assert_eq!(taken, sorted);
    }
}
