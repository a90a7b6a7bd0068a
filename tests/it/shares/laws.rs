//! The laws of the specification (section 4), each as a checker of its own on random histories of a limiter. The checkers
//! see what a caller sees: the counters of each class after each step. No model takes part. That each class is served in
//! order and completely, and that no token is lost, is in the histories that are compared with the model.

use super::fixture::{Fixture, Rate, share};
use super::model::{ClassId, Id, Int};
use crate::fixture::*;
use crate::oracle::ops::continuous;
use crate::oracle::{Refill, Rule};
use std::ops::Range;

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;
/// Rounding: less than a token.
const SLACK: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct Class {
    parent: ClassId,
    weight: Int,
    floor: Option<Rate>,
    ceiling: Option<Rule>,
    /// The largest installment, in it or below it.
    largest: Int,
}

/// What is seen at one instant: tokens served to each class since the beginning, and which classes are backlogged.
#[derive(Clone, Debug)]
struct Sample {
    at: Int,
    served: Vec<Int>,
    backlogged: Vec<bool>,
}

struct Run {
    rule: Rule,
    classes: Vec<Class>,
    samples: Vec<Sample>,
}

impl Run {
    fn rate(&self) -> f64 {
        per_nanosecond(&self.rule)
    }

    fn burst(&self) -> Int {
        self.rule.burst
    }

    /// Every pair of instants between which all of these classes are backlogged, and what the classes were served
    /// meanwhile. Claims arrive at samples only, so a class that is backlogged at both ends of a step was so throughout.
    fn intervals<const N: usize>(&self, classes: [ClassId; N]) -> impl Iterator<Item = (f64, [Int; N])> {
        let is_backlogged = move |sample: &Sample| classes.iter().all(|class| sample.backlogged[*class]);
        let ends = move |first: usize| first + self.samples[first..].iter().take_while(|at| is_backlogged(at)).count();
        let pairs =
            (0..self.samples.len()).flat_map(move |first| (first + 1..ends(first)).map(move |last| (first, last)));
        pairs.map(move |(first, last)| {
            let (first, last) = (&self.samples[first], &self.samples[last]);
            ((last.at - first.at) as f64, classes.map(|class| last.served[class] - first.served[class]))
        })
    }

    fn siblings(&self) -> impl Iterator<Item = (ClassId, ClassId)> {
        let ids = 1..self.classes.len();
        let pairs = ids.clone().flat_map(move |i| ids.clone().map(move |j| (i, j)));
        pairs.filter(|(i, j)| i != j && self.classes[*i].parent == self.classes[*j].parent)
    }

    fn share(&self, class: ClassId) -> f64 {
        let siblings = self.classes[1..].iter().filter(|other| other.parent == self.classes[class].parent);
        self.classes[class].weight as f64 / siblings.map(|other| other.weight).sum::<Int>() as f64
    }
}

fn rate_of(rule: &Rule) -> (Int, Int) {
    let Refill::Continuous { amount, period } = rule.refill else { unreachable!("all are continuous here") };
    (amount, period)
}

fn per_nanosecond(rule: &Rule) -> f64 {
    let (amount, period) = rate_of(rule);
    amount as f64 / period as f64
}

/// The largest part of its bound that was used; the law is kept if it is at most 1.
type Worst = f64;

fn worst(parts: impl Iterator<Item = f64>) -> Worst {
    parts.fold(0.0, f64::max)
}

type Law = fn(&Run) -> Worst;

/// Law 1: tokens served in any window <= burst + rate x window.
fn rate(run: &Run) -> Worst {
    let windows = run.samples.iter().enumerate().flat_map(|(index, first)| {
        run.samples[index..].iter().map(move |last| (last.at - first.at, last.served[0] - first.served[0]))
    });
    worst(windows.map(|(time, served)| served as f64 / (run.burst() as f64 + run.rate() * time as f64 + SLACK)))
}

/// Law 1 for claims that are paid in one piece: they keep the rate by themselves, whatever divided claims leave behind.
fn rate_of_whole_claims(run: &Run) -> Worst {
    let is_whole = |class: ClassId| run.classes[class].largest < run.burst();
    let served = |sample: &Sample| -> Int {
        (1..run.classes.len()).filter(|id| is_whole(*id)).map(|id| sample.served[id]).sum()
    };
    let windows = run.samples.iter().enumerate().flat_map(|(index, first)| {
        run.samples[index..].iter().map(move |last| (last.at - first.at, served(last) - served(first)))
    });
    worst(windows.map(|(time, served)| served as f64 / (run.burst() as f64 + run.rate() * time as f64 + SLACK)))
}

/// Law 2: siblings i and j that are backlogged: |Wi/wi - Wj/wj| <= li/wi + lj/wj.
fn shares(run: &Run) -> Worst {
    worst(run.siblings().flat_map(|(i, j)| {
        let (a, b) = (run.classes[i], run.classes[j]);
        let bound = (a.largest * b.weight + b.largest * a.weight) as f64;
        run.intervals([i, j]).map(move |(_, [wi, wj])| (wi * b.weight - wj * a.weight) as f64 / bound)
    }))
}

