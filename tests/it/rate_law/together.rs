//! The laws where more than one limiter decides: random histories of limiters with all kinds of quotas, classes, caps and keys
//! under a parent, and of joint claims over all of them. Time goes on by nanoseconds, so that each grant is seen at its instant,
//! and the tokens of each window and period are added up. Nothing is known of how a limiter works.

use crate::fixture::*;
use std::time::UNIX_EPOCH;
use tollgate::QuotaSnapshot;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Even,
    Stepped,
    Calendar,
    Sliding,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: Kind,
    amount: u64,
    period: u64,
    burst: u64,
}

impl Rule {
    fn random(random: &mut Rng, may_slide: bool) -> Self {
        let kind = match random.u8(0..5) {
            0 | 1 => Kind::Even,
            2 => Kind::Stepped,
            3 if may_slide => Kind::Sliding,
            _ => Kind::Calendar,
        };
        let most = if random.bool() { 9 } else { 50 };
        let amount = random.u64(2..=most);
        let burst = match kind {
            Kind::Even => random.u64(2..=most),
            Kind::Stepped => amount + random.u64(0..8),
            Kind::Calendar | Kind::Sliding => amount,
        };
        Self { kind, amount, period: random.u64(5..90), burst }
    }

    fn quota(self) -> Quota {
        let Self { kind, amount, period, burst } = self;
        let quota = Quota::new(amount, Duration::from_nanos(period));
        match kind {
            Kind::Even => quota.burst(burst),
            Kind::Stepped => quota.burst(burst).stepped(),
            Kind::Calendar => format!("{amount}/{period}ns@epoch").parse().unwrap(),
            Kind::Sliding => quota.sliding(),
        }
    }

    /// The most tokens in a window between two instants of the limiter's time, of which the wall clock is `ahead`; `None` if any
    /// number is allowed.
    fn most_between(self, from: u64, to: u64, ahead: u64) -> Option<u64> {
        let Self { kind, amount, period, burst } = self;
        match kind {
            // A full bucket keeps the fraction that came with its last token.
            Kind::Even => Some(burst + (amount * (to - from) + amount - 1) / period),
            Kind::Stepped => Some(burst + amount * (to / period - from / period)),
            Kind::Calendar => Some(amount * (1 + (to + ahead) / period - (from + ahead) / period)),
            Kind::Sliding => (to - from < period).then_some(amount),
        }
    }
}

/// The grants of one limiter or key.
#[derive(Clone)]
struct Ledger {
    rules: Vec<Rule>,
    cap: u64,
    /// How far the wall clock is ahead.
    ahead: u64,
    /// The instants of all grants, and the tokens of them that were not refunded.
    grants: Vec<(u64, i64)>,
    /// The grants, and the refunds at their own instants.
    events: Vec<(u64, i64)>,
}

impl Ledger {
    fn random(random: &mut Rng, may_slide: bool, ahead: u64) -> Self {
        let rules = (0..random.usize(1..3)).map(|_| Rule::random(random, may_slide)).collect();
        let cap = if random.u8(0..3) == 0 { random.u64(8..40) } else { u64::MAX };
        Self { rules, cap, ahead, grants: Vec::new(), events: Vec::new() }
    }

    fn most(&self) -> u64 {
        self.rules.iter().map(|rule| rule.burst).min().unwrap().min(self.cap)
    }

    fn see(&mut self, at: u64, cost: u64, seed: u64) -> usize {
        self.grants.push((at, cost as i64));
        self.events.push((at, cost as i64));
        for rule in &self.rules {
            // A refund makes room in a bucket at once. In a period or a window it only undoes its grant.
            let of_bucket = matches!(rule.kind, Kind::Even | Kind::Stepped);
            let list = if of_bucket { &self.events } else { &self.grants };
            let mut net = 0;
            for (place, (from, tokens)) in list.iter().enumerate().rev() {
                net += tokens;
                // One call can grant claims before it refunds: what happens at one instant is taken together.
                if place == 0 || list[place - 1].0 < *from {
                    let Some(most) = rule.most_between(*from, at, self.ahead) else { break };
                    assert!(net <= most as i64, "{net} tokens from {from} to {at} by {rule:?}, seed {seed}");
                }
            }
        }
        self.grants.len() - 1
    }

    fn settle(&mut self, at: u64, index: usize, cost: u64) {
        let before = self.grants[index].1;
        self.grants[index].1 = before.min(cost as i64);
        self.events.push((at, self.grants[index].1 - before));
    }

    fn is_full(&self, quotas: &[QuotaSnapshot]) -> bool {
        quotas.iter().map(|quota| quota.level).eq(self.rules.iter().map(|rule| rule.burst as i64))
    }
}

