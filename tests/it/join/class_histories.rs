//! Random histories of joint claims over classes of two limiters and a plain limiter, checked from outside: the rate law,
//! ceilings, order in each class, one instant for all parts, no token lost, and everything granted in the end.
//!
//! All rates mint a token at whole milliseconds, and time moves by one millisecond, so instants are exact.

use super::{MS, tick};
use crate::fixture::*;
use crate::shares::seeds::seeds;

const LIMITERS: usize = 3;
/// The class of claims of a limiter itself.
const OWN: usize = 4;
/// The first key under limiter 1, as a class.
const KEYS: usize = 5;

/// One token in `every` milliseconds.
#[derive(Clone, Copy, Debug)]
struct Rule {
    every: u64,
    burst: u64,
    initial: u64,
    cap: Option<u64>,
}

impl Rule {
    fn random(random: &mut Rng) -> Self {
        let burst = random.u64(2..9);
        let cap = (random.u8(0..5) == 0).then(|| random.u64(9..20));
        Self { every: random.u64(1..5), burst, initial: random.u64(0..=burst), cap }
    }

    fn quota(self) -> Quota {
        Quota::new(1, self.every as u32 * MS).burst(self.burst).initial(self.initial)
    }

    fn build(self, clock: &ManualClock, has_classes: bool) -> Limiter {
        let builder = Limiter::builder().quota(self.quota()).clock(clock.clone());
        let builder = self.cap.into_iter().fold(builder, tollgate::Builder::max_in_flight);
        if has_classes { builder.classes().build().unwrap() } else { builder.build().unwrap() }
    }
}

/// The ceiling of class 1: one token in `every` milliseconds.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    every: u64,
    burst: u64,
}

/// What class 1 of a limiter has used of its ceiling.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    served: u64,
    /// What the bucket of the ceiling lacks, in parts of a token of which one comes in each millisecond.
    lacks: u64,
}

struct Claim {
    /// Costs by limiter, and the class in each.
    costs: [u64; LIMITERS],
    classes: [usize; LIMITERS],
    future: Option<Spawn<Pin<Box<dyn Future<Output = bool>>>>>,
    granted: Option<u64>,
    is_joint: bool,
}

struct World {
    clock: ManualClock,
    rules: [Rule; LIMITERS],
    limiters: [Limiter; LIMITERS],
    /// Those of limiters 1 and 2.
    classes: [Vec<Class>; LIMITERS],
    ceiling: Option<Ceiling>,
    used: [Used; LIMITERS],
    /// Keys share limiter 1 with its classes.
    keys: Option<KeyedLimiter<usize>>,
    claims: Vec<Claim>,
    now: u64,
    changes: bool,
}

impl World {
    fn new(random: &mut Rng, changes: bool) -> Self {
        let clock = ManualClock::new();
        let rules: [Rule; LIMITERS] = std::array::from_fn(|_| Rule::random(random));
        let limiters: [Limiter; LIMITERS] = std::array::from_fn(|index| rules[index].build(&clock, index > 0));
        let ceiling = random.bool().then(|| Ceiling { every: random.u64(2..8), burst: random.u64(1..6) });
        let classes = std::array::from_fn(|index| {
            if index == 0 {
                return Vec::new();
            }
            let limiter = &limiters[index];
            let mut share = || Share::weight(random.u64(1..5));
            let floored = match rules[index].burst {
                burst if burst > 2 => share().floor(Quota::new(1, 16 * MS)),
                _ => share(),
            };
            let capped = ceiling.map_or_else(&mut share, |ceiling| {
                let quota = Quota::new(1, ceiling.every as u32 * MS).burst(ceiling.burst);
                Share::weight(2).ceiling(quota)
            });
            let inner = limiter.class("inner", share()).unwrap();
            vec![
                limiter.class("a", floored).unwrap(),
                limiter.class("b", capped).unwrap(),
                inner.class("x", share()).unwrap(),
                inner.class("y", share()).unwrap(),
            ]
        });
        let keys = (random.u8(0..3) == 0 && rules[1].cap.is_none())
            .then(|| KeyedLimiter::builder().clock(clock.clone()).parent(&limiters[1]).build().unwrap());
        let (used, claims) = ([Used::default(); LIMITERS], Vec::new());
        Self { clock, rules, limiters, classes, ceiling, used, keys, claims, now: 0, changes }
    }

    fn handle(&self, limiter: usize, class: usize) -> AnyLimiter {
        match self.classes[limiter].get(class) {
            Some(class) => AnyLimiter::from(class.clone()),
            None => AnyLimiter::from(self.limiters[limiter].clone()),
        }
    }

