//! A server that refuses requests above a hidden limit, and its clients, in simulated time. Deterministic.
//!
//! Time advances in steps of a millisecond, the resolution of tokio's timer. A request reaches the server half a round
//! trip after it was sent, and its answer comes back half a round trip later. All clients always have more to send.

use std::collections::VecDeque;
use std::time::Duration;
use tollgate::ManualClock;

pub const STEP: Duration = Duration::from_millis(1);
const STEPS_PER_SECOND: f64 = 1_000.0;
/// Steps of half a round trip of 20 ms.
const ONE_WAY: usize = 10;
/// What the server tolerates at once, in seconds of its limit; at least one request.
const TOLERANCE: f64 = 0.05;
/// The figures leave out this many seconds at the start of each phase.
const SETTLING: u64 = 10;

/// A process that sends requests.
pub trait Client {
    type Request;

    /// Passes the requests that are sent at step `now` to `send`, each with the number of the task that sends it.
    fn send(&mut self, now: u64, send: &mut dyn FnMut(usize, Self::Request));

    /// The answer to one of them.
    fn answer(&mut self, now: u64, task: usize, request: Self::Request, accepted: bool);

    /// The rate at which this client would send, per second, if it has one.
    fn rate(&self) -> Option<f64>;
}

/// The scene: a limit that halves and doubles.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Requests per second in the even phases; half of it in the odd ones.
    pub limit: f64,
    /// Seconds of a phase.
    pub phase: u64,
    pub phases: u64,
    /// Tasks of each client, numbered from 0.
    pub tasks: usize,
}

/// The results of a simulation.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The share of the limit that was used after the first 10 s of a phase, in the worst phase.
    pub used: f64,
    /// The share of all requests that was refused.
    pub refused: f64,
    /// Jain's index of the requests accepted from each task, outside of the first 10 s of the phases.
    pub jain: f64,
    /// Seconds until all rates together reach 0.9 of a doubled limit, in the worst phase. `None` if they never do, or
    /// if the clients have no rate.
    pub found: Option<f64>,
    /// Seconds until all rates together exceed a halved limit by less than 5 %, in the worst phase.
    pub left: Option<f64>,
    /// Ten times per second: the limit, and the requests per second that were sent.
    pub trace: Vec<(f64, f64)>,
}

struct Server {
    level: f64,
}

impl Server {
    fn accepts(&mut self) -> bool {
        let accepts = self.level >= 1.0;
        self.level -= if accepts { 1.0 } else { 0.0 };
        accepts
    }
}

/// Requests or answers in transit: those that arrive in each of the next steps.
struct Wire<T>(VecDeque<Vec<T>>);

impl<T> Wire<T> {
    fn new() -> Self {
        Self((0..ONE_WAY).map(|_| Vec::new()).collect())
    }

    fn arrived(&mut self) -> Vec<T> {
        let arrived = self.0.pop_front().unwrap_or_default();
        self.0.push_back(Vec::new());
        arrived
    }

    fn send(&mut self, item: T) {
        self.0.back_mut().expect("a wire has a length").push(item);
    }
}

pub fn run<C: Client>(scene: Scene, clock: &ManualClock, clients: &mut [C]) -> Figures {
    let steps = scene.phase * STEPS_PER_SECOND as u64;
    let mut there = Wire::new();
    let mut back = Wire::new();
    let mut server = Server { level: tolerated(scene.limit) };
    let mut tally = Tally::new(scene, clients.len());
    for now in 0..scene.phases * steps {
        let limit = if (now / steps) % 2 == 0 { scene.limit } else { scene.limit / 2.0 };
        if now % steps == 0 {
            tally.begin_phase(limit);
        }
        clock.advance(STEP);
        for (client, task, request, accepted) in back.arrived() {
            let client: &mut C = &mut clients[client];
            client.answer(now, task, request, accepted);
        }
        // Another client is first in each step, so that none is always refused first.
        for turn in 0..clients.len() {
            let number = (turn + now as usize) % clients.len();
            clients[number].send(now, &mut |task, request| {
                tally.sent += 1;
                there.send((number, task, request));
            });
        }
        server.level = (server.level + limit / STEPS_PER_SECOND).min(tolerated(limit));
        for (client, task, request) in there.arrived() {
            let accepted = server.accepts();
            tally.judge(client * scene.tasks + task, accepted, now % steps);
            back.send((client, task, request, accepted));
        }
        let rate = clients.iter().map(Client::rate).sum::<Option<f64>>();
        tally.look(now, now % steps, rate);
    }
    tally.figures()
}

