//! The table `keys`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use axum::http::{HeaderName, HeaderValue};
use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::checks::{check_cap, check_client_quota, check_weight};
use super::networks::parse;
use super::redis::check_distributed;
use super::values::unlocated;
use crate::request::forwarding::Proxies;
use crate::request::key_source::KeySource;
use crate::request::keys::{Keys, Unlisted};
use crate::request::name::Name;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysTable {
    header: Option<Spanned<String>>,
    query: Option<Spanned<String>>,
    claim: Option<Spanned<String>>,
    quota: Spanned<Quota>,
    pub(super) distributed: Option<Spanned<bool>>,
    pub(super) in_flight: Option<Spanned<u64>>,
    #[serde(default = "default_unlisted")]
    pub(super) unlisted: Unlisted,
    #[serde(default)]
    proxies_before: usize,
    trusted_proxies: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default = "default_keys")]
    pub(super) max_keys: Spanned<u64>,
    overflow: Option<Spanned<Quota>>,
    unlisted_quota: Option<Spanned<Quota>>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default = "default_listed_weight")]
    listed_weight: Spanned<u64>,
    #[serde(default)]
    listed: BTreeMap<String, Listed>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    key: Spanned<String>,
    quota: Option<Spanned<Quota>>,
    weight: Option<Spanned<u64>>,
}

fn default_keys() -> Spanned<u64> {
    unlocated(100_000)
}

fn default_listed_weight() -> Spanned<u64> {
    unlocated(9)
}

fn default_unlisted() -> Unlisted {
    Unlisted::ByAddress
}

impl KeysTable {
    pub(super) fn check(self, source: &Source<'_>, span: Range<usize>) -> Result<Keys, Problem> {
        let key_source = self.key_source(source, span)?;
        if *self.max_keys.as_ref() == 0 {
            let what = "`max_keys` is 0: write at least 1; `unlisted = \"refuse\"` admits listed keys only";
            return Err(source.problem(Some(self.max_keys.span()), what));
        }
        check_client_quota(source, &self.quota)?;
        self.overflow.iter().try_for_each(|quota| check_client_quota(source, quota))?;
        self.check_unlisted_quota(source)?;
        let is_distributed = self.check_distributed(source)?;
        check_cap(source, self.in_flight.as_ref())?;
        let listed_weight = check_weight(source, "listed_weight", &self.listed_weight)?;
        let proxies = check_proxies(source, self.proxies_before, self.trusted_proxies)?;
        let (mut names, mut quotas, mut weights) = (HashMap::default(), BTreeMap::new(), BTreeMap::new());
        for (name, Listed { key, quota, weight }) in self.listed {
            let name = Name::new(&name);
            let bare = check_key(source, &key_source, name, &key)?;
            if let Some(quota) = quota {
                check_client_quota(source, &quota)?;
                quotas.insert(name, quota.into_inner());
            }
            if let Some(weight) = weight {
                weights.insert(name, check_weight(source, "weight", &weight)?);
            }
            let span = key.span();
            if let Some(other) = names.insert(bare, name) {
                let what = format!("`{name}` has the key of `{other}`: give each its own");
                return Err(source.problem(Some(span), what));
            }
        }
        let (quota, unlisted) = (self.quota.into_inner(), self.unlisted);
        let overflow = self.overflow.map_or(quota, Spanned::into_inner);
        let (unlisted_quota, dry_run) = (self.unlisted_quota.map(Spanned::into_inner), self.dry_run);
        Ok(Keys {
            challenge: key_source.challenge(),
            source: key_source,
            quota,
            overflow,
            unlisted,
            proxies,
            names,
            quotas,
            listed_weight,
            weights,
            unlisted_quota,
            dry_run,
            is_distributed,
        })
    }

