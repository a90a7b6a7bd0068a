//! A replay over time, for the picture.

use crate::event::Event;
use std::time::Duration;

const SLICES: usize = 400;

/// One figure per slice of time. All slices have the same length.
pub struct Timeline {
    /// Seconds per slice.
    pub slice: f64,
    /// Tokens asked for, by the instants of the calls.
    pub requested: Vec<u64>,
    /// Tokens granted, by the instants of the grants.
    pub granted: Vec<u64>,
    /// The longest wait of the calls that arrived in the slice, in seconds.
    pub wait: Vec<f64>,
    /// How many callers wait at the end of the slice.
    pub waiting: Vec<i64>,
}

impl Timeline {
    /// `waits` belong to `events`, one each. Grants after the last call are left out, unless all calls arrive at one
    /// instant.
    pub fn new(events: &[Event], waits: &[Option<Duration>]) -> Self {
        let start = events.first().map_or(0, |event| event.at);
        let span = events.last().map_or(0, |event| event.at - start);
        let longest = waits.iter().flatten().max().map_or(0, Duration::as_nanos);
        let whole = if span > 0 { u128::from(span) } else { longest.max(1_000_000) } + 1;
        let slice_of = |at: u128| usize::try_from(at * SLICES as u128 / whole).unwrap_or(usize::MAX);
        let mut timeline = Self::empty(whole as f64 / 1e9 / SLICES as f64);
        for (event, wait) in events.iter().zip(waits) {
            let at = u128::from(event.at - start);
            timeline.add(slice_of(at), wait.map(|wait| (slice_of(at + wait.as_nanos()), wait)), event.cost);
        }
        let mut callers = 0;
        for change in &mut timeline.waiting {
            callers += *change;
            *change = callers;
        }
        timeline
    }

    fn empty(slice: f64) -> Self {
        let [requested, granted] = [(); 2].map(|()| vec![0; SLICES]);
        Self { slice, requested, granted, wait: vec![0.0; SLICES], waiting: vec![0; SLICES] }
    }

    /// Counts a call; `granted` is the slice of its grant and its wait.
    fn add(&mut self, arrived: usize, granted: Option<(usize, Duration)>, cost: u64) {
        self.requested[arrived] += cost;
        let Some((slice, wait)) = granted else { return };
        self.wait[arrived] = self.wait[arrived].max(wait.as_secs_f64());
        self.waiting[arrived] += 1;
        if slice < SLICES {
            self.granted[slice] += cost;
            self.waiting[slice] -= 1;
        }
    }
}
