//! The waiting line, polled by hand under a clock moved by hand: who passes, at which instant, and who is woken for it.

#[path = "line/behind.rs"]
mod behind;
#[path = "line/joining.rs"]
mod joining;
#[path = "line/leaving.rs"]
mod leaving;
#[path = "line/permutations.rs"]
mod permutations;
#[path = "line/unread.rs"]
mod unread;
#[path = "line/wakers.rs"]
mod wakers;

#[allow(dead_code, reason = "other test roots use the rest of it")]
mod stand;

use stand::*;
use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Consume, Limiter, ManualClock, Quota};
