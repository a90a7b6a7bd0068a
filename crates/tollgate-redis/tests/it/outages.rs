//! A shared quota while Redis is unreachable, slow, restarted empty or cut off. Real servers, real time: the tests
//! compare the tokens granted with those allowed in the measured time.

use super::law::Ledger;
use super::nodes::limiter;
use super::proxy::Proxy;
use super::server::{FOR_EVER, Server, open_store};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate::distributed::{LeaseRequest, Outage, QuotaTerms, Store};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Limiter, Quota};
use tollgate_redis::RedisStore;

const RATE: u64 = 2_000;
const BURST: u64 = 200;
/// How long Redis stalls, at least.
const AWAY: Duration = Duration::from_secs(5);

/// The timeout of a request where a missing answer must be noticed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

pub struct World {
    pub stores: Vec<RedisStore>,
    limiters: Vec<Limiter>,
    ledger: Ledger,
    tasks: Vec<JoinHandle<()>>,
    rate: u64,
    began: Instant,
}

impl World {
    /// Two nodes.
    async fn start(url: &str, outage: Outage) -> Self {
        Self::start_with(url, outage, ANSWER_TIMEOUT).await
    }

    async fn start_with(url: &str, outage: Outage, answer_timeout: Duration) -> Self {
        let open = async || open_store(url, "outages").await.outage(outage).answer_timeout(answer_timeout);
        Self::of(vec![open().await, open().await], RATE, BURST)
    }

    /// A node of each store, with 50 tasks each, which consume one token after the other until `stop`.
    pub fn of(stores: Vec<RedisStore>, rate: u64, burst: u64) -> Self {
        let (quota, began) = (Quota::per_second(rate).burst(burst).initial(0), Instant::now());
        let limiters: Vec<Limiter> = stores.iter().map(|store| limiter(store, quota)).collect();
        let ledger = Ledger::default();
        let all = limiters.iter().flat_map(|limiter| [limiter; 50]);
        let tasks = all.map(|limiter| tokio::spawn(consume(limiter.clone(), ledger.clone()))).collect();
        Self { stores, limiters, ledger, tasks, rate, began }
    }

    /// Waits until this many more tokens are granted: Redis is back.
    pub async fn goes_on(&self, tokens: u64) -> Duration {
        let before = self.ledger.total();
        self.comes_to("grants after the outage", || self.ledger.total() >= before + tokens).await
    }

    /// Waits until the condition is true, for as long as it takes.
    async fn comes_to(&self, what: &str, so: impl Fn() -> bool) -> Duration {
        let since = Instant::now();
        while !so() {
            assert!(since.elapsed() < FOR_EVER, "never happened: {what}");
            sleep(Duration::from_millis(1)).await;
        }
        since.elapsed()
    }

    /// Ends the tasks. Returns the tokens granted, and those allowed.
    pub async fn stop(&mut self) -> (u64, u64) {
        self.limiters.iter().for_each(Limiter::close);
        for task in self.tasks.drain(..) {
            timeout(FOR_EVER, task).await.expect("the task hangs").unwrap();
        }
        let granted = self.limiters.iter().map(|limiter| limiter.snapshot().granted).sum();
        let elapsed = self.began.elapsed().as_nanos() as u64;
        (granted, (elapsed as u128 * self.rate as u128 / 1_000_000_000) as u64)
    }

