//! The values of the file that have a form of their own.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use toml::Spanned;

use crate::upstream::target::Target;

/// A value that the file does not contain has no line. If a message had to name one, the first line would do.
pub(super) fn unlocated<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

pub(super) fn seconds<const SECONDS: u64>() -> Spanned<Time> {
    unlocated(Time(Duration::from_secs(SECONDS)))
}

/// An address to listen on.
#[derive(Clone)]
pub(crate) struct Address(pub(crate) SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!(
                "`{text}` is not an address to listen on: write one like \"127.0.0.1:8080\", with a number and a port"
            )
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

/// The upstreams: one, or a list.
pub(super) enum Upstreams {
    One(Target),
    /// Parsed later: an error of `Target` would get the span of the whole list.
    Several(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Upstreams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UpstreamsVisitor)
    }
}

struct UpstreamsVisitor;

impl<'de> Visitor<'de> for UpstreamsVisitor {
    type Value = Upstreams;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an upstream like \"http://127.0.0.1:3000\", or a list of them")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Upstreams, E> {
        text.parse().map(Upstreams::One).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Upstreams, A::Error> {
        let mut targets = Vec::new();
        while let Some(target) = list.next_element()? {
            targets.push(target);
        }
        Ok(Upstreams::Several(targets))
    }
}
