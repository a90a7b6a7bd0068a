//! A limiter and the oracle, for wrappers that make claims: at each poll of a wrapper, what would `consume` answer?

use crate::fixture::*;

use crate::oracle::ops::continuous;
use crate::oracle::{Answer, Id, Int, Oracle};

pub(crate) struct Pair {
    pub(crate) limiter: Limiter,
    clock: ManualClock,
    pub(crate) oracle: Oracle,
    pub(crate) now: Int,
    pub(crate) next: Id,
    /// The claims that were waiting when the limiter closed.
    closed: Vec<Id>,
}

impl Pair {
    /// Three tokens in each period, from half of the burst.
    pub(crate) fn new((period, burst, max_waiting): (u64, u64, u64)) -> Self {
        let clock = ManualClock::new();
        let quota = Quota::new(3, Duration::from_nanos(period)).burst(burst).initial(burst / 2);
        let builder = Limiter::builder().quota(quota).max_waiting(max_waiting).clock(clock.clone());
        let rule = continuous(3, period.into(), burst.into(), (burst / 2).into());
        let oracle = Oracle::new(&[rule], None, max_waiting);
        Self { limiter: builder.build().unwrap(), clock, oracle, now: 0, next: 0, closed: Vec::new() }
    }

    /// The oracle's answer to a poll of a claim. `claim` is its number while it waits.
    pub(crate) fn poll(&mut self, claim: &mut Option<Id>, cost: Int) -> Poll<Result<(), ConsumeError>> {
        let answer = match *claim {
            None => {
                self.next += 1;
                match self.oracle.consume(self.now, self.next, cost) {
                    Answer::Granted => Ok(()),
                    Answer::Waits => {
                        *claim = Some(self.next);
                        return Poll::Pending;
                    }
                    Answer::Closed => Err(ConsumeError::Closed),
                    Answer::QueueFull { waiting } => Err(ConsumeError::QueueFull { waiting }),
                    other => panic!("{other:?}"),
                }
            }
            Some(id) if self.closed.contains(&id) => Err(ConsumeError::Closed),
            Some(id) if self.oracle.log().iter().any(|granted| granted.id == id) => Ok(()),
            Some(_) => return Poll::Pending,
        };
        *claim = None;
        Poll::Ready(answer)
    }

    /// A claim is dropped in the oracle.
    pub(crate) fn leave(&mut self, claim: Option<Id>) {
        if let Some(id) = claim.filter(|id| !self.closed.contains(id)) {
            self.oracle.cancel(self.now, id);
        }
    }

    /// Time passes on both sides.
    pub(crate) fn pass(&mut self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
        self.now += Int::from(nanos);
    }

    /// Both sides close.
    pub(crate) fn close(&mut self) {
        self.limiter.close();
        self.closed.extend(self.oracle.close(self.now));
    }

    /// Serves both queues, and compares what is visible.
    pub(crate) fn compare(&mut self, op: impl Debug) -> Result<(), TestCaseError> {
        self.limiter.tick();
        self.oracle.advance(self.now);
        let (seen, oracle) = (self.limiter.snapshot(), &self.oracle);
        prop_assert_eq!(Int::from(self.limiter.available()), oracle.available(), "after {:?}", op);
        prop_assert_eq!(Int::from(self.limiter.deficiency()), oracle.deficiency(), "after {:?}", op);
        prop_assert_eq!(seen.waiting_tasks, oracle.waiting(), "after {:?}", op);
        prop_assert_eq!((Int::from(seen.granted), Int::from(seen.refunded)), oracle.turnover(), "after {:?}", op);
        Ok(())
    }
}
