//! What an operator can change about a refusal: the setting and its value.

use crate::config::Config;
use crate::limits::limit::Limit;
use crate::limits::reason::Reason;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::telemetry::refusals::RefusedClient;

/// For the page, in plain words.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Advice {
    why: &'static str,
    /// What to change; settings are in backquotes.
    change: String,
}

impl Advice {
    pub(crate) fn new(config: &Config, client: &RefusedClient, reason: Reason, limit: Option<Limit>) -> Self {
        Self { why: why(reason), change: Settings { config, client, limit }.to_change(reason) }
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::OwnQuota => "asks for more than its quota",
        Reason::OwnQueue => "its own queue is full or held up",
        Reason::OwnInFlight => "has too much in flight itself",
        Reason::AllQuota => "all requests together exceed their quota",
        Reason::AllQueue => "too many requests wait for the quota of all",
        Reason::AllWait => "others took the tokens or the places in flight",
        Reason::UnlistedQuota => "all unlisted clients together exceed their quota",
        Reason::RuleQuota => "asks for more than a limit of its own path, address or model",
        Reason::RuleQueue => "too many requests wait for a limit of a path, an address or a model",
        Reason::RuleWait => "others took the tokens of a path, an address or a model, or its places in flight",
        Reason::Blocked => "its address is not accepted",
        Reason::TooLarge => "costs more than could ever be granted",
        Reason::Store => "Redis cannot be reached, or another gateway has another quota there",
        Reason::Ending => "the gateway is ending",
        Reason::Unknown => "its key is not listed",
        Reason::Invalid => "malformed, or its body did not come in time",
    }
}

/// The settings that refused a request.
struct Settings<'a> {
    config: &'a Config,
    client: &'a RefusedClient,
    limit: Option<Limit>,
}

impl Settings<'_> {
    fn to_change(&self, reason: Reason) -> String {
        let config = self.config;
        let max_wait = format!("`max_wait` ({})", humantime::format_duration(config.max_wait));
        let max_waiting = format!("`max_waiting` ({})", config.fixed.max_waiting.value);
        let or_key_in_flight =
            config.fixed.key_in_flight.value.map(|tokens| format!(", or `keys.in_flight` ({tokens})"));
        let or_in_flight =
            config.in_flight.map(|tokens| format!(", `in_flight` ({tokens}) if the upstream can take more"));
        match reason {
            Reason::OwnQuota => format!("raise {}, or {max_wait}", self.own_quota()),
            Reason::OwnQueue => {
                format!("raise {}, or {max_waiting}{}", self.own_quota(), or_key_in_flight.unwrap_or_default())
            }
            Reason::OwnInFlight => "raise `keys.in_flight`".to_owned(),
            Reason::AllQuota => format!("raise {}, or {max_wait}", self.all()),
            Reason::AllQueue => format!("raise {}, or {max_waiting}", self.all()),
            Reason::AllWait => format!("raise {}{}, or {max_wait}", self.all(), or_in_flight.unwrap_or_default()),
            Reason::UnlistedQuota => {
                let quota = config.keys.unlisted_quota.map(|quota| format!(" ({quota})")).unwrap_or_default();
                format!("raise `keys.unlisted_quota`{quota}")
            }
            Reason::RuleQuota => format!("raise {}, or {max_wait}", self.of_rule("quota")),
            Reason::RuleQueue => format!("raise {}, or {max_waiting}", self.of_rule("quota")),
            Reason::RuleWait => format!("raise {}, or {max_wait}", self.of_rule("quota` or `in_flight")),
            Reason::Blocked => {
                let block = self.limit.map(|block| block.to_string()).unwrap_or_default();
                format!("remove `refuse` from `{block}`, or add a smaller block without it")
            }
            Reason::TooLarge => match self.limit {
                Some(Limit::Rule(_) | Limit::Each(_) | Limit::EachOverflow(_)) => {
                    format!("lower its cost, or raise {}", self.of_rule("quota"))
                }
                _ => "lower the `cost` of its route, or raise the burst and `in_flight`".to_owned(),
            },
            Reason::Store => {
                "look at `rate_limit_store_errors_total`, and at `quota_version` in the files of all gateways; \
                 `redis.outage` says what happens meanwhile"
                    .to_owned()
            }
            Reason::Ending => "nothing: it is being stopped".to_owned(),
            Reason::Unknown => "list the key under `keys.listed`, or change `keys.unlisted`".to_owned(),
            Reason::Invalid => "correct the client; `client_timeout` is how long it may take".to_owned(),
        }
    }

    /// The quota of all requests, with its value.
    fn all(&self) -> String {
        format!("`quota` ({}){}", self.config.quota, version(self.config.is_distributed))
    }

    /// The setting of a rule, with the name of the limit.
    fn of_rule(&self, setting: &str) -> String {
        let is_distributed = |name| self.config.rules.get(&name).is_some_and(|rule| rule.is_distributed);
        let of = |name: Name, what: String| format!("{what}{}", version(is_distributed(name)));
        match self.limit {
            Some(Limit::Rule(name) | Limit::Distributed(name)) => of(name, format!("`{setting}` of `{name}`")),
            Some(Limit::Each(name) | Limit::DistributedEach(name)) => {
                of(name, format!("the quota of each client in `{name}`"))
            }
            Some(limit) => format!("the limit `{limit}`"),
            None => format!("`{setting}`"),
        }
    }

    /// The setting of the client's own quota, with its value.
    fn own_quota(&self) -> String {
        let keys = &self.config.keys;
        let version = version(keys.is_distributed);
        let RefusedClient::Client(client) = self.client else {
            return format!("`keys.quota` ({}){version}", keys.quota);
        };
        let quota = keys.quota_of(client);
        match client {
            Client::Listed(name) if keys.quotas.contains_key(name) => {
                format!("`keys.listed.{name}.quota` ({quota}){version}")
            }
            Client::Listed(name) => format!("`keys.quota` ({quota}){version}, or give {name} a `quota` of its own"),
            Client::Overflow => {
                let max_keys = self.config.fixed.max_keys.value;
                format!("`keys.overflow` ({quota}){version}, or `keys.max_keys` ({max_keys})")
            }
            Client::Key { .. } | Client::Address(_) => format!("`keys.quota` ({quota}){version}"),
        }
    }
}

/// What else to change with a quota that all gateways share.
fn version(is_distributed: bool) -> &'static str {
    if is_distributed { " together with `redis.quota_version`, in the files of all gateways" } else { "" }
}
