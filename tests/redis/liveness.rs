//! Every waiter of a fleet is granted, and on time: random scenes in paused time.

use crate::law::Ledger;
use crate::nodes::{limiter, millis};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate::lease::MemoryLine;
use tollgate::{Limiter, Quota};

#[derive(Clone, Debug)]
struct Claim {
    node: usize,
    cost: u64,
    arrives: Duration,
    patience: Option<Duration>,
    granted: Option<Duration>,
}

#[derive(Debug)]
struct Scene {
    seed: u64,
    rate: u64,
    burst: u64,
    initial: u64,
    latency: Duration,
    losses: bool,
    nodes: usize,
}

impl Scene {
    fn quota(&self) -> Quota {
        Quota::per_second(self.rate).burst(self.burst).initial(self.initial)
    }

    fn random(seed: u64) -> (Self, fastrand::Rng) {
        let mut random = fastrand::Rng::with_seed(seed);
        let rate = [5, 100, 1_000, 20_000][random.usize(..4)];
        let burst = [1, 2, 7, 20, 100][random.usize(..5)];
        let initial = [0, burst / 2, burst, burst][random.usize(..4)];
        let latency = millis([0, 0, 0, 1, 40, 200, 600][random.usize(..7)]);
        let losses = random.u32(..4) == 0;
        let nodes = random.usize(2..=4);
        (Self { seed, rate, burst, initial, latency, losses, nodes }, random)
    }

    async fn play(&self, mut random: fastrand::Rng) -> Vec<String> {
        let line = MemoryLine::new();
        line.set_latency(self.latency);
        let began = Instant::now();
        let nodes: Vec<Limiter> = (0..self.nodes).map(|_| limiter(&line, self.quota())).collect();
        let (ledger, claims) = (Ledger::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        let count = random.usize(2..12);
        let most = if random.bool() { self.burst } else { 3 * self.burst };
        let spread = Duration::from_secs_f64(self.burst as f64 / self.rate as f64) * 4;
        for number in 0..count {
            let node = random.usize(..self.nodes);
            let cost = random.u64(1..=most);
            let wait = if random.bool() { Duration::ZERO } else { spread.mul_f64(random.f64()) };
            let arrives = wait;
            let patience = (random.u32(..4) == 0).then(|| spread.mul_f64(random.f64()));
            claims.lock().unwrap().push(Claim { node, cost, arrives, patience, granted: None });
            let (limiter, ledger, claims) = (nodes[node].clone(), ledger.clone(), claims.clone());
            tasks.push(tokio::spawn(async move {
                sleep_until(began + arrives).await;
                let consume = limiter.consume(cost);
                let granted = match patience {
                    Some(patience) => timeout(patience, consume).await.is_ok_and(|answer| answer.is_ok()),
                    None => consume.await.is_ok(),
                };
                if granted {
                    ledger.note(cost);
                    claims.lock().unwrap()[number].granted = Some(began.elapsed());
                }
            }));
        }
        drop(nodes);
        if self.losses {
            for _ in 0..4 {
                sleep(spread.mul_f64(random.f64() / 4.0)).await;
                line.lose_answers(random.u64(..3));
            }
            line.lose_answers(0);
        }
        let mut wrong = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            let abort = task.abort_handle();
            if timeout(millis(3_600_000), task).await.is_err() {
                abort.abort();
                let claims = claims.lock().unwrap();
                wrong.push(format!(
                    "{self:?}: claim {number} hangs:\n{}",
                    claims.iter().map(|claim| format!("{claim:?}\n")).collect::<String>()
                ));
            }
        }
        wrong
    }
}

fn scenes() -> u64 {
    std::env::var("SCENES").map_or(300, |scenes| scenes.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_waiter_of_a_random_fleet_is_granted_on_time() {
    let mut wrong = Vec::new();
    for seed in 0..scenes() {
        let (scene, random) = Scene::random(seed);
        wrong.extend(scene.play(random).await);
    }
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong.iter().take(6).cloned().collect::<String>());
}
