//! Streams of a language model in simulated time: the budget is used, nothing is refused, and nothing is left behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};
use tollgate::{Limiter, Quota, reserve};

const STREAMS: u32 = 10_000;
const WORKERS: u32 = 100;
/// The provider's limits per minute. Output tokens are what streams wait for.
const REQUESTS: u64 = 12_000;
const INPUT: u64 = 3_000_000;
const OUTPUT: u64 = 240_000;
/// The provider tolerates the units of so many seconds at once; the client takes the half of it.
const BURST: u64 = 4;
/// What a stream reserves. It has 1 to 120 output tokens.
const ESTIMATE: u64 = 100;
const ONE_WAY: Duration = Duration::from_millis(10);
const CHUNK: Duration = Duration::from_millis(50);
/// The figures leave out the beginning, with the full buckets.
const WARM_UP: Duration = Duration::from_secs(10);

/// A bucket of the provider, in floating point.
struct Account {
    per_second: f64,
    level: f64,
    at: Instant,
}

impl Account {
    fn new(per_minute: u64) -> Self {
        let per_second = per_minute as f64 / 60.0;
        Self { per_second, level: per_second * BURST as f64, at: Instant::now() }
    }

    fn level(&mut self) -> f64 {
        let now = Instant::now();
        let elapsed = (now - self.at).as_secs_f64();
        self.at = now;
        self.level = (self.level + elapsed * self.per_second).min(self.per_second * BURST as f64);
        self.level
    }

    fn take(&mut self, units: u64) {
        self.level();
        self.level -= units as f64;
    }
}

/// The provider, which refuses a request if a bucket lacks its units, or if the output tokens are used up.
struct Provider {
    requests: Account,
    input: Account,
    output: Account,
    refused: u32,
    /// Output tokens after the warm-up.
    used: u64,
    began: Instant,
}

impl Provider {
    fn new() -> Self {
        let [requests, input, output] = [REQUESTS, INPUT, OUTPUT].map(Account::new);
        Self { requests, input, output, refused: 0, used: 0, began: Instant::now() }
    }

    fn accepts(&mut self, prompt: u64) -> bool {
        let accepts = self.requests.level() >= 1.0 && self.input.level() >= prompt as f64 && self.output.level() >= 0.0;
        if accepts {
            self.requests.take(1);
            self.input.take(prompt);
        } else {
            self.refused += 1;
        }
        accepts
    }

    fn generate(&mut self, tokens: u64) {
        self.output.take(tokens);
        if self.began.elapsed() >= WARM_UP {
            self.used += tokens;
        }
    }
}

/// The client: its limiters, and the streams that it has still to make.
struct Client {
    limiters: [Limiter; 4],
    provider: RefCell<Provider>,
    random: RefCell<fastrand::Rng>,
    left: RefCell<u32>,
}

impl Client {
    fn new() -> Self {
        let limiter = |per_minute: u64| {
            let quota = Quota::per_minute(per_minute).burst(per_minute / 60 * BURST / 2);
            Limiter::builder().quota(quota)
        };
        let in_flight = Limiter::builder().max_in_flight(50_000);
        let limiters = [limiter(REQUESTS), limiter(INPUT), limiter(OUTPUT), in_flight].map(|it| it.build().unwrap());
        let random = RefCell::new(fastrand::Rng::with_seed(11));
        Self { limiters, provider: RefCell::new(Provider::new()), random, left: RefCell::new(STREAMS) }
    }

    fn next(&self) -> bool {
        let mut left = self.left.borrow_mut();
        *left = left.saturating_sub(1);
        *left > 0
    }

    /// The tokens of a prompt and of its answer, and after how many of these the stream is aborted: one of two streams is.
    fn draw(&self) -> (u64, u64, u64) {
        let mut random = self.random.borrow_mut();
        let (prompt, length) = (random.u64(50..500), random.u64(1..=120));
        let aborted_at = if random.bool() { random.u64(0..length) } else { length };
        (prompt, length, aborted_at)
    }

    async fn stream(&self) {
        let (prompt, length, aborted_at) = self.draw();
        let is_aborted = aborted_at < length;
        let [requests, input, output, in_flight] = &self.limiters;
        let claims = [(requests, 1), (input, prompt), (output, ESTIMATE), (in_flight, prompt + ESTIMATE)];
        let mut stream = reserve(claims).await.unwrap();
        sleep(ONE_WAY).await;
        if !self.provider.borrow_mut().accepts(prompt) {
            return;
        }
        stream.count(2, 0);
        let mut made = 0;
        while made < aborted_at {
            sleep(CHUNK).await;
            let chunk = 20.min(aborted_at - made);
            self.provider.borrow_mut().generate(chunk);
            stream.count(2, chunk);
            made += chunk;
        }
        if !is_aborted {
            sleep(ONE_WAY).await;
            stream.settle(2, made);
        }
    }
}

#[tokio::test(start_paused = true)]
#[cfg_attr(miri, ignore = "too many streams")]
async fn streams_use_their_budget_without_a_refusal_and_leave_nothing_behind() {
    let client = Rc::new(Client::new());
    let began = Instant::now();
    let workers = LocalSet::new();
    for _ in 0..WORKERS {
        let client = Rc::clone(&client);
        workers.spawn_local(async move {
            while client.next() {
                client.stream().await;
            }
        });
    }
    workers.await;
    let seconds = (began.elapsed() - WARM_UP).as_secs_f64();
    let provider = client.provider.borrow();
    let used = provider.used as f64 / (seconds * OUTPUT as f64 / 60.0);
    assert!(seconds > 60.0 && used >= 0.97, "{used} of the budget in {seconds} s");
    assert_eq!(provider.refused, 0);
    let left = client.limiters.each_ref().map(|limiter| {
        let seen = limiter.snapshot();
        (seen.in_flight.unwrap_or(0), seen.waiting_tasks, limiter.deficiency())
    });
    assert_eq!(left, [(0, 0, 0); 4]);
}
