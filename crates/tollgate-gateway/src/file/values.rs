//! The values of the file that have a form of their own.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use toml::Spanned;

use super::super::target::Target;

/// A value that the file does not contain has no line. If a message had to name one, the first line would do.
pub(super) fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

pub(super) fn seconds<const SECONDS: u64>() -> Spanned<Time> {
    nowhere(Time(Duration::from_secs(SECONDS)))
}

/// An address to listen on.
#[derive(Clone)]
pub(super) struct Address(pub(super) SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!("`{text}` is not an address to listen on: write one like \"127.0.0.1:8080\""))
        })
    }
}

/// A duration.
#[derive(Clone, Copy)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|_| {
            D::Error::custom(format!("`{text}` is not a duration: write one like \"2s\", \"250ms\" or \"1m 30s\""))
        })
    }
}

/// The upstream.
#[derive(Clone)]
pub(super) struct Upstream(pub(super) Target);

impl<'de> Deserialize<'de> for Upstream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}
