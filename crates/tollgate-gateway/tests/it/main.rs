//! The gateway in front of a real upstream, with real clients.
//!
//! Most tests run it in their own process, with a clock moved by hand, so its files are a module here. The tests of
//! signals start the program itself.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../src/main.rs"]
mod app;

// The paths of the program begin with `crate`.
#[allow(unused_imports, reason = "some are used by the program only")]
use app::{admin, body, config, demo, downstream, gateway, http, limits, llm, proxy, request, telemetry, upstream};

mod admission;
mod balancing;
mod conformance;
mod connecting;
#[cfg(feature = "redis")]
mod distributed;
mod dry_run;
mod encrypting;
mod ending;
mod fixture;
mod forwarding;
mod frames;
mod http2;
mod idle;
mod key_sources;
mod language_models;
mod logging;
mod malformed;
mod measuring;
mod networks;
mod overload;
mod path_variants;
mod pricing;
mod process;
mod proxying;
mod raw;
#[cfg(feature = "redis")]
mod redis;
mod refusing;
mod reloading;
mod restarting;
mod routes;
mod sharing;
mod stalling;
mod starting;
mod tls;
mod tunnelling;
mod upstreams;
