//! Keyed limiters whose quotas many machines share, over Redis.

mod real;
mod stalls;

use crate::nodes::millis;
