//! Several quotas for each key: the levels equal 128-bit integer arithmetic, however a key is stored and for however
//! long it is unused, and a claim takes from all quotas or from none.

use super::manual;
use crate::fixture::*;
use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::ops::{continuous, stepped};
use crate::oracle::{Bucket, Int, Rule};
use std::hash::RandomState;
use tollgate::Which;

const KEYS: u64 = 12;
const SECOND: Int = 1_000_000_000;
const HOUR: Int = 3_600 * SECOND;
const DAY: Int = 24 * HOUR;
const YEAR: Int = 365 * DAY;
/// All histories end before the limiter's clock does, after 584 years.
const END: Int = 400 * YEAR;

fn one_of<T: Copy>(dice: &mut Rng, choices: &[T]) -> T {
    choices[dice.usize(..choices.len())]
}

/// Rates with packed levels that can be read for decades, for hours or for two seconds, or that have none.
fn rule(dice: &mut Rng) -> Rule {
    let rates = [
        (1, SECOND),
        (10, SECOND),
        (999, SECOND),
        (1_000_003, SECOND),
        (999_999_937, SECOND),
        (1_000_003, DAY),
        (7, 3 * SECOND),
        (3, 2),
        (1_000_000_000, 1),
        (1, 30 * DAY),
        (999_999_893, 999_999_937),
    ];
    let (amount, period) = one_of(dice, &rates);
    let burst = one_of(dice, &[1, 5, 999, 1_000_003, 1 << 40]);
    let is_stepped = amount <= burst && dice.u8(..4) == 0;
    if is_stepped { stepped(amount, period, burst, burst) } else { continuous(amount, period, burst, burst) }
}

fn rules(dice: &mut Rng) -> Vec<Rule> {
    (0..one_of(dice, &[1, 1, 1, 2, 2, 2, 3, 4])).map(|_| rule(dice)).collect()
}

fn quotas(rules: &[Rule]) -> Quotas {
    rules.iter().copied().map(quota).collect()
}

/// The buckets of a key. Periods are counted from the beginning of the clock, whenever a quota came.
#[derive(Clone, Debug)]
struct Subject {
    rules: Vec<Rule>,
    buckets: Vec<Bucket>,
    now: Int,
    own: bool,
}

impl Subject {
    fn new(rules: &[Rule], now: Int) -> Self {
        let mut subject = Self { rules: Vec::new(), buckets: Vec::new(), now, own: false };
        subject.adopt(rules);
        subject
    }

    fn come_to(&mut self, now: Int) {
        self.buckets.iter_mut().for_each(|bucket| bucket.mint(self.now, now, None));
        self.now = now;
    }

    fn tokens(&self) -> Int {
        self.buckets.iter().map(|bucket| bucket.level).min().unwrap()
    }

    fn burst(&self) -> Int {
        self.buckets.iter().map(|bucket| bucket.rule.burst).min().unwrap()
    }

    fn waits(&self, cost: Int) -> impl Iterator<Item = Option<Int>> {
        self.buckets.iter().map(move |bucket| bucket.when(self.now, cost).map(|at| at - self.now))
    }

    fn wait(&self, cost: Int) -> Option<Duration> {
        let waits: Option<Vec<Int>> = self.waits(cost).collect();
        waits.map(|waits| nanoseconds(waits.into_iter().max().unwrap()))
    }

    /// The quota with the longest wait; of several, the first.
    fn obstacle(&self, cost: Int) -> usize {
        let waits: Vec<Int> = self.waits(cost).map(|wait| wait.unwrap_or(Int::MAX)).collect();
        let longest = waits.iter().max().unwrap();
        waits.iter().position(|wait| wait == longest).unwrap()
    }

    fn charge(&mut self, tokens: Int) {
        self.buckets.iter_mut().for_each(|bucket| bucket.level -= tokens);
    }

    fn refund(&mut self, tokens: Int) {
        self.buckets.iter_mut().for_each(|bucket| bucket.add(tokens, bucket.rule.burst));
        self.come_to(self.now);
    }

