//! The laws of sliding and calendar quotas where more than one limiter decides: joint claims, and keys under a parent. Time
//! goes on by nanoseconds, so that each grant is seen at its instant, and the tokens of each window and period are added up.

use crate::fixture::*;
use std::time::UNIX_EPOCH;
use tollgate::QuotaSnapshot;

/// `amount` tokens per `period` nanoseconds, sliding or of a calendar.
#[derive(Clone, Copy, Debug)]
struct Rule {
    amount: u64,
    period: u64,
    is_sliding: bool,
}

impl Rule {
    fn random(random: &mut Rng) -> Self {
        let is_sliding = random.bool();
        let most = if random.bool() { 9 } else { 50 };
        Self { amount: random.u64(4..=most), period: random.u64(5..90), is_sliding }
    }

    fn quota(self) -> Quota {
        let Self { amount, period, is_sliding } = self;
        match is_sliding {
            true => Quota::new(amount, Duration::from_nanos(period)).sliding(),
            false => format!("{amount}/{period}ns@epoch").parse().unwrap(),
        }
    }
}

fn now(clock: &ManualClock) -> u64 {
    clock.wall().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// The grants of one limiter or key.
struct Ledger {
    rules: Vec<Rule>,
    /// The instants of all grants, and the tokens that were not refunded.
    grants: Vec<(u64, u64)>,
}

impl Ledger {
    fn random(random: &mut Rng) -> Self {
        Self { rules: (0..random.usize(1..3)).map(|_| Rule::random(random)).collect(), grants: Vec::new() }
    }

    fn most(&self) -> u64 {
        self.rules.iter().map(|rule| rule.amount).min().unwrap()
    }

    fn see(&mut self, at: u64, cost: u64, seed: u64) -> usize {
        self.grants.push((at, cost));
        for rule in &self.rules {
            let from = if rule.is_sliding { at + 1 - rule.period } else { at - at % rule.period };
            let inside = self.grants.iter().filter(|(at, _)| *at >= from);
            let net: u64 = inside.map(|(_, net)| net).sum();
            assert!(net <= rule.amount, "{net} tokens by {rule:?}, seed {seed}");
        }
        self.grants.len() - 1
    }

    fn is_full(&self, quotas: &[QuotaSnapshot]) -> bool {
        quotas.iter().map(|quota| quota.level).eq(self.rules.iter().map(|rule| rule.amount as i64))
    }

    fn refund(&mut self, index: usize, cost: u64) {
        self.grants[index].1 = self.grants[index].1.min(cost);
    }
}

type Claim<'a> = Spawn<Pin<Box<dyn Future<Output = Vec<Grant<'a>>> + 'a>>>;

struct Joint<'a> {
    seed: u64,
    clock: &'a ManualClock,
    limiters: &'a [Limiter],
    ledgers: Vec<Ledger>,
    waiting: Vec<(Vec<usize>, Claim<'a>)>,
    /// Each grant, its limiter, and its index in the ledger.
    held: Vec<(Grant<'a>, usize, usize)>,
    seen: usize,
}

impl<'a> Joint<'a> {
    fn see(&mut self, members: &[usize], grants: Vec<Grant<'a>>) {
        for (&limiter, grant) in members.iter().zip(grants) {
            let index = self.ledgers[limiter].see(now(self.clock), grant.cost(), self.seed);
            self.held.push((grant, limiter, index));
            self.seen += 1;
        }
    }

    fn look(&mut self, mut polls_all: bool) {
        // A poll can grant a claim that was polled before.
        while let Some(place) = self.waiting.iter().position(|(_, claim)| claim.is_woken() || polls_all) {
            polls_all = false;
            for (members, mut claim) in self.waiting.split_off(place) {
                match claim.poll() {
                    Poll::Ready(grants) => self.see(&members, grants),
                    Poll::Pending => self.waiting.push((members, claim)),
                }
            }
        }
    }

    fn tick(&self, random: &mut Rng) {
        let first = random.usize(0..self.limiters.len());
        self.limiters[first..].iter().chain(&self.limiters[..first]).for_each(Limiter::tick);
    }

    fn pass(&mut self, span: u64, random: &mut Rng) {
        for passed in 0..=span {
            self.clock.advance(Duration::from_nanos(passed.min(1)));
            self.tick(random);
            self.look(random.u8(0..16) == 0);
        }
    }

    fn step(&mut self, random: &mut Rng) {
        let limiters = self.limiters;
        let one = random.usize(0..limiters.len());
        let other = (one + random.usize(1..limiters.len())) % limiters.len();
        let mut cost = |limiter: usize| random.u64(1..=self.ledgers[limiter].most().min(6));
        let ((a, m), (b, n)) = ((&limiters[one], cost(one)), (&limiters[other], cost(other)));
        match random.u8(0..24) {
            0..3 => {
                let grant = a.try_acquire(m).ok();
                grant.into_iter().for_each(|grant| self.see(&[one], vec![grant]));
            }
            3 => {
                let grants = try_join([(a, m), (b, n)]).ok();
                grants.into_iter().for_each(|grants| self.see(&[one, other], grants.into()));
            }
            4..7 => {
                let claim: Pin<Box<dyn Future<Output = _>>> =
                    Box::pin(async move { vec![a.consume(m).await.unwrap()] });
                self.waiting.push((vec![one], spawn(claim)));
            }
            7..12 => {
                let claim: Pin<Box<dyn Future<Output = _>>> =
                    Box::pin(async move { join([(a, m), (b, n)]).await.unwrap().into() });
                self.waiting.push((vec![one, other], spawn(claim)));
            }
            12 if !self.waiting.is_empty() => {
                // It waits, is granted already, or was never polled.
                self.clock.advance(Duration::from_nanos(1));
                self.tick(random);
                drop(self.waiting.remove(random.usize(0..self.waiting.len())));
            }
            13..17 if !self.held.is_empty() => {
                let place = random.usize(0..self.held.len());
                let (grant, limiter, index) = &mut self.held[place];
                grant.settle(if random.bool() { 0 } else { random.u64(0..grant.cost() + 3) });
                self.ledgers[*limiter].refund(*index, grant.cost());
            }
            17 if !self.held.is_empty() => drop(self.held.swap_remove(random.usize(0..self.held.len()))),
            18 => a.pause_for(Duration::from_nanos(random.u64(0..60))),
            19 => a.resume(),
            _ => self.pass(random.u64(0..60), random),
        }
        self.tick(random);
        self.look(random.u8(0..8) > 0);
    }
}

/// Every claim is granted at last, and every window and period is empty then.
#[test]
fn joint_claims_keep_the_laws_of_all_limiters_and_none_is_lost() {
    let (mut seen, histories) = (0, 400);
    for seed in 0..histories {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let ledgers: Vec<Ledger> = (0..random.usize(2..4)).map(|_| Ledger::random(&mut random)).collect();
        let build = |ledger: &Ledger| {
            let builder = ledger.rules.iter().fold(Limiter::builder(), |builder, rule| builder.quota(rule.quota()));
            let builder = builder.rovers_at(if random.bool() { 0 } else { u64::MAX - random.u64(0..100) });
            let builder = if random.u8(0..3) == 0 { builder.max_in_flight(random.u64(8..40)) } else { builder };
            builder.clock(clock.clone()).build().unwrap()
        };
        let limiters: Vec<Limiter> = ledgers.iter().map(build).collect();
        let (waiting, held) = Default::default();
        let mut world = Joint { seed, clock: &clock, limiters: &limiters, ledgers, waiting, held, seen: 0 };
        (0..40).for_each(|_| world.step(&mut random));
        limiters.iter().for_each(Limiter::resume);
        for _ in 0..400 {
            world.held.clear();
            world.pass(if world.waiting.is_empty() { 0 } else { 10 }, &mut random);
        }
        clock.advance(Duration::from_micros(1));
        world.tick(&mut random);
        assert!(world.waiting.is_empty(), "{} claims wait, seed {seed}", world.waiting.len());
        for (limiter, ledger) in limiters.iter().zip(&world.ledgers) {
            assert!(ledger.is_full(&limiter.snapshot().quotas), "{limiter:?}, seed {seed}");
        }
        seen += world.seen;
    }
    assert!(seen > 20 * histories as usize, "{seen} grants");
}

/// The parent is often scarcer than its keys. In the parent, a refund of a key's tokens frees nothing of a calendar quota.
#[test]
fn keys_keep_their_laws_under_a_parent_and_no_waiter_is_lost() {
    const KEYS: [u64; 3] = [0, 1, 2];
    let (mut seen, histories) = (0, 200);
    for seed in 0..histories {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let mut ledgers = KEYS.map(|_| Ledger::random(&mut Rng::with_seed(seed)));
        let mut global = Ledger::random(&mut random);
        global.rules.iter_mut().for_each(|rule| rule.is_sliding = false);
        let parent = global.rules.iter().fold(Limiter::builder(), |builder, rule| builder.quota(rule.quota()));
        let parent = if random.bool() { parent.classes() } else { parent };
        let parent = if random.u8(0..3) == 0 { parent.max_in_flight(random.u64(8..40)) } else { parent };
        let parent = parent.clock(clock.clone()).rovers_at(u64::MAX - random.u64(0..100)).build().unwrap();
        let keyed = KeyedLimiter::<u64>::builder().clock(clock.clone()).shards(1).parent(&parent);
        let cap = if random.u8(0..3) == 0 { random.u64(8..40) } else { u64::MAX };
        let keyed = if cap < u64::MAX { keyed.max_in_flight(cap) } else { keyed };
        let keyed = ledgers[0].rules.iter().fold(keyed, |keyed, rule| keyed.quota(rule.quota())).build().unwrap();
        let (mut waiting, mut held) = (Vec::new(), Vec::new());
        for step in 0..440 {
            let ends = step >= 40;
            let key = random.u64(0..3);
            let cost = random.u64(1..=ledgers[0].most().min(global.most()).min(6));
            let mut granted = Vec::new();
            match random.u8(0..16) {
                _ if ends => {
                    parent.resume();
                    keyed.resume_all();
                    held.clear();
                }
                0..3 => granted.extend(keyed.try_acquire(&key, cost).ok().map(|grant| (key, grant))),
                3..8 => waiting.push((key, spawn(keyed.consume(&KEYS[key as usize], cost)))),
                8 if !waiting.is_empty() => {
                    tick_after(&clock, &parent, Duration::from_nanos(1));
                    drop(waiting.swap_remove(random.usize(0..waiting.len())));
                }
                9..12 if !held.is_empty() => {
                    let place = random.usize(0..held.len());
                    let (key, grant, index): &mut (u64, tollgate::KeyedGrant<'_, u64>, usize) = &mut held[place];
                    grant.settle(key, if random.bool() { 0 } else { random.u64(0..grant.cost() + 3) });
                    ledgers[*key as usize].refund(*index, grant.cost());
                }
                12 if !held.is_empty() => drop(held.swap_remove(random.usize(0..held.len()))),
                13 => parent.pause_for(Duration::from_nanos(random.u64(0..60))),
                14 => keyed.pause_for(&key, Duration::from_nanos(random.u64(0..60))),
                _ => {}
            }
            let span = if !ends {
                random.u64(0..60)
            } else if waiting.is_empty() {
                0
            } else {
                10
            };
            for passed in 0..=span {
                clock.advance(Duration::from_nanos(passed.min(1)));
                if random.bool() {
                    keyed.tick()
                } else {
                    parent.tick()
                }
                parent.tick();
                keyed.tick();
                let mut polls_all = random.u8(0..8) == 0;
                while polls_all || waiting.iter().any(|(_, claim)| claim.is_woken()) {
                    for (key, mut claim) in std::mem::take(&mut waiting) {
                        match if polls_all || claim.is_woken() { claim.poll() } else { Poll::Pending } {
                            Poll::Ready(grant) => granted.push((key, grant.unwrap())),
                            Poll::Pending => waiting.push((key, claim)),
                        }
                    }
                    polls_all = false;
                }
                for (key, grant) in granted.drain(..) {
                    global.see(now(&clock), grant.cost(), seed);
                    let index = ledgers[key as usize].see(now(&clock), grant.cost(), seed);
                    held.push((key, grant, index));
                    seen += 1;
                }
            }
        }
        assert!(waiting.is_empty(), "{} claims wait, seed {seed}", waiting.len());
        tick_after(&clock, &parent, Duration::from_micros(1));
        keyed.tick();
        assert!(global.is_full(&parent.snapshot().quotas), "seed {seed}");
        let full = ledgers[0].most();
        assert_eq!(KEYS.map(|key| keyed.available(&key)), [full.min(cap).min(parent.available()); 3], "seed {seed}");
    }
    assert!(seen > 15 * histories as usize, "{seen} grants");
}