    fn outages(&self) -> u64 {
        self.stores.iter().map(|store| store.snapshot().outages).sum()
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
async fn a_stalled_redis_that_resumes_has_granted_nothing_twice() {
    let Some(server) = Server::start() else { return };
    for (outage, paused) in [(Outage::Wait, false), (Outage::Fail, false), (Outage::Wait, true)] {
        let mut world = World::start(&server.url(), outage).await;
        sleep(Duration::from_millis(500)).await;
        if paused {
            // No operator intervenes, and no error is required.
            let millis = AWAY.as_millis() as u64;
            redis::cmd("CLIENT").arg("PAUSE").arg(millis).arg("ALL").exec(&mut server.client()).unwrap();
            sleep(AWAY).await;
        } else {
            server.signal("-STOP");
            sleep(AWAY).await;
            world.comes_to("a node notices the outage", || world.outages() >= 1).await;
            server.signal("-CONT");
        }
        println!("{outage:?}: first grants after {:?}", world.goes_on(100).await);
        sleep(Duration::from_millis(300)).await;
        let (granted, may) = world.stop().await;
        assert!(granted <= may, "{granted} of {may}");
        redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
    }
}

/// The nodes stay connected, and learn of the loss from their next answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_loses_the_bucket_is_noticed_by_each_node_and_grants_no_lease_twice() {
    let Some(server) = Server::start_with(&["--maxmemory-policy", "allkeys-random"]) else { return };
    let full = "CONFIG SET maxmemory 1";
    // With a full memory, the next command evicts what there is.
    for fault in [&["FLUSHALL"][..], &["DEL tollgate:{outages}"], &[full, "EXISTS x", "CONFIG SET maxmemory 0"]] {
        let mut world = World::start_with(&server.url(), Outage::Fail, FOR_EVER).await;
        world.goes_on(100).await;
        fault.iter().for_each(|command| {
            let words: Vec<&str> = command.split(' ').collect();
            redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.client()).unwrap();
        });
        let losses = |store: &RedisStore| store.snapshot().losses;
        world.comes_to("each node notices the loss", || world.stores.iter().all(|store| losses(store) > 0)).await;
        world.goes_on(100).await;
        // A request may find the memory full, or what it wrote may be evicted, too.
        let most = world.stores.iter().map(losses).max().unwrap();
        assert!(fault[0] == full || (world.outages(), most) == (0, 1), "{fault:?}");
        let (granted, may) = world.stop().await;
        // The bucket is empty again, as the quota says. In addition there are the tokens promised to the two nodes before
        // they noticed: a turn and a quarter each.
        assert!(granted <= may + most * 5 * RATE / 20, "{fault:?}: {granted} of {may}");
        redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
    }
    assert!(!server.say(&["INFO", "stats"]).contains("evicted_keys:0\r"), "nothing was evicted");
}

