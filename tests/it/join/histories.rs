//! Random histories of three queues: compared with the oracle where every nanosecond is served and all joint claims are over
//! one set, and checked by the guarantees alone where there are several sets and timers are late.

use super::oracle::{Oracle, QUEUES, Rule};
use super::world::{World, build_ascending, order};
use crate::fixture::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Join([u64; QUEUES]),
    /// A joint claim that names the limiters in reverse order.
    Turned([u64; QUEUES]),
    Plain(usize, u64),
    TryJoin([u64; QUEUES]),
    /// Drops the claim that arrived this many claims ago, if it is still held, granted or not.
    Cancel(usize),
    /// Polls the same claim; its grants are kept.
    Poll(usize),
    /// Drops the oldest grants that were received.
    Release,
    Pass(u64),
    /// Time passes, and only one queue is served.
    Glance(usize, u64),
    Pause(usize, u64),
    Resume(usize),
    SetCap(usize, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let cost = || prop_oneof![1 => Just(0), 2 => 0_u64..6];
    let costs = || [cost(), cost(), cost()];
    prop_oneof![
        4 => costs().prop_map(Op::Join),
        2 => costs().prop_map(Op::Turned),
        3 => (0_usize..QUEUES, 1_u64..6).prop_map(|(queue, cost)| Op::Plain(queue, cost)),
        1 => costs().prop_map(Op::TryJoin),
        3 => (0_usize..8).prop_map(Op::Cancel),
        2 => (0_usize..8).prop_map(Op::Poll),
        2 => Just(Op::Release),
        6 => (1_u64..30).prop_map(Op::Pass),
        2 => (0_usize..QUEUES, 1_u64..30).prop_map(|(queue, span)| Op::Glance(queue, span)),
        1 => (0_usize..QUEUES, 1_u64..60).prop_map(|(queue, span)| Op::Pause(queue, span)),
        2 => (0_usize..QUEUES).prop_map(Op::Resume),
        1 => (0_usize..QUEUES, 5_u64..9).prop_map(|(queue, cap)| Op::SetCap(queue, cap)),
    ]
}

/// In lowest terms, as the oracle expects.
fn rule() -> impl Strategy<Value = Rule> {
    let cap = prop_oneof![Just(None), (5_u64..9).prop_map(Some)];
    (1_u64..4, prop_oneof![Just(1_u64), Just(5), Just(7), Just(13)], 1_u64..6, cap).prop_flat_map(
        |(amount, period, burst, cap)| {
            (0..=burst).prop_map(move |initial| Rule { amount, period, burst, initial, cap })
        },
    )
}

fn rules() -> impl Strategy<Value = [Rule; QUEUES]> {
    [rule(), rule(), rule()]
}

/// Serves all queues in every nanosecond, so that they agree with the oracle to the nanosecond. All joint claims are over the
/// queues in `set`.
fn agree(rules: [Rule; QUEUES], set: [bool; QUEUES], ops: &[Op]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiters = build_ascending(rules, &clock);
    let (mut world, mut oracle) = (World::new(&clock, &limiters), Oracle::new(rules));
    let over_set = |costs: [u64; QUEUES]| std::array::from_fn(|queue| costs[queue].max(1) * u64::from(set[queue]));
    for &op in ops {
        let op = match op {
            Op::Join(costs) => Op::Join(over_set(costs)),
            Op::Turned(costs) => Op::Turned(over_set(costs)),
            Op::TryJoin(costs) => Op::TryJoin(over_set(costs)),
            op => op,
        };
        step(&mut world, &mut oracle, op)?;
        world.check()?;
        compare(&world, &oracle, op)?;
    }
    Ok(())
}

