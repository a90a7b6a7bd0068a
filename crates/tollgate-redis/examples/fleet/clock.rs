//! A clock for a node's limiter that records the instant of each grant by the schedule, however late its task runs.
//!
//! A limiter grants each waiter as of the instant of the schedule, and the waiter's task runs later: on a busy machine, by
//! a burst's time and more. So whenever the limiter reads this clock, the clock first lets the limiter serve its queue in
//! steps up to the present. What it grants in a step was scheduled in that step, however late the step is taken.

use crate::law::{Batch, SECOND};
use crate::report::now;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{Clock, Limiter};

/// The precision of the instants, in nanoseconds.
const STEP: u64 = 200_000;

/// How long an answer is remembered after its last token has come, in nanoseconds: longer than a grant can be late.
const REMEMBERED: u64 = SECOND;

/// The round trips of the answers whose tokens have not all come.
///
/// Redis counts the instants of the tokens from its answer. The limiter counts them from the first time that it reads its
/// clock after the answer has arrived, so its instants are later, by less than the time from the request to that reading.
/// A process that stands still between the arrival and the reading makes them later too.
#[derive(Debug, Default)]
struct Trips {
    /// An answer that the limiter has not taken yet: when its request was sent, and how long its last token takes to come.
    arrived: Option<(u64, u64)>,
    /// When the last token of an answer comes, and the longest delay of its instants, in nanoseconds.
    taken: Vec<(u64, u64)>,
}

impl Trips {
    /// The limiter reads its clock.
    fn read(&mut self, at: u64) {
        self.taken.retain(|(until, _)| *until + REMEMBERED >= at);
        if let Some((sent, lasts)) = self.arrived.take() {
            self.taken.push((at + lasts, at.saturating_sub(sent)));
        }
    }

    /// The longest delay of a token that comes at `at` or later.
    fn longest(&self, at: u64) -> u64 {
        self.taken.iter().filter(|(until, _)| *until + REMEMBERED >= at).map(|(_, took)| *took).max().unwrap_or(0)
    }
}

/// Clones are the same clock, for one limiter on one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepClock(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    limiter: Mutex<Option<Limiter>>,
    /// What the clock shows while the limiter takes a step; otherwise 0.
    shown: AtomicU64,
    /// The end of the last step.
    reached: AtomicU64,
    /// The tokens granted by then.
    granted: AtomicU64,
    batches: Mutex<Vec<Batch>>,
    trips: Mutex<Trips>,
    /// The longest time from the end of a step in which tokens were granted until it was taken.
    late: AtomicU64,
}

impl StepClock {
    /// From now on `limiter` takes steps. It was built with this clock and has granted nothing.
    pub(crate) fn follow(&self, limiter: &Limiter) {
        self.0.reached.store(now(), Relaxed);
        *self.limiter() = Some(limiter.clone());
    }

    /// Releases the limiter.
    pub(crate) fn end(&self) {
        let limiter = self.limiter().take();
        drop(limiter);
    }

    /// The answer to a request that was sent at `sent` has arrived, and the limiter takes it next. Its last token comes after
    /// `lasts` nanoseconds.
    pub(crate) fn answered(&self, sent: u64, lasts: u64) {
        self.trips().arrived = Some((sent, lasts));
    }

    /// Takes the grants since the last call.
    pub(crate) fn take_batches(&self) -> Vec<Batch> {
        self.serve();
        std::mem::take(&mut *self.batches())
    }

    /// How much later than scheduled the limiter has granted tokens, at most, in nanoseconds.
    pub(crate) fn late(&self) -> u64 {
        self.0.late.load(Relaxed)
    }

    /// Serves the limiter up to the present, which is returned.
    fn serve(&self) -> u64 {
        let inner = &self.0;
        let (limiter, present) = (self.limiter().clone(), now());
        let Some(limiter) = limiter else { return present };
        let mut from = inner.reached.load(Relaxed);
        let since = from;
        inner.shown.store(from, Relaxed);
        // Since the last step the limiter has granted only what was there when a caller asked.
        let at_once = self.granted_since(limiter.snapshot().granted);
        while from < present {
            let to = present.min(from + STEP);
            inner.shown.store(to, Relaxed);
            let tokens = self.granted_since(serve_all(&limiter));
            self.note(from, to, tokens);
            if tokens > 0 {
                inner.late.fetch_max(present - to, Relaxed);
            }
            from = to;
        }
        self.note(since, from, at_once);
        inner.reached.store(from, Relaxed);
        inner.shown.store(0, Relaxed);
        from
    }

