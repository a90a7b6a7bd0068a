//! A worker that shares a quota with all other workers, on any machine.
//!
//! ```text
//! cargo run -p tollgate-redis --example worker -- redis://127.0.0.1/    # start it several times: 5 jobs per second in all
//! ```

use std::error::Error;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate::distributed::Outage;
use tollgate::{Limiter, Quota};
use tollgate_redis::RedisStore;

/// The quota of all workers together.
const SHARED: Quota = Quota::per_second(5).burst(5);
/// The quota of each worker while Redis cannot be reached: a share for up to five workers.
const ALONE: Quota = Quota::per_second(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("redis://127.0.0.1/".to_owned());
    let store = RedisStore::connect(url, "jobs").await?.outage(Outage::Share(ALONE));
    // At most 3 jobs of this worker run at once.
    let limiter = Limiter::builder().quota(SHARED).distributed(store.clone()).max_in_flight(3).build()?;
    let (mut jobs, began) = (JoinSet::new(), Instant::now());
    for job in 0..20 {
        let grant = limiter.clone().consume_owned(1).await?; // waits in this process, without a call to Redis per job
        println!("{:6.2} s: job {job}", began.elapsed().as_secs_f64());
        jobs.spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await; // the work
            drop(grant);
        });
        while jobs.try_join_next().is_some() {}
    }
    while jobs.join_next().await.is_some() {}
    println!("{:?}", store.snapshot());
    Ok(())
}
