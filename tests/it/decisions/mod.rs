//! The answers to callers: the wait, the remaining tokens, the bound that refused, the estimate, and the timeout.

mod errors;
mod max_cost;
mod refusals;
mod repeated;
mod within;

use crate::fixture::*;
use std::time::Duration;

use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Builder, Denied, Limiter, Quota, TryAcquireError};
