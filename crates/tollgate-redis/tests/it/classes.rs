//! Classes that share a quota over several limiters.

use super::script::DECLARED;
use super::server::{FOR_EVER, Server, open_store};
use redis::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::distributed::{ClassDemand, ClassReport, SharedDemand};
use tollgate::{Limiter, Quota, Share};

const SCRIPT: &str = include_str!("../../src/classes.lua");

/// The script with the time as an argument. It fails where it touches a key that is not declared.
fn timed() -> String {
    let script = DECLARED.to_owned() + SCRIPT;
    assert_eq!(script.matches("redis.call('TIME')").count(), 1, "the script reads the time in another way");
    script.replace("redis.call('TIME')", "{ARGV[4], ARGV[5]}")
}

fn eval(connection: &mut Connection, script: &str, key: &str, report: &ClassReport, micros: u64) -> Vec<ClassDemand> {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(1).arg(key).arg(format!("{:032x}", report.node)).arg(report.ttl);
    command.arg(ClassDemand::to_text(&report.classes)).arg(micros / 1_000_000).arg(micros % 1_000_000);
    let text: String = command.query(connection).unwrap();
    let mut classes = ClassDemand::from_text(&text).unwrap();
    classes.sort_unstable_by_key(|row| row.class);
    classes
}

#[test]
fn the_script_adds_reports_up_as_the_rules_in_rust_do() {
    let Some(server) = Server::start() else { return };
    let (mut connection, script) = (server.client(), timed());
    let (mut rows, mut full) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut model, key) = (SharedDemand::new(), format!("tollgate:{{reports {seed}}}:classes"));
        let mut now = 1_700_000_000_000_000 + random.u64(..1 << 40);
        for _ in 0..100 {
            now = match random.u32(..20) {
                0 => now - random.u64(..100_000_000),
                1 => now + random.u64(..100_000_000),
                2..10 => now + random.u64(..300_000),
                _ => now + random.u64(..3_000),
            };
            let (most, count) = if seed % 4 == 0 { (200, random.usize(..150)) } else { (5, random.usize(..5)) };
            let mut classes: Vec<ClassDemand> = Vec::new();
            for _ in 0..count {
                let class = random.u64(..most).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let millis = if random.u32(..9) == 0 { u64::MAX } else { random.u64(..1_000) };
                let (heavy, light) = (random.u64(..3), random.u64(..3));
                let row = [class, random.u64(..3), random.u64(1..1_000_000), heavy, light, millis];
                classes.push(ClassDemand::from_numbers(row));
            }
            let ttl = if random.u32(..9) == 0 { u64::MAX } else { random.u64(..3_000_000) };
            let report = ClassReport::new(u128::from(random.u64(..6)), ttl, classes);
            let (real, expected) =
                (eval(&mut connection, &script, &key, &report, now), model.report(&report, now as i64));
            assert_eq!(real, expected, "seed {seed}, at {now}: {report:?}");
            rows += real.len();
            full += usize::from(real.len() == SharedDemand::MOST_CLASSES);
        }
    }
    assert!(rows > 10_000 && full > 100, "{rows} rows, {full} times as many as there may be");
}

/// What something else wrote counts as missing.
#[test]
fn reports_that_were_overwritten_are_forgotten() {
    let Some(server) = Server::start() else { return };
    let (mut connection, script, key) = (server.client(), timed(), "tollgate:{damaged}:classes");
    let row = ClassDemand::from_numbers([7, 0, 1, 1, 0, 0]);
    let mut now = 1_700_000_000_000_000;
    let mut report = |connection: &mut Connection, node: u128, classes: Vec<ClassDemand>| {
        now += 1_000;
        eval(connection, &script, key, &ClassReport::new(node, 1_000_000, classes), now)
    };
    for field in ["t", &format!("{:032x}", 1)] {
        assert_eq!(report(&mut connection, 1, vec![row]), [row]);
        redis::cmd("HSET").arg(key).arg(field).arg("nonsense").exec(&mut connection).unwrap();
        report(&mut connection, 2, vec![row]);
        report(&mut connection, 1, Vec::new());
        redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
    }
    assert_eq!(report(&mut connection, 1, vec![row]), [row]);
}

/// One class has its callers on one limiter, and the other class on another one: without reports each gets half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_share_by_weight_although_their_callers_are_on_different_limiters() {
    let Some(server) = Server::start() else { return };
    let (quota, began) = (Quota::per_second(2_000).burst(100), Instant::now());
    let granted: [Arc<AtomicU64>; 2] = Default::default();
    let mut tasks = Vec::new();
    for node in 0..2 {
        let store = open_store(&server.url(), "classes").await;
        let limiter = Limiter::builder().quota(quota).distributed(store).classes().build().unwrap();
        let classes =
            [("pages", 4), ("backup", 1)].map(|(name, weight)| limiter.class(name, Share::weight(weight)).unwrap());
        for _ in 0..400 {
            let (class, granted) = (classes[node].clone(), Arc::clone(&granted[node]));
            tasks.push(tokio::spawn(async move {
                while class.consume(1).await.is_ok() {
                    granted.fetch_add(1, Relaxed);
                }
            }));
        }
    }
    let granted = || granted.each_ref().map(|tokens| tokens.load(Relaxed));
    let until = async |tokens: u64| {
        while granted().iter().sum::<u64>() < tokens {
            assert!(began.elapsed() < FOR_EVER, "{:?} of {tokens}", granted());
            sleep(Duration::from_millis(1)).await;
        }
        granted()
    };
    let (first, last) = (until(2_000).await, until(8_000).await);
    let [pages, backup] = [0, 1].map(|class| last[class] - first[class]);
    println!("{pages} to {backup}, from {first:?} on");
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    assert!(last.iter().sum::<u64>() <= most, "{last:?} of {most}");
    assert!((3 * backup..=5 * backup).contains(&pages), "{pages} to {backup}");
    tasks.iter().for_each(|task| task.abort());
}
