//! `examples/gateway`, before a real upstream, by real clients.
//!
//! An example's binary is not at hand for tests as a package's own is, and to have cargo build it from a test would compile
//! the crate once more beside the one that waits for it. So its files are a module here, which costs two seconds: most tests
//! run it in their own process, with a clock moved by hand; those about signals start this test binary again, with
//! `process` as the only test, which then is the gateway.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../../examples/gateway/main.rs"]
mod app;

mod admission;
mod ending;
mod malformed;
mod process;
mod proxying;
mod refusing;
mod reloading;
mod world;