    fn adopt(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
        self.buckets.truncate(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            match self.buckets.get_mut(index) {
                Some(bucket) => bucket.change(*rule, self.now, None),
                None => self.buckets.push(Bucket::new(*rule, self.now)),
            }
            self.buckets[index].origin = 0;
        }
        self.come_to(self.now);
    }

    fn owes_nothing(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.level >= bucket.rule.burst)
    }
}

struct World {
    keyed: KeyedLimiter<u64>,
    clock: ManualClock,
    now: Int,
    /// The quotas of new keys, which `quota_by` reads.
    rules: Arc<Mutex<HashMap<u64, Vec<Rule>>>>,
    by_key: bool,
    subjects: HashMap<u64, Subject>,
}

impl World {
    fn new(by_key: bool, dice: &mut Rng) -> Self {
        let clock = ManualClock::new();
        let common = rules(dice);
        let rules: HashMap<u64, Vec<Rule>> =
            (0..KEYS).map(|key| (key, if by_key { rules(dice) } else { common.clone() })).collect();
        let subjects = rules.iter().map(|(key, rules)| (*key, Subject::new(rules, 0))).collect();
        let rules = Arc::new(Mutex::new(rules));
        let mut builder = KeyedLimiter::builder().clock(clock.clone()).shards(dice.usize(1..3));
        builder = if by_key {
            let rules = rules.clone();
            builder.quota_by(move |key| quotas(&rules.lock().unwrap()[key]))
        } else {
            builder.quotas(quotas(&common))
        };
        if dice.bool() {
            builder = builder.max_keys(KEYS);
        }
        Self { keyed: builder.build().unwrap(), clock, now: 0, rules, by_key, subjects }
    }

    fn rest(&mut self, span: Int) {
        let span = span.min(END - self.now);
        self.clock.advance(nanoseconds(span));
        self.now += span;
        self.subjects.values_mut().for_each(|subject| subject.come_to(self.now));
    }

    fn subject(&mut self, key: u64) -> &mut Subject {
        self.subjects.get_mut(&key).unwrap()
    }

    fn set_quota(&mut self, rules: Vec<Rule>) {
        self.keyed.set_quota(quotas(&rules)).unwrap();
        for subject in self.subjects.values_mut().filter(|subject| !subject.own) {
            if subject.owes_nothing() {
                *subject = Subject::new(&rules, self.now);
            } else {
                subject.adopt(&rules);
            }
        }
        self.rules.lock().unwrap().values_mut().for_each(|own| own.clone_from(&rules));
        self.by_key = false;
    }

    /// Changes the quotas by key. The limiter is notified, or learns it only when a key is new.
    fn renew(&mut self, dice: &mut Rng) {
        if !self.by_key {
            return self.keyed.renew_quotas();
        }
        // It must not matter whether a key was removed or not, so all keys are in debt.
        for key in 0..KEYS {
            let when = "before a renewal";
            let cost = self.subject(key).tokens().clamp(1, 1 << 40);
            self.take(key, cost, cost, when);
        }
        let renewed: HashMap<u64, Vec<Rule>> = (0..KEYS).map(|key| (key, rules(dice))).collect();
        self.rules.lock().unwrap().clone_from(&renewed);
        self.keyed.renew_quotas();
        for (key, subject) in self.subjects.iter_mut().filter(|(_, subject)| !subject.own) {
            subject.adopt(&renewed[key]);
        }
    }

