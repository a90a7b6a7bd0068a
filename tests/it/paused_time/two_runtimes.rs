//! A limiter that outlives a runtime with paused time, as the docs of `Clock` describe it.

use super::*;
use std::sync::LazyLock;

fn hourly() -> Limiter {
    Limiter::new(Quota::per_hour(1).burst(1)).unwrap()
}

fn in_runtime<T>(is_paused: bool, act: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build().unwrap();
    runtime.block_on(act)
}

/// Makes this many calls, and returns how long they took by the clock of the runtime.
async fn call(limiter: &Limiter, calls: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        limiter.wait(1).await.unwrap();
    }
    start.elapsed()
}

const NINE_HOURS: Duration = Duration::from_secs(9 * 3_600);

#[test]
fn a_static_limiter_keeps_the_instants_of_a_runtime_with_paused_time() {
    static SHARED: LazyLock<Limiter> = LazyLock::new(hourly);
    assert!(in_runtime(true, call(&SHARED, 10)) >= NINE_HOURS);
    // In real time a caller would wait for these hours and for its own: no token is granted early.
    let estimate = in_runtime(false, async { SHARED.estimate(1) });
    assert!(estimate >= Some(NINE_HOURS), "{estimate:?}");
    // Under paused time they are over at once.
    let second = in_runtime(true, call(&SHARED, 1));
    assert!(second >= NINE_HOURS, "{second:?}");
}

#[test]
fn a_limiter_of_the_thread_begins_anew_in_each_test() {
    thread_local! {
        static OWN: Limiter = hourly();
    }
    let test = |is_paused, calls| move || in_runtime(is_paused, call(&OWN.with(Limiter::clone), calls));
    assert!(thread::spawn(test(true, 10)).join().unwrap() >= NINE_HOURS);
    assert!(thread::spawn(test(false, 1)).join().unwrap() < NINE_HOURS);
}
