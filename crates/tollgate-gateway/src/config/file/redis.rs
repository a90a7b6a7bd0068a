//! The table `redis`, and the limits that need it.

use std::ops::Range;

use tollgate::Quota;
use tollgate::distributed::{QuotaTerms, StoreError};
use toml::Spanned;

use super::super::problem::{Located, Problem, Source};
use super::super::redis::{OutagePolicy, Redis, RedisFixed, connect};
use super::checks::check_timeout;
use super::values::{Time, seconds, unlocated};

#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedisTable {
    url: Spanned<String>,
    #[serde(default = "default_name")]
    name: Spanned<String>,
    #[serde(default = "seconds::<1>")]
    answer_timeout: Spanned<Time>,
    #[serde(default = "default_outage")]
    outage: OutagePolicy,
    quota_version: Option<Spanned<u32>>,
    secret: Option<Spanned<String>>,
}

/// The shortest secret: 16 random bytes in base64 are longer.
const SHORTEST_SECRET: usize = 16;

fn default_name() -> Spanned<String> {
    unlocated("gateway".to_owned())
}

fn default_outage() -> OutagePolicy {
    OutagePolicy::Local
}

impl RedisTable {
    fn check(&self, source: &Source<'_>, span: Range<usize>) -> Result<Redis, Problem> {
        let wrong = |span: Range<usize>, what: String| Err(source.problem(Some(span), what));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let name = self.name.as_ref();
        if name.is_empty() || name.len() > 100 || !name.bytes().all(is_plain) {
            let what =
                format!("`{name}` is not a name: write one like \"shop-gateways\", of letters, digits, `-`, `_`, `.`");
            return wrong(self.name.span(), what);
        }
        if let Some(secret) = self.secret.as_ref().filter(|secret| secret.as_ref().len() < SHORTEST_SECRET) {
            let what = format!(
                "the secret has less than {SHORTEST_SECRET} characters: write random ones, the same for all gateways"
            );
            return wrong(secret.span(), what);
        }
        let fixed = RedisFixed {
            url: self.url.as_ref().clone(),
            name: name.clone(),
            answer_timeout: check_timeout(source, "redis.answer_timeout", &self.answer_timeout)?,
            outage: self.outage,
            secret: self.secret.as_ref().map(|secret| secret.as_ref().clone()),
        };
        match connect(&fixed) {
            Ok(_) => {}
            Err(StoreError::Refused(what)) => return wrong(span, what),
            // The error may repeat the address, which may contain a password.
            Err(_) => {
                let what = "this is not the address of a Redis server: write one like \"redis://user:password@10.0.0.5:6379/\"";
                return wrong(self.url.span(), what.to_owned());
            }
        }
        let line = source.at(Spanned::new(self.quota_version.as_ref().map_or(span, Spanned::span), ())).line;
        let value = self.quota_version.as_ref().map_or(0, |version| *version.as_ref());
        Ok(Redis { fixed, quota_version: Located { value, line } })
    }
}

/// The first limit that all gateways share, and the first of them that has buckets of unlisted keys.
#[derive(Default)]
pub(super) struct DistributedLimits {
    pub(super) first: Option<Range<usize>>,
    pub(super) first_of_keys: Option<Range<usize>>,
}

impl DistributedLimits {
    /// Notes a limit, if `distributed` is true.
    pub(super) fn note(&mut self, distributed: Option<&Spanned<bool>>, has_keys: bool) {
        let Some(distributed) = distributed.filter(|distributed| *distributed.as_ref()) else { return };
        self.first.get_or_insert(distributed.span());
        if has_keys {
            self.first_of_keys.get_or_insert(distributed.span());
        }
    }

    /// Checks the table if a limit needs it, and that a limit does. `keys_count` is whether unlisted keys have buckets.
    pub(super) fn check_redis(
        &self,
        source: &Source<'_>,
        table: Option<&Spanned<RedisTable>>,
        keys_count: bool,
    ) -> Result<Option<Redis>, Problem> {
        let Some(table) = table else {
            let what = "`distributed`: write a table `[redis]` with the `url` of the server that all gateways share";
            return self.first.clone().map_or(Ok(None), |span| Err(source.problem(Some(span), what)));
        };
        if self.first.is_none() {
            let what = "`[redis]` has no effect: write `distributed = true` beside the quotas that all gateways share";
            return Err(source.problem(Some(table.span()), what));
        }
        let redis = table.as_ref().check(source, table.span())?;
        if let Some(span) = self.first_of_keys.clone().filter(|_| keys_count && redis.fixed.secret.is_none()) {
            let what = "with `unlisted = \"by-key\"` all gateways need one `secret` in `[redis]`, for the digests of these \
                        keys: write 16 random characters or more";
            return Err(source.problem(Some(span), what));
        }
        Ok(Some(redis))
    }
}

/// Checks `distributed` of a table with these quotas.
pub(super) fn check_distributed<'a>(
    source: &Source<'_>,
    distributed: Option<&Spanned<bool>>,
    dry_run: bool,
    quotas: impl IntoIterator<Item = &'a Spanned<Quota>>,
) -> Result<bool, Problem> {
    let Some(distributed) = distributed.filter(|distributed| *distributed.as_ref()) else { return Ok(false) };
    if dry_run {
        let what =
            "a quota that all gateways share cannot be tried out: leave out `distributed` until `dry_run` is false";
        return Err(source.problem(Some(distributed.span()), what));
    }
    let mut quotas = quotas.into_iter().peekable();
    if quotas.peek().is_none() {
        let what =
            "`distributed` has no effect without a quota: write one here. Tokens in flight are counted by each gateway";
        return Err(source.problem(Some(distributed.span()), what));
    }
    for quota in quotas {
        QuotaTerms::of(quota.as_ref(), 0).map_err(|error| source.problem(Some(quota.span()), error))?;
    }
    Ok(true)
}
