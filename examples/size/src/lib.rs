//! Right-sizing: which rate and which burst does a trace of calls need?
//!
//! The binary's `--help` and README.md say how to use it. The modules, in reading order:
//!
//! * [`event`], [`trace`], [`read`], [`demo`]: where the calls come from;
//! * [`replay`]: the calls against a real limiter in simulated time, and what each of them waits;
//! * [`summary`], [`goal`], [`search`]: what the waits mean, and the smallest quota that is good enough;
//! * [`outcome`], [`report`], [`table`], [`timeline`], [`picture`]: what is printed and drawn.

use std::error::Error;

pub mod demo;
pub mod event;
pub mod goal;
pub mod instant;
pub mod malformed;
pub mod options;
pub mod outcome;
pub mod per;
pub mod picture;
pub mod read;
pub mod replay;
pub mod report;
pub mod search;
pub mod share;
pub mod summary;
pub mod table;
pub mod timeline;
pub mod trace;

pub type Failure = Box<dyn Error + Send + Sync>;
