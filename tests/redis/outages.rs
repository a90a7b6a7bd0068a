//! What becomes of a shared quota when Redis is away, slow, forgetful or cut off. Real servers, real time: what is asserted is
//! what was granted, against what may be in the time that was measured.

use crate::law::Ledger;
use crate::proxy::Proxy;
use crate::server::Server;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::lease::Outage;
use tollgate::{ConsumeError, Limiter, Quota, RedisLine};

const RATE: u64 = 2_000;
const BURST: u64 = 200;
/// What no test takes: whoever waits that long hangs.
const FOR_EVER: Duration = Duration::from_secs(60);
/// For how long Redis stands still.
const AWAY: Duration = Duration::from_secs(5);

struct World {
    lines: Vec<RedisLine>,
    limiters: Vec<Limiter>,
    ledger: Ledger,
    tasks: Vec<JoinHandle<()>>,
    began: Instant,
}

impl World {
    /// Two nodes with 50 tasks each, which consume one token after the other until `stop`.
    async fn start(url: &str, outage: Outage) -> Self {
        Self::start_with(url, outage, BURST).await
    }

    async fn start_with(url: &str, outage: Outage, burst: u64) -> Self {
        let mut world =
            Self { lines: vec![], limiters: vec![], ledger: Ledger::default(), tasks: vec![], began: Instant::now() };
        let quota = Quota::per_second(RATE).burst(burst).initial(0);
        for _ in 0..2 {
            let line = RedisLine::connect(url, "outages").await.unwrap().outage(outage);
            let limiter = Limiter::builder().quota(quota).shared(line.clone()).build().unwrap();
            for _ in 0..50 {
                world.tasks.push(tokio::spawn(consume(limiter.clone(), world.ledger.clone())));
            }
            world.lines.push(line);
            world.limiters.push(limiter);
        }
        world
    }

