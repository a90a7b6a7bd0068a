//! Random fleets in paused time: every waiter is granted on time, and all nodes together keep the rate law.
//!
//! A scene has 2 to 4 nodes that join and leave, and some tens of claims of up to three bursts, some of which are
//! cancelled. Its store is up to 200 ms away (of a farther one, the horizon is less than 2.5 round trips), and may lose answers. The test does not depend on how nodes send requests:
//! it checks only results that callers see.
//!
//! **On time** means: while a claim waits, every token that the store mints goes to a claim, or is lost in one of the
//! ways that DESIGN.md allows. So a claim waits at most for as long as these tokens take to be minted
//! ([`Scene::tokens_before`]), plus the time of the messages between the nodes and the store ([`Scene::talk`]).

use super::law::Ledger;
use super::nodes::{limiter, millis};
use crate::fixture::*;

/// The number of scenes in a test run; `TOLLGATE_SCENES` overrides it.
const SCENES: u64 = 400;

/// Longer than any scene takes, unless a waiter hangs.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// A claim and its result. All times count from the start of the scene.
#[derive(Clone, Debug)]
struct Claim {
    node: usize,
    cost: u64,
    arrives: Duration,
    max_wait: Option<Duration>,
    granted: Option<Duration>,
}

#[derive(Debug)]
#[allow(dead_code, reason = "printed when a scene fails")]
struct Scene {
    seed: u64,
    rate: u64,
    burst: u64,
    initial: u64,
    latency: Duration,
    losses: u64,
    /// When each node joins, and whether it stays until the end. The others leave after their last claim.
    nodes: Vec<(Duration, bool)>,
    claims: Vec<Claim>,
}

