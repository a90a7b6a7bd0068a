//! The refill task: sleeps until tokens run low, sends a request, and passes the answer to the limiter.
//!
//! It holds the limiter weakly. When the limiter is dropped, the task returns the remaining tokens and ends.

use super::{Answered, LONGEST_PAUSE, LeaseGrant, LeaseRequest, Plan, Store, StoreCounters, StoreError, send};
use crate::clock::time::RETRY;
use crate::core::alarm::Alarm;
use crate::core::source::RequestTask;
use crate::core::{Core, quietly};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker, ready};
use tokio::time::{Instant, sleep};

/// The refill task and its resources. If its runtime ends before the limiter is dropped, the next waiter on another
/// runtime restarts the task there.
#[derive(Clone, Debug)]
pub(crate) struct RefillHandle {
    core: Weak<Core>,
    store: Arc<dyn Store>,
    final_return: Arc<OnceLock<LeaseRequest>>,
    /// A request that the store may have carried out, as it is repeated. The next refill task repeats it under its number;
    /// otherwise the store would seem to have lost its state of this node.
    unanswered: Option<LeaseRequest>,
    /// An answer that the limiter cannot take yet, because its clock panics. If the runtime ends, the next refill task passes
    /// it on.
    untaken: Option<Answered>,
    /// The store keeps a place for this node. Counted for as long as it does.
    is_placed: bool,
    /// The refill task before this one has panicked, as the store did that it asked.
    has_panicked: bool,
}

impl RefillHandle {
    pub(crate) fn new(core: &Arc<Core>, store: Arc<dyn Store>, final_return: Arc<OnceLock<LeaseRequest>>) -> Self {
        Self {
            core: Arc::downgrade(core),
            store,
            final_return,
            unanswered: None,
            untaken: None,
            is_placed: false,
            has_panicked: false,
        }
    }

    pub(crate) async fn run(mut self) {
        // When a refill task ends, waiters are woken to spawn the next one. If each of them panics, this must not go on
        // without a pause.
        if self.has_panicked {
            sleep(LONGEST_PAUSE).await;
            self.has_panicked = false;
        }
        let mut unseen = LeaseGrant::default();
        while self.ask().await {
            unseen = self.pass_on().await;
        }
        if let Some(mut ask) = self.final_return.get().cloned() {
            if self.unanswered.is_some() {
                // They came before that failed.
                (ask.back, ask.unused) = (0, 0);
            }
            ask.back += unseen.now;
            // Of promises that are not in one row, one can return.
            if unseen.promised > 0 {
                let follows = unseen.last - unseen.promised == ask.last;
                ask.unused = unseen.promised + if follows { ask.unused } else { 0 };
                (ask.last, ask.rest) = (unseen.last, u64::MAX);
            }
            _ = send(&*self.store, &mut ask).await;
        }
    }

    /// Sends requests until one is answered, unless an answer is there that the limiter has not taken. A request that the store
    /// may have carried out is repeated under its number. One that was never sent is planned again first, because the callers
    /// it was for may be gone. Returns false if the limiter is dropped.
    async fn ask(&mut self) -> bool {
        let store = Arc::clone(&self.store);
        let (store, tally) = (&*store, store.tally());
        let (mut outage, mut failures, mut planned) = (None::<Outage>, 0_u32, None);
        while self.untaken.is_none() {
            let was_sent = self.unanswered.is_some();
            let mut request = self.unanswered.clone().or(planned.take());
            if request.is_none() {
                // Nothing is asked for any more.
                (outage, failures) = (None, 0);
                request = next(&self.core).await;
            }
            let Some(mut ask) = request else { return false };
            // Tokens that do not return at once are lost: the bucket may fill up without them.
            self.unanswered = Some(LeaseRequest { back: 0, unused: 0, ..ask.clone() });
            let sent = Instant::now();
            let error = match send(store, &mut ask).await {
                Ok(answer) => {
                    drop(outage);
                    if failures > 0 {
                        tally.clear_error();
                    }
                    (self.unanswered, self.untaken) = (None, Some(Answered { ask, answer, sent }));
                    return true;
                }
                Err(error) => error,
            };
            let conflict = error.conflict();
            // The store answers, and soon a node says the period that has begun: that is no outage.
            let is_early = matches!(error, StoreError::OtherPeriod { .. });
            failures = failures.saturating_add(1);
            if is_early || conflict.is_some() {
                outage = None;
            } else {
                outage.get_or_insert_with(|| Outage::begin(store, tally, &error, sent)).goes_on();
            }
            tally.note_error(&error);
            let Some(core) = self.core.upgrade() else { return false };
            if !is_early {
                core.lose(conflict);
            }
            drop(core);
            store.backoff(failures).await;
            // Neither changes anything in the store. The final request is not planned again.
            let is_unsent = matches!(error, StoreError::NotSent(_)) || conflict.is_some() || is_early;
            if is_unsent && !was_sent && !ask.leave {
                let Some(core) = self.core.upgrade() else { return false };
                self.unanswered = None;
                if let Some(Plan::Request(ask)) = core.plan(Waker::noop()) {
                    planned = Some(ask);
                }
            }
        }
        true
    }

