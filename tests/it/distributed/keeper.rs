//! The refill task: its runtime, changes during a request, and the effect of one slow answer.

use super::link::{Cut, Link};
use super::nodes::{limiter, millis, nodes, one_node};
use crate::fixture::*;
use tokio::runtime::{Builder, Runtime};
use tollgate::distributed::StoreSnapshot;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Longer than any test takes: a claim that waits that long hangs.
const FOR_EVER: Duration = Duration::from_secs(600);

/// A limiter of 1,000 tokens a second that is built on `runtime`, which has its refill task, and its store.
fn built_on(runtime: &Runtime) -> (MemoryStore, Limiter) {
    runtime.block_on(async {
        let store = MemoryStore::new();
        let limiter = limiter(&store, Quota::per_second(1_000).burst(10));
        (store, limiter)
    })
}

/// Runs what is ready, and what is due within 10 ms.
fn run(runtime: &Runtime) {
    runtime.block_on(async { sleep(millis(10)).await });
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Limiter,
    Class,
    Key,
    /// With a cap each key has a queue of its own.
    CappedKey,
}

/// What takes tokens of a limiter, itself or through it.
#[derive(Clone)]
enum Taker {
    Limiter(Limiter),
    Class(Class),
    Key(KeyedLimiter<u32>),
}

impl Taker {
    /// On the limiter that is built on `runtime`, and its store.
    fn built_on(runtime: &Runtime, kind: Kind) -> (MemoryStore, Self) {
        let store = runtime.block_on(async { MemoryStore::new() });
        let builder = Limiter::builder().quota(Quota::per_second(1_000).burst(10)).distributed(store.clone());
        let builder = if matches!(kind, Kind::Class) { builder.classes() } else { builder };
        let limiter = runtime.block_on(async { builder.build().unwrap() });
        let keys = KeyedLimiter::builder().parent(&limiter);
        let taker = match kind {
            Kind::Limiter => Self::Limiter(limiter),
            Kind::Class => Self::Class(limiter.class("class", Share::weight(1)).unwrap()),
            Kind::Key => Self::Key(keys.build().unwrap()),
            Kind::CappedKey => Self::Key(keys.max_in_flight(10).build().unwrap()),
        };
        (store, taker)
    }

    async fn wait(self, cost: u64) {
        match self {
            Self::Limiter(limiter) => limiter.wait(cost).await.unwrap(),
            Self::Class(class) => class.wait(cost).await.unwrap(),
            Self::Key(keys) => drop(keys.consume(&1, cost).await.unwrap()),
        }
    }

    fn takes(&self, cost: u64) -> bool {
        match self {
            Self::Limiter(limiter) => limiter.try_acquire(cost).is_ok(),
            Self::Class(class) => class.try_acquire(cost).is_ok(),
            Self::Key(keys) => keys.try_acquire(&1, cost).is_ok(),
        }
    }
}

/// The waiter of a key waits in its parent through a proxy without a waker. The driver of the parent starts the refill
/// task again.
#[test]
fn a_waiter_at_the_end_of_the_building_runtime_is_served() {
    for kind in [Kind::Limiter, Kind::Class, Kind::Key] {
        let (first, second) = (runtime(), runtime());
        let (store, taker) = Taker::built_on(&first, kind);
        store.set_reachable(false);
        let waiting = second.spawn(taker.clone().wait(5));
        run(&second);
        run(&first);
        drop(first);
        store.set_reachable(true);
        let served = second.block_on(async { timeout(FOR_EVER, waiting).await });
        served.unwrap_or_else(|_| panic!("the claim of a {kind:?} hangs")).unwrap();
    }
}

/// An attempt starts the refill task again.
#[test]
fn attempts_after_the_end_of_the_building_runtime_are_granted_at_last() {
    for kind in [Kind::Limiter, Kind::Class, Kind::Key, Kind::CappedKey] {
        let (first, second) = (runtime(), runtime());
        let (_, taker) = Taker::built_on(&first, kind);
        run(&first);
        drop(first);
        second.block_on(async {
            let granted = async {
                while !taker.takes(4) {
                    sleep(millis(10)).await;
                }
            };
            timeout(FOR_EVER, granted).await.unwrap_or_else(|_| panic!("no attempt of a {kind:?} is granted"));
        });
    }
}