fn tolerated(limit: f64) -> f64 {
    (limit * TOLERANCE).max(1.0)
}

/// Counters during the simulation.
struct Tally {
    scene: Scene,
    limit: f64,
    sent: u64,
    traced: u64,
    refused: u64,
    accepted_by: Vec<u64>,
    /// In this phase, after its first seconds.
    accepted: u64,
    phases: Vec<Phase>,
    trace: Vec<(f64, f64)>,
}

struct Phase {
    used: f64,
    /// The first step with 0.9 of the limit, and the first one not above it by more than 5 %.
    found: Option<u64>,
    left: Option<u64>,
}

impl Tally {
    fn new(scene: Scene, clients: usize) -> Self {
        let accepted_by = vec![0; clients * scene.tasks];
        Self {
            scene,
            limit: 0.0,
            sent: 0,
            traced: 0,
            refused: 0,
            accepted_by,
            accepted: 0,
            phases: Vec::new(),
            trace: Vec::new(),
        }
    }

    fn begin_phase(&mut self, limit: f64) {
        (self.limit, self.accepted) = (limit, 0);
        self.phases.push(Phase { used: 0.0, found: None, left: None });
    }

    fn judge(&mut self, task: usize, accepted: bool, step: u64) {
        if !accepted {
            self.refused += 1;
        } else if step >= SETTLING * STEPS_PER_SECOND as u64 {
            self.accepted += 1;
            self.accepted_by[task] += 1;
        }
    }

    fn look(&mut self, now: u64, step: u64, rate: Option<f64>) {
        let seconds = (self.scene.phase - SETTLING) as f64;
        let phase = self.phases.last_mut().expect("a phase has begun");
        phase.used = self.accepted as f64 / (self.limit * seconds);
        if let Some(rate) = rate {
            if rate >= 0.9 * self.limit {
                phase.found.get_or_insert(step);
            }
            if rate <= 1.05 * self.limit {
                phase.left.get_or_insert(step);
            }
        }
        if now % 100 == 99 {
            self.trace.push((self.limit, (self.sent - self.traced) as f64 * 10.0));
            self.traced = self.sent;
        }
    }

    fn figures(self) -> Figures {
        let worst = |phases: &mut dyn Iterator<Item = Option<u64>>| {
            let steps: Option<Vec<u64>> = phases.collect();
            steps.and_then(|steps| steps.into_iter().max()).map(|step| step as f64 / STEPS_PER_SECOND)
        };
        let sum: f64 = self.accepted_by.iter().map(|it| *it as f64).sum();
        let squares: f64 = self.accepted_by.iter().map(|it| (*it as f64).powi(2)).sum();
        Figures {
            used: self.phases.iter().map(|phase| phase.used).fold(f64::INFINITY, f64::min),
            refused: self.refused as f64 / self.sent.max(1) as f64,
            jain: sum * sum / (self.accepted_by.len() as f64 * squares).max(1.0),
            // The first phase is the search from the starting rate.
            found: worst(&mut self.phases.iter().skip(2).step_by(2).map(|phase| phase.found)),
            left: worst(&mut self.phases.iter().skip(1).step_by(2).map(|phase| phase.left)),
            trace: self.trace,
        }
    }
}
