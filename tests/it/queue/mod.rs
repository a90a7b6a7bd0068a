//! The queue, with claims polled by hand and a manual clock: which claims are granted, at which instant, and which are
//! woken.

mod behind;
mod cancellation;
mod entering;
mod unread_clock;
mod wakers;

use crate::fixture::*;
use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Consume, ConsumeOwned, Limiter, ManualClock, Quota};