    fn arrive(&mut self, random: &mut Rng) {
        let mut costs = [0; LIMITERS];
        let members = random.usize(1..=LIMITERS);
        for _ in 0..members {
            let index = random.usize(0..LIMITERS);
            let most = self.rules[index].burst;
            // Claims above the burst are paid in installments, where there are classes.
            costs[index] = match random.u8(0..8) {
                0 if index > 0 && self.rules[index].cap.is_none() => random.u64(most..3 * most),
                1 => most,
                _ => random.u64(1..=most.min(4)),
            };
        }
        let classes: [usize; LIMITERS] =
            std::array::from_fn(|index| if index == 0 { OWN } else { random.usize(0..=OWN) });
        if let Some(keys) = self.keys.as_ref().filter(|_| random.bool()) {
            let (key, cost) = (random.usize(0..3), random.u64(1..=self.rules[1].burst));
            let claim = keys.clone().consume_owned(key, cost);
            let future: Pin<Box<dyn Future<Output = bool>>> = Box::pin(async { claim.await.is_ok() });
            return self.enter([0, cost, 0], [OWN, KEYS + key, OWN], false, future);
        }
        let handles: [AnyLimiter; LIMITERS] = std::array::from_fn(|index| self.handle(index, classes[index]));
        let is_joint = costs.map(|cost| cost > 0) != [false, true, false] || classes[1] >= OWN;
        let future: Pin<Box<dyn Future<Output = bool>>> = if is_joint {
            Box::pin(async move {
                let claims = std::array::from_fn::<_, LIMITERS, _>(|index| (&handles[index], costs[index]));
                join(claims).await.is_ok()
            })
        } else {
            let claim = self.classes[1][classes[1]].clone().consume_owned(costs[1]);
            Box::pin(async { claim.await.is_ok() })
        };
        self.enter(costs, classes, is_joint, future);
    }

    fn enter(
        &mut self,
        costs: [u64; LIMITERS],
        classes: [usize; LIMITERS],
        is_joint: bool,
        future: Pin<Box<dyn Future<Output = bool>>>,
    ) {
        self.claims.push(Claim { costs, classes, future: Some(spawn(future)), granted: None, is_joint });
        let last = self.claims.len() - 1;
        self.poll(last);
    }

    fn poll(&mut self, index: usize) {
        let claim = &mut self.claims[index];
        let Some(future) = &mut claim.future else { return };
        if let Poll::Ready(is_granted) = future.poll() {
            claim.future = None;
            if !is_granted {
                assert!(self.changes, "claim {index} was refused");
                return;
            }
            claim.granted = Some(self.now);
            self.check_order(index);
        }
    }

    /// No claim of its class was passed that must not be. A joint one may be, by all but joint claims over the same limiters
    /// and classes.
    fn check_order(&self, index: usize) {
        let claim = &self.claims[index];
        let is_waiting = |other: &&Claim| other.future.as_ref().is_some_and(|future| !future.is_woken());
        let before = || self.claims[..index].iter().filter(is_waiting);
        for limiter in (0..LIMITERS).filter(|limiter| claim.costs[*limiter] > 0) {
            let is_beside =
                |other: &&Claim| other.costs[limiter] > 0 && other.classes[limiter] == claim.classes[limiter];
            let mut beside = before().filter(is_beside);
            let passed = beside.find(|other| claim.classes[limiter] >= KEYS || !other.is_joint);
            assert!(passed.is_none(), "claim {index} passed a plain claim in {limiter}");
        }
        let is_over_the_same = |other: &Claim| {
            let place = |claim: &Claim, limiter| (claim.costs[limiter] > 0).then_some(claim.classes[limiter]);
            other.is_joint && (0..LIMITERS).all(|limiter| place(other, limiter) == place(claim, limiter))
        };
        assert!(!claim.is_joint || !before().any(is_over_the_same), "claim {index} passed an older joint claim");
    }

    fn look(&mut self) {
        loop {
            tick(&self.limiters.each_ref());
            let is_woken = |claim: &Claim| claim.future.as_ref().is_some_and(Spawn::is_woken);
            let woken: Vec<_> = (0..self.claims.len()).filter(|index| is_woken(&self.claims[*index])).collect();
            if woken.is_empty() {
                break;
            }
            woken.into_iter().for_each(|index| self.poll(index));
        }
        self.check_sums();
        self.check_ceilings();
    }

    /// A class keeps its ceiling: what it is served is taken from the ceiling at once, although a joint claim that has had its
    /// turn is granted later. No claim is granted that was not served.
    fn check_ceilings(&mut self) {
        let Some(Ceiling { every, burst }) = self.ceiling.filter(|_| !self.changes) else { return };
        for index in 1..LIMITERS {
            let (served, used) = (self.classes[index][1].snapshot().served, &mut self.used[index]);
            used.lacks += (served - used.served) * every;
            used.served = served;
            assert!(used.lacks <= burst * every, "limiter {index} at {}: {used:?} of {burst} x {every}", self.now);
            let granted = self.claims.iter().filter(|claim| claim.granted.is_some() && claim.classes[index] == 1);
            let granted: u64 = granted.map(|claim| claim.costs[index]).sum();
            assert!(granted <= served, "limiter {index} at {}: {granted} of {served}", self.now);
        }
    }

