//! The policy of a request, by its path and its method.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use super::forwarding;
use super::name::Name;
use crate::http::path_variants::{self, PathVariants, is_escaped_rightly, is_unambiguous, normalize, normalize_within};

/// Matches requests below the path of the route, segment by segment.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    segments: Vec<Segment>,
    /// Its segments with slashes between them.
    path: Box<[u8]>,
    /// Empty if the route matches any method.
    methods: Vec<Method>,
    pub(crate) cost: u64,
    /// How many bytes of a body are read before the request is admitted; `None` if as for all routes.
    body_buffer: Option<usize>,
    /// The name of the route's own limits, if it has any.
    pub(crate) rule: Option<Name>,
    /// Whether its requests cost tokens of a language model.
    pub(crate) is_llm: bool,
    /// Whether its requests may open WebSockets.
    pub(crate) websockets: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    text: Box<[u8]>,
    normalized: Box<str>,
}

/// What the file says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutePolicy {
    pub(crate) cost: u64,
    pub(crate) body_buffer: usize,
    /// The names of the limits that the request takes tokens of, in alphabetical order.
    pub(crate) rules: Vec<Name>,
    /// Whether it costs tokens of a language model too.
    pub(crate) is_llm: bool,
    /// Whether it may open a WebSocket: only if all that it may mean allow it.
    pub(crate) websockets: bool,
}

/// Requests to language models are read as a whole, so by default their buffer is larger.
const LLM_BUFFER: usize = 1 << 20;

impl RoutePolicy {
    fn max(self, other: Self) -> Self {
        let Self { cost, body_buffer, mut rules, is_llm, websockets } = self;
        rules.extend(other.rules);
        rules.sort_unstable();
        rules.dedup();
        let (cost, body_buffer) = (cost.max(other.cost), body_buffer.max(other.body_buffer));
        let (is_llm, websockets) = (is_llm || other.is_llm, websockets && other.websockets);
        Self { cost, body_buffer, rules, is_llm, websockets }
    }
}

impl Route {
    pub(crate) fn new(path: &str, methods: Vec<Method>, cost: u64, body_buffer: Option<usize>) -> Self {
        let path: Vec<u8> = percent_decode_str(path).collect();
        let segments = path_variants::segments(&path).filter(|segment| !segment.is_empty());
        let segment = |text: &[u8]| Segment { text: text.into(), normalized: normalize(text).into() };
        let segments = path_variants::resolve(segments, usize::MAX);
        let path = segments.join(&b'/').into();
        let segments = segments.into_iter().map(segment).collect();
        Self { segments, path, methods, cost, body_buffer, rule: None, is_llm: false, websockets: false }
    }

    fn is_of(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|own| own.as_str().eq_ignore_ascii_case(method))
    }

    /// The same as [`matches`](Self::matches) of the segments of `path`, which is unambiguous.
    fn matches_plain(&self, path: &[u8]) -> bool {
        let below = path.strip_prefix(b"/").unwrap_or(path).strip_prefix(&*self.path);
        self.path.is_empty() || below.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }

    fn matches<'a>(&self, mut path: impl Iterator<Item = &'a [u8]>) -> bool {
        self.segments.iter().all(|own| path.next().is_some_and(|seen| *own.text == *seen))
    }

    /// `path` has the first segments of a path, in the form that they have in common.
    fn matches_normalized(&self, path: &[String]) -> bool {
        let is_same = |(own, seen): (&Segment, &String)| *own.normalized == **seen;
        self.segments.len() <= path.len() && self.segments.iter().zip(path).all(is_same)
    }

    fn policy(&self, body_buffer: usize) -> RoutePolicy {
        let buffer = body_buffer.max(if self.is_llm { LLM_BUFFER } else { 0 });
        RoutePolicy {
            cost: self.cost,
            body_buffer: self.body_buffer.unwrap_or(buffer),
            rules: self.rule.into_iter().collect(),
            is_llm: self.is_llm,
            websockets: self.websockets,
        }
    }

    fn is_normalized(&self) -> bool {
        self.segments.iter().all(|segment| *segment.text == *segment.normalized.as_bytes())
    }
}

