//! The repair task, waiting requests, and repeats.

use super::*;
use std::thread;
use tokio::sync::Notify;
use tokio::task::yield_now;

fn down() -> StoreError {
    StoreError::Unreachable("the server is down".to_owned())
}

/// Starts a repair task whose trials fail, each when it is told so.
fn repair_in_vain(breaker: &Arc<Breaker>) -> Arc<Notify> {
    let fails = Arc::new(Notify::new());
    let failing = Arc::clone(&fails);
    breaker.repair(Duration::MAX, move || {
        let fails = Arc::clone(&failing);
        async move {
            fails.notified().await;
            Some(Err(down()))
        }
    });
    fails
}

#[tokio::test(start_paused = true)]
async fn a_trial_of_a_replaced_repair_task_does_not_open_the_circuit_again() {
    let breaker = Arc::new(Breaker::default());
    breaker.open("the server is down".to_owned());
    let fails = repair_in_vain(&breaker);
    yield_now().await;
    assert_eq!(breaker.snapshot().circuit, Circuit::HalfOpen);
    // The first task counts as ended.
    breaker.repair(Duration::ZERO, async || Some(Ok(())));
    breaker.becomes(|status| !status.is_open()).await;
    fails.notify_one();
    yield_now().await;
    yield_now().await;
    assert_eq!(breaker.snapshot().circuit, Circuit::Closed);
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_repeated_at_the_rate_and_those_that_are_given_up_delay_no_other() {
    let breaker = Arc::new(Breaker::default());
    let repeats = |size: u64| -> Vec<_> {
        (0..size)
            .map(|_| {
                let breaker = Arc::clone(&breaker);
                tokio::spawn(async move { breaker.backoff(1).await })
            })
            .collect()
    };
    let began = tokio::time::Instant::now();
    for repeat in repeats(300) {
        repeat.await.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    let given_up = repeats(10_000);
    sleep(Duration::from_millis(100)).await;
    given_up.iter().for_each(|repeat| repeat.abort());
    let began = tokio::time::Instant::now();
    breaker.backoff(1).await;
    assert!(began.elapsed() <= Duration::from_millis(50), "{:?}", began.elapsed());
}

#[test]
fn a_request_that_waits_while_the_circuit_opens_and_closes_is_told_why_it_opened() {
    const LONG: Duration = Duration::from_secs(3_600);
    let breaker = Arc::new(Breaker::default());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held: Vec<_> = runtime()
        .block_on(async {
            let mut held = Vec::new();
            for _ in 0..MAX_IN_FLIGHT {
                held.push(breaker.admit(LONG).await);
            }
            held
        })
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let is_over = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while is_over.load(Relaxed) == 0 {
                breaker.open("the server is down".to_owned());
                breaker.close();
            }
        });
        let texts = runtime().block_on(async {
            let mut texts = Vec::new();
            for _ in 0..10_000 {
                texts.extend(breaker.admit(LONG).await.map(drop).err());
            }
            texts
        });
        is_over.store(1, Relaxed);
        let wrong = texts.iter().find(|error| !error.to_string().contains("the server is down"));
        assert_eq!((texts.len(), wrong), (10_000, None));
    });
    drop(held);
}

/// Although a task may be silent for as long as it likes.
#[tokio::test(start_paused = true)]
async fn a_repair_task_that_ended_with_its_runtime_is_replaced() {
    let breaker = Arc::new(Breaker::default());
    breaker.open("the server is down".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let entered = runtime.enter();
    breaker.repair(Duration::MAX, std::future::pending);
    drop(entered);
    runtime.shutdown_background();
    breaker.repair(Duration::MAX, async || Some(Ok(())));
    timeout(Duration::from_secs(1), breaker.becomes(|status| !status.is_open())).await.expect("the next task repairs");
}

#[tokio::test(start_paused = true)]
async fn a_repair_task_that_tries_again_and_again_is_alive() {
    const STALE: Duration = Duration::from_millis(500);
    let breaker = Arc::new(Breaker::default());
    breaker.repair(STALE, async || Some(Err(down())));
    thread::sleep(STALE);
    // In paused time: at once.
    sleep(Duration::from_secs(10)).await;
    breaker.repair(STALE, async || panic!("a second task"));
    let before = breaker.snapshot().trials;
    sleep(Duration::from_secs(10)).await;
    assert!(breaker.snapshot().trials >= before + 10);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_repair_task_does_nothing_while_the_next_one_tries() {
    let breaker = Arc::new(Breaker::default());
    let fails = repair_in_vain(&breaker);
    yield_now().await;
    breaker.repair(Duration::ZERO, std::future::pending);
    yield_now().await;
    fails.notify_one();
    sleep(Duration::from_secs(10)).await;
    let seen = breaker.snapshot();
    assert_eq!((seen.opened, seen.trials), (0, 2));
}
