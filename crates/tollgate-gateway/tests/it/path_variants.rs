//! The policies of random paths, compared with a model that looks at each path by itself.

use super::app::request::name::Name;
use super::app::request::route::{Route, RoutePolicy, Routes};

use axum::http::{HeaderMap, Method};
use fastrand::Rng;
use percent_encoding::percent_decode;
use std::collections::BTreeSet;

const BASE: u64 = 1;
const MAX_TEXTS: usize = 32;
const MAX_BYTES: usize = 1_024;
const MAX_BYTES_OF_ALL: usize = 4_096;

/// What routes and paths are made of.
const SEGMENTS: &str = "a b A ab a. ... caf\u{e9} CAF\u{c9} \u{17f} s ..a x";
const PIECES: &str = "/ / / /a /a /b /A /s /x caf\u{e9} aaaaaaaaaaaaaaaaaaaa /./ /../ /.. /.. .. . ... // \\ ; ? # %00 %2f %2e \
                      %5c %3b %3f %23 %25 %61 %2561 %252e %253b %25252f %C3%A9 %c3%89 %C5%BF %ff %20 41 2e %20.";

/// Each of these alone is ambiguous.
const FILLINGS: &str = "%41 %2541 /../ ;/ // \\ /A";

type Path = Vec<Vec<u8>>;

struct RouteModel {
    path: Path,
    methods: Vec<Method>,
    cost: u64,
    rule: Name,
    websockets: bool,
}

/// All that a path may be before it is split; `None` if that is too much.
fn texts(path: &str) -> Option<BTreeSet<Vec<u8>>> {
    let mut texts = BTreeSet::from([path.as_bytes().to_vec()]);
    loop {
        let more: Vec<_> = texts.iter().flat_map(|text| changed(text)).filter(|text| !texts.contains(text)).collect();
        if more.is_empty() {
            break;
        }
        texts.extend(more);
        let bytes: usize = texts.iter().map(Vec::len).sum();
        if texts.len() > MAX_TEXTS || bytes > MAX_BYTES_OF_ALL {
            return None;
        }
    }
    (path.len() <= MAX_BYTES).then_some(texts)
}

/// What each rule by itself makes of a text.
fn changed(text: &[u8]) -> Vec<Vec<u8>> {
    let slashes = text.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
    let before = |byte: u8| move |text: &[u8]| text.split(|other| *other == byte).next().unwrap_or_default().to_vec();
    let without_parameters: Vec<_> = text.split(|byte| *byte == b'/').map(before(b';')).collect();
    let ends = [b'?', b'#', 0].map(|byte| before(byte)(text));
    [percent_decode(text).collect(), slashes, without_parameters.join(&b'/')].into_iter().chain(ends).collect()
}

/// The paths that a text may be.
fn paths(text: &[u8]) -> Vec<Path> {
    let text = text.strip_prefix(b"/").unwrap_or(text);
    let literal: Path = text.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
    let merged: Path = literal.iter().filter(|segment| !segment.is_empty()).cloned().collect();
    let resolved = [&literal, &merged].map(resolved);
    [literal, merged].into_iter().chain(resolved).collect()
}

fn resolved(path: &Path) -> Path {
    let mut resolved = Vec::new();
    for segment in path {
        match &**segment {
            b"." => {}
            b".." => _ = resolved.pop(),
            _ => resolved.push(segment.clone()),
        }
    }
    resolved
}

fn loosely(segment: &[u8]) -> String {
    let kept = segment.iter().rposition(|byte| !b". ".contains(byte)).map_or(0, |last| last + 1);
    let upper = String::from_utf8_lossy(&segment[..kept]).to_uppercase();
    upper.chars().flat_map(char::to_lowercase).collect()
}

