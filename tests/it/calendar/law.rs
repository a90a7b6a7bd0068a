//! Random histories in zones with daylight saving, in which the wall clock is set back and forth: an exact model, and the
//! law by brute force. A key of a keyed limiter does in all of them what a limiter does.
//!
//! A minute or more passes before each step, so the limiter reads the wall clock at each.

use super::clocks::at;
use crate::fixture::*;
use jiff::civil::{Date, date};
use jiff::{Timestamp, tz::TimeZone};
use std::time::{SystemTime, UNIX_EPOCH};
use tollgate::{KeyedConsume, KeyedGrant};

const ZONES: [&str; 5] =
    ["America/Los_Angeles", "Europe/Berlin", "Africa/Cairo", "America/Havana", "Australia/Lord_Howe"];

/// What is known of the periods: their numbers by the calendar, found without the limiter's code.
struct Periods {
    zone: TimeZone,
    kind: u8,
}

impl Periods {
    fn quota(kind: u8, amount: u64, zone: &str) -> Quota {
        let quota = match kind {
            0 => Quota::per_calendar_day(amount),
            1 => Quota::per_calendar_week(amount).starting_on(7),
            _ => Quota::per_calendar_month(amount).starting_on(31),
        };
        quota.in_time_zone(zone).expect("known")
    }

    fn number(&self, wall: SystemTime) -> i64 {
        let at = Timestamp::try_from(wall).expect("in range");
        let day = at.to_zoned(self.zone.clone()).date();
        // A clock that shows the day before after midnight has come: it comes a second time, and the day goes on.
        let day = if day.tomorrow().is_ok_and(|next| self.midnight(next) <= at) {
            day.tomorrow().expect("next")
        } else {
            day
        };
        match self.kind {
            0 => days(day),
            1 => (days(day) + 4).div_euclid(7),
            _ => {
                let (month, is_last) =
                    (i64::from(day.year()) * 12 + i64::from(day.month()), day == day.last_of_month());
                if is_last { month } else { month - 1 }
            }
        }
    }

    fn midnight(&self, day: Date) -> Timestamp {
        day.to_zoned(self.zone.clone()).and_then(|midnight| midnight.start_of_day()).expect("in range").timestamp()
    }
}

fn days(day: Date) -> i64 {
    day.duration_since(date(1970, 1, 1)).as_hours() / 24
}

struct Model {
    periods: Periods,
    amount: u64,
    level: u64,
    begun: BTreeSet<i64>,
    next: i64,
    /// The number of beginnings, by which grants are told apart.
    count: usize,
    queue: VecDeque<u64>,
    /// The cost of each grant, and in which period it was made.
    log: Vec<(i64, usize)>,
}

impl Model {
    /// Periods begin at one instant, if there are any.
    fn begin(&mut self, numbers: impl Iterator<Item = i64>) {
        let new: Vec<i64> = numbers.filter(|number| self.begun.insert(*number)).collect();
        if new.is_empty() {
            return;
        }
        self.count += 1;
        self.level = self.amount;
        self.serve();
    }

    fn serve(&mut self) {
        while self.queue.front().is_some_and(|cost| *cost <= self.level) {
            let cost = self.queue.pop_front().expect("a front");
            self.take(cost);
        }
    }

    fn take(&mut self, cost: u64) {
        self.level -= cost;
        self.log.push((cost as i64, self.count));
    }

    /// The wall clock showed `before` in the last step, would show `expected` now, had it not been set, and shows `wall`.
    fn look(&mut self, before: SystemTime, expected: SystemTime, wall: SystemTime) {
        // What the clock, as it is set now, would have shown in the last step: what had begun by then begins at once.
        let passed = expected.duration_since(before).expect("time passes");
        let at_once = self.periods.number(wall - passed);
        let is_set = expected != wall;
        let (expected, current) = (self.periods.number(expected), self.periods.number(wall));
        if !is_set || !self.begun.contains(&current) {
            if is_set && (self.next > current || current > expected + 1) {
                self.begun.insert(current - 1);
                self.next = current;
            }
            self.begin(self.next..=at_once.min(current));
            (self.next.max(at_once + 1)..=current).for_each(|number| self.begin(number..=number));
        }
        self.next = (current + 1..).find(|number| !self.begun.contains(number)).expect("there are more");
    }

    /// In every window, grants less refunds of the same periods are at most the amount for the period in which it begins, and
    /// for each that begins in it.
    fn keeps_the_law(&self) {
        for (first, (_, from)) in self.log.iter().enumerate() {
            let mut sums = BTreeMap::<usize, i64>::new();
            for (tokens, period) in &self.log[first..] {
                let sum = sums.entry(*period).or_default();
                *sum += tokens;
                assert!(*period >= *from && *sum <= self.amount as i64, "{:?}", self.log);
            }
        }
    }
}

