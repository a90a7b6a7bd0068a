//! The file of the fine timer exists only while it is needed. This test counts the files of its process, so it is alone
//! in it.

#![cfg(all(feature = "fine-timer", target_os = "linux", not(miri)))]

use std::fs;
use std::path::Path;
use tokio::task::yield_now;
use tollgate::{Limiter, Quota};

/// The seconds for which each fine timer is set.
fn alarms() -> Vec<u64> {
    let is_timer = |path: &Path| fs::read_link(path).is_ok_and(|name| name == Path::new("anon_inode:[timerfd]"));
    let files = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
    let timers = files.filter(|file| is_timer(&file.path()));
    let set_for = |file: fs::DirEntry| {
        let observed = fs::read_to_string(Path::new("/proc/self/fdinfo").join(file.file_name())).unwrap();
        let rest = observed.split_once("it_value: (").expect("the file shows the setting of the timer").1;
        rest.split_once(',').unwrap().0.trim().parse().unwrap()
    };
    timers.map(set_for).collect()
}

fn timers() -> usize {
    alarms().len()
}

fn empty() -> Limiter {
    Limiter::builder().quota(Quota::per_second(1_000).burst(1).initial(0)).fine_timer().build().unwrap()
}

#[test]
fn a_limiter_with_waiters_has_one_file_until_it_or_the_runtime_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stays = empty();
    runtime.block_on(async {
        let limiter = empty();
        assert_eq!(timers(), 0, "no claim has waited yet");
        let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(limiter.clone().consume_owned(1))).collect();
        for waiting in waiters {
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
        assert_eq!(timers(), 1, "a limiter without the setting has none");
    });
    runtime.block_on(async {
        let hourly = Limiter::builder().quota(Quota::per_hour(1).initial(0)).fine_timer().build().unwrap();
        let waiting = tokio::spawn(hourly.clone().consume_owned(1));
        while timers() < 2 {
            yield_now().await;
        }
        assert!(alarms().iter().any(|seconds| (1..=3_600).contains(seconds)), "set to the hour: {:?}", alarms());
        waiting.abort();
    });
    drop(runtime);
    assert_eq!(timers(), 0);
    assert!(stays.try_acquire(2).is_err());
}
