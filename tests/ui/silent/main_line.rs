//! The code shown in the documentation compiles without a warning.

#![deny(warnings, clippy::all)]

use std::error::Error;
use std::time::Duration;
use tollgate::{Limiter, Quota, join};

async fn paced(limiter: &Limiter) -> Result<(), Box<dyn Error>> {
    for _ in 0..3 {
        limiter.wait(1).await?;
    }
    limiter.wait(1).within(Duration::from_millis(200)).await?;
    Ok(())
}

async fn capped(limiter: &Limiter) -> Result<(), Box<dyn Error>> {
    let _grant = limiter.consume(1).await?;
    let mut grant = limiter.consume(1).within(Duration::from_millis(200)).await?;
    grant.settle(2);
    drop(grant);
    let _joint = join([(limiter, 1)]).await?;
    Ok(())
}

fn refusing(limiter: &Limiter) -> &'static str {
    match limiter.try_acquire(1) {
        Ok(_grant) => "served",
        Err(_) => "refused",
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(Quota::per_second(100).burst(20))?;
    paced(&limiter).await?;
    capped(&limiter).await?;
    let workers = Limiter::builder().max_in_flight(2).build()?;
    assert!(paced(&workers).await.is_err(), "an error: the caller would not hold its grant");
    capped(&workers).await?;
    assert_eq!((refusing(&limiter), workers.available()), ("served", 2));
    Ok(())
}