const KEY: u8 = 1;

/// What a limiter does, and a key.
type Both<L, K> = (L, K);

struct World<'a> {
    limiter: &'a Limiter,
    keyed: &'a KeyedLimiter<u8>,
    clock: ManualClock,
    model: Model,
    grants: Vec<(Both<Grant<'a>, KeyedGrant<'a, u8>>, usize)>,
    waiting: VecDeque<Both<Spawn<Consume<'a>>, Spawn<KeyedConsume<'a, 'a, u8>>>>,
}

impl World<'_> {
    fn step(&mut self, random: &mut Rng) {
        let minutes = random.choice([1, 7, 60, 61, 600, 1_440, 1_500, 10_000]).expect("one");
        let before = self.clock.wall();
        self.clock.advance(Duration::from_secs(60 * minutes));
        let expected = self.clock.wall();
        if random.u8(0..3) == 0 {
            let by = Duration::from_secs(60 * random.choice([20, 90, 1_439, 1_441, 5_000, 50_000]).expect("one"));
            self.clock.set_wall(if random.bool() { expected + by } else { expected - by });
        }
        self.model.look(before, expected, self.clock.wall());
        self.limiter.tick();
        self.keyed.tick();
        self.serve();
        assert_eq!(self.waiting.len(), self.model.queue.len());
        let cost = random.u64(1..=self.model.amount);
        match random.u8(0..8) {
            0..4 => {
                let is_there = self.model.queue.is_empty() && cost <= self.model.level;
                let (granted, of_key) = (self.limiter.try_acquire(cost), self.keyed.try_acquire(&KEY, cost));
                assert_eq!((granted.is_ok(), of_key.is_ok()), (is_there, is_there));
                if let (Ok(grant), Ok(of_key)) = (granted, of_key) {
                    self.model.take(cost);
                    self.grants.push(((grant, of_key), self.model.count));
                }
            }
            4..7 if !self.grants.is_empty() => {
                let ((mut grant, mut of_key), period) = self.grants.swap_remove(random.usize(0..self.grants.len()));
                let tokens = grant.cost();
                grant.settle(0);
                of_key.settle(&KEY, 0);
                if period == self.model.count {
                    self.model.level += tokens;
                    self.model.log.push((-(tokens as i64), period));
                    self.model.serve();
                    self.serve();
                }
            }
            _ => {
                let (mut claim, mut of_key) =
                    (spawn(self.limiter.consume(cost)), spawn(self.keyed.consume(&KEY, cost)));
                let waits = claim.poll().is_pending();
                assert_eq!(of_key.poll().is_pending(), waits);
                if waits {
                    self.model.queue.push_back(cost);
                    self.waiting.push_back((claim, of_key));
                } else {
                    self.model.take(cost);
                }
            }
        }
        let level = if self.model.queue.is_empty() { self.model.level } else { 0 };
        assert_eq!((self.limiter.available(), self.keyed.available(&KEY)), (level, level));
    }

    fn serve(&mut self) {
        while self.waiting.front_mut().is_some_and(|(claim, _)| claim.is_woken()) {
            let (mut claim, mut of_key) = self.waiting.pop_front().expect("a front");
            assert!(of_key.is_woken());
            assert!(matches!((claim.poll(), of_key.poll()), (Poll::Ready(Ok(_)), Poll::Ready(Ok(_)))));
        }
    }
}

#[test]
fn the_law_is_kept_while_the_wall_clock_is_set_back_and_forth() {
    for seed in 0..crate::oracle::ops::cases(1_000).into() {
        let mut random = Rng::with_seed(seed);
        let (zone, kind, amount) = (ZONES[random.usize(0..5)], random.u8(0..3), random.u64(1..9));
        let clock = ManualClock::new();
        let start = at("2026-01-01T00:00:00Z") + Duration::from_secs(60 * random.u64(0..4 * 365 * 1_440));
        clock.set_wall(start);
        let quota = Periods::quota(kind, amount, zone);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().expect("valid");
        let keyed = KeyedLimiter::builder().quota(quota).clock(clock.clone()).shards(1).build().expect("valid");
        let periods = Periods { zone: TimeZone::get(zone).expect("known"), kind };
        let number = periods.number(start);
        let begun = [number - 1, number].into();
        let (queue, log) = (VecDeque::new(), Vec::new());
        let model = Model { periods, amount, level: amount, begun, next: number + 1, count: 0, queue, log };
        let (grants, waiting) = (Vec::new(), VecDeque::new());
        let mut world = World { limiter: &limiter, keyed: &keyed, clock, model, grants, waiting };
        let step = |step| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step(&mut random)));
            assert!(result.is_ok(), "seed {seed}, step {step}: {quota}");
        };
        (0..40).for_each(step);
        world.model.keeps_the_law();
        assert!(world.clock.wall() > UNIX_EPOCH);
    }
}
