//! The upstreams: their addresses, connections and health.

pub(crate) mod backend;
pub(crate) mod backends;
pub(crate) mod connector;
pub(crate) mod health;
pub(crate) mod model_limits;
pub(crate) mod target;
