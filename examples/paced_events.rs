//! Paces the events of a stream, each of which costs its length.
//!
//! ```text
//! cargo run --features stream --example paced_events
//! ```

use futures::{StreamExt, stream};
use std::error::Error;
use std::time::Instant;
use tollgate::stream::PaceStreamExt;
use tollgate::{Limiter, Quota};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The burst is what a task that runs late can catch up with (docs/guide/choosing.md).
    let letters = Limiter::new(Quota::per_second(50).burst(10))?;
    let events = stream::iter(["one", "two", "three", "four", "five", "six"]);
    let mut events = events.pace_by(&letters, |event| event.len() as u64);
    let began = Instant::now();
    while let Some(event) = events.next().await {
        println!("{:5.2} s: {}", began.elapsed().as_secs_f64(), event?);
    }
    Ok(())
}
