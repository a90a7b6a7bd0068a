//! A spawned task may outlive the values it borrows: `consume_owned` exists for that.

use tollgate::{Limiter, Quota};

#[tokio::main]
async fn main() {
    let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    tokio::spawn(limiter.clone().consume_owned(1));
    tokio::spawn(async { limiter.consume(1).await.map(drop) });
}
