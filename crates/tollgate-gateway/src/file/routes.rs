//! The tables `routes`.

use std::ops::Range;
use std::time::Duration;

use axum::http::Method;
use tollgate::{Limiter, Quota};
use toml::Spanned;

use super::super::keys::Keys;
use super::super::problem::{Problem, Source};
use super::super::route::Route;
use super::checks::check_buffer;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    path: Spanned<String>,
    #[serde(default)]
    methods: Vec<Spanned<String>>,
    cost: Spanned<u64>,
    body_buffer: Option<Spanned<u64>>,
}

impl RouteTable {
    /// Parses a route, with the span of its cost.
    fn check(self, source: &Source<'_>) -> Result<(Route, Range<usize>), Problem> {
        if !self.path.as_ref().starts_with('/') {
            let what = format!("the path `{}` does not begin with a slash: write \"/reports\"", self.path.as_ref());
            return Err(source.problem(Some(self.path.span()), what));
        }
        let mut methods = Vec::new();
        for name in self.methods {
            // Any token is a valid method, but all common methods are upper case.
            let method = Method::from_bytes(name.as_ref().as_bytes()).ok();
            let method = method.filter(|method| !method.as_str().contains(|c: char| c.is_ascii_lowercase()));
            methods.push(method.ok_or_else(|| {
                source.problem(Some(name.span()), format!("`{}` is not a method: write \"POST\"", name.as_ref()))
            })?);
        }
        let cost = self.cost.span();
        let body_buffer = self.body_buffer.map(|bytes| check_buffer(source, &bytes)).transpose()?;
        Ok((Route::new(self.path.as_ref(), methods, self.cost.into_inner(), body_buffer), cost))
    }
}

/// What each request must fit into, even in an idle gateway.
pub(super) struct Bounds<'a> {
    pub(super) quota: Quota,
    pub(super) keys: &'a Keys,
    /// The caps in flight, with their names.
    pub(super) caps: [(&'static str, Option<&'a Spanned<u64>>); 2],
    pub(super) max_wait: Duration,
}

impl Bounds<'_> {
    pub(super) fn check_route(&self, source: &Source<'_>, route: RouteTable) -> Result<Route, Problem> {
        let (route, cost) = route.check(source)?;
        self.check_cost(route.cost).map_err(|why| source.problem(Some(cost), why))?;
        Ok(route)
    }

    /// The error is the reason why a request of `cost` could never pass.
    pub(super) fn check_cost(&self, cost: u64) -> Result<(), String> {
        for (name, most) in self.caps {
            if let Some(most) = most.map(|most| *most.as_ref()).filter(|most| cost > *most) {
                return Err(format!(
                    "a cost of {cost} exceeds `{name}` of {most} and could never pass: lower it, or raise `{name}`"
                ));
            }
        }
        let Self { keys, max_wait, .. } = self;
        let all = [("all", self.quota), ("each key", keys.quota), ("`overflow`", keys.overflow)].into_iter();
        let all = all.chain(keys.unlisted_quota.map(|quota| ("`unlisted_quota`", quota)));
        let mut all = all.chain(keys.quotas.iter().map(|(name, quota)| (name.as_str(), *quota)));
        all.try_for_each(|(whose, quota)| check_wait(cost, whose, quota, *max_wait))
    }
}

fn check_wait(cost: u64, whose: &str, quota: Quota, max_wait: Duration) -> Result<(), String> {
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