/// Where claims are made. The handles live as long as the program.
struct Target {
    handle: AnyLimiter,
    /// The index of the limiter, which is the parent of a key.
    limiter: usize,
    key: Option<usize>,
    /// Whether claims wait in one queue with those of all targets of this limiter.
    is_alone: bool,
}

enum Tokens {
    Limiter(Grant<'static>),
    Class(Grant<'static, Class>),
    Part(Grant<'static, AnyLimiter>),
}

impl Tokens {
    fn cost(&self) -> u64 {
        match self {
            Self::Limiter(grant) => grant.cost(),
            Self::Class(grant) => grant.cost(),
            Self::Part(grant) => grant.cost(),
        }
    }

    fn settle(&mut self, actual: u64) {
        match self {
            Self::Limiter(grant) => grant.settle(actual),
            Self::Class(grant) => grant.settle(actual),
            Self::Part(grant) => grant.settle(actual),
        }
    }
}

/// The tokens of each target, unless the claim is refused.
type Granted = Pin<Box<dyn Future<Output = Option<Vec<Tokens>>>>>;

struct Claim {
    number: usize,
    targets: Vec<usize>,
    has_deadline: bool,
    future: Spawn<Granted>,
}

struct Held {
    tokens: Tokens,
    target: usize,
    /// The indices of the grant in the ledgers of the limiter and of the key.
    indices: (usize, Option<usize>),
}

struct World {
    seed: u64,
    clock: ManualClock,
    limiters: Vec<Limiter>,
    keyed: Option<KeyedLimiter<u64>>,
    ledgers: Vec<Ledger>,
    key_ledgers: Vec<Ledger>,
    targets: &'static [Target],
    waiting: Vec<Claim>,
    held: Vec<Held>,
    claims: usize,
    seen: usize,
}

impl World {
    fn now(&self) -> u64 {
        self.clock.wall().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 - self.ledgers[0].ahead
    }

    fn see(&mut self, targets: &[usize], granted: Vec<Tokens>) {
        let (at, seed) = (self.now(), self.seed);
        for (&target, tokens) in targets.iter().zip(granted) {
            let Target { limiter, key, .. } = self.targets[target];
            let index = self.ledgers[limiter].see(at, tokens.cost(), seed);
            let of_key = key.map(|key| self.key_ledgers[key].see(at, tokens.cost(), seed));
            self.held.push(Held { tokens, target, indices: (index, of_key) });
            self.seen += 1;
        }
    }

    /// A claim passes no plain claim that was made before it in one of its queues, and no joint claim over the same limiters.
    fn check_order(&self, claim: &Claim) {
        let is_before = |other: &&Claim| other.number < claim.number && !other.future.is_woken();
        for other in self.waiting.iter().filter(is_before) {
            let share_queue = |&target: &usize| {
                let (one, other) = (&self.targets[target], &self.targets[other.targets[0]]);
                std::ptr::eq(one, other) || one.is_alone && other.is_alone && one.limiter == other.limiter
            };
            let is_passed = match other.targets.len() {
                1 => claim.targets.iter().any(share_queue),
                _ => other.targets == claim.targets,
            };
            assert!(!is_passed, "claim {} passed claim {}, seed {}", claim.number, other.number, self.seed);
        }
    }

    fn poll(&mut self, place: usize) {
        let Poll::Ready(answer) = self.waiting[place].future.poll() else { return };
        let claim = self.waiting.remove(place);
        match answer {
            Some(granted) => {
                self.check_order(&claim);
                self.see(&claim.targets, granted);
            }
            None => assert!(claim.has_deadline, "claim {} was refused, seed {}", claim.number, self.seed),
        }
    }

    /// Polls the claims that are woken, and all others first if that is wished.
    fn look(&mut self, polls_all: bool) {
        (0..if polls_all { self.waiting.len() } else { 0 }).rev().for_each(|place| self.poll(place));
        while let Some(place) = self.waiting.iter().position(|claim| claim.future.is_woken()) {
            self.poll(place);
        }
    }

    fn tick(&self, random: &mut Rng) {
        if random.bool() {
            self.keyed.iter().for_each(KeyedLimiter::tick);
        }
        let first = random.usize(0..self.limiters.len());
        self.limiters[first..].iter().chain(&self.limiters[..first]).for_each(Limiter::tick);
        self.keyed.iter().for_each(KeyedLimiter::tick);
    }

    fn pass(&mut self, span: u64, random: &mut Rng) {
        for passed in 0..=span {
            self.clock.advance(Duration::from_nanos(passed.min(1)));
            self.tick(random);
            self.look(random.u8(0..16) == 0);
        }
    }

    fn cost(&self, target: usize, random: &mut Rng) -> u64 {
        let Target { limiter, key, .. } = self.targets[target];
        let most = key.map_or(u64::MAX, |key| self.key_ledgers[key].most()).min(self.ledgers[limiter].most());
        let most = if random.u8(0..6) == 0 { most } else { most.min(6) };
        random.u64(1..=most)
    }

    fn enter(&mut self, targets: Vec<usize>, costs: [u64; 2], random: &mut Rng) {
        let allowed = (random.u8(0..5) == 0).then(|| Duration::from_nanos(random.u64(0..150)));
        let handles = |place: usize| &self.targets[targets[place]].handle;
        let future: Granted = match (targets.len(), handles(0)) {
            (1, AnyLimiter::Limiter(limiter)) => {
                let claim = limiter.consume(costs[0]);
                let claim = if let Some(allowed) = allowed { claim.within(allowed) } else { claim };
                Box::pin(async { claim.await.ok().map(|grant| vec![Tokens::Limiter(grant)]) })
            }
            (1, AnyLimiter::Class(class)) => {
                let claim = class.consume(costs[0]);
                let claim = if let Some(allowed) = allowed { claim.within(allowed) } else { claim };
                Box::pin(async { claim.await.ok().map(|grant| vec![Tokens::Class(grant)]) })
            }
            _ => {
                let claim = join([0, 1].map(|place| (handles(place), costs[place])));
                let claim = if let Some(allowed) = allowed { claim.within(allowed) } else { claim };
                Box::pin(async { claim.await.ok().map(|grants| grants.map(Tokens::Part).into()) })
            }
        };
        let (number, has_deadline) = (self.claims, allowed.is_some());
        self.claims += 1;
        self.waiting.push(Claim { number, targets, has_deadline, future: spawn(future) });
        self.poll(self.waiting.len() - 1);
    }

    fn step(&mut self, random: &mut Rng) {
        let [one, other] = [(); 2].map(|()| random.usize(0..self.targets.len()));
        let can_join = self.targets[one].limiter != self.targets[other].limiter;
        let costs = [one, other].map(|target| self.cost(target, random));
        let [first, second] = [one, other].map(|target| &self.targets[target].handle);
        let limiter = &self.limiters[random.usize(0..self.limiters.len())];
        match random.u8(0..28) {
            0..3 => {
                let granted = match first {
                    AnyLimiter::Limiter(limiter) => limiter.try_acquire(costs[0]).ok().map(Tokens::Limiter),
                    AnyLimiter::Class(class) => class.try_acquire(costs[0]).ok().map(Tokens::Class),
                    _ => None,
                };
                granted.into_iter().for_each(|granted| self.see(&[one], vec![granted]));
            }
            3..5 if can_join => {
                let grants = try_join([(first, costs[0]), (second, costs[1])]).ok();
                grants.into_iter().for_each(|grants| self.see(&[one, other], grants.map(Tokens::Part).into()));
            }
            5..12 => self.enter(vec![one], costs, random),
            12..17 if can_join => self.enter(vec![one, other], costs, random),
            17..19 if !self.waiting.is_empty() => drop(self.waiting.remove(random.usize(0..self.waiting.len()))),
            19..23 if !self.held.is_empty() => self.settle(random),
            23 if !self.held.is_empty() => drop(self.held.swap_remove(random.usize(0..self.held.len()))),
            24 => limiter.pause_for(Duration::from_nanos(random.u64(0..60))),
            25 => limiter.resume(),
            26 => self.keyed.iter().for_each(|keyed| keyed.pause_for(&random.u64(0..3), Duration::from_nanos(40))),
            _ => self.pass(random.u64(0..60), random),
        }
        self.tick(random);
        self.look(random.u8(0..8) > 0);
    }

    fn settle(&mut self, random: &mut Rng) {
        let (now, place) = (self.now(), random.usize(0..self.held.len()));
        let Held { tokens, target, indices: (index, of_key) } = &mut self.held[place];
        let (target, before) = (&self.targets[*target], tokens.cost());
        let ledger = &mut self.ledgers[target.limiter];
        // What was charged afterwards and comes back is not in the ledger.
        if ledger.grants[*index].1 == before as i64 {
            tokens.settle(if random.bool() { 0 } else { random.u64(0..before + 3) });
            ledger.settle(now, *index, tokens.cost());
            if let Some((key, index)) = target.key.zip(*of_key) {
                self.key_ledgers[key].settle(now, index, tokens.cost());
            }
        }
    }

    /// Nothing holds the claims back any more: every one is granted at last.
    fn finish(&mut self, random: &mut Rng) {
        for _ in 0..400 {
            self.limiters.iter().for_each(Limiter::resume);
            (0..3).for_each(|key| self.keyed.iter().for_each(|keyed| keyed.resume(&key)));
            self.held.clear();
            self.pass(if self.waiting.is_empty() { 0 } else { 10 }, random);
        }
        assert!(self.waiting.is_empty(), "{} claims wait, seed {}", self.waiting.len(), self.seed);
        self.clock.advance(Duration::from_micros(5));
        self.tick(random);
        for (limiter, ledger) in self.limiters.iter().zip(&self.ledgers) {
            assert!(ledger.is_full(&limiter.snapshot().quotas), "{limiter:?}, seed {}", self.seed);
        }
    }
}

/// The limiter itself, and some classes of it.
fn handles(limiter: &Limiter, has_classes: bool, random: &mut Rng) -> Vec<AnyLimiter> {
    let mut handles = vec![AnyLimiter::from(limiter.clone())];
    if has_classes {
        let mut share = || Share::weight(random.u64(1..5));
        // A ceiling that is below the cost of a claim would have it paid in installments, before its grant.
        let ceiling = Quota::new(3, Duration::from_nanos(20)).burst(60);
        let inner = limiter.class("inner", share()).unwrap();
        let held_back = limiter.class("a", share().ceiling(ceiling)).unwrap();
        let floored = inner.class("x", share().floor(Quota::new(1, Duration::from_nanos(200))));
        let floored = floored.or_else(|_| inner.class("x", share())).unwrap();
        handles.extend([inner, held_back, floored].map(AnyLimiter::from));
    }
    handles
}

fn world(seed: u64, random: &mut Rng) -> World {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(random.u64(0..500)));
    let ahead = clock.wall().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let has_keys = random.u8(0..3) == 0;
    let (mut limiters, mut ledgers, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for limiter in 0..random.usize(2..4) {
        let has_classes = random.bool();
        let ledger = Ledger::random(random, !has_classes && (limiter > 0 || !has_keys), ahead);
        let builder = ledger.rules.iter().fold(Limiter::builder(), |builder, rule| builder.quota(rule.quota()));
        let builder = if ledger.cap < u64::MAX { builder.max_in_flight(ledger.cap) } else { builder };
        let builder = builder.rovers_at(if random.bool() { 0 } else { u64::MAX - random.u64(0..100) });
        let builder = if has_classes { builder.classes() } else { builder };
        limiters.push(builder.clock(clock.clone()).build().unwrap());
        ledgers.push(ledger);
        let handles = handles(&limiters[limiter], has_classes, random).into_iter();
        targets.extend(handles.map(|handle| Target { handle, limiter, key: None, is_alone: !has_classes }));
    }
    let of_keys = Ledger::random(random, true, ahead);
    let keyed = has_keys.then(|| {
        let builder = KeyedLimiter::<u64>::builder().clock(clock.clone()).shards(1);
        let builder = of_keys.rules.iter().fold(builder, |builder, rule| builder.quota(rule.quota()));
        let builder = if of_keys.cap < u64::MAX { builder.max_in_flight(of_keys.cap) } else { builder };
        let builder = match &targets[1].handle {
            AnyLimiter::Class(class) if random.bool() => builder.parent(class),
            _ => builder.parent(&limiters[0]),
        };
        builder.build().unwrap()
    });
    for (key, keyed) in (0..3).zip(keyed.iter().cycle()) {
        let handle = AnyLimiter::from(keyed.limiter(&key).unwrap());
        targets.push(Target { handle, limiter: 0, key: Some(key as usize), is_alone: false });
    }
    let (waiting, held) = Default::default();
    let (targets, key_ledgers) = (Box::leak(targets.into()), vec![of_keys; 3]);
    World { seed, clock, limiters, keyed, ledgers, key_ledgers, targets, waiting, held, claims: 0, seen: 0 }
}

/// Every claim is granted at last, and every bucket, window and period is full then.
#[test]
fn all_kinds_of_limiters_together_keep_their_laws_and_no_claim_is_lost() {
    let seeds = std::env::var("TOLLGATE_TOGETHER").unwrap_or("0..600".into());
    let (from, to) = seeds.split_once("..").unwrap();
    let (mut seen, mut histories) = (0, 0);
    for seed in from.parse().unwrap()..to.parse().unwrap() {
        let mut random = Rng::with_seed(seed);
        let mut world = world(seed, &mut random);
        (0..random.usize(20..80)).for_each(|_| world.step(&mut random));
        world.finish(&mut random);
        (seen, histories) = (seen + world.seen, histories + 1);
    }
    assert!(seen > 15 * histories, "{seen} grants");
}
