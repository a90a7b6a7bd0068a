//! The tables `routes`.

use std::ops::Range;
use std::time::Duration;

use axum::http::Method;
use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::checks::{check_buffer, check_wait};
use super::rules::{self, RuleTable};
use crate::request::keys::Keys;
use crate::request::name::Name;
use crate::request::route::Route;
use crate::request::rule::RuleSet;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    path: Spanned<String>,
    #[serde(default)]
    methods: Vec<Spanned<String>>,
    cost: Option<Spanned<u64>>,
    body_buffer: Option<Spanned<u64>>,
    name: Option<Spanned<String>>,
    quota: Option<Spanned<Quota>>,
    pub(super) key_quota: Option<Spanned<Quota>>,
    pub(super) distributed: Option<Spanned<bool>>,
    dry_run: Option<Spanned<bool>>,
    in_flight: Option<Spanned<u64>>,
    tokens: Option<Spanned<bool>>,
    websockets: Option<Spanned<bool>>,
}

impl RouteTable {
    /// Where the file says that the requests of the route cost tokens of a language model.
    pub(super) fn llm(&self) -> Option<Range<usize>> {
        self.tokens.as_ref().filter(|tokens| *tokens.as_ref()).map(Spanned::span)
    }

    /// Parses a route, with the span of its cost.
    fn check(&self, source: &Source<'_>) -> Result<(Route, Range<usize>), Problem> {
        if !self.path.as_ref().starts_with('/') {
            let what = format!("the path `{}` does not begin with a slash: write \"/reports\"", self.path.as_ref());
            return Err(source.problem(Some(self.path.span()), what));
        }
        let mut methods = Vec::new();
        for name in &self.methods {
            // Any token is a valid method, but all common methods are upper case.
            let method = Method::from_bytes(name.as_ref().as_bytes()).ok();
            let method = method.filter(|method| !method.as_str().contains(|c: char| c.is_ascii_lowercase()));
            methods.push(method.ok_or_else(|| {
                source.problem(Some(name.span()), format!("`{}` is not a method: write \"POST\"", name.as_ref()))
            })?);
        }
        let (cost, span) = match &self.cost {
            Some(cost) => (*cost.as_ref(), cost.span()),
            None => (1, self.path.span()),
        };
        let body_buffer = self.body_buffer.as_ref().map(|bytes| check_buffer(source, bytes)).transpose()?;
        let mut route = Route::new(self.path.as_ref(), methods, cost, body_buffer);
        route.is_llm = self.llm().is_some();
        route.websockets = self.check_websockets(source)?;
        Ok((route, span))
    }

    fn check_websockets(&self, source: &Source<'_>) -> Result<bool, Problem> {
        let Some(websockets) = self.websockets.as_ref().filter(|websockets| *websockets.as_ref()) else {
            return Ok(false);
        };
        if self.llm().is_some() {
            let what = "`websockets`: the tokens of a WebSocket cannot be counted: leave it out, or `tokens`";
            return Err(source.problem(Some(websockets.span()), what));
        }
        Ok(true)
    }

    /// The name of the route's limits in refusals and metrics.
    fn rule_name(&self, source: &Source<'_>) -> Result<Name, Problem> {
        if let Some(name) = self.name.as_ref().filter(|name| name.as_ref().is_empty()) {
            let what = "this name is empty: write one like \"reports\", or leave it out";
            return Err(source.problem(Some(name.span()), what));
        }
        let name = self.name.as_ref().unwrap_or(&self.path);
        Ok(Name::new(&format!("route {}", name.as_ref())))
    }

    fn limits(&self) -> RuleTable<'_> {
        let Self { quota, key_quota, in_flight, distributed, dry_run, .. } = self;
        RuleTable {
            quota: quota.as_ref(),
            in_flight: in_flight.as_ref(),
            each: key_quota.as_ref(),
            distributed: distributed.as_ref(),
            dry_run: dry_run.as_ref(),
        }
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
    /// Adds the limits of the route to `rules`.
    pub(super) fn check_route(
        &self,
        source: &Source<'_>,
        table: &RouteTable,
        rules: &mut RuleSet,
    ) -> Result<Route, Problem> {
        let (mut route, span) = table.check(source)?;
        self.check_cost(route.cost).map_err(|why| source.problem(Some(span), why))?;
        let (limits, name) = (table.limits(), table.rule_name(source)?);
        if limits.is_empty() {
            limits.check_unused(source)?;
            return Ok(route);
        }
        if route.cost == 0 {
            let what = "a route of cost 0 never waits, so its limits have no effect: leave them out, or raise the cost";
            return Err(source.problem(table.cost.as_ref().map(Spanned::span), what));
        }
        limits.check_values(source)?;
        let rule = limits.check(source, name, route.cost, self.max_wait)?;
        let named = table.name.as_ref().unwrap_or(&table.path);
        let twice = || {
            let what = format!("another route with limits is named `{}` too: give one a `name`", named.as_ref());
            source.problem(Some(named.span()), what)
        };
        rules::add(rules, name, rule, twice)?;
        route.rule = Some(name);
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
