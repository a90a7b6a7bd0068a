//! Calendar quotas over a store: its clock counts the periods, for all nodes.

use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;
use tollgate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreCounters, StoreError};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Periods of ten seconds, which the store's clock counts from its origin.
fn ten_seconds(amount: u64) -> Quota {
    Quota::new(amount, Duration::from_secs(10)).stepped().from_epoch()
}

fn node(store: impl Store, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).distributed(store).build().unwrap()
}

/// What the store answers to a node: tokens there, and the wait if there are none.
fn ask(store: &MemoryStore, node: u128, number: u64, terms: QuotaTerms, now: i64, want: u64) -> LeaseGrant {
    let mut ask = LeaseRequest::new(node, number, terms);
    (ask.want, ask.first, ask.useful) = (want, want, u64::MAX);
    store.answer(&ask, now as u64).unwrap()
}

/// The terms of 10 tokens, and a period of ten seconds.
fn terms(begins: i64) -> QuotaTerms {
    QuotaTerms::from_numbers(&[10, 10_000_000, 10, 10, 7, 0, begins as u64, begins as u64 + 10_000_000]).unwrap()
}

#[test]
fn a_period_begins_by_the_clock_of_the_store_and_never_twice() {
    let (first, second) = (terms(40 * SECOND), terms(50 * SECOND));
    let store = MemoryStore::new();
    let at = |store: &MemoryStore, number, terms, now, want| ask(store, 1, number, terms, now, want).now;
    // In the middle of a period; at its end nothing is promised; after several periods there is one amount.
    assert_eq!(at(&store, 1, first, 43 * SECOND, 10), 10);
    let waits = ask(&store, 1, 2, first, 50 * SECOND - 7, 4);
    assert_eq!((waits.now, waits.promised, waits.wait), (0, 0, 7));
    assert_eq!(at(&store, 3, second, 50 * SECOND, 4), 4);
    // The clock is set back over the beginning: the period goes on, up to its end, and does not begin again, also if the quota
    // gets a newer version.
    let [first, second] = [first, second].map(|terms| terms.with_version(1));
    let back = ask(&store, 1, 4, first, 49 * SECOND, 7);
    assert_eq!((back.now, back.remaining, back.wait), (0, 6, 11_000_000));
    assert_eq!(at(&store, 5, second, 50 * SECOND, 7), 0);
    assert_eq!(at(&store, 6, second, 59 * SECOND, 6), 6);
    assert_eq!(at(&store, 7, terms(90 * SECOND).with_version(1), 93 * SECOND, 10), 10);
}

#[test]
fn a_request_of_another_period_changes_nothing_and_is_told_the_clock() {
    let store = MemoryStore::new();
    let of = |begins: i64, now: i64| {
        let mut ask = LeaseRequest::new(1, 1, terms(begins));
        ask.want = 10;
        store.answer(&ask, now as u64)
    };
    for (begins, now) in [(40 * SECOND, 50 * SECOND), (50 * SECOND, 50 * SECOND - 1)] {
        assert_eq!(of(begins, now), Err(StoreError::OtherPeriod { clock: now as u64 }));
    }
    assert_eq!(of(50 * SECOND, 50 * SECOND).map(|grant| grant.now), Ok(10));
    // The store cannot tell whether later periods have begun since the one that the request says.
    assert!(of(50 * SECOND, 60 * SECOND).is_err());
}

#[test]
fn what_a_node_may_keep_when_a_period_begins_counts_in_it() {
    for (lease, first, left) in [(2_000_000, 50, 6), (2_000_000, 52, 6), (500_000, 50, 10)] {
        let store = MemoryStore::new();
        let mut keeps = LeaseRequest::new(1, 1, terms(40 * SECOND));
        (keeps.ahead, keeps.minimum, keeps.ttl) = (4, 4, lease);
        assert_eq!(store.answer(&keeps, 49 * SECOND as u64).unwrap().allowance, 4);
        // The lease of a node that is gone counts if it ended in this period, also long after.
        for (number, now) in [(1, first), (2, 58)] {
            let remaining = ask(&store, 2, number, terms(50 * SECOND), now * SECOND, 0).remaining;
            assert_eq!(remaining, left, "{lease} at {now}, first at {first}");
        }
    }
}