    /// Waits until 100 more tokens were granted: Redis is back.
    async fn recovers(&self) -> Duration {
        let (since, before) = (Instant::now(), self.ledger.total());
        let more = async {
            while self.ledger.total() < before + 100 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(FOR_EVER, more).await.expect("it grants again");
        since.elapsed()
    }

    /// Ends it; says what was granted, and what may be.
    async fn stop(&mut self) -> (u64, u64) {
        self.limiters.iter().for_each(Limiter::close);
        for task in self.tasks.drain(..) {
            timeout(FOR_EVER, task).await.expect("nobody hangs").unwrap();
        }
        let granted = self.limiters.iter().map(|limiter| limiter.snapshot().granted).sum();
        let elapsed = self.began.elapsed().as_nanos() as u64;
        (granted, (elapsed as u128 * RATE as u128 / 1_000_000_000) as u64)
    }

    fn outages(&self) -> u64 {
        self.lines.iter().map(|line| line.snapshot().outages).sum()
    }
}

async fn consume(limiter: Limiter, ledger: Ledger) {
    loop {
        match limiter.consume(1).await {
            Ok(_) => ledger.note(1),
            Err(ConsumeError::Closed) => return,
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stands_still_and_goes_on_has_granted_nothing_twice() {
    let Some(server) = Server::start() else { return };
    for (outage, paused) in [(Outage::Wait, false), (Outage::Fail, false), (Outage::Wait, true)] {
        let mut world = World::start(&server.url(), outage).await;
        sleep(Duration::from_millis(500)).await;
        if paused {
            redis::cmd("CLIENT")
                .arg("PAUSE")
                .arg(AWAY.as_millis() as u64)
                .arg("ALL")
                .exec(&mut server.client())
                .unwrap();
            sleep(AWAY).await;
        } else {
            server.signal("-STOP");
            sleep(AWAY).await;
            server.signal("-CONT");
        }
        println!("{outage:?}: grants again after {:?}", world.recovers().await);
        sleep(Duration::from_millis(300)).await;
        let (granted, may) = world.stop().await;
        assert!(granted <= may, "{granted} of {may}");
        assert!(world.outages() >= 1, "somebody noticed");
        redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_was_killed_and_comes_back_empty_grants_what_it_starts_with_and_no_lease_twice() {
    let Some(mut server) = Server::start() else { return };
    let mut world = World::start(&server.url(), Outage::Wait).await;
    sleep(Duration::from_millis(500)).await;
    server.kill();
    sleep(Duration::from_millis(1_000)).await;
    server.restart();
    println!("grants again after {:?}", world.recovers().await);
    let (granted, may) = world.stop().await;
    // It starts empty, as the quota says. What the two were promised and had not yet: a turn and a quarter each, and the
    // turn that starts while they do not know yet.
    assert!(granted <= may + 5 * RATE / 10, "{granted} of {may}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_are_sent_again() {
    let Some(server) = Server::start() else { return };
    let mut world = World::start(&server.url(), Outage::Fail).await;
    for _ in 0..5 {
        sleep(Duration::from_millis(100)).await;
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.client()).unwrap();
    }
    world.recovers().await;
    let (granted, may) = world.stop().await;
    assert!(granted <= may, "{granted} of {may}");
    assert_eq!(world.outages(), 0, "nobody noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_milliseconds_each_way_cost_no_tokens() {
    let Some(server) = Server::start() else { return };
    let (proxy, url) = Proxy::before(server.port()).await;
    proxy.latency.store(50, Ordering::Release);
    // What can be held must last for the way there and back.
    let mut world = World::start_with(&url, Outage::Fail, RATE).await;
    sleep(Duration::from_millis(3_000)).await;
    let trips: u64 = world.lines.iter().map(|line| line.snapshot().round_trips).sum();
    let (granted, may) = world.stop().await;
    println!("{granted} of {may}, {trips} round trips");
    assert!(granted <= may, "{granted} of {may}");
    assert!(granted >= may / 2, "{granted} of {may}, of which the first tenths of a second are the way there");
    assert_eq!(world.outages(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_after_the_script_ran_is_given_again() {
    let Some(server) = Server::start() else { return };
    let (proxy, url) = Proxy::before(server.port()).await;
    let mut world = World::start(&url, Outage::Wait).await;
    for _ in 0..8 {
        sleep(Duration::from_millis(150)).await;
        proxy.cuts.store(true, Ordering::Release);
    }
    world.recovers().await;
    let (granted, may) = world.stop().await;
    let cut = proxy.cut.load(Ordering::Acquire);
    assert!(cut >= 5, "{cut} answers were cut off");
    assert!(granted <= may, "{granted} of {may}");
    // Of each lost answer that is lost which was to be granted before it was said again: a tenth of a second's tokens at most.
    assert!(
        granted + cut * RATE / 10 >= may * 3 / 4,
        "{granted} of {may}: what was promised in lost answers was not lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_grants_again_what_was_granted_since_and_no_more_than_a_burst() {
    let Some(server) = Server::start() else { return };
    let mut world = World::start(&server.url(), Outage::Wait).await;
    sleep(Duration::from_millis(300)).await;
    let (mut client, key) = (server.client(), world.lines[0].key().to_owned());
    let old: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut client).unwrap();
    sleep(Duration::from_millis(700)).await;
    redis::cmd("RESTORE").arg(&key).arg(0).arg(old).arg("REPLACE").exec(&mut client).unwrap();
    world.recovers().await;
    sleep(Duration::from_millis(300)).await;
    let (granted, may) = world.stop().await;
    assert!(granted <= may + BURST + 5 * RATE / 10, "{granted} of {may}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_fail_or_share_while_redis_is_away() {
    let Some(mut server) = Server::start() else { return };
    let share = Quota::per_second(100).burst(1);
    for outage in [Outage::Fail, Outage::Share(share)] {
        let line = RedisLine::connect(server.url(), "away").await.unwrap().outage(outage);
        let quota = Quota::per_second(1_000).burst(10);
        let limiter = Limiter::builder().quota(quota).shared(line.clone()).build().unwrap();
        drop(limiter.consume(5).await.unwrap());
        server.kill();
        let away = Instant::now();
        let (mut got, mut refused) = (0_u64, 0);
        while away.elapsed() < Duration::from_secs(1) {
            match timeout(FOR_EVER, limiter.consume(1)).await.expect("nobody hangs") {
                Ok(_) => got += 1,
                Err(error) => {
                    assert_eq!(error, ConsumeError::Unreachable);
                    refused += 1;
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
        let may = 10 + (away.elapsed().as_nanos() * 100 / 1_000_000_000) as u64;
        match outage {
            Outage::Fail => assert!(refused > 0 && got <= 10, "{got}, {refused} refused"),
            _ => assert!(refused == 0 && got > 10 && got <= may + 1, "{got} of {may}, {refused} refused"),
        }
        server.restart();
        let again = async {
            while limiter.consume(1).await.is_err() {
                sleep(Duration::from_millis(5)).await
            }
        };
        timeout(FOR_EVER, again).await.expect("it grants again");
        assert!(line.snapshot().outage > Duration::ZERO && line.snapshot().outages > 0);
    }
}
