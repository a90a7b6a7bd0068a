//! The file of the fine timer: there while it is needed, and no longer. Alone in its process, whose files it counts.

#![cfg(all(feature = "fine-timer", target_os = "linux", not(miri)))]

use std::fs;
use std::path::Path;
use tokio::task::yield_now;
use tollgate::{Limiter, Quota};

fn timers() -> usize {
    let is_timer = |path: &Path| fs::read_link(path).is_ok_and(|name| name == Path::new("anon_inode:[timerfd]"));
    fs::read_dir("/proc/self/fd").unwrap().filter(|entry| is_timer(&entry.as_ref().unwrap().path())).count()
}

fn empty() -> Limiter {
    Limiter::builder().quota(Quota::per_second(1_000).burst(1).initial(0)).fine_timer().build().unwrap()
}

#[test]
fn a_limiter_has_one_file_where_somebody_waited_until_it_or_the_runtime_goes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stays = empty();
    runtime.block_on(async {
        let limiter = empty();
        assert_eq!(timers(), 0, "nobody has waited yet");
        let line: Vec<_> = (0..5).map(|_| tokio::spawn(limiter.clone().consume_owned(1))).collect();
        for waiting in line {
            drop(waiting.await.unwrap().unwrap());
            assert_eq!(timers(), 1);
        }
        drop(stays.consume(2).await.unwrap());
        assert_eq!(timers(), 2);
        drop(limiter);
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 1 {
            yield_now().await;
        }
        assert_eq!(timers(), 1);
        let coarse = Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap();
        drop(coarse.consume(1).await.unwrap());
        assert_eq!(timers(), 1, "who did not ask for it has none");
    });
    drop(runtime);
    assert_eq!(timers(), 0);
    assert!(stays.try_acquire(2).is_err());
}