/// All routes. The route with the longest path decides; of several, the first in the file.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// With their policies.
    routes: Vec<(Route, RoutePolicy)>,
    /// The policy of a request without a route.
    base: RoutePolicy,
    /// Whether all segments of all routes are the same [loosely](normalize).
    are_normalized: bool,
    /// The methods that some routes are for, and others not.
    methods: Vec<Method>,
}

/// A path of which the gateway cannot say what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadEscape;

impl Routes {
    /// `body_buffer` bytes of a body are read where a route does not say otherwise.
    pub(crate) fn new(mut routes: Vec<Route>, body_buffer: usize) -> Self {
        routes.sort_by_key(|route| std::cmp::Reverse(route.segments.len()));
        let are_normalized = routes.iter().all(Route::is_normalized);
        let methods: HashSet<Method> = routes.iter().flat_map(|route| route.methods.iter().cloned()).collect();
        let base = RoutePolicy { cost: 1, body_buffer, rules: Vec::new(), is_llm: false, websockets: false };
        let with_policy = |route: Route| {
            let policy = route.policy(body_buffer);
            (route, policy)
        };
        let routes = routes.into_iter().map(with_policy).collect();
        Self { routes, base, are_normalized, methods: methods.into_iter().collect() }
    }

    /// The highest policy of all that the request may mean to the upstream.
    pub(crate) fn policy(
        &self,
        method: &Method,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Cow<'_, RoutePolicy>, BadEscape> {
        if self.routes.is_empty() {
            return Ok(Cow::Borrowed(&self.base));
        }
        let is_unambiguous = is_unambiguous(path);
        if !is_unambiguous && !is_escaped_rightly(path) {
            return Err(BadEscape);
        }
        let own = method.as_str();
        let mut others = others(method, headers).peekable();
        if !self.methods.is_empty() && others.peek().is_some() {
            return Ok(self.policy_of(&self.distinct(own, others), path, is_unambiguous));
        }
        if self.are_normalized && is_unambiguous {
            return Ok(Cow::Borrowed(self.first_matching(own, |route| route.matches_plain(path.as_bytes()))));
        }
        Ok(self.policy_of(&[own], path, is_unambiguous))
    }

    /// Those of the methods that routes tell apart. A client may name hundreds.
    fn distinct<'a>(&self, own: &'a str, others: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let named = |method: &str| self.methods.iter().position(|of| of.as_str().eq_ignore_ascii_case(method));
        let mut distinct = vec![own];
        for method in others {
            if distinct.iter().all(|known| named(known) != named(method)) {
                distinct.push(method);
            }
        }
        distinct
    }

    /// The highest policy of a request that may have any of these methods.
    fn policy_of(&self, methods: &[&str], path: &str, is_unambiguous: bool) -> Cow<'_, RoutePolicy> {
        if self.are_normalized && is_unambiguous {
            return self.policy_by(methods, |route| route.matches_plain(path.as_bytes()));
        }
        let Some(readings) = PathVariants::of(path) else {
            let is_of = |(route, _): &&(Route, _)| methods.iter().any(|method| route.is_of(method));
            let all = self.routes.iter().filter(is_of).map(|(_, policy)| Cow::Borrowed(policy));
            return all.fold(Cow::Borrowed(&self.base), max);
        };
        // The longest route is the first.
        let longest = self.routes.first().map_or(0, |(route, _)| route.segments.len());
        let segments = self.routes.iter().flat_map(|(route, _)| &route.segments);
        let longest_segment = segments.map(|segment| segment.normalized.len()).max().unwrap_or(0);
        let policy = |prefix: path_variants::Segments<'_>| {
            let normalized = prefix.iter().map_while(|segment| normalize_within(segment, longest_segment));
            let normalized: Vec<String> = normalized.collect();
            // A route that matches exactly matches loosely too.
            if !self.routes.iter().any(|(route, _)| route.matches_normalized(&normalized)) {
                return Cow::Borrowed(&self.base);
            }
            let exact = self.policy_by(methods, |route| route.matches(prefix.iter().copied()));
            max(exact, self.policy_by(methods, |route| route.matches_normalized(&normalized)))
        };
        readings.prefixes(longest).into_iter().map(policy).reduce(max).unwrap_or(Cow::Borrowed(&self.base))
    }

    fn policy_by(&self, methods: &[&str], matches: impl Fn(&Route) -> bool) -> Cow<'_, RoutePolicy> {
        let of = |method: &&str| Cow::Borrowed(self.first_matching(method, &matches));
        methods.iter().map(of).reduce(max).unwrap_or(Cow::Borrowed(&self.base))
    }

    /// The policy of the first route that matches.
    fn first_matching(&self, method: &str, matches: impl Fn(&Route) -> bool) -> &RoutePolicy {
        let found = self.routes.iter().find(|(route, _)| matches(route) && route.is_of(method));
        found.map_or(&self.base, |(_, policy)| policy)
    }
}

