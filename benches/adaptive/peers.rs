//! What clients do today, re-implemented for the simulation from their descriptions.

use super::world::Client;
use std::collections::VecDeque;

const STEPS_PER_SECOND: f64 = 1_000.0;

/// Tasks that send, wait for the answer and send again. A refused task sleeps.
pub struct Sleepers {
    /// When each task may send again; `None` while its request is on its way.
    tasks: Vec<Option<u64>>,
    refusals: Vec<u32>,
    sleep: Sleep,
    random: fastrand::Rng,
}

#[derive(Clone, Copy)]
pub enum Sleep {
    /// A second after each refusal: the loop that most programs start with.
    Fixed,
    /// A random time up to 0.1 s, 0.2 s, 0.4 s, ... and at most 20 s: M. Brooker, "Exponential Backoff And Jitter", AWS
    /// Architecture Blog, 2015 ("full jitter").
    FullJitter,
}

impl Sleepers {
    /// Enough tasks that they exceed the share `limit` of this process by half.
    pub fn new(limit: f64, sleep: Sleep, seed: u64) -> Self {
        const ROUND_TRIP: f64 = 0.02;
        let tasks = (limit * 1.5 * ROUND_TRIP).ceil() as usize;
        Self { tasks: vec![Some(0); tasks], refusals: vec![0; tasks], sleep, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Client for Sleepers {
    type Request = usize;

    fn send(&mut self, now: u64, send: &mut dyn FnMut(usize, usize)) {
        for (number, task) in self.tasks.iter_mut().enumerate() {
            if task.take_if(|at| *at <= now).is_some() {
                send(0, number);
            }
        }
    }

    fn answer(&mut self, now: u64, _: usize, number: usize, accepted: bool) {
        let sleep = if accepted {
            self.refusals[number] = 0;
            0
        } else {
            let attempt = self.refusals[number].min(16);
            self.refusals[number] += 1;
            match self.sleep {
                Sleep::Fixed => 1_000,
                Sleep::FullJitter => self.random.u64(0..=(100_u64 << attempt).min(20_000)),
            }
        };
        self.tasks[number] = Some(now + sleep);
    }

    fn rate(&self) -> Option<f64> {
        None
    }
}

/// The adaptive retry mode of botocore: `botocore/retries/{adaptive,throttling,bucket}.py`. Requests go through a token
/// bucket from the first refusal on. A refusal sets its rate to 0.7 of the measured one; afterwards it follows
/// `0.4 (t - k)^3 + w`, CUBIC's curve with constants that do not depend on the rate, and never exceeds twice the
/// measured rate. The rate is measured in buckets of 0.5 s.
pub struct Botocore {
    enabled: bool,
    rate: f64,
    capacity: f64,
    level: f64,
    /// CUBIC: the rate at the last refusal, the time of it, and the time from it to the plateau.
    w: f64,
    failed_at: f64,
    k: f64,
    measured: f64,
    counted: f64,
    bucket: f64,
    /// Tasks that wait for an answer before they send again; they bound a client that is not limited yet.
    free: usize,
}

impl Botocore {
    pub fn new(limit: f64) -> Self {
        let free = (limit * 1.5 * 0.02).ceil() as usize;
        Self {
            enabled: false,
            rate: 0.5,
            capacity: 1.0,
            level: 0.0,
            w: 0.0,
            failed_at: 0.0,
            k: 0.0,
            measured: 0.0,
            counted: 0.0,
            bucket: 0.0,
            // Enough for a limit that doubles while the answers are on their way.
            free: free * 2,
        }
    }

    fn measure(&mut self, seconds: f64) {
        let bucket = (seconds * 2.0).floor() / 2.0;
        self.counted += 1.0;
        if bucket > self.bucket {
            let current = self.counted / (bucket - self.bucket);
            self.measured = current * 0.8 + self.measured * 0.2;
            (self.counted, self.bucket) = (0.0, bucket);
        }
    }
}

impl Client for Botocore {
    type Request = ();

    fn send(&mut self, _: u64, send: &mut dyn FnMut(usize, ())) {
        self.level = (self.level + self.rate / STEPS_PER_SECOND).min(self.capacity);
        while self.free > 0 && (!self.enabled || self.level >= 1.0) {
            self.level -= if self.enabled { 1.0 } else { 0.0 };
            self.free -= 1;
            send(0, ());
        }
    }

    fn answer(&mut self, now: u64, _: usize, (): (), accepted: bool) {
        let seconds = now as f64 / STEPS_PER_SECOND;
        self.free += 1;
        self.measure(seconds);
        let new = if accepted {
            0.4 * (seconds - self.failed_at - self.k).powi(3) + self.w
        } else {
            let used = if self.enabled { self.measured.min(self.rate) } else { self.measured };
            (self.w, self.failed_at, self.enabled) = (used, seconds, true);
            self.k = (used * 0.3 / 0.4).cbrt();
            used * 0.7
        };
        let rate = new.min(2.0 * self.measured);
        self.rate = rate.max(0.5);
        self.capacity = rate.max(1.0);
        self.level = self.level.min(self.capacity);
    }

    fn rate(&self) -> Option<f64> {
        self.enabled.then_some(self.rate)
    }
}

/// AIMD with reservations, as in lance (`lance-io/src/object_store/throttle.rs`, `lance-core/src/utils/aimd.rs`): each
/// second without a refusal adds a constant, each second with one halves the rate. A caller reserves a token and sleeps
/// for the time that follows from the rate of that moment; a later change does not wake it earlier or later, and a
/// caller that gives up leaves its reservation behind. The constants are lance's defaults (start 2,000, increment 300,
/// burst 100), scaled from their maximum of 5,000 to this process's share of the limit.
pub struct Reservations {
    rate: f64,
    increment: f64,
    burst: f64,
    tokens: f64,
    window: u64,
    throttled: bool,
    answered: bool,
    /// When the callers that reserved a token wake up, in milliseconds.
    asleep: VecDeque<f64>,
}

impl Reservations {
    const CALLERS: usize = 64;

    pub fn new(limit: f64) -> Self {
        let burst = (limit * 0.02).max(1.0);
        let (rate, increment) = (limit * 0.4, limit * 0.06);
        Self {
            rate,
            increment,
            burst,
            tokens: burst,
            window: 0,
            throttled: false,
            answered: false,
            asleep: VecDeque::new(),
        }
    }
}

impl Client for Reservations {
    type Request = ();

    fn send(&mut self, now: u64, send: &mut dyn FnMut(usize, ())) {
        self.tokens = (self.tokens + self.rate / STEPS_PER_SECOND).min(self.burst);
        let callers = Self::CALLERS.max((self.rate / 100.0) as usize);
        let mut awake = Vec::new();
        self.asleep.retain(|at| {
            let wakes = *at <= now as f64;
            awake.extend(wakes.then_some(()));
            !wakes
        });
        awake.into_iter().for_each(|()| send(0, ()));
        while self.asleep.len() < callers {
            self.tokens -= 1.0;
            let sleep = (-self.tokens / self.rate).max(0.0) * STEPS_PER_SECOND;
            self.asleep.push_back(now as f64 + sleep);
        }
    }

    fn answer(&mut self, now: u64, _: usize, (): (), accepted: bool) {
        if now >= self.window + 1_000 {
            if self.answered {
                self.rate = if self.throttled { (self.rate * 0.5).max(0.1) } else { self.rate + self.increment };
            }
            (self.window, self.throttled, self.answered) = (now, false, false);
        }
        self.answered = true;
        self.throttled |= !accepted;
    }

    fn rate(&self) -> Option<f64> {
        Some(self.rate)
    }
}
