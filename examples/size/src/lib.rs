//! Right-sizing: which rate and which burst does a trace of calls need?
//!
//! The binary's `--help` and README.md say how to use it. The modules, in reading order:
//!
//! * [`event`], [`trace`], [`read`], [`demo`]: where the calls come from;
//! * [`replay`]: makes the calls on a real limiter in simulated time, and returns how long each of them waits;
//! * [`summary`], [`goal`], [`search`]: the waits in a few numbers, and the smallest quota that meets the goal;
//! * [`outcome`], [`report`], [`table`]: what is printed.

use std::error::Error;

pub mod demo;
pub mod event;
pub mod goal;
pub mod instant;
pub mod malformed;
pub mod options;
pub mod outcome;
pub mod per;
pub mod read;
pub mod replay;
pub mod report;
pub mod search;
pub mod share;
pub mod summary;
pub mod table;
pub mod trace;

pub type Failure = Box<dyn Error + Send + Sync>;
