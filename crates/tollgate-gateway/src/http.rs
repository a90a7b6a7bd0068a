//! Rules and responses of HTTP that know nothing of limits.

pub(crate) mod conformance;
pub(crate) mod grpc;
pub(crate) mod hop_by_hop;
pub(crate) mod http2;
pub(crate) mod local_reply;
pub(crate) mod path_variants;
pub(crate) mod token_list;