    /// Passes the answer to the limiter, as soon as its clock can be read. Returns what the limiter did not get
    /// because it is gone.
    async fn pass_on(&mut self) -> LeaseGrant {
        // Taken out before it is passed on: if the store's code panics afterwards, the next task does not pass it on again.
        while let Some(answered) = self.untaken.take() {
            let received = match self.core.upgrade() {
                Some(core) => core.receive(&answered),
                // The store may have filled up since a repeated answer was made.
                None if answered.answer.before == answered.ask.number => return LeaseGrant::default(),
                None => return answered.answer,
            };
            if let Some((lost, is_placed)) = received {
                self.count_place(is_placed);
                if let Some(excess) = lost {
                    self.store.tally().note_loss(&*self.store, excess);
                }
                break;
            }
            self.untaken = Some(answered);
            sleep(RETRY).await;
        }
        LeaseGrant::default()
    }

    fn count_place(&mut self, is_placed: bool) {
        if self.is_placed != is_placed {
            let count = |places: &mut u64| if is_placed { *places += 1 } else { *places -= 1 };
            self.store.tally().count(|seen| count(&mut seen.places));
            // Not before: if the counters panic, it is not counted.
            self.is_placed = is_placed;
        }
    }
}

impl Drop for RefillHandle {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else {
            // A second panic would abort the process, if this task ends because the counters panic.
            _ = quietly(|| self.count_place(false));
            return;
        };
        let mut next = self.clone();
        next.has_panicked |= std::thread::panicking();
        core.vacate(RequestTask::new(next.run()));
    }
}

/// Waits for the next request; `None` if the limiter is dropped.
async fn next(core: &Weak<Core>) -> Option<LeaseRequest> {
    let mut alarm = pin!(Alarm::unset());
    poll_fn(|cx| {
        loop {
            let Some(core) = core.upgrade() else { return Poll::Ready(None) };
            match core.plan(cx.waker()) {
                None => return Poll::Ready(None),
                Some(Plan::Request(ask)) => return Poll::Ready(Some(ask)),
                Some(Plan::Sleep(u64::MAX)) => return Poll::Pending,
                Some(Plan::Sleep(until)) => {
                    let at = core.time.instant_or_retry(until);
                    drop(core);
                    ready!(alarm.as_mut().poll_until(at, cx));
                }
            }
        }
    })
    .await
}

/// The time for which a store cannot be reached, or answers with errors, added to the counters as it passes.
struct Outage<'a> {
    store: &'a dyn Store,
    /// Of this store, which is asked for them only once: that is the store's code, and may panic. When a panic drops this value,
    /// a second one would abort the process.
    tally: &'a StoreCounters,
    counted: Instant,
}

impl<'a> Outage<'a> {
    fn begin(store: &'a dyn Store, tally: &'a StoreCounters, error: &StoreError, since: Instant) -> Self {
        tally.begin_outage(store, error);
        Self { store, tally, counted: since }
    }

    fn goes_on(&mut self) {
        let now = Instant::now();
        self.tally.count(|seen| seen.outage += now - self.counted);
        self.counted = now;
    }
}

impl Drop for Outage<'_> {
    fn drop(&mut self) {
        self.goes_on();
        self.tally.end_outage(self.store);
    }
}
