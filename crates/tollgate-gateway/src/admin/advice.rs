//! What an operator can change about a refusal: the setting and its value.

use crate::config::Config;
use crate::limits::limit::Limit;
use crate::limits::reason::Reason;
use crate::request::client::Client;
use crate::telemetry::refusals::RefusedClient;

/// For the page, in plain words.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Advice {
    why: &'static str,
    /// What to change; settings are in backquotes.
    change: String,
}

impl Advice {
    pub(crate) fn new(config: &Config, refused_client: &RefusedClient, reason: Reason, limit: Option<Limit>) -> Self {
        let max_wait = humantime::format_duration(config.max_wait);
        let (quota, max_waiting) = (config.quota, config.fixed.max_waiting.value);
        let (why, change) = match reason {
            Reason::OwnQuota => (
                "asks for more than its quota",
                format!("raise {}, or `max_wait` ({max_wait})", own_quota(config, refused_client)),
            ),
            Reason::OwnQueue => {
                let in_flight = match config.fixed.key_in_flight.value {
                    Some(tokens) => format!(", or `keys.in_flight` ({tokens})"),
                    None => String::new(),
                };
                (
                    "its own queue is full or held up",
                    format!("raise {}, or `max_waiting` ({max_waiting}){in_flight}", own_quota(config, refused_client)),
                )
            }
            Reason::OwnInFlight => ("has too much in flight itself", "raise `keys.in_flight`".to_owned()),
            Reason::AllQuota => (
                "all requests together exceed their quota",
                format!("raise `quota` ({quota}), or `max_wait` ({max_wait})"),
            ),
            Reason::AllQueue => (
                "too many requests wait for the quota of all",
                format!("raise `quota` ({quota}), or `max_waiting` ({max_waiting})"),
            ),
            Reason::AllWait => {
                let in_flight = match config.in_flight {
                    Some(tokens) => format!(", `in_flight` ({tokens}) if the upstream can take more"),
                    None => String::new(),
                };
                (
                    "others took the tokens or the places in flight",
                    format!("raise `quota` ({quota}){in_flight}, or `max_wait` ({max_wait})"),
                )
            }
            Reason::UnlistedQuota => {
                let quota = config.keys.unlisted_quota.map(|quota| format!(" ({quota})")).unwrap_or_default();
                ("all unlisted clients together exceed their quota", format!("raise `keys.unlisted_quota`{quota}"))
            }
            Reason::RuleQuota => (
                "asks for more than a limit of its own path, address or model",
                format!("raise {}, or `max_wait` ({max_wait})", of_rule(limit, "quota")),
            ),
            Reason::RuleQueue => (
                "too many requests wait for a limit of a path, an address or a model",
                format!("raise {}, or `max_waiting` ({max_waiting})", of_rule(limit, "quota")),
            ),
            Reason::RuleWait => (
                "others took the tokens of a path, an address or a model, or its places in flight",
                format!("raise {}, or `max_wait` ({max_wait})", of_rule(limit, "quota` or `in_flight")),
            ),
            Reason::Blocked => {
                let block = limit.map(|block| block.to_string()).unwrap_or_default();
                (
                    "its address is not accepted",
                    format!("remove `refuse` from `{block}`, or add a smaller block without it"),
                )
            }
            Reason::TooLarge => {
                let change = match limit {
                    Some(Limit::Rule(_) | Limit::Each(_) | Limit::EachOverflow(_)) => {
                        format!("lower its cost, or raise {}", of_rule(limit, "quota"))
                    }
                    _ => "lower the `cost` of its route, or raise the burst and `in_flight`".to_owned(),
                };
                ("costs more than could ever be granted", change)
            }
            Reason::Store => (
                "Redis cannot be reached, or another gateway has another quota there",
                "look at `rate_limit_store_errors_total`, and at `quota_version` in the files of all gateways; \
                 `redis.outage` says what happens meanwhile"
                    .to_owned(),
            ),
            Reason::Ending => ("the gateway is ending", "nothing: it is being stopped".to_owned()),
            Reason::Unknown => {
                ("its key is not listed", "list the key under `keys.listed`, or change `keys.unlisted`".to_owned())
            }
            Reason::Invalid => (
                "malformed, or its body did not come in time",
                "correct the client; `client_timeout` is how long it may take".to_owned(),
            ),
        };
        Self { why, change }
    }
}

/// The setting of a rule, with the name of the limit.
fn of_rule(limit: Option<Limit>, setting: &str) -> String {
    match limit {
        Some(Limit::Rule(name)) => format!("`{setting}` of `{name}`"),
        Some(Limit::Each(name)) => format!("the quota of each client in `{name}`"),
        Some(limit) => format!("the limit `{limit}`"),
        None => format!("`{setting}`"),
    }
}

/// The setting of the client's own quota, with its value.
fn own_quota(config: &Config, refused_client: &RefusedClient) -> String {
    let RefusedClient::Client(client) = refused_client else { return format!("`keys.quota` ({})", config.keys.quota) };
    let quota = config.keys.quota_of(client);
    match client {
        Client::Listed(name) if config.keys.quotas.contains_key(name) => {
            format!("`keys.listed.{name}.quota` ({quota})")
        }
        Client::Listed(name) => format!("`keys.quota` ({quota}), or give {name} a `quota` of its own"),
        Client::Overflow => format!("`keys.overflow` ({quota}) or `keys.max_keys` ({})", config.fixed.max_keys.value),
        Client::Key { .. } | Client::Address(_) => format!("`keys.quota` ({quota})"),
    }
}