fn step(world: &mut World<'_>, oracle: &mut Oracle, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Join(costs) | Op::Turned(costs) => {
            let turned = matches!(op, Op::Turned(_));
            let (number, granted) = world.joint(costs, turned);
            let possible = oracle.claim(number, costs, true);
            prop_assert_eq!(granted, expected(oracle, number, possible), "{:?}", op);
        }
        Op::Plain(queue, cost) => {
            let (number, granted) = world.plain(queue, cost);
            let mut costs = [0; QUEUES];
            costs[queue] = cost;
            let possible = oracle.claim(number, costs, false);
            prop_assert_eq!(granted, expected(oracle, number, possible), "{:?}", op);
        }
        Op::TryJoin(costs) => {
            let number = world.next;
            prop_assert_eq!(world.try_joint(costs).is_some(), oracle.try_claim(number, costs, true), "{:?}", op);
        }
        Op::Cancel(ago) => {
            if let Some(number) = world.back(ago) {
                let turned = world.turned.contains(&number);
                world.waiting.remove(&number);
                oracle.cancel(number, order(turned));
            }
        }
        Op::Poll(ago) => {
            if let Some(number) = world.back(ago) {
                let granted = world.poll(number);
                prop_assert_eq!(granted, expected(oracle, number, true), "{:?}", op);
            }
        }
        Op::Release => {
            if let Some((number, grants)) = world.held.pop_first() {
                let turned = world.turned.contains(&number);
                drop(grants);
                oracle.release(number, order(turned));
            }
        }
        Op::Pass(span) | Op::Glance(_, span) => {
            for _ in 0..span {
                world.clock.advance(Duration::from_nanos(1));
                world.tick();
                oracle.pass();
            }
        }
        Op::Pause(queue, span) => {
            world.limiters[queue].pause_for(Duration::from_nanos(span));
            oracle.pause(queue, span);
        }
        Op::Resume(queue) => {
            world.limiters[queue].resume();
            oracle.resume(queue);
        }
        Op::SetCap(queue, cap) => {
            if world.limiters[queue].set_max_in_flight(cap).is_ok() {
                oracle.set_cap(queue, cap);
            }
        }
    }
    Ok(())
}

/// The expected result of a poll.
fn expected(oracle: &Oracle, number: usize, possible: bool) -> Option<bool> {
    if !possible {
        return Some(false);
    }
    oracle.claims[&number].granted_at.is_some().then_some(true)
}

fn compare(world: &World<'_>, oracle: &Oracle, op: Op) -> Result<(), TestCaseError> {
    let granted = |number: &usize| oracle.claims[number].granted_at.is_some();
    let unseen: Vec<usize> = world.waiting.keys().copied().filter(granted).collect();
    prop_assert_eq!(world.granted_unseen(), unseen, "granted by limiter (left), oracle (right) after {:?}", op);
    for (queue, limiter) in world.limiters.iter().enumerate() {
        let (seen, bucket) = (limiter.snapshot(), &oracle.buckets[queue]);
        prop_assert_eq!(seen.waiting_tasks, oracle.waiting(queue), "in {:?} after {:?}", bucket, op);
        prop_assert_eq!(limiter.available(), bucket.available(oracle.now()), "{:?} after {:?}", bucket, op);
        prop_assert_eq!(seen.quotas[0].level, bucket.level() as i64, "{:?} after {:?}", bucket, op);
    }
    Ok(())
}

/// Serves seldom: one queue first, or the other.
fn keep_the_promises(rules: [Rule; QUEUES], ops: &[Op], turned: bool) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let rules = rules.map(|rule| Rule { cap: None, ..rule });
    let limiters = build_ascending(rules, &clock);
    let mut world = World::new(&clock, &limiters);
    let mut seen = Seen::default();
    for &op in ops {
        match op {
            Op::Join(costs) | Op::Turned(costs) => drop(world.joint(costs, matches!(op, Op::Turned(_)))),
            Op::Plain(queue, cost) => drop(world.plain(queue, cost)),
            Op::TryJoin(costs) => drop(world.try_joint(costs)),
            // Only claims that wait: otherwise refunds would have to be added to the law.
            Op::Cancel(ago) => {
                let waits = |number: &usize| !world.waiting[number].is_woken();
                if let Some(number) = world.back(ago).filter(waits) {
                    world.waiting.remove(&number);
                }
            }
            Op::Poll(ago) => drop(world.back(ago).and_then(|number| world.poll(number))),
            Op::Pass(span) => {
                clock.advance(Duration::from_nanos(span));
                seen.now += span;
                if turned {
                    limiters.iter().rev().for_each(Limiter::tick)
                } else {
                    world.tick()
                }
                seen.note(&world);
                world.check()?;
                seen.looked = seen.now;
            }
            Op::Glance(queue, span) => {
                clock.advance(Duration::from_nanos(span));
                seen.now += span;
                limiters[queue].tick();
            }
            Op::Release | Op::Pause(..) | Op::Resume(_) | Op::SetCap(..) => {}
        }
        seen.note(&world);
    }
    for (queue, rule) in rules.iter().enumerate() {
        seen.keeps_the_law(queue, rule)?;
    }
    all_claims_are_served(&mut world, rules)
}

