//! The keys: which client a request comes from, and what its quota is.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri};
use tollgate::Quota;
use tollgate_tower::key::ClientAddress;

use super::client::Client;
use super::forwarding::Proxies;
use super::key_source::{AmbiguousKey, Challenge, KeySource};
use super::name::Name;

#[derive(Debug)]
pub(crate) struct Keys {
    /// Where a request has its key.
    pub(crate) source: KeySource,
    /// What a client without a known key is told: as it is for a source, and made once.
    pub(crate) challenge: Challenge,
    /// The quota of each key that has none of its own.
    pub(crate) quota: Quota,
    /// The quota that unlisted clients share when there are more than `max_keys` of them.
    pub(crate) overflow: Quota,
    pub(crate) unlisted: Unlisted,
    pub(crate) proxies: Proxies,
    /// The names of the listed keys, by key. Only the file adds to them, so the hash need not resist chosen keys as that of the
    /// standard library does, which costs more.
    pub(crate) names: HashMap<String, Name, foldhash::quality::RandomState>,
    /// The quotas of the listed keys that have one of their own, by name.
    pub(crate) quotas: BTreeMap<Name, Quota>,
    /// The weight of the listed keys together in the limit of all, where the unlisted clients together have 1.
    pub(crate) listed_weight: u64,
    /// The weights of the listed keys among each other that are not 1, by name.
    pub(crate) weights: BTreeMap<Name, u64>,
    /// The quota of all unlisted clients together.
    pub(crate) unlisted_quota: Option<Quota>,
    /// Whether the quotas of the clients hold back no request, and only report what they would have done.
    pub(crate) dry_run: bool,
    /// Whether all gateways share the quotas of the clients.
    pub(crate) is_distributed: bool,
}

/// The bucket of a request that has no key, or a key that is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unlisted {
    /// The bucket of its address: a client that invents keys gains nothing.
    ByAddress,
    /// The bucket of its key, for an upstream that knows which keys exist.
    ByKey,
    /// None: the request is refused with 401.
    Refuse,
}

impl Keys {
    /// The client of a request from `peer`; `None` if it is not admitted.
    pub(crate) fn client(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        peer: SocketAddr,
    ) -> Result<Option<Client>, AmbiguousKey> {
        let key = self.source.key(headers, uri)?;
        let key = key.as_deref();
        if let Some(name) = key.and_then(|key| self.names.get(key)) {
            return Ok(Some(Client::Listed(*name)));
        }
        Ok(match (self.unlisted, key) {
            (Unlisted::Refuse, _) => None,
            (Unlisted::ByKey, Some(key)) => Some(Client::of_key(key)),
            _ => Some(Client::Address(self.address(headers, peer))),
        })
    }

    /// The address of the client of a request from `peer`, as far as it is trusted.
    pub(crate) fn address(&self, headers: &HeaderMap, peer: SocketAddr) -> IpAddr {
        ClientAddress::from(self.proxies.client(headers, peer.ip())).into()
    }

    /// The weight of a client among those of its kind.
    pub(crate) fn weight_of(&self, client: &Client) -> u64 {
        match client {
            Client::Listed(name) => self.weights.get(name).copied().unwrap_or(1),
            Client::Overflow | Client::Key { .. } | Client::Address(_) => 1,
        }
    }

    pub(crate) fn quota_of(&self, client: &Client) -> Quota {
        match client {
            Client::Listed(name) => self.quotas.get(name).copied().unwrap_or(self.quota),
            Client::Overflow => self.overflow,
            Client::Key { .. } | Client::Address(_) => self.quota,
        }
    }
}
