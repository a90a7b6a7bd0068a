//! Stores that panic, or answer what no store can mean, for a while: the limiter goes on afterwards.

use super::nodes::{limiter, millis};
use crate::fixture::*;
use tollgate::distributed::{ClassGrant, LeaseGrant, LeaseRequest, ReplyKind, Store, StoreCounters, StoreError};

/// What goes wrong in the first requests.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Panic,
    /// Panics before the request is sent.
    PanicBefore,
    /// The next read of the counters panics, once the request is answered.
    Counters,
    /// This number of the answer, in the order of the script, is another one.
    Number(usize, u64),
}

/// A store that is damaged for so many requests.
#[derive(Clone, Debug)]
struct Damaged {
    store: MemoryStore,
    damage: Damage,
    left: Arc<AtomicU64>,
    counters_panic: Arc<AtomicU64>,
}

impl Damaged {
    fn new(damage: Damage, requests: u64) -> Self {
        let store = store_at(millis(1));
        Self { store, damage, left: Arc::new(AtomicU64::new(requests)), counters_panic: Arc::default() }
    }

    fn is_damaged(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Store for Damaged {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let classes = ask.classes.len();
            if matches!(self.damage, Damage::PanicBefore) && self.is_damaged() {
                std::panic::resume_unwind(Box::new("a store that fails"));
            }
            let mut answer = self.store.ask(ask).await?;
            match self.damage {
                Damage::Panic if self.is_damaged() => {
                    // Not `panic!`: the panic is intended, and its message would only clutter the output.
                    std::panic::resume_unwind(Box::new("a store that fails"));
                }
                Damage::Counters if self.is_damaged() => self.counters_panic.store(1, Relaxed),
                Damage::Number(at, number) if at < 13 + 4 * classes && self.is_damaged() => {
                    let LeaseGrant { before, age, now, promised, queued_before, phase, .. } = answer;
                    let LeaseGrant { wait, part, allowance, nodes, remaining, last, clock, .. } = answer;
                    let mut numbers = vec![before, age, now, promised, queued_before, phase, wait];
                    numbers.extend([part, allowance, nodes, remaining, last, clock]);
                    let row = |class: &ClassGrant| [class.given, class.wait, class.sleep, class.part];
                    numbers.extend(answer.classes.iter().flat_map(row));
                    numbers[at] = number;
                    answer = LeaseGrant::from_numbers(&numbers, classes).unwrap();
                }
                _ => {}
            }
            Ok(answer)
        })
    }

    fn tally(&self) -> &StoreCounters {
        if self.counters_panic.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("counters that fail"));
        }
        self.store.tally()
    }
}

/// Ten claims, one after the other, and how long they took.
async fn consume_ten(limiter: &Limiter, what: &str) -> std::time::Duration {
    let began = Instant::now();
    for _ in 0..10 {
        timeout(millis(60_000), limiter.wait(7)).await.unwrap_or_else(|_| panic!("{what}: a claim hangs")).unwrap();
    }
    began.elapsed()
}

/// Waiters spawn the next refill task when one has panicked. If that went on without a pause, they would keep a processor busy
/// for as long as the store panics.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_asked_again_after_a_pause() {
    let store = Damaged::new(Damage::Panic, 3);
    let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(10)).distributed(store).build().unwrap();
    let took = consume_ten(&limiter, "a store that panics").await;
    assert!(took >= millis(3 * 500), "three pauses, but {took:?}");
}

/// The bucket has filled up without them: others would get them once more.
#[tokio::test(start_paused = true)]
async fn what_did_not_return_because_the_store_panicked_returns_no_later() {
    let damaged = Damaged::new(Damage::PanicBefore, 0);
    let quota = Quota::per_second(1_000).burst(100);
    let (node, other) = (limiter(&damaged, quota), limiter(&damaged.store, quota));
    // Gives up while the answer is on its way.
    let waiting = pending(node.consume(100));
    sleep(Duration::from_micros(1_500)).await;
    drop(waiting);
    damaged.left.store(1, Relaxed);
    sleep(millis(485)).await;
    assert_eq!((damaged.store.snapshot().granted, damaged.left.load(Relaxed)), (100, 0));
    // The next refill task sends its request 500 ms after the panic.
    let began = Instant::now();
    other.wait(60).await.unwrap();
    assert!(began.elapsed() <= millis(10), "the bucket is full again");
    other.wait(90).await.unwrap();
    assert!(began.elapsed() >= millis(50), "150 tokens in {:?}", began.elapsed());
}

