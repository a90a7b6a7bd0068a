//! `examples/gateway`, before a real upstream, by real clients.
//!
//! An example's binary is not at hand for tests as a package's own is, and to have cargo build it from a test would compile
//! the crate once more beside the one that waits for it. So its files are a module here, which costs two seconds: most tests
//! run it in their own process, with a clock moved by hand; those about signals start this test binary again, with
//! `process` as the only test, which then is the gateway.
#![cfg(all(feature = "keyed", feature = "serde", feature = "http", feature = "metrics"))]

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/gateway/main.rs"]
mod app;

#[path = "gateway/admission.rs"]
mod admission;
#[path = "gateway/ending.rs"]
mod ending;
#[path = "gateway/malformed.rs"]
mod malformed;
#[path = "gateway/process.rs"]
mod process;
#[path = "gateway/proxying.rs"]
mod proxying;
#[path = "gateway/refusing.rs"]
mod refusing;
#[path = "gateway/reloading.rs"]
mod reloading;
#[path = "gateway/world.rs"]
mod world;
