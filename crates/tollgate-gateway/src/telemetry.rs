//! What the gateway counts and logs about requests.

pub(crate) mod access_lines;
pub(crate) mod access_log;
pub(crate) mod access_writer;
pub(crate) mod connection_counts;
pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod log;
pub(crate) mod logged_body;
pub(crate) mod record;
pub(crate) mod refusals;
pub(crate) mod stats;
pub(crate) mod trend;
pub(crate) mod upstream_stats;