    /// Of `granted` tokens, those that are not noted yet.
    fn granted_since(&self, granted: u64) -> u64 {
        granted - self.0.granted.swap(granted, Relaxed)
    }

    fn note(&self, first: u64, last: u64, tokens: u64) {
        if tokens > 0 {
            let early = self.trips().longest(first);
            self.batches().push(Batch { first: first - early, last, tokens });
        }
    }

    fn limiter(&self) -> std::sync::MutexGuard<'_, Option<Limiter>> {
        self.0.limiter.lock().expect("no thread panics with the lock")
    }

    fn trips(&self) -> std::sync::MutexGuard<'_, Trips> {
        self.0.trips.lock().expect("no thread panics with the lock")
    }

    fn batches(&self) -> std::sync::MutexGuard<'_, Vec<Batch>> {
        self.0.batches.lock().expect("no thread panics with the lock")
    }
}

impl Clock for StepClock {
    fn now(&self) -> Duration {
        let shown = self.0.shown.load(Relaxed);
        if shown > 0 {
            return Duration::from_nanos(shown);
        }
        let at = self.serve();
        self.trips().read(at);
        Duration::from_nanos(at)
    }
}

/// Grants what is due by what the clock shows. Returns the tokens granted so far.
fn serve_all(limiter: &Limiter) -> u64 {
    let mut granted = limiter.snapshot().granted;
    loop {
        // One call serves a batch of waiters.
        limiter.tick();
        let before = std::mem::replace(&mut granted, limiter.snapshot().granted);
        if granted == before {
            return granted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use tollgate::Quota;

    /// The limiter takes an answer 40 ms after it has arrived: its tokens are that much later than Redis says.
    #[test]
    fn the_time_until_the_limiter_takes_an_answer_counts_as_its_way() {
        let mut trips = Trips { arrived: Some((100, 30)), ..Trips::default() };
        assert_eq!(trips.longest(0), 0);
        trips.read(140);
        assert_eq!([150, 170 + REMEMBERED, 171 + REMEMBERED].map(|at| trips.longest(at)), [40, 40, 0]);
        // A faster answer does not hide a slower one whose tokens still come.
        trips.arrived = Some((150, 100));
        trips.read(160);
        let instants = [165, 171, 260, 261].map(|at| if at > 165 { at + REMEMBERED } else { at });
        assert_eq!(instants.map(|at| trips.longest(at)), [40, 10, 10, 0]);
    }

    /// A thread that is busy for 50 ms and serves its limiter only then.
    #[test]
    fn grants_that_are_delivered_late_have_the_instants_of_the_schedule() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = StepClock::default();
        let quota = Quota::per_second(1_000).burst(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        clock.follow(&limiter);
        let queued = runtime.block_on(async {
            let waiting: Vec<_> = (0..20)
                .map(|_| {
                    tokio::spawn({
                        let limiter = limiter.clone();
                        async move { limiter.wait(1).await }
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            let queued = now();
            sleep(Duration::from_millis(50));
            for waiter in waiting {
                waiter.await.unwrap().unwrap();
            }
            queued
        });
        let batches = clock.take_batches();
        assert_eq!(batches.iter().map(|batch| batch.tokens).sum::<u64>(), 20);
        // A caller that comes late on a busy machine may find its token there. Later all callers wait.
        let mut waited = batches.iter().filter(|batch| batch.first >= queued);
        assert!(waited.all(|batch| batch.tokens == 1 && batch.last - batch.first <= STEP), "{batches:?}");
        let apart = batches.windows(2).map(|two| two[1].last - two[0].first);
        assert!(apart.into_iter().all(|apart| apart >= 1_000_000 - STEP), "{batches:?}");
        clock.end();
    }
}
