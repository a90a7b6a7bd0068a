//! What is wrong in a configuration is said with its place, all at once.

use crate::asked::*;
use tollgate_service::files;

/// A file with one mistake, and the beginning of what is said about it, at which place. What begins with `-` are the
/// descriptors of a domain.
const MISTAKES: &[(&str, &str)] = &[
    ("descriptors: []", "1:1: a file has a `domain`"),
    ("[a, b]", "1:1: a file is a map"),
    (
        "# no limits",
        "1:1: a file is a map of `domain`, `descriptors`, `all_or_nothing` and `http`, and this is nothing",
    ),
    ("- value: v", "3:5: a descriptor has a `key`"),
    ("domain: d\ndescriptors: [a]", "2:15: a descriptor is a map"),
    ("- {key: k, value: v}\n  - {key: k, value: v}", "4:5: key `k` with value `v` is in this list twice"),
    (
        "- key: k\n    ratelimit:\n      unit: day",
        "4:5: a descriptor has no key `ratelimit`: did you mean `rate_limit`?",
    ),
    ("- key: k\n    rate_limit: {unit: day, requestsperunit: 5}", "4:29: a rate limit has no key `requestsperunit`"),
    ("0.25: d\ndomain: d", "1:1: a file has no key `0.25`"),
    (
        "- key: k\n    rate_limit: {unit: foo, requests_per_unit: 5}",
        "4:24: `unit` is one of second, minute, hour, day, week, month, year, and this is `foo`",
    ),
    ("- key: k\n    rate_limit: {unlimited: true, unit: day}", "4:41: a limit with `unlimited: true` has no `unit`"),
    ("- key: k\n    rate_limit: {unit: day, requests_per_unit: -1}", "4:48: `requests_per_unit` is a whole number"),
    ("- key: k\n    rate_limit: {name: a, replaces: [{name: a}], unit: day}", "4:38: a rule cannot replace itself"),
    ("- key: k\n    rate_limit: {replaces: [{name: }], unit: day}", "4:29: an entry of `replaces` has the `name`"),
    ("- {key: k, value: v, share_threshold: true}", "3:41: `share_threshold` is for values with `*`"),
    (
        "- {key: k, shadow_mode: perhaps, rate_limit: {unit: day}}",
        "3:27: `shadow_mode` is `true` or `false`, and this is `perhaps`",
    ),
    ("domain: d\ndomain: e", "2:1: `domain` is set twice"),
    ("'''", "1:1: this is not valid YAML"),
    ("domain: *x", "1:9: this is not valid YAML"),
    ("- {key: k, rate_limit: {unit: day, wait: 2}}", "3:44: `wait` is a time such as"),
    ("- {key: k, rate_limit: {unit: day, wait: 2h}}", "3:44: a request waits at most"),
    ("- {key: k, rate_limit: {unit: day, brust: 2}}", "3:38: a rate limit has no key `brust`: did you mean `burst`?"),
    (
        "- {key: k, outage: wait, rate_limit: {unit: day, requests_per_unit: 1}}",
        "3:40: `outage: wait` waits no longer than `wait` says",
    ),
    ("- {key: k, wait: 2s}", "3:20: `wait` is a part of a limit"),
    (
        "- {key: k, rate_limit: {unit: day, requests_per_unit: 1, time_zone: Mars/Phobos}}",
        "3:71: there is no time zone `Mars/Phobos`",
    ),
    (
        "- {key: k, time_zone: ../UTC, rate_limit: {unit: day, requests_per_unit: 1}}",
        "3:25: there is no time zone `../UTC`",
    ),
    (
        "- {key: k, burst: 2, rate_limit: {unit: day, requests_per_unit: 1, sliding: true}}",
        "3:79: a limit has one of `burst`, `sliding` and `time_zone`",
    ),
    (
        "- {key: k, rate_limit: {unit: day, requests_per_unit: 1, burst: 2, time_zone: UTC}}",
        "3:81: a limit has one of `burst`, `sliding` and `time_zone`",
    ),
    (
        "- {key: k, classes: {a: 1}, rate_limit: {unit: day, requests_per_unit: 1, sliding: true}}",
        "3:43: this limit cannot be kept",
    ),
    (
        "- {key: k, value: v, rate_limit: {unit: day, requests_per_unit: 1}, classes: {a: 1}}",
        "3:5: values share a limit by weight if the last key has no value",
    ),
    (
        "- {key: k, rate_limit: {unit: day, requests_per_unit: 1}, classes: {a: 0}}",
        "3:71: a class is a value and its weight",
    ),
    ("- {key: k, rate_limit: []}", "3:26: a list of limits has 1 to 4, and this one has 0"),
    ("domain: d\nhttp:\n  - {k: heder X}", "3:9: `heder X` is no part of a request"),
];