/// The instants at which grants were seen.
#[derive(Default)]
struct Seen {
    now: u64,
    /// The instant at which both queues were last served.
    looked: u64,
    granted: BTreeMap<usize, (u64, u64, [u64; QUEUES])>,
}

impl Seen {
    fn note(&mut self, world: &World<'_>) {
        let unseen = world.waiting.iter().filter(|(_, claim)| claim.is_woken());
        let all = unseen.map(|(number, claim)| (*number, claim.costs));
        for (number, costs) in all.chain(world.held.iter().map(|(number, (costs, _))| (*number, *costs))) {
            self.granted.entry(number).or_insert((self.looked, self.now, costs));
        }
    }

    /// A grant seen at `at` was due after `from`. For each window that begins with one grant and ends with another,
    /// counts the grants that were certainly in it.
    fn keeps_the_law(&self, queue: usize, rule: &Rule) -> Result<(), TestCaseError> {
        let grants: Vec<_> = self.granted.values().filter(|(_, _, costs)| costs[queue] > 0).collect();
        for (from, ..) in &grants {
            for (_, at, _) in grants.iter().filter(|(_, at, _)| at > from) {
                let inside = grants.iter().filter(|(after, seen, _)| after >= from && seen <= at);
                let (tokens, largest) =
                    inside.fold((0, 0), |(sum, most), (_, _, costs)| (sum + costs[queue], costs[queue].max(most)));
                // Tokens are saved for a claim above the burst, so a window may open with one.
                let most = rule.burst.max(largest) + (at - from) * rule.amount / rule.period + 1;
                let span = from..=at;
                prop_assert!(tokens <= most, "queue {}: {} tokens in {:?}, at most {}", queue, tokens, span, most);
            }
        }
        Ok(())
    }
}

/// Given time, all waiting claims are granted, and the buckets fill to the burst and no further.
fn all_claims_are_served(world: &mut World<'_>, rules: [Rule; QUEUES]) -> Result<(), TestCaseError> {
    for _ in 0..=world.waiting.len() {
        world.clock.advance(Duration::from_nanos(100));
        world.tick();
    }
    let numbers: Vec<usize> = world.waiting.keys().copied().collect();
    for number in numbers {
        prop_assert_eq!(world.poll(number), Some(true), "claim {} still waits", number);
    }
    world.check()?;
    world.clock.advance(Duration::from_nanos(100));
    for (limiter, rule) in world.limiters.iter().zip(rules) {
        prop_assert_eq!(limiter.available(), rule.burst);
        prop_assert_eq!(limiter.deficiency(), 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 100_000, ..crate::oracle::ops::config(500) })]

    #[test]
    fn limiters_and_oracle_agree_in_every_nanosecond(
        rules in rules(),
        set in any::<[bool; QUEUES]>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        agree(rules, set, &ops)?;
    }

    #[test]
    fn with_late_timers_the_promises_hold(
        rules in rules(),
        ops in prop::collection::vec(op(), 1..60),
        turned in any::<bool>(),
    ) {
        keep_the_promises(rules, &ops, turned)?;
    }
}

/// How long claims wait, if no clock is late.
struct Waits {
    /// For each joint claim: when it arrived, and when it had its turn everywhere.
    turns: BTreeMap<usize, u64>,
    granted: BTreeMap<usize, u64>,
}

