//! What a request is: its client, its route, the rules that charge it, and its outcome.

pub(crate) mod client;
pub(crate) mod client_hash;
pub(crate) mod forwarding;
pub(crate) mod jwt;
pub(crate) mod key_source;
pub(crate) mod keys;
pub(crate) mod name;
pub(crate) mod network;
pub(crate) mod networks;
pub(crate) mod outcome;
pub(crate) mod query_key;
pub(crate) mod route;
pub(crate) mod rule;
