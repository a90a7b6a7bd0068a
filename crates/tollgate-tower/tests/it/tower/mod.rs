//! The tower layer: tower's contract, and real clients with real servers.

mod answers;
mod bodies;
mod classes;
mod clients;
mod contract;
#[cfg(feature = "keyed")]
mod distributed;
mod servers;
mod yielding;

use crate::{MILLI, SECOND, built};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::sync::Arc;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready};
use tollgate::{ConsumeError, Limiter, ManualClock, Quota, Refused, TryAcquireError};
use tollgate_tower::{LimitError, LimitLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

/// A token each millisecond on a manual clock, from a full bucket of `burst`.
fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst)))
}

/// Tokens granted and not refunded.
fn paid(limiter: &Limiter) -> u64 {
    let seen = limiter.snapshot();
    seen.granted - seen.refunded
}
