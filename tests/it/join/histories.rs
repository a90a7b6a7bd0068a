//! Random histories of three queues: compared with the oracle where every nanosecond is served, and checked by the
//! guarantees alone where timers are late.

use super::oracle::{Oracle, QUEUES, Rule};
use super::world::{World, build_ascending, order};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate::{Limiter, ManualClock};

#[derive(Clone, Copy, Debug)]
enum Op {
    Join([u64; QUEUES]),
    /// The same with the arguments in reverse order.
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

/// Serves both queues in every nanosecond, so that they agree with the oracle to the nanosecond.
fn agree(rules: [Rule; QUEUES], ops: &[Op]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiters = build_ascending(rules, &clock);
    let (mut world, mut oracle) = (World::new(&clock, &limiters), Oracle::new(rules));
    for &op in ops {
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
            let possible = oracle.claim(number, costs, order(turned), true);
            prop_assert_eq!(granted, expected(oracle, number, possible), "{:?}", op);
        }
        Op::Plain(queue, cost) => {
            let (number, granted) = world.plain(queue, cost);
            let mut costs = [0; QUEUES];
            costs[queue] = cost;
            let possible = oracle.claim(number, costs, order(false), false);
            prop_assert_eq!(granted, expected(oracle, number, possible), "{:?}", op);
        }
        Op::TryJoin(costs) => {
            let number = world.next;
            prop_assert_eq!(
                world.try_joint(costs).is_some(),
                oracle.try_claim(number, costs, order(false)),
                "{:?}",
                op
            );
        }
        Op::Cancel(ago) => {
            if let Some(number) = world.back(ago) {
                world.waiting.remove(&number);
                oracle.cancel(number);
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
                drop(grants);
                oracle.release(number);
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
        prop_assert_eq!(seen.waiting_tasks, bucket.waiting(), "in {:?} after {:?}", bucket, op);
        prop_assert_eq!(
            limiter.available(),
            bucket.available(),
            "{:?} after {:?} {:?} {:?}",
            bucket,
            op,
            seen,
            limiter
        );
        let level = seen.quotas[0].level;
        // A queue that is ready and holds a part for a joint claim stays at the instant at which it became ready.
        let is_exact = !oracle.is_held_ready(queue);
        prop_assert!(level <= bucket.level() as i64, "{:?} after {:?}, seen {:?}", bucket, op, seen);
        prop_assert!(!is_exact || level == bucket.level() as i64, "{:?} after {:?}, seen {:?}", bucket, op, seen);
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
                prop_assert!(
                    tokens <= most,
                    "queue {}: {} tokens in {}..={}, at most {}",
                    queue,
                    tokens,
                    from,
                    at,
                    most
                );
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

/// As many cases as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|asked| asked.parse().ok());
    let cases = asked.unwrap_or(500);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 100_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn limiters_and_oracle_agree_in_every_nanosecond(rules in rules(), ops in prop::collection::vec(op(), 1..60)) {
        agree(rules, &ops)?;
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

/// An older claim takes the front from a younger one that is ready, and costs more than the burst. All arrangements
/// of rules and costs are tried.
#[test]
fn limiters_and_oracle_agree_when_a_ready_claim_is_displaced() {
    const ORDERS: [[usize; QUEUES]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let rule = |amount, period, burst, initial| Rule { amount, period, burst, initial, cap: None };
    let rules = [rule(1, 1, 1, 0), rule(2, 5, 1, 0), rule(1, 5, 2, 2)];
    for (rule_order, cost_order) in ORDERS.iter().flat_map(|order| ORDERS.map(|other| (order, other))) {
        let place = |costs: [u64; QUEUES]| cost_order.map(|index| costs[index]);
        let claims = [Op::Turned(place([0, 0, 2])), Op::Join(place([3, 0, 1])), Op::Join(place([1, 1, 0]))];
        let ops = [&claims[..], &[Op::Pass(1); 12]].concat();
        let result = agree(rule_order.map(|index| rules[index]), &ops);
        assert!(result.is_ok(), "rules {rule_order:?}, costs {cost_order:?}: {result:?}");
    }
}

/// `amount` tokens per `period`, an empty bucket of `burst`, and a cap.
const fn rule_of(amount: u64, period: u64, burst: u64, cap: Option<u64>) -> Rule {
    Rule { amount, period, burst, initial: 0, cap }
}

/// A release in a queue in which only a joint claim waits, aside, counts when that queue receives an update.
#[test]
fn a_release_counts_while_a_joint_claim_waits_aside() {
    use Op::{Cancel, Join, Pass, Plain, Release};
    let rules = [rule_of(1, 1, 1, Some(5)), rule_of(1, 1, 3, Some(8)), rule_of(1, 1, 2, Some(5))];
    let claims = [Plain(0, 2), Pass(3), Join([4, 0, 0]), Join([0, 3, 1]), Join([4, 5, 5])];
    let rest = [Cancel(1), Plain(1, 1), Pass(2), Release];
    agree(rules, &[&claims[..], &rest].concat()).unwrap();
}

/// A release while a part was ready and held back counts as soon as that part is granted.
#[test]
fn a_release_counts_when_a_claim_that_was_held_back_is_granted() {
    use Op::{Join, Pass, Plain, Release, Turned};
    let rules = [rule_of(1, 1, 1, None), Rule { initial: 1, ..rule_of(1, 5, 5, Some(5)) }, rule_of(1, 13, 1, None)];
    let claims = [Join([0, 1, 0]), Turned([0, 3, 3]), Join([0, 2, 1]), Pass(24), Plain(1, 2)];
    agree(rules, &[&claims[..], &[Release, Pass(15)]].concat()).unwrap();
}

/// A queue decides about a part after it has granted the claims that are due before the part, even if one of those was
/// decided in another queue.
#[test]
fn a_part_is_judged_after_the_grants_that_are_due() {
    use Op::{Cancel, Join, Pass, Plain};
    let rules = [rule_of(1, 1, 1, None), rule_of(2, 1, 5, Some(5)), rule_of(1, 1, 1, None)];
    let claims = [Plain(1, 4), Plain(1, 2), Join([4, 1, 0]), Join([0, 3, 0])];
    agree(rules, &[&claims[..], &[Pass(3), Cancel(3)]].concat()).unwrap();
}

/// A queue that holds an older part is served up to an earlier instant only. What it announces counts from the present.
#[test]
fn a_queue_that_is_held_back_announces_as_of_the_present() {
    use Op::{Join, Pass, Pause, SetCap, Turned};
    let rules = [rule_of(3, 5, 1, None), rule_of(1, 1, 1, None), rule_of(1, 1, 1, Some(8))];
    let claims = [Turned([0, 0, 3]), Join([0, 0, 5]), Join([1, 0, 1]), Pause(2, 6), Join([3, 0, 5])];
    agree(rules, &[&[SetCap(2, 8)], &claims[..], &[Pass(11)]].concat()).unwrap();
}

/// A queue that learns by an update that its front claim was given up serves the claims behind it before the next update
/// is delivered.
#[test]
fn a_queue_goes_on_when_the_claim_of_an_update_has_left() {
    use Op::{Cancel, Join, Pass, Plain, Release, Turned};
    let rules = [rule_of(1, 1, 4, Some(5)), rule_of(1, 1, 5, Some(8)), rule_of(1, 1, 1, Some(6))];
    let first = [Turned([0, 1, 0]), Pass(6), Plain(0, 3), Turned([3, 2, 2]), Plain(1, 4), Join([0, 1, 2])];
    let second = [Join([0, 3, 0]), Join([1, 3, 0]), Join([0, 0, 1]), Join([0, 1, 0]), Join([1, 0, 0]), Pass(4)];
    let leave = [Cancel(0), Join([0, 0, 2]), Release, Release, Cancel(0), Cancel(1), Cancel(4)];
    agree(rules, &[&first[..], &second, &leave].concat()).unwrap();
}

/// A release while a part was ready and held back counts as soon as that part's claim is cancelled.
#[test]
fn a_release_counts_when_a_claim_that_was_held_back_is_cancelled() {
    use Op::{Cancel, Join, Pass, Plain, Release, Turned};
    let rules = [rule_of(1, 1, 1, Some(5)), Rule { initial: 2, ..rule_of(1, 5, 5, Some(7)) }, rule_of(2, 1, 1, None)];
    let first = [Pass(15), Join([0, 3, 0]), Plain(0, 2), Join([0, 3, 0]), Join([0, 2, 2]), Plain(1, 1)];
    let second = [Join([0, 1, 0]), Join([5, 0, 0]), Plain(0, 1), Join([1, 1, 0]), Turned([1, 4, 0])];
    let leave = [Cancel(2), Cancel(3), Join([0, 0, 2]), Pass(6), Cancel(6), Cancel(6), Join([1, 0, 0]), Release];
    agree(rules, &[&first[..], &second, &leave, &[Cancel(6)]].concat()).unwrap();
}