/// Law 3: j without a floor, i with one: Wj/wj - Wi/wi <= 2B/wi + lj/wj.
fn beside_a_floor(run: &Run) -> Worst {
    let pairs = run.siblings().filter(|(i, j)| run.classes[*i].floor.is_some() && run.classes[*j].floor.is_none());
    worst(pairs.flat_map(|(i, j)| {
        let (a, b) = (run.classes[i], run.classes[j]);
        let bound = (2 * run.burst() * b.weight + b.largest * a.weight) as f64;
        run.intervals([i, j]).map(move |(_, [wi, wj])| (wj * a.weight - wi * b.weight) as f64 / bound)
    }))
}

/// Law 4: W >= f t - 2l - f B/r.
fn floors(run: &Run) -> Worst {
    let classes = (1..run.classes.len()).filter_map(|class| Some((class, run.classes[class].floor?)));
    worst(classes.flat_map(|(class, (tokens, nanos))| {
        let floor = tokens as f64 / nanos as f64;
        let bound = 2.0 * run.classes[class].largest as f64 + floor * run.burst() as f64 / run.rate() + SLACK;
        run.intervals([class]).map(move |(time, [served])| (floor * time - served as f64) / bound)
    }))
}

/// Law 5, in a flat tree: W >= s r t - s (sum of all l + B) - l.
fn throughput(run: &Run) -> Worst {
    let all: Int = run.classes[1..].iter().map(|class| class.largest).sum::<Int>() + run.burst();
    worst((1..run.classes.len()).flat_map(move |class| {
        let share = run.share(class);
        let bound = share * all as f64 + run.classes[class].largest as f64 + SLACK;
        run.intervals([class]).map(move |(time, [served])| (share * run.rate() * time - served as f64) / bound)
    }))
}