/// From its turn everywhere on, a joint claim waits no longer than its limiters take to mint its cost and those of the older
/// fronts with which it shares limiters, and its own once more for each of those that has its turn later.
fn keep_the_bound(rules: [Rule; QUEUES], ops: &[Op]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let rules = rules.map(|rule| Rule { cap: None, ..rule });
    let limiters = build_ascending(rules, &clock);
    let mut world = World::new(&clock, &limiters);
    let (mut now, mut claims) = (0, BTreeMap::new());
    let mut waits = Waits { turns: BTreeMap::new(), granted: BTreeMap::new() };
    for op in ops.iter().copied().chain(std::iter::repeat_n(Op::Pass(30), 100)) {
        let number = match op {
            Op::Join(costs) | Op::Turned(costs) => {
                Some((world.joint(costs, matches!(op, Op::Turned(_))).0, costs, true))
            }
            Op::Plain(queue, cost) => {
                let costs = std::array::from_fn(|other| if other == queue { cost } else { 0 });
                Some((world.plain(queue, cost).0, costs, false))
            }
            Op::Pass(span) => {
                for _ in 0..span {
                    now += 1;
                    clock.advance(NANO);
                    world.tick();
                    waits.note(&world, &claims, now);
                }
                None
            }
            _ => None,
        };
        claims.extend(number.map(|(number, costs, is_joint)| (number, (costs, is_joint))));
        waits.note(&world, &claims, now);
    }
    prop_assert!(claims.keys().all(|number| waits.granted.contains_key(number)), "all are granted");
    let mint = |costs: &[u64; QUEUES]| {
        rules.iter().zip(costs).map(|(rule, cost)| (cost * rule.period).div_ceil(rule.amount)).max().unwrap_or(0)
    };
    for (number, turned) in &waits.turns {
        let older = waits.turns.keys().filter(|older| *older < number && waits.granted[older] >= *turned);
        let own = mint(&claims[number].0);
        let of_older = |older| mint(&claims[older].0) + if waits.turns[older] > *turned { own } else { 0 };
        let most = older.map(of_older).sum::<u64>() + own;
        let waited = waits.granted[number] - turned;
        prop_assert!(waited <= most, "claim {} waited for {} after its turn, at most {}", number, waited, most);
    }
    Ok(())
}

/// The set of the older claim has its turn later than the younger one, which has saved nearly all tokens by then.
#[test]
fn an_older_front_that_has_its_turn_later_costs_the_younger_one_its_own_mint_time_again() {
    let rule = |amount, period| Rule { amount, period, burst: 1, initial: 0, cap: None };
    let ops = [
        Op::Turned([3, 0, 0]),
        Op::Plain(0, 3),
        Op::Plain(2, 1),
        Op::Plain(2, 4),
        Op::Join([2, 0, 2]),
        Op::Join([2, 0, 0]),
    ];
    keep_the_bound([rule(1, 5), rule(1, 1), rule(2, 13)], &ops).unwrap();
}

impl Waits {
    fn note(&mut self, world: &World<'_>, claims: &BTreeMap<usize, ([u64; QUEUES], bool)>, now: u64) {
        for (number, (costs, is_joint)) in claims {
            if world.waiting.get(number).is_none_or(|claim| claim.is_woken()) {
                self.granted.entry(*number).or_insert(now);
            } else if *is_joint {
                let is_before = |(other, (theirs, joint)): (&usize, &([u64; QUEUES], bool))| {
                    let waits = world.waiting.get(other).is_some_and(|claim| !claim.is_woken());
                    let shares = if *joint {
                        theirs.map(|cost| cost > 0) == costs.map(|cost| cost > 0)
                    } else {
                        theirs.iter().zip(costs).any(|(theirs, own)| *theirs > 0 && *own > 0)
                    };
                    waits && shares
                };
                if !claims.range(..number).any(is_before) {
                    self.turns.entry(*number).or_insert(now);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 100_000, ..crate::oracle::ops::config(500) })]

    #[test]
    fn the_wait_after_the_turn_is_bounded(rules in rules(), ops in prop::collection::vec(op(), 1..60)) {
        keep_the_bound(rules, &ops)?;
    }
}
