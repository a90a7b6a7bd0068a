//! The answers to callers: the wait, the remaining tokens, the bound that refused, the estimate, and the timeout.

mod errors;
mod max_cost;
mod refusals;
mod repeated;
mod within;

use crate::fixture::*;