    fn key_source(&self, source: &Source<'_>, span: Range<usize>) -> Result<KeySource, Problem> {
        let given = [&self.header, &self.query, &self.claim].into_iter().flatten();
        let mut given = given.collect::<Vec<_>>();
        given.sort_by_key(|place| place.span().start);
        let [place] = given[..] else {
            let what = "write one of `header`, `query` and `claim`: where a request has its key";
            let span = given.last().map_or(span, |place| place.span());
            return Err(source.problem(Some(span), what));
        };
        let name = place.as_ref().as_str();
        if self.header.is_some() {
            return HeaderName::try_from(name).map(KeySource::Header).map_err(|_| {
                let what = format!("`{name}` is not a header name: write one like \"x-api-key\"");
                source.problem(Some(place.span()), what)
            });
        }
        // Both appear in responses, in quotes.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if name.is_empty() || !name.bytes().all(is_plain) {
            let what =
                format!("`{name}` is not a name: write one like \"api_key\" or \"sub\", without spaces and quotes");
            return Err(source.problem(Some(place.span()), what));
        }
        Ok(if self.query.is_some() { KeySource::Query(name.to_owned()) } else { KeySource::Claim(name.to_owned()) })
    }

    fn check_distributed(&self, source: &Source<'_>) -> Result<bool, Problem> {
        let listed = self.listed.values().filter_map(|listed| listed.quota.as_ref());
        let quotas = [&self.quota].into_iter().chain(&self.overflow).chain(listed);
        check_distributed(source, self.distributed.as_ref(), self.dry_run, quotas)
    }

    fn check_unlisted_quota(&self, source: &Source<'_>) -> Result<(), Problem> {
        let Some(quota) = &self.unlisted_quota else { return Ok(()) };
        if self.unlisted == Unlisted::Refuse {
            let what = "`unlisted_quota` has no effect with `unlisted = \"refuse\"`: leave out one of the two";
            return Err(source.problem(Some(quota.span()), what));
        }
        check_client_quota(source, quota)
    }
}

/// Returns the key as requests have it.
fn check_key(source: &Source<'_>, place: &KeySource, name: Name, key: &Spanned<String>) -> Result<String, Problem> {
    let is_header = matches!(place, KeySource::Header(_));
    let is_ascii = |key: &str| HeaderValue::from_str(key).is_ok_and(|value| value.to_str().is_ok());
    let Ok(bare) = place.bare(key.as_ref()) else {
        let what = format!("the key of `{name}` matches no request: write base64 after `Basic`");
        return Err(source.problem(Some(key.span()), what));
    };
    let what = if is_header && (bare.is_empty() || !is_ascii(key.as_ref())) {
        format!("the key of `{name}` cannot be sent in a header: write visible ASCII characters")
    } else if bare.is_empty() {
        format!("the key of `{name}` is empty: write what its requests have")
    } else if matches!(place, KeySource::Query(_)) && bare.contains(char::is_control) {
        format!("the key of `{name}` cannot be sent in a query: write it without control characters")
    } else if !bare.eq_ignore_ascii_case(key.as_ref()) {
        let scheme = if is_header { "`Bearer` and " } else { "" };
        format!("the key of `{name}` matches no request: write it without {scheme}spaces around it, \"{bare}\"")
    } else {
        return Ok(bare.into_owned());
    };
    Err(source.problem(Some(key.span()), what))
}

fn check_proxies(
    source: &Source<'_>,
    before: usize,
    trusted: Option<Spanned<Vec<Spanned<String>>>>,
) -> Result<Proxies, Problem> {
    let Some(trusted) = trusted else { return Ok(Proxies { before, trusted: None }) };
    if before == 0 {
        let what = "`trusted_proxies` has no effect without `proxies_before`: write how many proxies a request passes";
        return Err(source.problem(Some(trusted.span()), what));
    }
    let trusted = trusted.into_inner().into_iter().map(|text| parse(source, &text)).collect::<Result<_, _>>()?;
    Ok(Proxies { before, trusted: Some(trusted) })
}
