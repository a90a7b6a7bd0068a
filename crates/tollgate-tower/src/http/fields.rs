//! Limits as header fields, in each format.

use super::format::Format;
use super::limits::RateLimits;
use super::{structured, x_rate_limit};
use http::HeaderMap;

impl RateLimits {
    /// Writes the fields of `format` in addition to the fields that other limits have written: lists are extended.
    /// `X-RateLimit` fields cannot be extended, so the tighter ones stay.
    pub fn write(&self, format: Format, headers: &mut HeaderMap) {
        match format {
            Format::Draft11 => structured::write(self, headers),
            Format::XRateLimit => x_rate_limit::write(self, headers),
        }
    }

    /// Reads the fields of `format`. Malformed fields are ignored.
    pub fn read(format: Format, headers: &HeaderMap) -> Self {
        match format {
            Format::Draft11 => structured::read(headers),
            Format::XRateLimit => x_rate_limit::read(headers),
        }
    }
}
