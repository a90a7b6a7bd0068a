//! The gateway in front of a real upstream, with real clients.
//!
//! Most tests run it in their own process, with a clock moved by hand, so its files are a module here. The tests of
//! signals start the program itself.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../src/main.rs"]
mod app;

mod admission;
mod conformance;
mod connecting;
mod encrypting;
mod ending;
mod forwarding;
mod frames;
mod http2;
mod malformed;
mod overload;
mod pricing;
mod process;
mod proxying;
mod raw;
mod refusing;
mod rehearsing;
mod reloading;
mod restarting;
mod sharing;
mod stalling;
mod starting;
mod tls;
mod tunnelling;
mod upstreams;
mod world;
