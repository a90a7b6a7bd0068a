//! Rules for single values.

use std::time::Duration;

use axum::http::uri::Authority;
use tollgate::{ConfigError, KeyedLimiter, Limiter, Quota, Share};
use toml::Spanned;

use super::super::problem::{Located, Problem, Source};
use super::values::{Time, Upstreams, unlocated};
use crate::upstream::target::Target;

/// The largest `body_buffer`: each connection may fill one.
const MAX_BUFFERED: u64 = 16 << 20;

pub(super) fn check_client_quota(source: &Source<'_>, quota: &Spanned<Quota>) -> Result<(), Problem> {
    let built = KeyedLimiter::<()>::builder().quota(*quota.as_ref()).build();
    built.map(drop).map_err(|error| source.problem(Some(quota.span()), error))
}

/// Checks a quota that several clients share.
pub(super) fn check_shared_quota(source: &Source<'_>, quota: &Spanned<Quota>) -> Result<(), Problem> {
    let span = quota.span();
    Limiter::new(*quota.as_ref()).map_err(|error| source.problem(Some(span.clone()), error))?;
    if quota.as_ref().is_manual() {
        let what = "a manual quota is never refilled here: write one with a rate, like \"100/s, burst 20\"";
        return Err(source.problem(Some(span), what));
    }
    Ok(())
}

pub(super) fn check_cap(source: &Source<'_>, cap: Option<&Spanned<u64>>) -> Result<(), Problem> {
    let Some(cap) = cap else { return Ok(()) };
    if *cap.as_ref() == 0 {
        return Err(source.problem(Some(cap.span()), "`in_flight` is 0: no request could ever pass; write at least 1"));
    }
    let built = Limiter::builder().quota(Quota::per_second(1)).max_in_flight(*cap.as_ref()).build();
    built.map(drop).map_err(|error| source.problem(Some(cap.span()), error))
}

pub(super) fn check_weight(source: &Source<'_>, name: &str, weight: &Spanned<u64>) -> Result<u64, Problem> {
    let shared = Limiter::builder().quota(Quota::per_second(1)).classes().build().expect("it is valid");
    match shared.class(name, Share::weight(*weight.as_ref())) {
        Ok(_) => Ok(*weight.as_ref()),
        Err(ConfigError::BadWeight { weight: given, most, .. }) => {
            let what = format!("`{name}` is {given}: write one between 1 and {most}");
            Err(source.problem(Some(weight.span()), what))
        }
        Err(error) => Err(source.problem(Some(weight.span()), error)),
    }
}

pub(super) fn check_upstreams(source: &Source<'_>, upstreams: Spanned<Upstreams>) -> Result<Vec<Target>, Problem> {
    let span = upstreams.span();
    let list = match upstreams.into_inner() {
        Upstreams::One(target) => return Ok(vec![target]),
        Upstreams::Several(list) => list,
    };
    let mut targets = Vec::new();
    for upstream in list {
        let wrong = |what: String| source.problem(Some(upstream.span()), what);
        let target = upstream.as_ref().parse().map_err(wrong)?;
        if targets.contains(&target) {
            return Err(wrong(format!("`{target}` is in the list twice: leave out one of the two")));
        }
        targets.push(target);
    }
    let what = "no upstream: write at least one, like \"http://127.0.0.1:3000\"";
    if targets.is_empty() { Err(source.problem(Some(span), what)) } else { Ok(targets) }
}

pub(super) fn at_optional<T>(source: &Source<'_>, value: Option<Spanned<T>>) -> Located<Option<T>> {
    value.map_or(source.at(unlocated(None)), |value| source.at(value).map(Some))
}

pub(super) fn check_connections(source: &Source<'_>, connections: &Spanned<usize>) -> Result<(), Problem> {
    let what = "0 connections: no request could ever come; write at least 1";
    if *connections.as_ref() == 0 { Err(source.problem(Some(connections.span()), what)) } else { Ok(()) }
}

pub(super) fn check_host(source: &Source<'_>, host: Spanned<String>) -> Result<String, Problem> {
    let is_name = host.as_ref().parse().is_ok_and(|authority: Authority| authority.host() == host.as_ref());
    if is_name {
        return Ok(host.into_inner());
    }
    let what = format!("`{}` is not a host name: write one like \"gateway.internal\", without a port", host.as_ref());
    Err(source.problem(Some(host.span()), what))
}

pub(super) fn check_timeout(source: &Source<'_>, name: &str, time: &Spanned<Time>) -> Result<Duration, Problem> {
    let Time(timeout) = *time.as_ref();
    let what = || format!("`{name}` is 0s, and nothing takes no time: write one like \"30s\"");
    if timeout.is_zero() { Err(source.problem(Some(time.span()), what())) } else { Ok(timeout) }
}

pub(super) fn check_buffer(source: &Source<'_>, bytes: &Spanned<u64>) -> Result<usize, Problem> {
    let size = *bytes.as_ref();
    let what =
        || format!("`body_buffer` is {size} bytes, which each connection may take: write at most {MAX_BUFFERED}");
    if size > MAX_BUFFERED { Err(source.problem(Some(bytes.span()), what())) } else { Ok(size as usize) }
}

/// Checks that a request of this cost would pass within `max_wait` if the bucket were full.
pub(super) fn check_wait(cost: u64, whose: &str, quota: Quota, max_wait: Duration) -> Result<(), String> {
    let full = Limiter::new(quota.initial(quota.capacity())).expect("the quota was checked");
    let wait = full.estimate(cost);
    if wait.is_some_and(|wait| wait <= max_wait) {
        return Ok(());
    }
    let wait = wait.map_or("for ever".to_owned(), |wait| format!("for {}", humantime::format_duration(wait)));
    Err(format!(
        "a cost of {cost} waits {wait} even in a full bucket of the quota \"{quota}\" of {whose}, and `max_wait` is {}: \
         lower the cost, or raise the burst or `max_wait`",
        humantime::format_duration(max_wait)
    ))
}
