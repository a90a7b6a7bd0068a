//! Keyed limiters with quotas that many machines share, over Redis.

mod real;
mod stalls;

use crate::nodes::millis;