    /// Takes `cost` tokens, and settles the grant for `actual`.
    fn take(&mut self, key: u64, cost: Int, actual: Int, when: &str) {
        let keyed = self.keyed.clone();
        let subject = self.subject(key);
        let expected = subject.tokens() >= cost && cost <= subject.burst();
        match keyed.try_acquire(&key, unsigned(cost)) {
            Ok(mut grant) => {
                assert!(expected, "granted {cost} of {subject:?}, {when}");
                assert_eq!(Int::from(grant.remaining()), subject.tokens() - cost, "{subject:?}, {when}");
                grant.settle(&key, unsigned(actual));
                subject.charge(cost);
                if actual > cost {
                    subject.charge(actual - cost);
                } else {
                    subject.refund(cost - actual);
                }
            }
            Err(TryAcquireError::Denied(Denied { retry_after, remaining, by, .. })) => {
                assert!(!expected, "denied {cost} of {subject:?}, {when}");
                let observed = (retry_after, Int::from(remaining), by);
                let by = Bound::Quota(subject.obstacle(cost));
                let expected = (subject.wait(cost), subject.tokens().max(0), by);
                assert_eq!(observed, expected, "{cost} of {subject:?}, {when}");
            }
            Err(TryAcquireError::TooLarge { most, .. }) => assert_eq!(Int::from(most), subject.burst(), "{when}"),
            Err(other) => panic!("{other:?}, {when}"),
        }
    }

    fn look(&mut self, key: u64, when: &str) {
        let keyed = self.keyed.clone();
        let subject = self.subject(key);
        let tokens = subject.tokens();
        let seen = (Int::from(keyed.available(&key)), Int::from(keyed.deficiency(&key)));
        assert_eq!(seen, (tokens.max(0), (-tokens).max(0)), "key {key}, {subject:?}, {when}");
        // To the nanosecond, and so to the fraction of a token.
        for cost in [1, subject.burst().min(1 << 48), (tokens + 1).clamp(1, 1 << 48)] {
            let wait = subject.wait(cost);
            assert_eq!(keyed.estimate(&key, unsigned(cost)), wait, "{cost} of key {key}, {subject:?}, {when}");
        }
        assert_eq!(keyed.quotas(&key), quotas(&subject.rules), "key {key}, {when}");
        // Each quota by itself, not only the one with the least tokens.
        let snapshots = keyed.quota_snapshots(&key);
        let seen: Vec<_> = snapshots.iter().map(|quota| (Int::from(quota.level), quota.more_in)).collect();
        let expected = subject.buckets.iter().map(|bucket| {
            let next = bucket.when(subject.now, bucket.level.max(0) + 1);
            (bucket.level, next.map(|at| nanoseconds(at - subject.now)))
        });
        assert_eq!(seen, expected.collect::<Vec<_>>(), "key {key}, {when}");
    }

    fn act(&mut self, dice: &mut Rng, when: &str) {
        let key = dice.u64(..KEYS);
        let (burst, tokens) = (self.subject(key).burst(), self.subject(key).tokens());
        match dice.u8(..18) {
            // Whole bursts show a bucket that is read wrongly.
            0..3 => self.take(key, burst, burst, when),
            3..6 => {
                let cost = tokens.max(1);
                self.take(key, cost, cost, when);
            }
            6 => {
                let cost = dice.i128(1..=burst);
                self.take(key, cost, dice.i128(0..=cost), when);
            }
            7 => {
                let most = one_of(dice, &[1 << 4, 1 << 20, 1 << 47]);
                self.take(key, 1, 1 + dice.i128(1..=most), when);
            }
            8 => {
                // The key gets a live entry, and becomes packed levels again. No claim can be larger.
                let cost = unsigned((tokens + 1).clamp(1, 1 << 48));
                assert_pending!(task::spawn(self.keyed.consume(&key, cost)).poll());
            }
            9..13 => {
                let scale = one_of(dice, &[2, 1_000, SECOND, 4 * SECOND, 10 * HOUR, 200 * DAY, YEAR, 20 * YEAR]);
                self.rest(dice.i128(1..=scale));
            }
            13 if dice.u8(..3) == 0 => {
                // Several changes in a row without a call in between: each applies from its own instant on.
                for _ in 0..one_of(dice, &[1, 1, 2, 5, 40]) {
                    self.set_quota(rules(dice));
                    let scale = one_of(dice, &[1, 1_000, SECOND, DAY]);
                    self.rest(dice.i128(0..scale));
                }
            }
            14 if dice.u8(..3) == 0 => {
                let rules = rules(dice);
                self.keyed.set_quota_for(&key, quotas(&rules)).unwrap();
                self.subject(key).adopt(&rules);
                self.subject(key).own = true;
            }
            15 if self.subject(key).own => {
                self.keyed.reset_quota_for(&key);
                let rules = self.rules.lock().unwrap()[&key].clone();
                self.subject(key).adopt(&rules);
                self.subject(key).own = false;
            }
            16 if dice.u8(..4) == 0 => self.renew(dice),
            _ => self.look(key, when),
        }
    }
}

