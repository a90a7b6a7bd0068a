//! How the health of upstreams is checked, as the configuration says.

use std::time::Duration;

use axum::http::Uri;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// The path that a check asks for.
    pub(crate) path: Uri,
    /// The pause between two checks of an upstream.
    pub(crate) every: Duration,
    /// How long a check may take, with its connection.
    pub(crate) timeout: Duration,
    /// After so many failures without a check that passes, an upstream is left.
    pub(crate) failures: u32,
    /// After so many checks in a row that pass, it returns.
    pub(crate) successes: u32,
}
