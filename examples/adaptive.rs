//! A client that learns the limit of a server, which halves and doubles.
//!
//! ```text
//! cargo run --example adaptive
//! ```
//!
//! The server and the time are simulated. `cargo bench --bench adaptive` compares this with other controllers.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::{Adaptive, Limiter, Quota};

/// A server that refuses requests above its limit, which it does not tell.
struct Server {
    began: Instant,
    /// The tokens of its bucket, and when they were counted.
    bucket: Mutex<(f64, Instant)>,
}

impl Server {
    /// Requests per second: 1,000 for half a minute, then 500, and so on.
    fn limit(&self) -> f64 {
        if (self.began.elapsed().as_secs() / 30) % 2 == 0 { 1_000.0 } else { 500.0 }
    }

    /// One request. Returns whether it was accepted.
    async fn call(&self) -> bool {
        sleep(Duration::from_millis(20)).await;
        let mut bucket = self.bucket.lock().expect("no task panics with the lock");
        let (tokens, at) = *bucket;
        let tokens = (tokens + at.elapsed().as_secs_f64() * self.limit()).min(self.limit() / 20.0);
        let is_accepted = tokens >= 1.0;
        *bucket = (if is_accepted { tokens - 1.0 } else { tokens }, Instant::now());
        is_accepted
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Arc::new(Server { began: Instant::now(), bucket: Mutex::new((0.0, Instant::now())) });
    // Nothing else is known about the limit.
    let bounds = Adaptive::between(Quota::per_second(1), Quota::per_second(100_000));
    let client = bounds.drive(&Limiter::new(Quota::per_second(1))?)?;
    for _ in 0..64 {
        let (server, client) = (Arc::clone(&server), client.clone());
        tokio::spawn(async move {
            while let Ok(grant) = client.consume(1).await {
                match server.call().await {
                    true => grant.succeeded(),
                    false => grant.throttled(None), // of a response with Retry-After: that time
                }
            }
        });
    }
    for second in (5..=120).step_by(5) {
        let limit = server.limit();
        sleep(Duration::from_secs(5)).await;
        println!("{second:>3} s: learned {:>5.0} of {limit} requests per second", client.tokens_per_second());
    }
    Ok(())
}