#[test]
fn each_mistake_is_named_with_its_place() {
    for (file, expected) in MISTAKES {
        let file =
            &*if file.starts_with('-') { format!("domain: d\ndescriptors:\n  {file}") } else { (*file).to_owned() };
        let problems = load(&[file], &Meters::default()).expect_err(file);
        let lines: Vec<_> = problems.iter().map(|problem| problem.line()).collect();
        assert_eq!(lines.len(), 1, "{file}: {lines:?}");
        let line = lines[0].strip_prefix("0.yaml:").unwrap_or(&lines[0]);
        assert!(line.starts_with(expected), "{file}\n  says {line}\n  not {expected}");
    }
}

#[test]
fn all_mistakes_of_all_files_are_said_at_once_with_a_caret() {
    let first =
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: dya, requests_per_unit: x}\n  - value: v\n";
    let problems = load(&[first, "domain: d", "domain: e\nxyz: 1"], &Meters::default()).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|problem| problem.line()).collect();
    let begins = [
        "0.yaml:4:24: `unit`",
        "0.yaml:4:48: `requests_per_unit`",
        "0.yaml:5:5: a desc",
        "1.yaml:1:9: domain `d`",
        "2.yaml:2:1: a file",
    ];
    assert!(lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)) && lines.len() == 5, "{lines:#?}");
    let shown = problems[0].to_string();
    let caret = "\n --> 0.yaml:4:24\n  |\n4 |     rate_limit: {unit: dya, requests_per_unit: x}\n  |                        ^^^";
    assert!(shown.ends_with(caret), "{shown}");
}

#[test]
fn several_files_and_documents_join() {
    let meters = Meters::default();
    let files = ["domain: d\ndescriptors: [{key: a}]\n---\ndomain: e\n", "domain: d\ndescriptors: [{key: b}]\n"];
    assert!(load(&files, &meters).is_err());
    let rules =
        config::load(&sources(&files), Options { merge_domains: true, ..Options::default() }, &meters).unwrap().rules;
    assert_eq!(rules.domains.len(), 2);
}

#[test]
fn anchors_and_merged_maps_are_read() {
    let file = "x: &limit {unit: day, requests_per_unit: 5}\ndomain: d\n";
    assert!(load(&[file], &Meters::default()).is_err(), "`x` is no key of a file");
    let file = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: &limit {unit: day, requests_per_unit: 5}\n  \
                - key: b\n    rate_limit: {<<: *limit, requests_per_unit: 7}\n";
    let rules = load(&[file], &Meters::default()).unwrap().rules;
    let requests: Vec<_> = rules.all.iter().map(|rule| rule.terms.limits[0].requests).collect();
    assert_eq!(requests, [5, 7]);
}

#[test]
fn hostile_files_are_refused_within_bounds() {
    let laughs: String = (1..30).map(|i| format!("a{i}: &a{i} [*a{0}, *a{0}, *a{0}, *a{0}]\n", i - 1)).collect();
    let deep = "[".repeat(100_000);
    let nested: String = (0..60).map(|i| format!("{0}- key: k\n{0}  descriptors:\n", " ".repeat(2 * i + 2))).collect();
    // Each alias stands within limits for what nests as deep again.
    let (open, close) = ("[".repeat(70), "]".repeat(70));
    let aliases: String = (1..150).map(|i| format!("a{i}: &a{i} {open}*a{}{close}\n", i - 1)).collect();
    let cases = [
        (format!("a0: &a0 [1]\n{laughs}"), "a file has at most 2000000 values"),
        (format!("a0: &a0 {open}{close}\n{aliases}"), "x:2:79: lists and maps nest at most 80 deep"),
        (deep, "recursion limit exceeded"),
        (format!("domain: d\ndescriptors:\n{nested}"), "nest at most 80 deep"),
        (
            "domain: \"a\\0b\"\ndescriptors: [{key: \"\\n\", 'bad\tkey': 1}]".to_owned(),
            "a descriptor has no key `bad key`",
        ),
    ];
    for (file, expected) in cases {
        let sources = [Arc::new(Source { name: "x".into(), text: file })];
        let problems = config::load(&sources, Options::default(), &Meters::default()).unwrap_err();
        assert!(problems[0].line().contains(expected), "{:.200}", problems[0].line());
    }
    let large = std::env::temp_dir().join(format!("tollgate-service-{}-large.yaml", std::process::id()));
    std::fs::File::create(&large).and_then(|file| file.set_len(33 << 20)).unwrap();
    let read = files::read(std::slice::from_ref(&large));
    std::fs::remove_file(&large).unwrap();
    assert!(read.unwrap_err()[0].line().contains("the most is 33554432"));
}
