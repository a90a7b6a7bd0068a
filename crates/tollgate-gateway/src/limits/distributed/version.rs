//! Changes of distributed quotas. The other gateways have to know which of two quotas is the newer one.

use std::collections::BTreeMap;

use tollgate::Quota;

use super::quotas::shared_quotas;
use crate::config::Config;
use crate::request::client::Client;

/// Why `new` cannot follow `old`.
pub(crate) fn check_version(old: &Config, new: &Config) -> Result<(), String> {
    let (Some(before), Some(now)) = (&old.redis, &new.redis) else { return Ok(()) };
    let (before, now) = (before.quota_version.value, now.quota_version.value);
    if now < before {
        return Err(format!(
            "`quota_version` went back from {before} to {now}: write a higher one, also for an older quota"
        ));
    }
    let quotas = all_quotas(new);
    let changed = all_quotas(old).into_iter().find(|(name, quota)| quotas.get(name).is_some_and(|new| new != quota));
    match changed.filter(|_| now == before) {
        Some((name, quota)) => Err(format!(
            "`{name}` is distributed and was \"{quota}\": write `quota_version = {}` here and in the files of all other \
             gateways, or restore the old quota",
            now.saturating_add(1)
        )),
        None => Ok(()),
    }
}

/// All distributed quotas, by their names in messages.
fn all_quotas(config: &Config) -> BTreeMap<String, Quota> {
    let shared = shared_quotas(config).into_iter().map(|(name, quota)| (format!("quota of {name}"), quota));
    let mut all: BTreeMap<String, Quota> = shared.collect();
    for (name, rule) in config.rules.iter().filter(|(_, rule)| rule.is_distributed) {
        all.extend(rule.each.map(|quota| (format!("quota of each client of {name}"), quota)));
    }
    let keys = &config.keys;
    if keys.is_distributed {
        let listed = keys.names.values().map(|name| (format!("keys.listed.{name}"), Client::Listed(*name)));
        all.extend(listed.map(|(name, client)| (name, keys.quota_of(&client))));
        all.extend([("keys.quota".to_owned(), keys.quota), ("keys.overflow".to_owned(), keys.overflow)]);
    }
    all
}