/// Attempts on a runtime that has ended take the refill task again and again, in vain. A driver that finds the task gone
/// because of them must not conclude that its own runtime is ending: the claim would hang.
#[test]
fn a_runtime_that_has_ended_does_not_keep_the_refill_task_from_others() {
    for trial in 0..100 {
        let (first, second) = (runtime(), runtime());
        let (store, parent) = built_on(&first);
        let keys = KeyedLimiter::builder().parent(&parent).build().unwrap();
        store.set_reachable(false);
        let waiting = second.spawn({
            let keys = keys.clone();
            async move { drop(keys.consume(&1, 5).await.unwrap()) }
        });
        run(&second);
        run(&first);
        let (ended, is_over) = (first.handle().clone(), Arc::new(AtomicBool::new(false)));
        drop(first);
        let attempts = [(); 6].map(|()| {
            let (ended, parent, is_over) = (ended.clone(), parent.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let _inside = ended.enter();
                while !is_over.load(Relaxed) {
                    assert!(parent.try_acquire(4).is_err());
                }
            })
        });
        run(&second);
        is_over.store(true, Relaxed);
        attempts.into_iter().for_each(|attempts| attempts.join().unwrap());
        store.set_reachable(true);
        let served = second.block_on(async { timeout(FOR_EVER, waiting).await });
        served.unwrap_or_else(|_| panic!("the claim of trial {trial} hangs")).unwrap();
    }
}

/// A driver that the user runs starts the refill task again too.
#[test]
fn a_replenisher_restarts_the_refill_task_of_a_runtime_that_ended() {
    let (first, second) = (runtime(), runtime());
    let (_, limiter) = built_on(&first);
    second.spawn(limiter.replenisher());
    run(&second);
    run(&first);
    drop(first);
    run(&second);
    let waiting = std::thread::spawn({
        let limiter = limiter.clone();
        move || drop(limiter.blocking_consume(5).unwrap())
    });
    second.block_on(async {
        while !waiting.is_finished() {
            sleep(millis(10)).await
        }
    });
    waiting.join().unwrap();
}

/// A thread outside of all runtimes cannot start the refill task: its claim fails, with or without a parent.
#[test]
fn a_thread_that_waits_for_a_key_at_the_end_of_the_runtime_of_the_parent_is_told() {
    let first = runtime();
    let (store, parent) = built_on(&first);
    let keys = KeyedLimiter::builder().parent(&parent).build().unwrap();
    store.set_reachable(false);
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn({
        let keys = keys.clone();
        move || sender.send(keys.blocking_consume(&1, 5).map(drop))
    });
    while parent.snapshot().waiting_tasks == 0 {
        run(&first);
    }
    drop(first);
    let answer = answer.recv_timeout(Duration::from_secs(10)).expect("the claim hangs");
    assert_eq!(answer, Err(ConsumeError::NoRuntime));
    assert_eq!(parent.snapshot().waiting_tasks, 0);
    assert_eq!(keys.blocking_consume(&1, 5).map(drop), Err(ConsumeError::NoRuntime));
}

/// Its request was in flight and was carried out. The next refill task repeats it under its number, also if its first attempts
/// are not sent: otherwise the store would seem to have lost its state.
#[test]
fn promised_tokens_survive_the_end_of_the_runtime_during_a_request() {
    for cut in [Cut::Nowhere, Cut::Unsent] {
        let (first, second) = (runtime(), runtime());
        let store = first.block_on(async { MemoryStore::new() });
        let link = Link::to(&store, Outage::Wait);
        let quota = Quota::per_second(100).burst(20).initial(0);
        let limiter = first.block_on(async { limiter(&link, quota) });
        let call = |cost| {
            let limiter = limiter.clone();
            second.spawn(async move { drop(limiter.consume(cost).await.unwrap()) })
        };
        let waiting = [call(20), call(20)];
        run(&second);
        run(&first);
        assert_eq!(store.snapshot().granted, 20);
        let asks = store.asks();
        link.cut(Cut::Silent);
        first.block_on(async { sleep(millis(1_500)).await });
        assert_eq!(store.asks(), asks + 1, "one request is in flight");
        link.cut(cut);
        drop(first);
        run(&second);
        link.cut(Cut::Nowhere);
        for claim in waiting {
            second.block_on(async { timeout(FOR_EVER, claim).await.expect("the claim hangs").unwrap() });
        }
        let StoreSnapshot { granted, losses, .. } = store.snapshot();
        assert!(granted < 60, "{granted}: a claim was promised its tokens twice");
        assert_eq!(losses, 0, "{cut:?}");
    }
}

