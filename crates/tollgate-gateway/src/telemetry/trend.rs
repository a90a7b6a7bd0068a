//! The last seconds, from readings of the counters: percentiles, and whether the upstream answers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::histogram::HistogramSnapshot;
use super::stats::Stats;
use super::upstream_stats::{CLASSES, UpstreamCounts, UpstreamError};

/// The time over which percentiles and the state of the upstream are told.
pub(crate) const SPAN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Trend {
    /// The readings of [`SPAN`], the oldest first.
    kept: VecDeque<Kept>,
    answered: Option<Instant>,
    failed: Option<(Instant, &'static str)>,
}

struct Kept {
    at: Instant,
    waits: HistogramSnapshot,
    calls: UpstreamCounts,
}

/// Times in milliseconds.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Recent {
    /// How long the time is that this is about.
    span: u64,
    wait: Percentiles,
    latency: Percentiles,
    upstream: UpstreamSeen,
}

#[derive(Debug, serde::Serialize)]
struct Percentiles {
    count: u64,
    p50: Option<f64>,
    p99: Option<f64>,
}

#[derive(Debug, serde::Serialize)]
struct UpstreamSeen {
    state: State,
    /// Responses by class of their status, in the order of 1xx to 5xx.
    classes: [u64; CLASSES.len()],
    failed: u64,
    answered_ago: Option<u64>,
    failed_ago: Option<u64>,
    /// The last failure.
    fault: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Nothing was forwarded yet.
    Unknown,
    Up,
    /// Some requests had no response.
    Failing,
    /// The last requests had none.
    Down,
    /// Nothing was forwarded lately, and the last request had a response.
    Idle,
}

impl Trend {
    /// Takes a reading.
    pub(crate) fn look(&mut self, stats: &Stats) -> Recent {
        let now = Kept { at: Instant::now(), waits: stats.waits.snapshot(), calls: stats.upstream.counts() };
        self.note_changes(&now);
        while self.kept.get(1).is_some_and(|second| now.at - second.at >= SPAN) {
            self.kept.pop_front();
        }
        self.kept.push_back(now);
        self.recent()
    }

    fn note_changes(&mut self, now: &Kept) {
        let Some(last) = self.kept.back() else { return };
        if now.calls.answered() > last.calls.answered() {
            self.answered = Some(now.at);
        }
        let has_grown =
            |fault: &&(UpstreamError, &str)| now.calls.faults[fault.0 as usize] > last.calls.faults[fault.0 as usize];
        if let Some((_, name)) = UpstreamError::ALL.iter().find(has_grown) {
            self.failed = Some((now.at, name));
        }
    }

    fn recent(&self) -> Recent {
        let (first, now) = (&self.kept[0], &self.kept[self.kept.len() - 1]);
        let millis = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
        let percentiles = |now: &HistogramSnapshot, first: &HistogramSnapshot| Percentiles {
            count: now.count() - first.count(),
            p50: now.percentile_since(first, 0.5).map(millis),
            p99: now.percentile_since(first, 0.99).map(millis),
        };
        let ago = |then: Instant| (now.at - then).as_millis() as u64;
        let (answered, failed) =
            (now.calls.answered() - first.calls.answered(), now.calls.failed() - first.calls.failed());
        let was_answered_last = self.failed.is_none_or(|(failed, _)| self.answered.is_some_and(|at| at > failed));
        Recent {
            span: ago(first.at),
            wait: percentiles(&now.waits, &first.waits),
            latency: percentiles(&now.calls.latency, &first.calls.latency),
            upstream: UpstreamSeen {
                state: match (answered, failed) {
                    (0, 0) if self.answered.is_none() && self.failed.is_none() => State::Unknown,
                    (0, 0) if was_answered_last => State::Idle,
                    (0, _) => State::Down,
                    (_, 0) => State::Up,
                    _ => State::Failing,
                },
                classes: std::array::from_fn(|class| now.calls.classes[class] - first.calls.classes[class]),
                failed,
                answered_ago: self.answered.map(ago),
                failed_ago: self.failed.map(|(at, _)| ago(at)),
                fault: self.failed.map(|(_, name)| name),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::access_lines::Lines;
    use super::*;
    use axum::response::{IntoResponse, Response};

    #[tokio::test(start_paused = true)]
    async fn the_upstream_is_what_its_last_seconds_were() {
        let (stats, mut trend) = (Stats::new(Lines::default()), Trend::default());
        let mut state = async |responses: &[&dyn Fn() -> Response], seconds| {
            for response in responses {
                stats.upstream.note(Duration::from_millis(20), &response(), true);
            }
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let recent = trend.look(&stats);
            (recent.upstream.state, recent.latency.count)
        };
        let right: &dyn Fn() -> Response = &|| "hello".into_response();
        let wrong: &dyn Fn() -> Response = &|| {
            let mut response = "".into_response();
            response.extensions_mut().insert(UpstreamError::Connect);
            response
        };
        assert_eq!(state(&[], 1).await, (State::Unknown, 0));
        assert_eq!(state(&[right, right], 1).await, (State::Up, 2));
        assert_eq!(state(&[wrong], 1).await, (State::Failing, 2));
        assert_eq!(state(&[wrong], 20).await, (State::Down, 0));
        assert_eq!(state(&[], 20).await, (State::Down, 0), "no request has found it up since");
        assert_eq!(state(&[right], 1).await, (State::Up, 1));
        assert_eq!(state(&[], 20).await, (State::Idle, 0));
    }
}