#[test]
fn tokens_of_an_earlier_period_do_not_return() {
    let store = MemoryStore::new();
    let (first, second) = (terms(40 * SECOND), terms(50 * SECOND));
    let took = ask(&store, 1, 1, first, 490 * SECOND / 10, 7);
    assert_eq!((took.now, took.remaining), (7, 3));
    let mut back = LeaseRequest::new(1, 2, first);
    back.back = 5;
    assert_eq!(store.answer(&back, 492 * SECOND as u64 / 10).unwrap().remaining, 8);
    assert_eq!(ask(&store, 1, 3, first, 494 * SECOND / 10, 6).now, 6);
    assert_eq!(ask(&store, 2, 1, second, 50 * SECOND, 6).remaining, 4);
    (back.number, back.back, back.terms) = (4, 6, second);
    assert_eq!(store.answer(&back, 502 * SECOND as u64 / 10).unwrap().remaining, 4);
    // Nor does an answer that was lost bring them again.
    assert_eq!(ask(&store, 1, 5, second, 590 * SECOND / 10, 4).now, 4);
    let third = terms(60 * SECOND);
    assert_eq!(ask(&store, 1, 5, third, 60 * SECOND, 4).now, 0);
    assert_eq!(ask(&store, 1, 6, third, 60 * SECOND, 10).now, 10);
}

#[test]
fn a_changed_quota_grants_no_amount_anew() {
    let plain = QuotaTerms::of(&Quota::per_second(5).burst(10)).unwrap();
    let store = MemoryStore::new();
    // Two tokens are promised when the calendar comes; it begins with none, and its next period with the amount.
    let promised = ask(&store, 1, 1, plain, 47 * SECOND, 11);
    assert_eq!((promised.now, promised.promised), (10, 1));
    let calendar = |begins| terms(begins).with_version(1);
    assert_eq!(ask(&store, 1, 2, calendar(40 * SECOND), 47 * SECOND, 1).wait, 3_000_000);
    assert_eq!(ask(&store, 1, 3, calendar(50 * SECOND), 51 * SECOND, 4).now, 4);
    // A node with the older quota is told the newer one, and goes by the period that others say.
    let told = ask(&store, 2, 1, plain, 52 * SECOND, 1);
    assert_eq!((told.now, told.terms), (0, Some(calendar(50 * SECOND))));
    let follows = QuotaTerms::from_numbers(&[10, 10_000_000, 10, 10, 7, 1, 0, 0]).unwrap();
    assert_eq!(ask(&store, 2, 2, follows, 52 * SECOND, 2).now, 2);
    let late = LeaseRequest::new(2, 3, follows);
    assert_eq!(store.answer(&late, 60 * SECOND as u64), Err(StoreError::OtherPeriod { clock: 60 * SECOND as u64 }));
    // And back: the tokens that are left stay, and no period has to be known for that.
    let back = ask(&store, 1, 4, plain.with_version(2), 75 * SECOND, 4);
    assert_eq!((back.now, back.wait), (4, 0));
    let conflict = LeaseRequest::new(3, 1, terms(70 * SECOND).with_version(2));
    assert!(matches!(store.answer(&conflict, 75 * SECOND as u64), Err(StoreError::QuotaConflict { .. })));
}

/// The lower quota makes the bucket full at once. A node with the older one would find a new bucket.
#[test]
fn a_bucket_is_remembered_for_as_long_as_before_its_quota_was_changed() {
    let day = |version, amount| {
        let ends = 20 * DAY as u64;
        QuotaTerms::from_numbers(&[amount, DAY as u64, amount, amount, 2, version, ends - DAY as u64, ends]).unwrap()
    };
    let even = |version, amount| QuotaTerms::of(&Quota::per_minute(amount)).unwrap().with_version(version);
    let noon = 19 * DAY + DAY / 2;
    for (old, new, later) in [(day(0, 60), day(1, 5), 5 * 3_600), (even(0, 60), even(1, 5), 10)] {
        let store = MemoryStore::new();
        assert_eq!(ask(&store, 1, 1, old, noon, 13).now, 13);
        assert_eq!(ask(&store, 2, 1, new, noon + SECOND, 0).remaining, 5);
        // Also if the clock is set back meanwhile, and if others ask.
        for (number, at) in [(2, noon - SECOND), (3, noon + SECOND)] {
            assert_eq!(ask(&store, 2, number, new, at, 0).remaining, 5);
        }
        let told = ask(&store, 1, 2, old, noon + later * SECOND, 60);
        assert_eq!((told.now, told.terms), (0, Some(new)));
    }
}

