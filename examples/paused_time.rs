//! A program that is limited, with tests that take no real time.
//!
//! ```text
//! cargo test --example paused_time
//! ```
//!
//! Under `start_paused`, tokio's clock jumps to the next timer when all tasks wait. The limiter reads that clock, so tests can
//! compare instants exactly. They need tokio's feature `test-util`.
//!
//! Each test here has a limiter of its own. One in a `static` would keep the instants of the first test for the others; the
//! documentation of `Clock` says what to do then.

use std::time::Duration;
use tollgate::{ConfigError, ConsumeError, Limiter, Quota};

/// Sends at most 2 mails per second, and drops a mail that would wait for more than 3 s.
struct Mailer {
    limiter: Limiter,
}

impl Mailer {
    fn new() -> Result<Self, ConfigError> {
        Ok(Self { limiter: Limiter::new(Quota::per_second(2).burst(1))? })
    }

    async fn send(&self, text: &str) -> Result<(), ConsumeError> {
        self.limiter.wait(1).within(Duration::from_secs(3)).await?;
        println!("sent: {text}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mailer = Mailer::new()?;
    for text in ["one", "two", "three"] {
        mailer.send(text).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn mails_leave_half_a_second_apart() {
        let (mailer, start) = (Mailer::new().unwrap(), Instant::now());
        for number in 0..5_u32 {
            mailer.send("hello").await.unwrap();
            assert_eq!(start.elapsed(), number * Duration::from_millis(500));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_mail_that_would_wait_too_long_is_dropped_at_once() {
        let (mailer, start) = (Mailer::new().unwrap(), Instant::now());
        let sent = futures::future::join_all((0..10).map(|_| mailer.send("all at once"))).await;
        assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 7); // 1, and 6 in the three seconds
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mail_that_is_cancelled_costs_nothing() {
        let (mailer, start) = (Mailer::new().unwrap(), Instant::now());
        mailer.send("first").await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(100), mailer.send("cancelled")).await.is_err());
        mailer.send("second").await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }
}