/// The highest policy of a request that may have either.
fn max<'a>(one: Cow<'a, RoutePolicy>, other: Cow<'a, RoutePolicy>) -> Cow<'a, RoutePolicy> {
    if one == other { one } else { Cow::Owned(one.into_owned().max(other.into_owned())) }
}

/// The other methods that the upstream may take a request for.
fn others<'a>(method: &Method, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    // To most upstreams HEAD is as much work as GET.
    let get = (method == Method::HEAD).then_some("GET");
    get.into_iter().chain(forwarding::methods(headers))
}

#[test]
fn a_plain_path_is_matched_as_its_segments_are() {
    let plain = ["/", "*", "", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/a/bc", "/b", "/b/a", "/a-b/c", "a", "a/b"];
    for route in plain {
        let route = Route::new(route, Vec::new(), 1, None);
        for path in plain {
            let expected = route.matches(path_variants::segments(path.as_bytes()));
            assert_eq!(route.matches_plain(path.as_bytes()), expected, "{route:?} {path}");
        }
    }
}

/// The work for a path is done once for each method that is left.
#[test]
fn of_hundreds_of_methods_those_are_left_that_routes_tell_apart() {
    let of = |method| Route::new("/jobs", vec![method], 4, None);
    let routes = Routes::new(vec![of(Method::GET), of(Method::DELETE), of(Method::GET)], 0);
    let named: Vec<String> = (0..300).map(|number| format!("M{number}")).collect();
    let others = || named.iter().map(String::as_str).chain(["delete", "Delete", "PUT"]);
    assert_eq!(routes.distinct("GET", others()), ["GET", "M0", "delete"]);
    assert_eq!(routes.distinct("PUT", others()), ["PUT", "delete"]);
}

#[test]
fn the_longest_route_decides_and_of_equals_the_first() {
    let route = |path, cost| Route::new(path, Vec::new(), cost, None);
    let posts = Route::new("/reports/", vec![Method::POST], 7, None);
    let routes = [route("/reports", 5), route("/reports/weekly", 9), posts, route("/health", 0), route("/a%20b", 3)];
    let routes = Routes::new(routes.into(), 0);
    let cost = |path| routes.policy(&Method::GET, &HeaderMap::new(), path).map(|policy| policy.cost);
    for (path, expected) in [
        ("/reports", 5),
        ("/reports/", 5),
        ("/reports/weekly/3", 9),
        ("/reportsx", 1),
        ("/", 1),
        ("*", 1),
        ("/health", 0),
        ("/a%20b", 3),
    ] {
        assert_eq!(cost(path), Ok(expected), "{path}");
    }
    assert_eq!(cost("/100%"), Err(BadEscape));
    let post = routes.policy(&Method::POST, &HeaderMap::new(), "/reports/x");
    assert_eq!(post.map(|policy| policy.cost), Ok(5), "the first in the file");
}
