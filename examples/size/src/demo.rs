//! Synthetic traces. The same options give the same trace.

use crate::Failure;
use crate::event::Event;
use crate::trace::Trace;
use clap::ValueEnum;
use fastrand::Rng;

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Independent calls: random gaps with an exponential distribution
    Poisson,
    /// A second with calls at twice the mean rate, evenly spaced, then a second without any
    Onoff,
    /// All calls at one instant
    Burst,
}

/// What to generate: `events` calls of cost 1, at `rate` per second on average.
#[derive(Clone, Copy, Debug)]
pub struct Demo {
    pub shape: Shape,
    pub events: u64,
    pub rate: u64,
    pub seed: u64,
}

impl Demo {
    pub fn trace(self) -> Result<Trace, Failure> {
        let mut instants: Box<dyn FnMut(u64) -> u64> = match self.shape {
            Shape::Poisson => self.poisson(),
            Shape::Onoff => Box::new(move |number| self.on_off(number)),
            Shape::Burst => Box::new(|_| 0),
        };
        let events = (0..self.events).map(|number| Event { at: instants(number), key: 0, cost: 1 }).collect();
        Trace::new(events, vec!["demo".into()])
    }

    fn poisson(self) -> Box<dyn FnMut(u64) -> u64> {
        let (mut random, mean, mut at) = (Rng::with_seed(self.seed), SECOND as f64 / self.rate as f64, 0.0);
        Box::new(move |_| {
            at -= (1.0 - random.f64()).ln() * mean;
            at as u64
        })
    }

    fn on_off(self, number: u64) -> u64 {
        let in_second = 2 * self.rate;
        number / in_second * 2 * SECOND + number % in_second * SECOND / in_second
    }
}
