//! The cost of a request, by its path.

use std::borrow::Cow;

use axum::http::Method;
use percent_encoding::percent_decode_str;

/// Matches requests below the path of the route, segment by segment.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    segments: Vec<Box<[u8]>>,
    /// Empty if the route matches any method.
    methods: Vec<Method>,
    pub(crate) cost: u64,
    /// How many bytes of a body are read before the request is admitted; `None` if as for all routes.
    body_buffer: Option<usize>,
}

/// What the file says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Price {
    pub(crate) cost: u64,
    pub(crate) body_buffer: usize,
}

impl Route {
    pub(crate) fn new(path: &str, methods: Vec<Method>, cost: u64, body_buffer: Option<usize>) -> Self {
        let segments = resolve(segments(path.as_bytes())).into_iter().map(Box::from).collect();
        Self { segments, methods, cost, body_buffer }
    }

    fn matches<'a>(&self, method: &Method, mut path: impl Iterator<Item = &'a [u8]>) -> bool {
        let is_method = self.methods.is_empty() || self.methods.contains(method);
        is_method && self.segments.iter().all(|own| path.next().is_some_and(|seen| **own == *seen))
    }
}

/// All routes. The route with the longest path decides; of several, the first in the file.
#[derive(Clone, Debug)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| std::cmp::Reverse(route.segments.len()));
        Self(routes)
    }

    /// The price of a request. Without a route its cost is 1, and `body_buffer` bytes of its body are read.
    pub(crate) fn price(&self, method: &Method, path: &str, body_buffer: usize) -> Price {
        let of = |route: &Route| Price { cost: route.cost, body_buffer: route.body_buffer.unwrap_or(body_buffer) };
        self.find(method, path).map_or(Price { cost: 1, body_buffer }, of)
    }

    fn find(&self, method: &Method, path: &str) -> Option<&Route> {
        if self.0.is_empty() {
            return None;
        }
        // Most paths need no decoding and no resolving, and are matched without an allocation.
        let is_plain = !path.contains('%') && !path.contains("..");
        let path: Cow<[u8]> = if is_plain { path.as_bytes().into() } else { percent_decode_str(path).into() };
        let path = || segments(&path);
        if !is_plain && path().any(|segment| segment == b"..") {
            let path = resolve(path());
            self.0.iter().find(|route| route.matches(method, path.iter().copied()))
        } else {
            self.0.iter().find(|route| route.matches(method, path()))
        }
    }
}

/// The segments that an upstream may see in a decoded path before it [resolves](resolve) them. To many upstreams
/// `//reports`, `/%72eports`, `/a/../reports` and `/a/..%2freports` are `/reports`, so they must not be cheaper.
fn segments(decoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    decoded.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b"."))
}

/// Resolves `.` and `..`.
fn resolve<'a>(segments: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    let mut resolved = Vec::new();
    for segment in segments {
        if segment == b".." { _ = resolved.pop() } else { resolved.push(segment) }
    }
    resolved
}

#[test]
fn a_path_costs_the_same_however_it_is_written() {
    let route = |path, cost| Route::new(path, Vec::new(), cost, None);
    let posts = Route::new("/reports/", vec![Method::POST], 7, None);
    let routes = Routes::new(vec![route("/reports", 5), route("/reports/weekly", 9), posts, route("/health", 0)]);
    let cost = |path| routes.price(&Method::GET, path, 0).cost;
    for path in ["/reports", "/reports/", "//reports/x", "/%72eports", "/a/../reports", "/a/..%2Freports", "/./reports"]
    {
        assert_eq!(cost(path), 5, "{path}");
    }
    assert_eq!([cost("/reports/weekly/3"), cost("/reportsx"), cost("/"), cost("*"), cost("/health")], [9, 1, 1, 1, 0]);
    assert_eq!(routes.price(&Method::POST, "/reports/x", 0).cost, 5, "the first in the file");
}
