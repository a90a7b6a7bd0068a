//! What is to be done when, by the millisecond.
//!
//! A heap of a hundred thousand instants costs two dozen cache misses for each that is taken out and put back. Timers are a
//! millisecond late anyway, so what falls due within the same one is kept on one page, in no order: each entry tells its
//! own instant.

use std::collections::{BTreeMap, VecDeque};

/// A page is 2^20 ns, about a step of tokio's timers.
const PAGE: u32 = 20;

/// A larger page is not kept for the next one: it may be a crowd's.
const MOST_SPARE: usize = 1_024;

#[derive(Debug)]
pub(super) struct Agenda<T> {
    pages: BTreeMap<u64, Vec<(u64, T)>>,
    /// An empty one, so that pages that come and go with each millisecond are not grown each time.
    spare: Vec<(u64, T)>,
    len: usize,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self { pages: BTreeMap::new(), spare: Vec::new(), len: 0 }
    }

    pub(super) fn add(&mut self, at: u64, errand: T) {
        self.pages.entry(at >> PAGE).or_insert_with(|| std::mem::take(&mut self.spare)).push((at, errand));
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Strikes out what is not to be kept. Takes a step for each entry.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.pages.retain(|_, page| {
            page.retain(|(_, errand)| is_kept(errand));
            page.shrink_to_fit();
            !page.is_empty()
        });
        self.len = self.pages.values().map(Vec::len).sum();
    }

    /// The earliest instant that is noted. Takes a step for each on its page.
    pub(super) fn next(&self) -> Option<u64> {
        let (_, page) = self.pages.first_key_value()?;
        page.iter().map(|(at, _)| *at).min()
    }

    /// Moves all that is due by `now` into `due`.
    pub(super) fn take_due(&mut self, now: u64, due: &mut VecDeque<T>) {
        let before = due.len();
        self.take_pages(now, due);
        self.len -= due.len() - before;
    }

    fn take_pages(&mut self, now: u64, due: &mut VecDeque<T>) {
        while let Some(mut first) = self.pages.first_entry() {
            if *first.key() > now >> PAGE {
                return;
            }
            if *first.key() < now >> PAGE {
                let mut page = first.remove();
                due.extend(page.drain(..).map(|(_, errand)| errand));
                if (self.spare.capacity()..=MOST_SPARE).contains(&page.capacity()) {
                    self.spare = page;
                }
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
        let mut taken = VecDeque::new();
        while let Some(next) = agenda.next() {
            assert_eq!(next, sorted[taken.len()]);
            if next > 0 {
                let before = taken.len();
                agenda.take_due(next - 1, &mut taken);
                assert_eq!(taken.len(), before, "nothing is due before {next}");
            }
            agenda.take_due(next, &mut taken);
        }
        taken.make_contiguous().sort();
        assert_eq!(taken, sorted);
        assert_eq!(agenda.len(), 0);
    }

    #[test]
    fn what_is_struck_out_is_not_taken() {
        let mut agenda = Agenda::new();
        (0..1_000_u64).for_each(|n| agenda.add(n << (PAGE - 3), n));
        agenda.retain(|n| n % 3 == 0);
        assert_eq!(agenda.len(), 334);
        let mut taken = VecDeque::new();
        agenda.take_due(u64::MAX, &mut taken);
        assert!(taken.iter().all(|n| n % 3 == 0));
        assert_eq!((taken.len(), agenda.len(), agenda.next()), (334, 0, None));
    }
}