impl Scene {
    fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let rate = [5_u64, 100, 1_000, 20_000][random.usize(..4)];
        let burst = [1_u64, 2, 7, 20, 100][random.usize(..5)];
        let initial = [0, burst / 2, burst, burst][random.usize(..4)];
        let latency = millis([0, 0, 0, 0, 1, 40, 100, 200][random.usize(..8)]);
        let losses = if random.u32(..4) == 0 { random.u64(1..4) } else { 0 };
        let fills = Duration::from_secs_f64(burst as f64 / rate as f64);
        let spread = fills * random.u32(1..12);
        let some_time = |random: &mut fastrand::Rng| spread.mul_f64(random.f64());
        let nodes: Vec<_> = (0..random.usize(2..=4))
            .map(|_| (if random.u32(..3) == 0 { some_time(&mut random) } else { Duration::ZERO }, random.bool()))
            .collect();
        let most = [burst.div_ceil(2), burst, 3 * burst][random.usize(..3)];
        let hasty = [0, 0, 2, 4][random.usize(..4)];
        let claims = (0..random.usize(2..24))
            .map(|_| {
                let node = random.usize(..nodes.len());
                let wait = if random.u32(..3) == 0 { Duration::ZERO } else { some_time(&mut random) };
                let max_wait = (random.u32(..8) < hasty).then(|| some_time(&mut random));
                let cost = random.u64(1..=most);
                Claim { node, cost, arrives: wait.max(nodes[node].0), max_wait, granted: None }
            })
            .collect();
        Self { seed, rate, burst, initial, latency, losses, nodes, claims }
    }

    fn quota(&self) -> Quota {
        Quota::per_second(self.rate).burst(self.burst).initial(self.initial)
    }

    /// Runs the scene and returns what went wrong.
    async fn play(mut self) -> Vec<String> {
        let store = store_at(self.latency);
        let (began, ledger) = (Instant::now(), Ledger::default());
        let granted = Arc::new(Mutex::new(vec![None; self.claims.len()]));
        let (mut tasks, mut staying) = (Vec::new(), Vec::new());
        for (index, (joins, stays)) in self.nodes.iter().copied().enumerate() {
            sleep_until(began).await;
            let (store, quota, claims) = (store.clone(), self.quota(), self.claims.clone());
            let (ledger, granted) = (ledger.clone(), granted.clone());
            let node = tokio::spawn(async move {
                sleep_until(began + joins).await;
                let node = limiter(&store, quota);
                let own = claims.into_iter().enumerate().filter(|(_, claim)| claim.node == index);
                let tasks: Vec<_> = own
                    .map(|(number, claim)| {
                        let (node, ledger, granted) = (node.clone(), ledger.clone(), granted.clone());
                        tokio::spawn(async move {
                            if consume(&node, &claim, began).await {
                                ledger.note(claim.cost);
                                granted.lock().unwrap()[number] = Some(began.elapsed());
                            }
                        })
                    })
                    .collect();
                let node = stays.then_some(node);
                try_join_all(tasks).await.unwrap();
                node
            });
            tasks.push(node);
        }
        let last = self.claims.iter().map(|claim| claim.arrives).max().unwrap_or_default();
        for _ in 0..self.losses {
            sleep((last / 3).max(millis(1))).await;
            store.lose_answers(1);
        }
        let mut wrong = Vec::new();
        for task in tasks {
            match timeout(FOR_EVER, task).await {
                Ok(node) => staying.push(node.unwrap()),
                Err(_) => wrong.push("a waiter hangs".to_owned()),
            }
        }
        self.claims.iter_mut().zip(&*granted.lock().unwrap()).for_each(|(claim, at)| claim.granted = *at);
        if wrong.is_empty() {
            wrong.extend(self.late());
            wrong.extend(self.unlawful(&ledger));
        }
        let claims: String = self.claims.iter().map(|claim| format!("\n  {claim:?}")).collect();
        if std::env::var("SEED").is_err() {
            self.claims.clear()
        }
        wrong.into_iter().map(|wrong| format!("{wrong}, in {self:?}{claims}\n")).collect()
    }

    /// The claims that were granted later than the store and the other nodes explain.
    fn late(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.max_wait.is_none()) {
            let Some(granted) = claim.granted else { continue };
            let minted = Duration::from_secs_f64(self.tokens_before(claim, granted) as f64 / self.rate as f64);
            let late = (granted - claim.arrives).saturating_sub(minted + self.talk());
            if late > Duration::ZERO {
                wrong.push(format!("{claim:?} is late by {late:?}"));
            }
        }
        wrong
    }

    /// An upper bound for the tokens that the store mints while `claim` waits: those of all claims that are granted
    /// meanwhile, those that may be promised to cancelled claims, those that other nodes hold, and a lease for each
    /// lost answer.
    fn tokens_before(&self, claim: &Claim, granted: Duration) -> u64 {
        let others = self.claims.iter().filter(|other| match other.granted {
            Some(at) => at > claim.arrives && at <= granted,
            None => other.arrives <= granted,
        });
        others.map(|other| other.cost).sum::<u64>() + self.burst / 2 + self.losses * (self.largest() + self.burst / 2)
    }

    /// How long the messages between the node and the store take while a claim waits: one request may be in flight when
    /// the claim arrives, and the next one is for the claim. Timers are late by up to a millisecond for both. A lost
    /// answer is requested again after a pause of up to 20 ms, and so is the next one.
    fn talk(&self) -> Duration {
        let round_trip = 2 * self.latency;
        2 * (round_trip + millis(1)) + (round_trip + millis(60)) * self.losses as u32
    }

    /// A claim of up to half of a burst keeps the rate law. A larger one is granted as a whole, and may coincide with
    /// tokens that other nodes hold.
    fn unlawful(&self, ledger: &Ledger) -> Option<String> {
        let large = self.largest().saturating_sub(self.burst / 2);
        // Tokens that are granted at once may be late by the latency from the store to the node. Timers are late by up
        // to a millisecond.
        let on_its_way = (self.latency + millis(1)).as_secs_f64() * self.rate as f64;
        let excess = ledger.excess(self.rate, self.burst) - large as f64 - on_its_way;
        (excess > 1e-6).then(|| format!("{excess} tokens above the law"))
    }

    fn largest(&self) -> u64 {
        self.claims.iter().map(|claim| claim.cost).max().unwrap_or(0)
    }
}

/// Returns whether the claim was granted.
async fn consume(node: &Limiter, claim: &Claim, began: Instant) -> bool {
    sleep_until(began + claim.arrives).await;
    let consume = node.consume(claim.cost);
    match claim.max_wait {
        Some(max_wait) => timeout(max_wait, consume).await.is_ok_and(|answer| answer.is_ok()),
        None => consume.await.is_ok(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_waiter_of_a_random_fleet_is_granted_on_time_and_within_the_law() {
    let scenes = std::env::var("TOLLGATE_SCENES").map_or(SCENES, |scenes| scenes.parse().unwrap());
    let mut wrong = Vec::new();
    for seed in 0..scenes {
        wrong.extend(Scene::random(seed).play().await);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(5)].concat());
}
