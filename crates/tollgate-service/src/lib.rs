//! The parts of `tollgate-service`, a rate limit service for Envoy and other proxies. README.md shows how to run it.
//!
//! Data flows one way: [`config`] reads files into [`rules`], [`decide`] answers a request by them, [`grpc`] and [`http`]
//! carry requests and answers. This library is for the program and its tests, and promises no stable API.

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]

pub mod answer;
pub mod bucket;
pub mod config;
pub mod decide;
pub mod demo;
pub mod fields;
pub mod files;
pub mod grpc;
pub mod health;
pub mod http;
pub mod key;
pub mod meter;
pub mod metrics;
pub mod overrides;
pub mod page;
pub mod problem;
pub mod proto;
pub mod proxied;
pub mod reload;
pub mod rule;
pub mod rules;
pub mod server;
pub mod service;
pub mod settings;
pub mod state;
#[cfg_attr(
    not(any(feature = "redis", feature = "postgres")),
    allow(
        dead_code,
        unreachable_code,
        unused,
        reason = "there is no store, and the rest of the service is compiled alike"
    )
)]
pub mod store;
mod tally;
pub mod terms;
mod together;
pub mod traces;
pub mod yaml;