fn histories(by_key: bool) {
    for seed in 0..2_500 {
        let mut dice = Rng::with_seed(seed);
        let mut world = World::new(by_key, &mut dice);
        for step in 0..60 {
            world.act(&mut dice, &format!("by key: {by_key}, seed {seed}, step {step}"));
        }
        (0..KEYS).for_each(|key| world.look(key, &format!("by key: {by_key}, seed {seed}, at the end")));
    }
}

#[test]
fn levels_of_several_common_quotas_are_exact_after_any_idle_time() {
    histories(false);
}

#[test]
fn levels_of_several_quotas_by_key_are_exact_after_any_idle_time() {
    histories(true);
}

/// Each sweep finds another key full, and comes before the window of the first quota ends.
#[test]
fn a_full_bucket_beside_one_in_debt_stays_readable() {
    let clock = ManualClock::new();
    let fast = Quota::new(1_000_000_000, Duration::from_nanos(1)).burst(1_000);
    let builder = KeyedLimiter::builder().quota(fast).quota(Quota::per_second(1).burst(1_000)).shards(1);
    let keyed = builder.clock(clock.clone()).build().unwrap();
    drop(keyed.try_acquire(&1, 900).unwrap());
    for second in 1..20 {
        drop(keyed.try_acquire(&2, 1).unwrap());
        clock.advance(Duration::from_secs(1));
        keyed.tick();
        assert_eq!((keyed.snapshot().keys, keyed.available(&1)), (1, 100 + second));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_retimed_when_a_quota_is_added_and_when_it_is_removed() {
    let one = Quota::per_second(1).burst(1);
    let keyed = KeyedLimiter::new(one).unwrap();
    drop(keyed.try_acquire(&1, 1).unwrap());
    let mut waiting = pending(keyed.consume(&1, 2));
    // Due in two seconds by the first quota. The second quota has one token, and gets the next in an hour.
    keyed.set_quota([one, Quota::per_hour(1)]).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_pending!(waiting.poll());
    keyed.set_quota(one).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(assert_ready!(waiting.poll()).is_ok());
}

/// Of a key without an entry, with levels, with waiters and in a closed set of quotas of its own.
#[test]
fn one_quota_of_a_key_changes_and_the_other_keeps_its_limit_and_its_level() {
    let (keyed, clock) =
        manual(|it| it.quota(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000)).max_keys(3));
    let quotas = |key: &str| keyed.quotas(&key.to_owned()).to_string();
    let [new, owing, waiting] = ["new", "owing", "waiting"].map(str::to_owned);
    drop(keyed.try_acquire(&owing, 4).unwrap());
    drop(keyed.try_acquire(&waiting, 10).unwrap());
    let mut claim = pending(keyed.consume(&waiting, 1));
    for key in [&new, &owing, &waiting] {
        keyed.set_one_quota_for(key, 0, Quota::per_second(20)).unwrap();
        assert_eq!(quotas(key), "20/s; day: 1000/d");
    }
    let days = [&new, &owing, &waiting].map(|key| keyed.quota_snapshots(key)[1].level);
    assert_eq!(days, [1_000, 996, 990], "the tokens of the other quota stay");
    tick_after(&clock, &keyed, Duration::from_millis(50));
    assert!(assert_ready!(claim.poll()).is_ok(), "the waiter is timed anew");
    keyed.set_one_quota_for(&owing, "day", Quota::per_day(5)).unwrap();
    assert_eq!(quotas("owing"), "20/s; day: 5/d");
    assert_eq!(quotas("other"), "10/s; day: 1000/d");
    let refusal = |which: Which<'_>, quota| keyed.set_one_quota_for(&owing, which, quota).unwrap_err();
    let unknown = |which: &str| ConfigError::UnknownQuota { which: which.to_owned(), count: 2 };
    assert_eq!(refusal(2.into(), Quota::per_day(5)), unknown("2"));
    assert_eq!(refusal("hour".into(), Quota::per_day(5)), unknown("`hour`"));
    assert_eq!(
        refusal(1.into(), Quota::manual(5)),
        ConfigError::BadQuota { quota: 1, quota_name: Some("day"), reason: QuotaError::KeyedManual }
    );
    assert_eq!(
        keyed.set_one_quota_for(&"other".to_owned(), 0, Quota::per_day(5)),
        Err(ConfigError::TooManyKeys { most: 3 })
    );
    assert_eq!(quotas("owing"), "20/s; day: 5/d", "nothing has changed");
}

#[test]
fn no_builder_overwrites_a_setting_silently() {
    let quota = Quota::per_second(1);
    let parent = Limiter::new(quota).unwrap();
    let keyed = || KeyedLimiter::<u8>::builder().quota(quota);
    let errors = [
        ("max_keys", keyed().max_keys(5).max_keys(6).build().err()),
        ("max_in_flight", keyed().max_in_flight(5).max_in_flight(5).build().err()),
        ("max_waiting", keyed().max_waiting(5).max_waiting(6).build().err()),
        ("parent", keyed().parent(&parent).parent(&parent).build().err()),
        ("clock", keyed().clock(ManualClock::new()).clock(ManualClock::new()).build().err()),
        ("hasher", keyed().hasher(RandomState::new()).hasher(RandomState::new()).build().err()),
        ("weight_by", keyed().weight_by(|_| 1).weight_by(|_| 2).build().err()),
        ("quota_by", KeyedLimiter::<u8>::builder().quota_by(move |_| quota).quota_by(move |_| quota).build().err()),
    ];
    let limiter = || Limiter::builder().quota(quota);
    let of_limiters = [
        ("max_in_flight", limiter().max_in_flight(5).max_in_flight(6).build().err()),
        ("max_waiting", limiter().max_waiting(5).max_waiting(6).build().err()),
        ("clock", limiter().clock(ManualClock::new()).clock(ManualClock::new()).build().err()),
    ];
    for (setting, error) in errors.into_iter().chain(of_limiters) {
        assert_eq!(error, Some(ConfigError::SetTwice { setting }));
    }
    assert_eq!(keyed().quota_by(move |_| quota).build().err(), Some(ConfigError::QuotaAndQuotaBy));
    let five = KeyedLimiter::<u8>::builder().quotas(vec![quota; 5]).build().err();
    assert_eq!(five, Some(ConfigError::TooManyQuotas { count: 5, most: 4 }));
    let named = keyed().quota_named("day", quota).quota_named("day", quota).build().err();
    assert_eq!(named, Some(ConfigError::DuplicateName { name: "day".to_owned() }));
    assert_eq!(KeyedLimiter::<u8>::new(Quotas::default()).err(), Some(ConfigError::NoQuota));
}

#[test]
fn a_cap_alone_needs_no_quota() {
    let keyed = KeyedLimiter::<u8>::builder().max_in_flight(2).clock(ManualClock::new()).build().unwrap();
    for _ in 0..1_000 {
        let held = [keyed.try_acquire(&1, 1).unwrap(), keyed.try_acquire(&1, 1).unwrap()];
        let refusal = keyed.try_acquire(&1, 1).map(drop);
        assert!(matches!(refusal, Err(TryAcquireError::Denied(denied)) if denied.by == Bound::InFlight), "{refusal:?}");
        assert!(keyed.try_acquire(&2, 2).is_ok());
        let mut waiting = pending(keyed.consume(&1, 1));
        drop(held);
        assert!(assert_ready!(waiting.poll()).is_ok());
    }
    assert_eq!(
        keyed.try_acquire(&1, 3).map(drop),
        Err(TryAcquireError::TooLarge { cost: 3, most: 2, by: Bound::InFlight, quota_name: None })
    );
    assert_eq!(KeyedLimiter::<u8>::builder().build().err(), Some(ConfigError::NoQuota));
}