/// It knows no calendar, and waits until the other one says which period has begun.
#[tokio::test(start_paused = true)]
async fn a_node_with_the_older_quota_that_comes_first_in_a_period_has_no_outage() {
    for outage in [Outage::Wait, Outage::Fail, Outage::Share(Quota::per_second(10))] {
        let store = MemoryStore::new().outage(outage);
        let [old, new] = [(0, Quota::per_second(5)), (1, ten_seconds(10))]
            .map(|(version, quota)| node(store.clone().quota_version(version), quota));
        new.wait(10).await.unwrap();
        let waits = tokio::spawn(async move { old.wait(1).await });
        sleep(Duration::from_millis(10_300)).await;
        assert!(!waits.is_finished(), "{outage:?}");
        new.wait(1).await.unwrap();
        timeout(Duration::from_secs(1), waits).await.unwrap().unwrap().unwrap();
        assert_eq!(store.snapshot().outages, 0, "{outage:?}");
    }
}

/// The amounts differ, and not the calendar, which both nodes know.
#[tokio::test(start_paused = true)]
async fn a_node_with_an_older_amount_of_the_same_calendar_goes_on_alone() {
    let store = MemoryStore::new();
    let [old, new] =
        [(0, 4), (1, 10)].map(|(version, amount)| node(store.clone().quota_version(version), ten_seconds(amount)));
    old.wait(4).await.unwrap();
    assert!(new.wait(1).within(Duration::from_secs(1)).await.is_err());
    drop(new);
    for cost in [1, 9, 10] {
        timeout(Duration::from_secs(11), old.wait(cost)).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_token_of_a_long_month_comes_when_it_ends() {
    let store = MemoryStore::new();
    let begins = "2026-01-01T00:00Z".parse::<jiff::Timestamp>().unwrap();
    store.step_clock(begins.as_microsecond() + 3_600 * SECOND);
    node(store.clone(), Quota::per_calendar_month(1)).wait(1).await.unwrap();
    assert_eq!(store.snapshot().next_token.as_secs().div_ceil(3_600), 31 * 24 - 1);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_in_a_used_up_period_share_an_answer() {
    let store = MemoryStore::new();
    let [one, two] = [(); 2].map(|()| node(store.clone(), ten_seconds(10)));
    let begun = Instant::now();
    two.wait(9).await.unwrap();
    let call = async |cost| one.consume(cost).within(Duration::from_secs(1)).await.map(Grant::forget);
    let asks = store.asks();
    for _ in 0..1_000 {
        let Err(ConsumeError::TooLate { estimate, .. }) = call(2).await else { panic!("one token is left") };
        assert!(estimate > Duration::from_secs(7) && estimate <= Duration::from_secs(10), "{estimate:?}");
        sleep(Duration::from_millis(1)).await;
    }
    assert!(store.asks() <= asks + 24, "{} requests", store.asks() - asks);
    // The other node asks for the last token, does not use it, and returns it: an answer is believed for a tenth of a second.
    assert!(two.try_acquire(1).is_err());
    sleep(Duration::from_millis(10)).await;
    while call(1).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn callers_of_all_nodes_wait_for_the_period_of_the_store() {
    let store = MemoryStore::new();
    // Noon of a day in Los Angeles, by the store's clock alone.
    let noon = "2026-11-29T12:00-08:00".parse::<jiff::Timestamp>().unwrap();
    store.step_clock(noon.as_microsecond());
    let quota = Quota::per_calendar_day(5).in_time_zone("America/Los_Angeles").unwrap();
    let (one, two) = (node(store.clone(), quota), node(store.clone(), quota));
    let begun = Instant::now();
    one.wait(3).await.unwrap();
    two.wait(2).await.unwrap();
    let refused = one.consume(1).within(Duration::from_secs(11 * 3_600)).await.map(drop).unwrap_err();
    let ConsumeError::TooLate { estimate, .. } = refused else { panic!("{refused}") };
    assert_eq!(estimate.as_secs().div_ceil(3_600), 12);
    let both = tokio::join!(one.consume(2).within(Duration::from_secs(13 * 3_600)), two.wait(3));
    both.0.unwrap().forget();
    both.1.unwrap();
    let waited = begun.elapsed().as_secs_f64();
    assert!((12.0 * 3_600.0..12.0 * 3_600.0 + 1.0).contains(&waited), "{waited}");
    assert!(store.asks() < 120, "{} requests", store.asks());
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_amount_in_a_period() {
    let store = MemoryStore::new();
    let keys =
        tollgate::DistributedKeyedLimiter::<String>::builder(store.clone()).quota(ten_seconds(5)).build().unwrap();
    for period in 0..3 {
        for key in ["ann", "bob"] {
            let taken = async |cost| keys.consume(key, cost).within(Duration::from_secs(1)).await.map(drop);
            taken(3).await.unwrap();
            taken(2).await.unwrap();
            assert!(matches!(taken(1).await, Err(ConsumeError::TooLate { .. })), "{key} in period {period}");
        }
        sleep(Duration::from_millis(10_000)).await;
    }
    // A key that was refused knows when its next period begins.
    let asks = store.asks();
    keys.consume("ann", 5).await.map(drop).unwrap();
    for _ in 0..20 {
        assert!(keys.consume("ann", 1).within(Duration::from_secs(1)).await.is_err());
    }
    assert!(store.asks() <= asks + 3, "{} requests", store.asks() - asks);
    let begun = Instant::now();
    keys.consume("ann", 1).within(Duration::from_secs(11)).await.map(drop).unwrap();
    assert!(begun.elapsed() > Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn classes_share_the_amount_of_a_period() {
    let store = MemoryStore::new();
    let limiter = || Limiter::builder().quota(ten_seconds(40)).distributed(store.clone()).classes().build().unwrap();
    let granted = Arc::new([(); 2].map(|()| AtomicU64::new(0)));
    let mut callers = Vec::new();
    for (index, weight) in [3, 1].into_iter().enumerate() {
        let class = limiter().class(format!("c{index}"), Share::weight(weight)).unwrap();
        for _ in 0..80 {
            let (class, granted) = (class.clone(), Arc::clone(&granted));
            callers.push(tokio::spawn(async move {
                loop {
                    class.consume(1).await.unwrap().forget();
                    granted[index].fetch_add(1, Relaxed);
                }
            }));
        }
    }
    sleep(Duration::from_millis(100_500)).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let [three, one] = [&granted[0], &granted[1]].map(|tokens| tokens.load(Relaxed));
    assert_eq!(three + one, 11 * 40, "the whole amount of each period");
    assert!(three > 2 * one && one >= 60, "{three} and {one}");
}

/// What a node might keep, and does not have, is not held back from the next period.
#[tokio::test(start_paused = true)]
async fn a_claim_for_the_amount_is_served_beside_callers_that_do_not_wait() {
    let store = MemoryStore::new();
    let [one, two] = [(); 2].map(|()| node(store.clone(), ten_seconds(4)));
    let calls = tokio::spawn(async move {
        for _ in 0..2_000 {
            one.try_acquire(1).into_iter().for_each(Grant::forget);
            sleep(Duration::from_millis(30)).await;
        }
    });
    sleep(Duration::from_secs(5)).await;
    two.consume(4).within(Duration::from_secs(16)).await.unwrap().forget();
    calls.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_an_earlier_period_frees_nothing() {
    for (pause, then) in [(1, 3), (11, 2)] {
        let store = MemoryStore::new();
        let limiter = node(store.clone(), ten_seconds(6));
        let taken = |limiter: &Limiter, most| (0..most).map_while(|_| limiter.try_acquire(1).ok()).count();
        // The first attempt asks for tokens.
        let _ = limiter.try_acquire(3);
        sleep(Duration::from_millis(10)).await;
        let mut grant = limiter.try_acquire(3).unwrap();
        sleep(Duration::from_secs(pause)).await;
        let _ = limiter.try_acquire(2);
        sleep(Duration::from_millis(10)).await;
        let before = taken(&limiter, 2);
        grant.settle(0);
        assert!(before + taken(&limiter, 1) <= then, "after {pause} s");
    }
}

/// The node has not asked in this period yet: by its last answer, it is still in the one before.
#[tokio::test(start_paused = true)]
async fn a_refund_frees_nothing_once_its_period_is_over_whether_the_node_has_asked_or_not() {
    let store = MemoryStore::new();
    let [one, two] = [(); 2].map(|()| node(store.clone(), ten_seconds(2)));
    sleep(Duration::from_millis(9_900)).await;
    assert!(one.try_acquire(1).is_err(), "it asks for a token");
    sleep(Duration::from_millis(20)).await;
    let mut old = one.try_acquire(1).unwrap();
    sleep(Duration::from_millis(90)).await;
    one.try_acquire(1).unwrap().forget();
    old.settle(0);
    let mut granted = 1;
    for _ in 0..20 {
        granted +=
            [&one, &two].map(|node| u64::from(node.try_acquire(1).map(Grant::forget).is_ok())).iter().sum::<u64>();
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(granted, 2);
}

#[tokio::test(start_paused = true)]
async fn what_no_store_can_count_is_refused() {
    let store = MemoryStore::new();
    let build = |store: MemoryStore, quota| Limiter::builder().quota(quota).distributed(store).build().map(drop);
    let short = Quota::new(5, Duration::from_millis(999)).stepped().from_epoch();
    let share = store.clone().outage(Outage::Share(ten_seconds(1)));
    for refused in [build(store, short), build(share, Quota::per_second(1))] {
        assert!(
            matches!(refused, Err(ConfigError::BadQuota { reason: QuotaError::CalendarUnsupported { .. }, .. })),
            "{refused:?}"
        );
    }
}

/// A connection to the store that notes which periods have begun there.
#[derive(Clone, Debug)]
struct Watched {
    store: MemoryStore,
    world: Arc<World>,
    random: Arc<Mutex<Rng>>,
}

#[derive(Debug)]
struct World {
    amount: u64,
    number: fn(i64) -> i64,
    began: Instant,
    skew: Mutex<i64>,
    /// When the clock last leapt ahead. The leases of nodes end early then, for two seconds.
    leapt: Mutex<Option<Instant>>,
    /// Whether the clock was set back by more than an hour. A full bucket is remembered for so long.
    far_back: AtomicBool,
    /// For how long the store has kept its bucket.
    kept: AtomicU64,
    latency: Duration,
    losses: u32,
    /// When a request first found that a period has begun.
    seen: Mutex<Vec<(Instant, i64)>>,
    /// The tokens that may be granted in each period, less those that were and were not refunded.
    left: Mutex<BTreeMap<i64, i64>>,
}

impl World {
    fn clock(&self) -> i64 {
        self.began.elapsed().as_micros() as i64 + *self.skew.lock().unwrap()
    }

    /// The period of an answer that comes now.
    fn period(&self) -> i64 {
        let seen = self.seen.lock().unwrap();
        let answered = Instant::now() - self.latency;
        seen.iter().rev().find(|(at, _)| *at <= answered).map_or(i64::MIN, |(_, number)| *number)
    }

    /// A request finds the clock in this period.
    fn see(&self, at: Instant, number: i64, kept: u64) {
        let is_new = kept < self.kept.swap(kept, Relaxed);
        let mut seen = self.seen.lock().unwrap();
        // One new bucket after the other has been kept for no time.
        let begins = |last| number > last || is_new || kept == 0 && number < last;
        if seen.last().is_none_or(|(_, last)| begins(*last)) {
            seen.push((at, number));
            if self.left.lock().unwrap().contains_key(&number) && !self.far_back.load(Relaxed) {
                return;
            }
            let leapt = self.leapt.lock().unwrap().is_some_and(|then| at - then < Duration::from_millis(2_500));
            let extra = if leapt { self.amount / 2 } else { 0 };
            self.left.lock().unwrap().insert(number, (self.amount + extra) as i64);
        }
    }

    fn note(&self, period: i64, tokens: i64) {
        let mut left = self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let rest = left.get_mut(&period).expect("tokens come with a period");
        *rest -= tokens;
        assert!(*rest >= 0, "{} tokens too many of {} in period {period}", -*rest, self.amount);
    }
}

impl Store for Watched {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let world = &*self.world;
            sleep(world.latency).await;
            let (now, number) = (Instant::now(), (world.number)(world.clock()));
            let answer = self.store.ask(ask).await;
            if let Ok(answer) = &answer {
                world.see(now, number, answer.clock);
            }
            sleep(world.latency).await;
            if world.losses > 0 && self.random.lock().unwrap().u32(..world.losses) == 0 {
                return Err(StoreError::Unreachable("the answer was lost".to_owned()));
            }
            answer
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }
}

/// One call: tokens at once or by waiting, of which some return later.
async fn call(limiter: Limiter, world: Arc<World>, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let cost = random.u64(1..=world.amount);
    let grant = match random.u32(..4) {
        0 | 1 => limiter.try_acquire(cost.min(1 + world.amount / 4)).ok(),
        2 => limiter.consume(cost).within(Duration::from_millis(random.u64(..60_000) >> random.u32(..6))).await.ok(),
        _ => timeout(Duration::from_secs(random.u64(..40)), limiter.consume(cost)).await.ok().map(Result::unwrap),
    };
    let Some(mut grant) = grant else { return };
    let period = world.period();
    world.note(period, grant.cost() as i64);
    if random.bool() {
        sleep(Duration::from_millis(random.u64(..20_000) >> random.u32(..8))).await;
        let rest = random.u64(..grant.cost());
        let back = grant.cost() - rest;
        let now = world.period();
        if now == period {
            world.note(period, -(back as i64));
        }
        grant.settle(rest);
    }
    grant.forget();
}

async fn history(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let amount = [1, 3, 10, 60][random.usize(..4)];
    let (quota, number, period): (Quota, fn(i64) -> i64, i64) = match random.u32(..3) {
        0 => (Quota::per_calendar_hour(amount), |clock| clock.div_euclid(3_600 * SECOND), 3_600 * SECOND),
        1 => (
            Quota::per_calendar_day(amount).in_time_zone("Asia/Tokyo").unwrap(),
            |clock| (clock + 9 * 3_600 * SECOND).div_euclid(DAY),
            DAY,
        ),
        _ => (ten_seconds(amount), |clock| clock.div_euclid(10 * SECOND), 10 * SECOND),
    };
    let store = MemoryStore::new();
    let skew = random.i64(20 * DAY..400 * DAY);
    store.step_clock(skew);
    let world = Arc::new(World {
        amount,
        number,
        began: Instant::now(),
        skew: Mutex::new(skew),
        leapt: Mutex::default(),
        far_back: AtomicBool::default(),
        kept: AtomicU64::default(),
        latency: Duration::from_millis([0, 0, 3, 80][random.usize(..4)]),
        losses: [0, 0, 8][random.usize(..3)],
        seen: Mutex::default(),
        left: Mutex::default(),
    });
    let open = |seed| {
        let random = Arc::new(Mutex::new(Rng::with_seed(seed)));
        node(Watched { store: store.beside("one"), world: world.clone(), random }, quota)
    };
    let mut nodes: Vec<Limiter> = (0..random.u64(1..5)).map(&open).collect();
    let mut calls = Vec::new();
    for step in 0..60 {
        let chosen = random.usize(..nodes.len());
        for _ in 0..random.u32(..4) {
            calls.push(tokio::spawn(call(nodes[chosen].clone(), world.clone(), random.u64(..))));
        }
        match random.u32(..12) {
            0 => {
                // What was granted at this instant is noted first.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                let by = random.i64(-3 * period..3 * period) >> random.u32(..8);
                *world.skew.lock().unwrap() += by;
                world.far_back.fetch_or(by < -3_600 * SECOND, Relaxed);
                if by > 0 {
                    *world.leapt.lock().unwrap() = Some(Instant::now());
                }
                store.step_clock(by);
            }
            1 => nodes[chosen] = open(1_000 + step),
            // To just before the end of a period, and beyond.
            2..6 => {
                let rest = Duration::from_micros((period - world.clock().rem_euclid(period)) as u64);
                sleep(rest.saturating_sub(Duration::from_millis(random.u64(..3)))).await;
            }
            _ => {}
        }
        sleep(Duration::from_micros(random.u64(..2 * period as u64) >> random.u32(..20))).await;
    }
    try_join_all(calls).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_period_grants_more_than_its_amount() {
    for seed in 0..crate::oracle::ops::cases(300).into() {
        let history = timeout(Duration::from_secs(1_000 * 86_400), history(seed));
        let outcome = tokio::spawn(history).await;
        assert!(matches!(outcome, Ok(Ok(()))), "seed {seed}: {outcome:?}");
    }
}

/// Eight hours after midnight the store's clock is set to the next midnight.
#[tokio::test(start_paused = true)]
async fn a_clock_of_a_store_that_was_set_is_noticed_by_a_claim_on_a_key_within_a_minute() {
    let store = MemoryStore::new();
    let quota = Quota::new(2, Duration::from_secs(86_400)).stepped().from_epoch();
    let users = DistributedKeyedLimiter::builder(store.clone()).quota(quota).build().unwrap();
    let soon = Duration::from_secs(1);
    drop(users.consume(&1, 2).await.unwrap());
    sleep(Duration::from_secs(8 * 3_600)).await;
    for _ in 0..2 {
        assert!(matches!(users.consume(&1, 1).within(soon).await, Err(ConsumeError::TooLate { .. })));
    }
    store.step_clock(DAY * 16 / 24);
    sleep(Duration::from_secs(60)).await;
    drop(users.consume(&1, 1).within(soon).await.unwrap());
}
