//! The queue, with claims polled by hand and a manual clock: which claims are granted, at which instant, and which are
//! woken.

mod behind;
mod cancellation;
mod entering;
mod unread_clock;
mod wakers;

use crate::fixture::*;