/// The answer has come, and the limiter cannot take it because its clock panics.
#[test]
fn an_answer_that_was_not_taken_survives_the_end_of_the_runtime() {
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(async { MemoryStore::new() });
    store.set_latency(millis(20));
    let (start, is_broken) = (std::time::Instant::now(), Arc::new(AtomicBool::new(false)));
    let breaks = Arc::clone(&is_broken);
    // In background tasks its readings panic while it is broken.
    let clock = ClockFn::moving(move || {
        if tokio::task::try_id().is_some() && breaks.load(Relaxed) {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            std::panic::resume_unwind(Box::new("a clock that fails"));
        }
        start.elapsed()
    });
    let quota = Quota::per_day(1).burst(100);
    let build = || Limiter::builder().quota(quota).distributed(store.clone()).clock(clock.clone()).build().unwrap();
    let limiter = first.block_on(async { build() });
    first.block_on(async {
        // The request is for this caller, which gives up later: the tokens are there for the next one.
        let mut caller = std::pin::pin!(limiter.wait(60));
        assert!(timeout(millis(5), &mut caller).await.is_err());
        is_broken.store(true, Relaxed);
        while store.snapshot().granted == 0 {
            sleep(millis(5)).await;
        }
        sleep(millis(5)).await;
    });
    drop(first);
    is_broken.store(false, Relaxed);
    second.block_on(async { timeout(FOR_EVER, limiter.wait(60)).await.expect("the tokens are lost").unwrap() });
    assert_eq!(store.snapshot().granted, 60);
}

/// Its first request is under way: the store knows it, and it does not know that yet.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_before_its_first_answer_is_forgotten_at_once() {
    let store = store_at(millis(20));
    let quota = Quota::per_second(10).burst(100);
    let dropped = limiter(&store, quota);
    assert!(dropped.try_acquire(40).is_err());
    sleep(millis(30)).await;
    assert_eq!(store.snapshot().granted, 0, "the answer has not arrived");
    drop(dropped);
    sleep(millis(100)).await;
    assert_eq!((store.snapshot().granted, store.snapshot().returned), (40, 40));
    let other = limiter(&store, quota);
    drop(other.consume(100).await.unwrap());
    assert_eq!(store.snapshot().nodes, 1);
}

/// A limiter that has not been used for the time of its lease has told the store that it leaves.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_has_left_sends_no_request_when_it_is_dropped() {
    let (store, limiter) = one_node(Quota::per_second(10).burst(100));
    drop(limiter.consume(1).await.unwrap());
    sleep(millis(10_000)).await;
    assert_eq!(store.snapshot().nodes, 0);
    let asks = store.asks();
    drop(limiter);
    sleep(millis(1_000)).await;
    assert_eq!(store.asks(), asks);
}

#[tokio::test(start_paused = true)]
async fn a_call_denied_during_a_request_finds_the_tokens_later() {
    let (store, node) = one_node(Quota::per_second(10).burst(100));
    store.set_latency(millis(20));
    assert!(node.try_acquire(1).is_err());
    sleep(millis(5)).await;
    assert!(node.try_acquire(20).is_err());
    sleep(millis(200)).await;
    drop(node.try_acquire(20).unwrap());
}

#[tokio::test(start_paused = true)]
async fn one_slow_answer_does_not_cause_turns_of_seconds() {
    let (store, [busy, quiet]) = nodes(Quota::per_second(1_000).burst(100));
    store.set_latency(millis(1));
    drop(busy.consume(1).await.unwrap());
    store.set_latency(millis(2_500));
    let callers = [(); 3_000].map(|()| tokio::spawn(busy.clone().consume_owned(10)));
    sleep(millis(1_000)).await;
    store.set_latency(millis(1));
    sleep(millis(5_000)).await;
    let began = Instant::now();
    drop(quiet.consume(1).await.unwrap());
    // A turn lasts four round trips, and requests are sent half a turn ahead. A round trip over a second counts as one
    // second, so the average with the round trips before is a quarter of a second.
    assert!(began.elapsed() <= millis(1_600), "{:?}", began.elapsed());
    drop(callers);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_limiter_leaves_no_task() {
    let store = MemoryStore::new();
    let quota = Quota::per_second(10).burst(100);
    for cut in [Cut::Nowhere, Cut::Before, Cut::After] {
        let link = Link::to(&store, Outage::Wait);
        let before = tasks();
        let node = Limiter::builder().quota(quota).distributed(link.clone()).build().unwrap();
        drop(node.consume(1).await.unwrap());
        link.cut(cut);
        _ = timeout(millis(100), node.consume(200)).await;
        node.close();
        drop(node);
        sleep(millis(2_000)).await;
        assert_eq!(tasks(), before, "{cut:?}");
    }
}