/// Law 6: tokens served to a class in any window <= burst + rate x window of its ceiling.
fn ceilings(run: &Run) -> Worst {
    let classes = (1..run.classes.len()).filter_map(|class| Some((class, run.classes[class].ceiling?)));
    worst(classes.flat_map(|(class, rule)| {
        let windows = run.samples.iter().enumerate().flat_map(move |(index, first)| {
            run.samples[index..].iter().map(move |last| (last.at - first.at, last.served[class] - first.served[class]))
        });
        let rate = per_nanosecond(&rule);
        windows.map(move |(time, served)| served as f64 / (rule.burst as f64 + rate * time as f64 + SLACK))
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Weights alone, in one level.
    Flat,
    /// Weights alone.
    Nested,
    Floors,
    Ceilings,
    /// Weights alone; claims that are paid in installments leave in the middle of it, and the limiter pauses.
    Cancels,
}

/// A saturated limiter: claims that cost up to three bursts arrive in classes of random shares, and time passes.
struct History {
    random: Rng,
    run: Run,
    fixture: Fixture,
    leaves: Vec<ClassId>,
    now: Int,
    /// By class: its claims in the order of arrival.
    arrived: Vec<Vec<Id>>,
}

impl History {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Rng::with_seed(seed);
        let rule = continuous(random.i128(50..200), SECOND, random.i128(5..20), 0);
        let root = Class { parent: 0, weight: 1, floor: None, ceiling: None, largest: rule.burst };
        let fixture = Fixture::new(&[rule], None);
        let run = Run { rule, classes: vec![root], samples: Vec::new() };
        let mut history = Self { random, run, fixture, leaves: Vec::new(), now: 0, arrived: vec![Vec::new()] };
        for _ in 0..history.random.usize(2..6) {
            let is_inner = kind == Kind::Nested && history.random.bool();
            let class = history.add(0, kind, is_inner);
            for _ in 0..if is_inner { 2 } else { 0 } {
                history.add(class, Kind::Nested, false);
            }
        }
        history.sample();
        history
    }

    fn add(&mut self, parent: ClassId, kind: Kind, is_inner: bool) -> ClassId {
        let (burst, (amount, _)) = (self.run.burst(), rate_of(&self.run.rule));
        let weight = *self.random.choice(&[1, 1, 2, 3, 7, 10]).expect("not empty");
        let largest = if self.random.u8(0..3) == 0 { burst } else { self.random.i128(1..=burst) };
        let wants = self.random.bool();
        let floor = (kind == Kind::Floors && wants).then(|| (self.random.i128(1..=amount / 6), SECOND));
        let ceiling = (kind == Kind::Ceilings && wants)
            .then(|| continuous(self.random.i128(5..=amount), SECOND, self.random.i128(1..=burst), 0));
        let class = Class { parent, weight, floor, ceiling, largest: if is_inner { burst } else { largest } };
        let id = self.fixture.add(parent, share(weight, floor, ceiling)).expect("the floors fit");
        self.run.classes.push(class);
        self.arrived.push(Vec::new());
        if !is_inner {
            self.leaves.push(id);
        }
        id
    }

    fn step(&mut self, kind: Kind) {
        for _ in 0..self.random.usize(0..4) {
            let class = *self.random.choice(&self.leaves).expect("a leaf");
            let largest = self.run.classes[class].largest;
            // Installments are at most a burst, so only a class whose largest is the burst has larger claims.
            let most = if largest == self.run.burst() { 3 * largest } else { largest };
            for _ in 0..self.random.usize(1..10) {
                let cost = self.random.i128(1..=most);
                self.arrived[class].push(self.fixture.arrive(class, cost));
            }
        }
        if kind == Kind::Cancels {
            self.cancel();
        }
        self.sample();
        self.now += self.random.i128(0..500) * MS + self.random.i128(0..MS);
        self.fixture.at(self.now);
        self.sample();
    }

    fn cancel(&mut self) {
        let divided: Vec<_> =
            self.leaves.iter().copied().filter(|leaf| self.run.classes[*leaf].largest == self.run.burst()).collect();
        let Some(class) = self.random.choice(&divided).copied() else { return };
        // The one in service.
        let front = self.arrived[class].iter().position(|id| !self.fixture.granted.contains(id));
        if let Some(front) = front {
            self.fixture.cancel(self.arrived[class].remove(front));
        }
        if self.random.u8(0..4) == 0 {
            let span = self.random.u64(0..400);
            self.fixture.limiter.pause_for(std::time::Duration::from_millis(span));
        }
    }

    fn sample(&mut self) {
        self.fixture.look();
        let count = self.run.classes.len();
        let (mut served, mut backlogged) = (vec![0; count], vec![false; count]);
        for leaf in &self.leaves {
            let snapshot = self.fixture.class(*leaf).snapshot();
            let mut at = *leaf;
            loop {
                served[at] += Int::from(snapshot.served);
                backlogged[at] |= snapshot.waiting_tasks > 0;
                if at == 0 {
                    break;
                }
                at = self.run.classes[at].parent;
            }
        }
        self.run.samples.push(Sample { at: self.now, served, backlogged });
    }

    fn played(seed: u64, kind: Kind) -> Self {
        let mut history = Self::new(seed, kind);
        for _ in 0..30 {
            history.step(kind);
        }
        history
    }
}

const SEEDS: Range<u64> = 0..40;

/// Checks a law on histories of a kind. They come close to the bound, or the check would prove little.
fn check(kind: Kind, law: impl Fn(&Run) -> Worst, close: f64) {
    let mut closest: f64 = 0.0;
    for seed in SEEDS {
        let used = law(&History::played(seed, kind).run);
        assert!(used <= 1.0, "seed {seed}, {kind:?}: {used} of the bound");
        closest = closest.max(used);
    }
    assert!(closest >= close, "{kind:?}: {closest} of the bound at most");
}

#[test]
fn law_1_the_rate_is_kept() {
    for kind in [Kind::Flat, Kind::Nested, Kind::Floors, Kind::Ceilings] {
        check(kind, rate, 0.9);
    }
}

#[test]
fn law_1_whole_claims_keep_the_rate_whatever_divided_claims_leave_behind() {
    check(Kind::Cancels, rate_of_whole_claims, 0.5);
}

#[test]
fn law_2_siblings_are_served_by_weight() {
    check(Kind::Flat, shares, 0.9);
    check(Kind::Nested, shares, 0.9);
}

#[test]
fn law_3_a_class_beside_a_floor_gets_no_more_than_its_share() {
    check(Kind::Floors, beside_a_floor, 0.3);
}

#[test]
fn law_4_floors_are_kept() {
    check(Kind::Floors, floors, 0.3);
}

#[test]
fn law_5_a_backlogged_class_gets_its_share_of_the_rate() {
    check(Kind::Flat, throughput, 0.3);
}

#[test]
fn law_6_ceilings_are_kept() {
    check(Kind::Ceilings, ceilings, 0.9);
}

/// A checker that cannot fail proves nothing: each of them finds a schedule that breaks its law.
#[test]
fn every_checker_finds_a_schedule_that_breaks_its_law() {
    let rule = continuous(100, SECOND, 10, 0);
    let ceiling = Some(continuous(20, SECOND, 5, 0));
    let class = Class { parent: 0, weight: 1, floor: None, ceiling: None, largest: 10 };
    let run = |first: Class, ends: [Int; 2]| {
        let sample = |at: Int, [a, b]: [Int; 2]| Sample { at, served: vec![a + b, a, b], backlogged: vec![true; 3] };
        let samples = vec![sample(0, [0, 0]), sample(SECOND, ends)];
        Run { rule, classes: vec![class, first, class], samples }
    };
    let floored = Class { floor: Some((50, SECOND)), ..class };
    let capped = Class { ceiling, ..class };
    let all: [(Law, Class, [Int; 2], [Int; 2]); 6] = [
        (rate, class, [55, 55], [55, 57]),
        (shares, class, [40, 60], [39, 60]),
        (beside_a_floor, floored, [35, 65], [34, 65]),
        (floors, floored, [24, 76], [23, 77]),
        (throughput, class, [24, 76], [23, 77]),
        (ceilings, capped, [25, 75], [27, 73]),
    ];
    for (number, (law, first, kept, broken)) in all.into_iter().enumerate() {
        assert!(law(&run(first, kept)) <= 1.0, "row {number}");
        assert!(law(&run(first, broken)) > 1.0, "row {number}");
    }
}
