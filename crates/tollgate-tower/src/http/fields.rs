//! Limits as header fields, in each format.

use super::format::Format;
use super::limits::RateLimits;
#[cfg(doc)]
use super::resources::ResourceLimits;
use super::{quotas, structured, x_rate_limit};
use http::HeaderMap;

impl RateLimits {
    /// Writes the fields of `format` in addition to the fields that other limits have written: lists are extended.
    /// `X-RateLimit` fields cannot be extended, so the tighter ones stay.
    ///
    /// [`Format::OpenAi`] and [`Format::Anthropic`] are only read: nothing is written for them.
    pub fn write(&self, format: Format, headers: &mut HeaderMap) {
        match format {
            Format::Draft11 => structured::write(self, headers),
            Format::XRateLimit => x_rate_limit::write(self, headers),
            Format::OpenAi | Format::Anthropic => {}
        }
    }

    /// Reads the fields of `format`. Malformed fields are ignored, and so is all after 32 quotas.
    ///
    /// In all formats but [`Format::Draft11`] each resource is read as a quota with the name of the resource.
    /// [`ResourceLimits`] has the values as they are in the fields.
    pub fn read(format: Format, headers: &HeaderMap) -> Self {
        match format {
            Format::Draft11 => structured::read(headers).0,
            _ => quotas::read(headers, format.families()),
        }
    }
}