/// The limiter has the tokens already when the loss of the store's state is counted. The next refill task must not pass the
/// same answer on again.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_once_if_the_counters_panic_after_it() {
    let damaged = Damaged::new(Damage::Counters, 0);
    let builder = Limiter::builder().quota(Quota::per_hour(10)).distributed(damaged.clone());
    let limiter = builder.build().unwrap();
    for is_new in [false, true] {
        damaged.store.forget();
        damaged.left.store(u64::from(is_new), Relaxed);
        let mut granted = 0;
        while timeout(millis(60_000), limiter.wait(1)).await.is_ok() {
            granted += 1;
        }
        assert_eq!(granted, 10);
    }
    assert_eq!(damaged.left.load(Relaxed), 0);
}

/// A place that was not counted, because the counters panicked, was taken for one that was: it was never counted, and counted off
/// when it ended.
#[tokio::test(start_paused = true)]
async fn a_place_is_counted_as_long_as_there_is_one_though_the_counters_panic() {
    let damaged = Damaged::new(Damage::Counters, 0);
    let places = || damaged.store.snapshot().places;
    let limiter = Limiter::builder().quota(Quota::per_minute(10)).distributed(damaged.clone()).build().unwrap();
    limiter.wait(10).await.unwrap();
    // The counters panic after the first two answers; the second gives a place, and a later one tells of it again.
    damaged.left.store(2, Relaxed);
    let mut waiting = pending(limiter.clone().consume_owned(3));
    sleep(millis(3_000)).await;
    assert!(!waiting.is_woken() || waiting.poll().is_pending());
    sleep(millis(3_000)).await;
    assert_eq!((damaged.left.load(Relaxed), places()), (0, 1));
    drop((waiting, limiter));
    sleep(millis(3_000)).await;
    assert_eq!(places(), 0);
}

/// A second panic, while the task ended because of the first one, aborted the process.
#[tokio::test(start_paused = true)]
async fn a_limiter_in_an_outage_or_with_a_place_may_end_while_the_counters_panic() {
    for is_outage in [false, true] {
        let damaged = Damaged::new(Damage::Number(0, if is_outage { u64::MAX } else { 0 }), 0);
        let limiter = Limiter::builder().quota(Quota::per_minute(10)).distributed(damaged.clone()).build().unwrap();
        limiter.wait(10).await.unwrap();
        damaged.left.store(if is_outage { u64::MAX } else { 0 }, Relaxed);
        let waiting = pending(limiter.clone().consume_owned(3));
        sleep(millis(3_000)).await;
        let seen = damaged.store.snapshot();
        assert_eq!((seen.is_out, seen.places), (is_outage, u64::from(!is_outage)));
        damaged.counters_panic.store(u64::MAX, Relaxed);
        sleep(millis(3_000)).await;
        drop((waiting, limiter));
        sleep(millis(3_000)).await;
        assert!(damaged.counters_panic.load(Relaxed) < u64::MAX);
        assert!(!damaged.store.snapshot().is_out);
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_that_no_store_can_mean_are_errors_and_the_limiter_goes_on_after_them() {
    for at in 0..17 {
        for number in [u64::MAX, 1 << 63, (1 << 53) + 1] {
            let damaged = Damaged::new(Damage::Number(at, number), 2);
            let store = damaged.store.clone();
            let builder = Limiter::builder().quota(Quota::per_second(1_000).burst(10)).distributed(damaged);
            let limiter = if at < 13 { builder.build() } else { builder.classes().build() }.unwrap();
            consume_ten(&limiter, &format!("number {at} is {number}")).await;
            assert_eq!(store.snapshot().error_replies(ReplyKind::Damaged), 2, "number {at} is {number}");
        }
    }
}
