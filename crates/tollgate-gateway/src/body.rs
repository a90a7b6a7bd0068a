//! Bodies of requests and responses, as they stream.

pub(crate) mod complete_body;
pub(crate) mod retry_body;
pub(crate) mod timeout_body;
pub(crate) mod upload;
