//! How many requests PostgreSQL answers, and how much time of its processes each one takes.
//!
//! ```text
//! cargo bench -p tollgate-postgres --bench asks          # 2 seconds for each line
//! cargo bench -p tollgate-postgres --bench asks -- 10
//! ```
//!
//! `hot` is one store, `keys` single claims on 10,000 stores. It starts a server of its own, which shares the machine with this
//! program.

mod cpu;
#[path = "../tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;

use cpu::cpu;
use server::{FOR_EVER, Server};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store, Stores};
use tollgate_postgres::{PostgresStore, pool};

const CALLERS: usize = 8;
const KEYS: u64 = 10_000;

async fn measure(name: &str, stores: &[Arc<dyn Store>], time: Duration, server: u32) {
    let terms = QuotaTerms::of(&Quota::per_second(1_000_000).burst(1_000)).expect("a valid quota");
    let is_keyed = stores.len() > 1;
    let (used, began) = (cpu(server), Instant::now());
    let caller = |node: u128| {
        let stores = stores.to_vec();
        tokio::spawn(async move {
            let mut took = Vec::new();
            for number in (1..).take_while(|_| began.elapsed() < time) {
                let mut ask = LeaseRequest::new(node, number, terms);
                (ask.want, ask.leave, ask.at_once) = (1, is_keyed, is_keyed);
                let sent = Instant::now();
                stores[fastrand::usize(..stores.len())].ask(ask).await.expect("the server answers");
                took.push(sent.elapsed().as_micros());
            }
            took
        })
    };
    // Nodes of an earlier line are not forgotten yet.
    let callers: Vec<_> = (0..CALLERS).map(|_| caller(fastrand::u64(1..).into())).collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.expect("no caller panics"));
    }
    took.sort_unstable();
    let (asks, used) = (took.len() as f64, (cpu(server) - used) as f64);
    println!("{name:32} {:>8.0} {:>10.1} {:>10}", asks / time.as_secs_f64(), used / asks, took[took.len() / 2]);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let time = Duration::from_secs_f64(seconds.map_or(Ok(2.0), |text| text.parse())?);
    let Some(mut server) = Server::start().await else { return Ok(()) };
    println!("{:32} {:>8} {:>10} {:>10}", "", "asks/s", "server us", "median us");
    for (durability, option) in [("no wait for the disk", "synchronous_commit=off"), ("on the disk", "fsync=on")] {
        server.restart_with(&["-c", option, "-c", "shared_buffers=128MB"]).await;
        let store = PostgresStore::over(pool(&server.address())?, "asks").await?.answer_timeout(FOR_EVER);
        let keys: Vec<_> = (0..KEYS).map(|key| store.named(&format!("user {key}"))).collect();
        measure(&format!("hot, {durability}"), &[Arc::new(store)], time, server.process()).await;
        measure(&format!("keys, {durability}"), &keys, time, server.process()).await;
    }
    Ok(())
}