/// The costs, the rules, and whether each allows WebSockets, of all routes that decide about a path that is meant.
fn policies(routes: &[RouteModel], method: &Method, path: &str) -> (u64, BTreeSet<Name>, bool) {
    let of_method = |route: &&RouteModel| route.methods.is_empty() || route.methods.contains(method);
    let routes: Vec<_> = routes.iter().filter(of_method).collect();
    let mut deciding: Vec<Option<&RouteModel>> = Vec::new();
    match texts(path) {
        None => deciding.extend(routes.iter().copied().map(Some).chain([None])),
        Some(texts) => {
            for path in texts.iter().flat_map(|text| paths(text)) {
                for is_same in [<[u8]>::eq, |own: &[u8], seen: &[u8]| loosely(own) == loosely(seen)] {
                    let below = |route: &RouteModel| {
                        let mut segments = route.path.iter().zip(&path);
                        route.path.len() <= path.len() && segments.all(|(own, seen)| is_same(own, seen))
                    };
                    let matching = routes.iter().copied().filter(|route| below(route));
                    deciding.push(matching.rev().max_by_key(|route| route.path.len()));
                }
            }
        }
    }
    let cost = deciding.iter().map(|route| route.map_or(BASE, |route| route.cost)).max().unwrap_or(BASE);
    let rules = deciding.iter().flatten().map(|route| route.rule).collect();
    (cost, rules, deciding.iter().all(|route| route.is_some_and(|route| route.websockets)))
}

fn random_routes(random: &mut Rng) -> (Vec<RouteModel>, Routes) {
    let methods = [vec![], vec![], vec![Method::GET], vec![Method::PUT, Method::GET], vec![Method::PUT]];
    let mut models = Vec::new();
    let mut routes = Vec::new();
    for number in 0..random.usize(1..6) {
        let segments: Vec<_> = (0..random.usize(..4)).map(|_| one_of(SEGMENTS, random)).collect();
        let methods = random.choice(&methods).cloned().unwrap_or_default();
        let path = segments.iter().map(|segment| segment.as_bytes().to_vec()).collect();
        let (cost, rule) = (random.u64(..20), Name::new(&format!("rule {number}")));
        let mut route = Route::new(&segments.join("/"), methods.clone(), cost, None);
        let websockets = random.bool();
        (route.rule, route.websockets) = (Some(rule), websockets);
        routes.push(route);
        models.push(RouteModel { path, methods, cost, rule, websockets });
    }
    (models, Routes::new(routes, 0))
}

fn one_of<'a>(words: &'a str, random: &mut Rng) -> &'a str {
    let words: Vec<_> = words.split(' ').collect();
    words[random.usize(..words.len())]
}

fn random_path(random: &mut Rng) -> String {
    let most = if random.u8(..8) == 0 { 40 } else { 9 };
    // Half of them only walk up and down.
    let words = if random.bool() { PIECES } else { "/a /b /A /x /. /.. /.. /" };
    let pieces: Vec<_> = (0..random.usize(..most)).map(|_| one_of(words, random)).collect();
    // Now and then close to the limits.
    let filling = if random.u8(..6) == 0 { one_of(FILLINGS, random) } else { "" };
    format!("/{}{}", filling.repeat(random.usize(..300)), pieces.concat())
}

#[test]
fn a_path_has_the_highest_policy_of_all_paths_that_it_may_mean() {
    let mut random = Rng::with_seed(1);
    let (mut read, mut too_many) = (0, 0);
    for _ in 0..100 {
        let (models, routes) = random_routes(&mut random);
        for _ in 0..20 {
            let path = random_path(&mut random);
            let seen = routes.policy(&Method::GET, &HeaderMap::new(), &path).unwrap();
            let RoutePolicy { cost, rules, websockets, .. } = &*seen;
            let seen = (*cost, rules.iter().copied().collect(), *websockets);
            assert_eq!(seen, policies(&models, &Method::GET, &path), "{path}");
            *if texts(&path).is_some() { &mut read } else { &mut too_many } += 1;
        }
    }
    assert!(read > 1_500 && too_many > 30, "{read} paths were read, and {too_many} may mean too much");
}

/// An upstream may drop the empty segment at the end, and take `/a` for `/A`.
#[test]
fn an_empty_segment_at_the_end_hides_no_route() {
    let route = |path, cost| Route::new(path, Vec::new(), cost, None);
    let routes = Routes::new(vec![route("/A", 10), route("/a/...", 1)], 0);
    let cost = routes.policy(&Method::GET, &HeaderMap::new(), "/a/").map(|policy| policy.cost);
    assert_eq!(cost, Ok(10));
}
