//! A trace: the calls in the order of their instants.

use crate::Failure;
use crate::event::Event;
use std::io::Write;
use std::time::Duration;

/// The most tokens that a trace may have: up to this number, the positions of a limiter can be compared.
const MAX_TOKENS: u128 = 1 << 60;

const SECOND: u64 = 1_000_000_000;

/// Calls in the order of their instants; at least one.
#[derive(Debug)]
pub struct Trace {
    pub events: Vec<Event>,
    /// The names of the keys, by their numbers.
    pub keys: Vec<Box<str>>,
    /// The number of calls with an earlier instant than the call before them.
    pub disordered: usize,
}

impl Trace {
    /// Sorts the calls. Calls of one instant keep their order.
    pub fn new(mut events: Vec<Event>, keys: Vec<Box<str>>) -> Result<Self, Failure> {
        if events.is_empty() {
            return Err("the trace has no calls: write at least one line with an instant".into());
        }
        let tokens: u128 = events.iter().map(|event| u128::from(event.cost)).sum();
        if tokens > MAX_TOKENS {
            return Err(
                format!("the costs add up to {tokens} tokens, the most is {MAX_TOKENS}: use a larger unit").into()
            );
        }
        let disordered = events.windows(2).filter(|pair| pair[1].at < pair[0].at).count();
        events.sort_by_key(|event| event.at);
        Ok(Self { events, keys, disordered })
    }

    pub fn has_whole_seconds(&self) -> bool {
        self.events.iter().all(|event| event.at % SECOND == 0)
    }

    /// Distributes the calls of each second evenly over that second. For traces that have instants in whole seconds.
    pub fn spread_over_seconds(&mut self) {
        for second in self.events.chunk_by_mut(|one, next| one.at == next.at) {
            let count = second.len() as u64;
            for (index, event) in (0..).zip(second) {
                event.at += index * SECOND / count;
            }
        }
    }

    pub fn tokens(&self) -> u64 {
        self.events.iter().map(|event| event.cost).sum()
    }

    /// From the first call to the last.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.events[self.events.len() - 1].at - self.events[0].at)
    }

    /// The most tokens in any window of a second: of one key if `per_key`, else of all calls together.
    pub fn busiest_second(&self, per_key: bool) -> u64 {
        let mut events = self.events.clone();
        if per_key {
            events.sort_by_key(|event| event.key);
        }
        let lists = events.chunk_by(|one, next| !per_key || one.key == next.key);
        lists.map(busiest_second).max().unwrap_or(0)
    }

    /// Writes the trace as CSV that this program reads.
    pub fn write(&self, output: impl Write) -> Result<(), Failure> {
        let mut rows = csv::Writer::from_writer(output);
        rows.write_record(["instant", "key", "cost"])?;
        for event in &self.events {
            let (seconds, nanos) = (event.at / SECOND, event.at % SECOND);
            let instant = format!("{seconds}.{nanos:09}");
            rows.write_record([&instant, &*self.keys[event.key as usize], &event.cost.to_string()])?;
        }
        Ok(rows.flush()?)
    }
}

fn busiest_second(events: &[Event]) -> u64 {
    let (mut oldest, mut inside, mut most) = (0, 0, 0);
    for event in events {
        inside += event.cost;
        while event.at - events[oldest].at >= SECOND {
            inside -= events[oldest].cost;
            oldest += 1;
        }
        most = most.max(inside);
    }
    most
}
