//! TEMP
use crate::{Class, Clock, ConsumeOwned, Limiter, ManualClock, OwnedGrant, Quota, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};

#[derive(Clone, Debug, Default)]
struct DriverlessClock(Arc<AtomicU64>);
impl Clock for DriverlessClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

struct Fx {
    limiter: Limiter,
    classes: Vec<Option<Class>>,
    waiting: Vec<(usize, u64, Spawn<ConsumeOwned<Class>>)>,
    held: Vec<(usize, OwnedGrant<Class>)>,
    advance: Box<dyn Fn(u64)>,
    next: u64,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn share(seed: u64, index: usize) -> Share {
    let weight = [1, 2, 3, 7, 12][(seed as usize / 3 + index * 5) % 5];
    let share = Share::weight(weight);
    match (seed + index as u64) % 7 {
        0 if index != 2 => share.floor(Quota::per_second(900).burst(5)),
        1 => share.ceiling(Quota::per_second(3_000).burst(30)),
        2 => share.ceiling(Quota::per_second(7_000).burst(4)),
        _ => share,
    }
}

impl Fx {
    fn new<C: Clock>(clock: C, seed: u64, advance: impl Fn(u64) + 'static) -> Self {
        let quota = Quota::per_second(10_000).burst(10).initial(0);
        let mut builder = Limiter::builder().quota(quota).classes().clock(clock).rovers_at(u64::MAX - seed % 200);
        if seed % 4 == 0 {
            builder = builder.max_in_flight(40);
        }
        if seed % 5 == 0 {
            builder = builder.quota(Quota::new(40, Duration::from_millis(5)).burst(40).stepped());
        }
        let limiter = builder.build().expect("valid");
        let mut fx = Self {
            limiter,
            classes: vec![None, None, None, None],
            waiting: vec![],
            held: vec![],
            advance: Box::new(advance),
            next: 0,
        };
        for index in 0..4 {
            fx.make(index, seed);
        }
        fx
    }

    fn make(&mut self, index: usize, seed: u64) {
        let made = if index == 3 {
            match &self.classes[2] {
                Some(c) => c.class("d", share(seed, 3)),
                None => return,
            }
        } else {
            self.limiter.class(NAMES[index], share(seed, index))
        };
        self.classes[index] = made.ok();
    }

    fn claim(&mut self, class: usize, cost: u64) {
        let Some(handle) = &self.classes[class] else { return };
        self.next += 1;
        let id = self.next;
        let mut claim = spawn(handle.clone().consume_owned(cost));
        match claim.poll() {
            Poll::Pending => self.waiting.push((class, id, claim)),
            Poll::Ready(Ok(grant)) => self.held.push((class, grant)),
            Poll::Ready(Err(_)) => {}
        }
    }

    fn run(mut self, seed: u64) -> Vec<String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seen = Vec::new();
        for _ in 0..20 {
            self.claim(0, 1);
        }
        for _ in 0..5 {
            self.claim(1, 1);
        }
        for round in 0..60 {
            for _ in 0..random.usize(0..6) {
                (self.advance)(random.u64(0..400_000));
                let cost = [1, 1, 2, 7, 25][random.usize(0..5)];
                let class = random.usize(0..4);
                match random.u8(0..24) {
                    0 => {
                        let t = random.u64(0..20);
                        if let Some((_, grant)) = self.held.pop() {
                            let mut grant = grant;
                            let c = grant.cost();
                            grant.settle(c + t);
                            grant.forget();
                        }
                    }
                    1 => {
                        let keep = random.u64(0..3);
                        if let Some((_, grant)) = self.held.pop() {
                            let mut grant = grant;
                            let c = grant.cost();
                            grant.settle(c.min(keep));
                        }
                    }
                    2 => self.limiter.pause_for(Duration::from_nanos(random.u64(0..900_000))),
                    3 => {
                        let burst = random.u64(3..14);
                        let _ = self.limiter.set_quota(0, Quota::per_second(10_000).burst(burst));
                    }
                    4 => self.limiter.replenish(random.u64(1..6)),
                    5 => {
                        if let Some(class) = &self.classes[class] {
                            let _ = class.try_acquire(cost).map(|g| g.forget());
                        }
                    }
                    6 => {
                        if let Some(class) = &self.classes[class] {
                            class.remove();
                        }
                    }
                    7 => {
                        let s = random.u64(0..50);
                        self.make(class, s);
                    }
                    8 => {
                        self.classes[class] = None;
                        let s = random.u64(0..50);
                        self.make(class, s);
                    }
                    9 => {
                        let s = share(random.u64(0..50), class);
                        if let Some(class) = &self.classes[class] {
                            let _ = class.set_share(s);
                        }
                    }
                    10 => {
                        let mut root = spawn(self.limiter.clone().consume_owned(cost));
                        let _ = root.poll();
                    }
                    11 | 12 => {
                        if !self.waiting.is_empty() {
                            let at = random.usize(0..self.waiting.len());
                            drop(self.waiting.remove(at));
                        }
                    }
                    13 => {
                        if !self.held.is_empty() {
                            let at = random.usize(0..self.held.len());
                            drop(self.held.remove(at));
                        }
                    }
                    _ => self.claim(class, cost),
                }
            }
            self.limiter.tick();
            let mut gone = Vec::new();
            let mut index = 0;
            while index < self.waiting.len() {
                let (class, id, claim) = &mut self.waiting[index];
                if claim.is_woken() {
                    match claim.poll() {
                        Poll::Pending => {
                            gone.push(format!("?{id}"));
                            index += 1;
                        }
                        Poll::Ready(Ok(grant)) => {
                            gone.push(format!("{id}"));
                            let class = *class;
                            drop(self.waiting.remove(index));
                            self.held.push((class, grant));
                        }
                        Poll::Ready(Err(error)) => {
                            gone.push(format!("{id}:{error}"));
                            drop(self.waiting.remove(index));
                        }
                    }
                } else {
                    index += 1;
                }
            }
            let snap = self.limiter.snapshot();
            seen.push(format!(
                "{round} {gone:?} {} {:?} {} {:?}",
                snap.waiting_tasks,
                snap.quotas.iter().map(|q| q.level).collect::<Vec<_>>(),
                snap.waiting_tokens,
                snap.in_flight
            ));
        }
        seen
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_late_arrivals() {
    let from: u64 = std::env::var("FROM").ok().and_then(|x| x.parse().ok()).unwrap_or(0);
    let to: u64 = std::env::var("TO").ok().and_then(|x| x.parse().ok()).unwrap_or(1000);
    let mut bad = 0;
    tokio::task::unconstrained(async {
        for seed in from..to {
            let manual = ManualClock::new();
            let moved = manual.clone();
            let exact = Fx::new(manual, seed, move |nanos| moved.advance(Duration::from_nanos(nanos))).run(seed);
            let late = DriverlessClock::default();
            let moved = Arc::clone(&late.0);
            let late = Fx::new(late, seed, move |nanos| _ = moved.fetch_add(nanos, Ordering::Relaxed)).run(seed);
            if let Some(at) = (0..exact.len()).find(|at| exact[*at] != late[*at]) {
                println!("seed {seed}\n exact {}\n late  {}", exact[at], late[at]);
                bad += 1;
                if bad > 5 {
                    panic!()
                }
            }
        }
    })
    .await;
    assert_eq!(bad, 0);
}