    /// Every token that a limiter granted belongs to a claim that was granted in all its limiters, at this instant.
    fn check_sums(&self) {
        for (index, limiter) in self.limiters.iter().enumerate() {
            let spent: u64 =
                self.claims.iter().filter(|claim| claim.granted.is_some()).map(|claim| claim.costs[index]).sum();
            let waiting = self.claims.iter().filter(|claim| claim.future.is_some() && claim.costs[index] > 0);
            let (tasks, tokens) =
                waiting.fold((0, 0), |(tasks, tokens), claim| (tasks + 1, tokens + claim.costs[index]));
            let seen = limiter.snapshot();
            assert_eq!(seen.granted - seen.refunded, spent, "limiter {index}");
            // Of the claims of a key, one waits in the limiter.
            let is_exact = index != 1 || self.keys.is_none();
            assert!(seen.waiting_tasks == tasks || !is_exact && seen.waiting_tasks < tasks, "limiter {index}");
            assert!(seen.waiting_tokens <= tokens, "limiter {index}");
            assert!(seen.in_flight.is_none_or(|in_flight| in_flight == 0), "limiter {index}");
            let Rule { every, initial, .. } = self.rules[index];
            assert!(self.changes || spent <= initial + self.now / every, "limiter {index} granted {spent}");
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.clock.advance(MS);
        self.used.iter_mut().for_each(|used| used.lacks = used.lacks.saturating_sub(1));
        self.look();
    }

    fn cancel(&mut self, random: &mut Rng) {
        let waiting: Vec<_> = (0..self.claims.len()).filter(|index| self.claims[*index].future.is_some()).collect();
        if let Some(index) = random.choice(waiting) {
            self.claims[index].future = None;
            self.look();
        }
    }

    fn change(&mut self, random: &mut Rng) {
        let limiter = random.usize(0..LIMITERS);
        match random.u8(0..6) {
            0 => self.limiters[limiter].pause_for(random.u32(1..20) * MS),
            5 => self.limiters[limiter].resume(),
            1 => {
                let rule = Rule::random(random);
                // Refused if floors could not be kept below the ceiling.
                let _ = self.limiters[limiter].set_quota(0, rule.quota());
            }
            2 if limiter > 0 && random.u8(0..4) == 0 => self.classes[limiter][3].remove(),
            3 if limiter > 0 => {
                let ceiling = Quota::new(1, random.u32(1..9) * MS).burst(random.u64(1..5));
                let share = Share::weight(random.u64(1..9));
                let share = if random.bool() { share.ceiling(ceiling) } else { share };
                let _ = self.classes[limiter][random.usize(1..4)].set_share(share);
            }
            _ => {
                let class = self.limiters[1].class("passing", Share::weight(1));
                drop(class);
            }
        }
        self.look();
    }

    /// Over each window: claims paid in one piece keep the rate law.
    fn check_law(&self) {
        for (index, Rule { every, burst, .. }) in self.rules.into_iter().enumerate() {
            let most = |claim: &Claim| match self.ceiling.filter(|_| index > 0 && claim.classes[index] == 1) {
                Some(ceiling) => burst.min(ceiling.burst),
                None => burst,
            };
            let is_whole = |claim: &&Claim| (1..=most(claim)).contains(&claim.costs[index]);
            let granted = |claim: &Claim| Some((claim.granted?, claim.costs[index]));
            let mut whole: Vec<_> = self.claims.iter().filter(is_whole).filter_map(granted).collect();
            whole.sort_by_key(|(at, _)| *at);
            for from in 0..whole.len() {
                let (mut sum, start) = (0, whole[from].0);
                for (at, cost) in &whole[from..] {
                    sum += cost;
                    let bound = burst + (at - start) / every;
                    assert!(sum <= bound, "limiter {index}: {sum} from {start} to {at}, bound {bound}");
                }
            }
        }
    }
}

fn history(seed: u64, changes: bool) {
    let mut random = Rng::with_seed(seed);
    let mut world = World::new(&mut random, changes);
    let (arrivals, cancels) = (random.u8(1..5), random.u8(0..3));
    for _ in 0..random.u32(10..100) {
        for _ in 0..random.u8(0..=arrivals) {
            world.arrive(&mut random);
        }
        world.look();
        if random.u8(0..6) < cancels {
            world.cancel(&mut random);
        }
        if changes && random.u8(0..4) == 0 {
            world.change(&mut random);
        }
        world.step();
    }
    let waits = |world: &World| world.claims.iter().filter(|claim| claim.future.is_some()).count();
    for _ in 0..20_000 {
        if waits(&world) == 0 {
            break;
        }
        world.step();
    }
    assert_eq!(waits(&world), 0, "everything is granted if nothing else comes");
    if !changes {
        world.check_law();
    }
    (0..100).for_each(|_| world.step());
    for (limiter, rule) in world.limiters.iter().zip(&world.rules) {
        let snapshot = limiter.snapshot();
        let full = if changes { snapshot.quotas[0].level as u64 } else { rule.burst };
        assert_eq!(limiter.available(), full.min(rule.cap.unwrap_or(u64::MAX)), "no token is lost");
    }
}

fn histories(changes: bool) {
    for seed in seeds(100) {
        let run = std::panic::catch_unwind(|| history(seed, changes));
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn random_histories_keep_all_promises() {
    histories(false);
}

#[test]
fn random_histories_with_changes_lose_nothing() {
    histories(true);
}
