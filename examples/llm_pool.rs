//! A pool of callers of a language model that is limited in requests and in tokens per minute.
//!
//! ```text
//! cargo run --example llm_pool
//! ```
//!
//! The example `llm_client` of tollgate-tower learns the limits from the responses of an HTTP server.

use std::error::Error;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate::{Limiter, Quota, join};

/// The tokens claimed for a call before its real cost is known.
const ESTIMATE: u64 = 800;

/// Stands for the HTTP call. Returns the tokens used or, if the provider answers 429, its Retry-After.
async fn call_model(prompt: u64, attempt: u32) -> Result<u64, Duration> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    if prompt == 9 && attempt == 0 { Err(Duration::from_secs(1)) } else { Ok(300 + 50 * (prompt % 10)) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The provider's limits, and at most 5 calls at once.
    let requests = Limiter::builder().quota(Quota::per_minute(600).burst(10)).max_in_flight(5).build()?;
    let tokens = Limiter::new(Quota::per_minute(400_000).burst(4_000))?;
    let (mut calls, began) = (JoinSet::new(), Instant::now());
    for prompt in 0..20 {
        let (requests, tokens) = (requests.clone(), tokens.clone());
        calls.spawn(async move {
            for attempt in 0..3 {
                // Both or neither, in the order of arrival. The call counts as one of the 5 while `_request` exists.
                let claim = join([(&requests, 1), (&tokens, ESTIMATE)]).within(Duration::from_secs(30));
                let [_request, mut spent] = claim.await.map_err(|refused| refused.to_string())?;
                match call_model(prompt, attempt).await {
                    Ok(used) => {
                        spent.settle(used); // the rest of the estimate goes back
                        return Ok((prompt, used));
                    }
                    Err(wait) => requests.pause_for(wait), // pauses all callers; this one then tries again
                }
            }
            Err("three times 429".to_owned())
        });
    }
    while let Some(call) = calls.join_next().await {
        let (prompt, used) = call??;
        println!("{:5.2} s: prompt {prompt}, {used} tokens", began.elapsed().as_secs_f64());
    }
    Ok(())
}
