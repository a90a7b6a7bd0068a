//! The layer and its responses. Fixtures shared with the tests of `tollgate` are included from there.
#![allow(clippy::incompatible_msrv, reason = "tests are built by the newest compiler")]

#[path = "../../../../tests/it/assert_traits.rs"]
mod assert_traits;
mod auto_traits;
#[path = "../../../../tests/it/cooperation.rs"]
mod cooperation;
#[cfg(feature = "http")]
mod http;
mod tower;

use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tollgate::{Builder, Limiter, ManualClock};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// On a manual clock.
fn built(builder: Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

/// A server on loopback.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}
