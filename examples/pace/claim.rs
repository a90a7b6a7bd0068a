//! One claim as the client saw it: its place in the queue, its turn, and the instants, sent to the server in a header.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use tollgate::{ConsumeError, Grant, Limiter};

pub(crate) const HEADER: &str = "x-claim";

/// Instants are nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) cost: u64,
    /// Its number in the order of the claims.
    pub(crate) place: u64,
    /// Its number in the order of the grants.
    pub(crate) turn: u64,
    pub(crate) asked: u64,
    /// The grant happened between these two. They are equal for a claim that waited (when the limiter woke it), and
    /// enclose the call for a claim that was granted at once.
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { cost, place, turn, asked, earliest, latest } = self;
        write!(f, "{cost} {place} {turn} {asked} {earliest} {latest}")
    }
}

impl FromStr for Claim {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[cost, place, turn, asked, earliest, latest]) => {
                Ok(Claim { cost, place, turn, asked, earliest, latest })
            }
            _ => Err("a claim is six numbers"),
        }
    }
}

/// Records the order and the instants of claims and grants. One thread at a time makes claims, so the counters need no
/// memory ordering.
pub(crate) struct ClaimRecorder {
    opened: Instant,
    places: AtomicU64,
    turns: AtomicU64,
}

/// A turn, and its instant.
type Stamp = (u64, u64);

impl ClaimRecorder {
    pub(crate) fn open() -> ClaimRecorder {
        ClaimRecorder { opened: Instant::now(), places: AtomicU64::new(0), turns: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }

    fn stamp(&self) -> Stamp {
        (self.turns.fetch_add(1, Ordering::Relaxed), self.now())
    }

    /// `limiter.consume(cost).await`, with a record of the instants.
    ///
    /// A waiter's turn is recorded when the limiter wakes it, not when its task resumes: a task that was already
    /// running may rightly be granted in between, and would look as if it had overtaken.
    pub(crate) async fn consume<'l>(
        self: &Arc<Self>,
        limiter: &'l Limiter,
        cost: u64,
    ) -> Result<(Claim, Grant<'l>), ConsumeError> {
        let mut claim = pin!(limiter.consume(cost));
        let mut waiting: Option<Arc<RecordingWaker>> = None;
        let (place, asked) = (self.places.fetch_add(1, Ordering::Relaxed), self.now());
        poll_fn(|cx| {
            let next = Arc::new(RecordingWaker {
                recorder: self.clone(),
                first_wake: OnceLock::new(),
                task: cx.waker().clone(),
            });
            let answer = claim.as_mut().poll(&mut Context::from_waker(&Waker::from(next.clone())));
            let Poll::Ready(admitted) = answer else {
                waiting = Some(next);
                return Poll::Pending;
            };
            let (turn, latest) = waiting.as_ref().map_or_else(|| self.stamp(), |waiting| waiting.stamp());
            let earliest = if waiting.is_some() { latest } else { asked };
            Poll::Ready(admitted.map(|grant| (Claim { cost, place, turn, asked, earliest, latest }, grant)))
        })
        .await
    }
}

/// Wakes a task, and records its turn at the first wake-up.
struct RecordingWaker {
    recorder: Arc<ClaimRecorder>,
    first_wake: OnceLock<Stamp>,
    task: Waker,
}

impl RecordingWaker {
    fn stamp(&self) -> Stamp {
        *self.first_wake.get_or_init(|| self.recorder.stamp())
    }
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stamp();
        self.task.wake_by_ref();
    }
}

#[test]
fn a_claim_survives_the_header() {
    let claim = Claim { cost: 1, place: 2, turn: 3, asked: 4, earliest: 5, latest: u64::MAX };
    assert_eq!(claim.to_string().parse(), Ok(claim));
    assert!("1 2 3 4 5".parse::<Claim>().is_err());
}