/// The server ends the connections too, so that nodes log in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed_is_an_outage_until_it_is_accepted_again() {
    let Some(server) = Server::start() else { return };
    let user = |password: &str| server.say(&["ACL", "SETUSER", "limits", "on", "resetpass", password, "~*", "+@all"]);
    user(">secret");
    let url = format!("redis://limits:secret@127.0.0.1:{}/", server.port());
    let mut world = World::start(&url, Outage::Wait).await;
    world.goes_on(100).await;
    user(">other");
    end_connections(&server);
    let refused = |store: &RedisStore| store.snapshot().error.is_some_and(|error| error.contains("uthentication"));
    world.comes_to("nodes are refused", || world.stores.iter().all(refused)).await;
    user(">secret");
    world.goes_on(100).await;
    let (granted, may) = world.stop().await;
    assert!(granted <= may && world.outages() >= 2, "{granted} of {may}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_with_an_append_only_file_continues_to_the_token() {
    let Some(mut server) = Server::start_with(&["--appendonly", "yes"]) else { return };
    let store = open_store(&server.url(), "file").await;
    let ask = |number, want| {
        let mut ask = LeaseRequest::new(1, number, QuotaTerms::of(&Quota::per_day(100)).unwrap());
        ask.want = want;
        ask
    };
    assert_eq!(store.ask(ask(1, 30)).await.unwrap().remaining, 70);
    server.restart();
    let again = async {
        loop {
            match store.ask(ask(2, 20)).await {
                Ok(grant) => break grant,
                Err(_) => store.backoff(1).await,
            }
        }
    };
    let grant = timeout(FOR_EVER, again).await.expect("the request is not answered");
    assert_eq!((grant.before, grant.remaining), (1, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_are_sent_again() {
    let Some(server) = Server::start() else { return };
    let mut world = World::start_with(&server.url(), Outage::Fail, FOR_EVER).await;
    for _ in 0..5 {
        world.goes_on(100).await;
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.client()).unwrap();
    }
    world.goes_on(100).await;
    let (granted, may) = world.stop().await;
    assert!(granted <= may, "{granted} of {may}");
    assert_eq!(world.outages(), 0, "no outage was noticed");
}

/// The cost of lost answers is counted in paused time, by `every_fleet_keeps_its_rate_and_needs_no_more_requests`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_after_the_script_ran_is_repeated() {
    let Some(server) = Server::start() else { return };
    let (proxy, url) = Proxy::before(server.port()).await;
    let mut world = World::start_with(&url, Outage::Wait, FOR_EVER).await;
    for cut in 1..=8 {
        proxy.cuts.store(true, Ordering::Release);
        world.comes_to("an answer is cut off", || proxy.cut.load(Ordering::Acquire) >= cut).await;
        world.goes_on(100).await;
    }
    let (granted, may) = world.stop().await;
    assert!(granted <= may, "{granted} of {may}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_grants_again_the_tokens_granted_since_and_at_most_a_burst_more() {
    let Some(server) = Server::start() else { return };
    let mut world = World::start(&server.url(), Outage::Wait).await;
    sleep(Duration::from_millis(300)).await;
    let (mut client, key) = (server.client(), world.stores[0].key().to_owned());
    let old: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut client).unwrap();
    sleep(Duration::from_millis(700)).await;
    redis::cmd("RESTORE").arg(&key).arg(0).arg(old).arg("REPLACE").exec(&mut client).unwrap();
    world.goes_on(100).await;
    sleep(Duration::from_millis(300)).await;
    let (granted, may) = world.stop().await;
    assert!(granted <= may + BURST + 5 * RATE / 10, "{granted} of {may}");
}

/// Ends all client connections except the one of this command.
fn end_connections(server: &Server) {
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.client()).unwrap();
}

/// Servers and proxies end connections that were idle for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_ended_is_no_outage() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "outages").await.outage(Outage::Fail);
    // New limiters each time, over one connection: a limiter that returns its tokens late, because the machine is busy,
    // may lose two connections in a row, which is an outage.
    for number in 0..18 {
        let store = store.beside(&number.to_string()).unwrap();
        let users = DistributedKeyedLimiter::builder(store.clone()).quota(Quota::per_hour(10)).build().unwrap();
        let limiter = Limiter::builder().quota(Quota::per_hour(100)).distributed(store.clone()).build().unwrap();
        end_connections(&server);
        let granted =
            async { if number < 9 { users.consume(&1, 10).await.map(drop) } else { limiter.wait(100).await } };
        let granted = timeout(FOR_EVER, granted).await.expect("the call does not hang");
        granted.unwrap_or_else(|error| panic!("{error}: {:?}", store.snapshot().error));
        assert_eq!(store.snapshot().outages, 0);
    }
}

/// A hundred nodes notice the broken connection at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_broke_is_made_anew_once_for_all() {
    let Some(server) = Server::start() else { return };
    let (proxy, url) = Proxy::before(server.port()).await;
    let store = open_store(&url, "outages").await;
    proxy.latency.store(50, Ordering::Release);
    let terms = QuotaTerms::of(&Quota::per_second(10)).unwrap();
    let before = proxy.connections.load(Ordering::Acquire);
    for number in 1..=2 {
        let asks = (0..100).map(|node| {
            let store = store.beside(&node.to_string()).unwrap();
            tokio::spawn(async move { while store.ask(LeaseRequest::new(node, number, terms)).await.is_err() {} })
        });
        for ask in asks.collect::<Vec<_>>() {
            timeout(FOR_EVER, ask).await.expect("the request hangs").unwrap();
        }
        end_connections(&server);
    }
    let made = proxy.connections.load(Ordering::Acquire) - before;
    assert!(made <= 5, "{made} connections");
}
