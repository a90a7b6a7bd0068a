//! The jobs of a driver, by the instants at which they are due.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct Timers<T> {
    /// By instant and by `added`, which makes each key unique.
    jobs: BTreeMap<(u64, u64), T>,
    /// How many jobs were ever added.
    added: u64,
}

impl<T> Timers<T> {
    pub(super) fn new() -> Self {
        Self { jobs: BTreeMap::new(), added: 0 }
    }

    pub(super) fn add(&mut self, at: u64, job: T) {
        self.added += 1;
        self.jobs.insert((at, self.added), job);
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Removes the jobs for which `is_kept` returns false. Visits each job.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.jobs.retain(|_, job| is_kept(job));
    }

    /// The earliest due instant.
    pub(super) fn next(&self) -> Option<u64> {
        self.jobs.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves all jobs that are due by `now` into `due`.
    pub(super) fn take_due(&mut self, now: u64, due: &mut VecDeque<T>) {
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.jobs.pop_first().map(|(_, job)| job));
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_taken_at_their_instant_and_not_before() {
        let mut timers = Timers::new();
        let instants = [5, 0, 1 << 20, (1 << 20) + 7, (1 << 20) - 1, 90 << 20, u64::MAX, 5];
        instants.iter().for_each(|&at| timers.add(at, at));
        let mut sorted = instants.to_vec();
        sorted.sort();
        let mut taken = VecDeque::new();
        while let Some(next) = timers.next() {
            assert_eq!(next, sorted[taken.len()]);
            if next > 0 {
                let before = taken.len();
                timers.take_due(next - 1, &mut taken);
                assert_eq!(taken.len(), before, "nothing is due before {next}");
            }
            timers.take_due(next, &mut taken);
        }
        taken.make_contiguous().sort();
        assert_eq!(taken, sorted);
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn removed_jobs_are_not_taken() {
        let mut timers = Timers::new();
        (0..1_000_u64).for_each(|n| timers.add(n << 17, n));
        timers.retain(|n| n % 3 == 0);
        assert_eq!(timers.len(), 334);
        let mut taken = VecDeque::new();
        timers.take_due(u64::MAX, &mut taken);
        assert!(taken.iter().all(|n| n % 3 == 0));
        assert_eq!((taken.len(), timers.len(), timers.next()), (334, 0, None));
    }
}
