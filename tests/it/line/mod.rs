//! The waiting line, polled by hand under a clock moved by hand: who passes, at which instant, and who is woken for it.

mod behind;
mod joining;
mod leaving;
mod permutations;
mod unread;
mod wakers;

use crate::fixture::*;
use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Consume, Limiter, ManualClock, Quota};
