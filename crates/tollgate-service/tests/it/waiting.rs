//! What the reference lacks: bursts, waiting, weights, several limits, all or nothing.

use crate::asked::*;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

/// Ten per second, two at once.
fn waiting(extra: &str) -> Arc<Service> {
    let limit = format!("rate_limit: {{unit: second, requests_per_unit: 10, burst: 2{extra}}}");
    Arc::new(service(&format!(
        "{{domain: d, descriptors: [{{key: k, {limit}}}, {{key: plain, rate_limit: {{unit: hour, requests_per_unit: 100}}}}]}}"
    )))
}

fn spawn(tasks: &mut JoinSet<(bool, Duration)>, service: &Arc<Service>, text: &str) {
    let (service, request, began) = (Arc::clone(service), request(text), Instant::now());
    tasks.spawn(async move { (service.decide(&request).await.unwrap().passes(), began.elapsed()) });
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_a_token_bucket() {
    let service = waiting("");
    assert_eq!(passed(&service, "d k=v", 5).await, 2);
    let answer = ask(&service, "d k=v").await;
    assert_eq!((answer.reason, answer.retry_after), (Some(Reason::OverLimit), Some(Duration::from_millis(100))));
    assert_eq!(answer.response.statuses[0].duration_until_reset.unwrap().nanos, 100_000_000);
    advance(Duration::from_millis(100)).await;
    assert_eq!(passed(&service, "d k=v", 5).await, 1);
    // A request for more than there is takes nothing, unlike in a window.
    advance(Duration::from_millis(100)).await;
    let mut two = request("d k=v");
    two.hits_addend = 2;
    assert_eq!(codes(&service.decide(&two).await.unwrap()), "over : over");
    assert_eq!(passed(&service, "d k=v", 5).await, 1);
}

/// What is asked after each pause in seconds: how many of nine requests pass, and the seconds until the reset.
type Asked = (u64, usize, i64);

#[tokio::test(start_paused = true)]
async fn tokens_come_back_when_the_limit_says() {
    // It is 2026-01-01 00:00:10 UTC.
    let table: [(&str, &[Asked]); 9] = [
        ("unit: minute", &[(0, 3, 50), (49, 0, 1), (1, 3, 60)]),
        ("unit: minute, sliding: true", &[(0, 3, 60), (59, 0, 1), (1, 3, 60)]),
        ("unit: minute, sliding: true, wait: 1s", &[(0, 3, 60), (58, 0, 1), (1, 3, 60)]),
        ("unit: day, time_zone: America/Los_Angeles", &[(0, 3, 28_790), (28_789, 0, 1), (1, 3, 86_400)]),
        ("unit: day, time_zone: Asia/Kolkata, wait: 1s", &[(0, 3, 66_590), (66_588, 0, 2), (1, 3, 86_400)]),
        ("unit: week, time_zone: UTC", &[(0, 3, 345_590), (345_590, 3, 604_800)]),
        ("unit: month, time_zone: Asia/Tokyo", &[(0, 3, 31 * 86_400 - 32_410), (31 * 86_400 - 32_410, 3, 28 * 86_400)]),
        ("unit: year, time_zone: UTC", &[(0, 3, 365 * 86_400 - 10), (365 * 86_400 - 10, 3, 365 * 86_400)]),
        ("unit: day, time_zone: UTC, requests_per_unit: 0", &[(0, 0, 86_390)]),
    ];
    for (limit, asked) in table {
        let limit = if limit.contains("unit: 0") { limit.to_owned() } else { format!("{limit}, requests_per_unit: 3") };
        let service = service(&format!("{{domain: d, descriptors: [{{key: k, rate_limit: {{{limit}}}}}]}}"));
        for &(pause, expected, reset) in asked {
            advance(Duration::from_secs(pause)).await;
            let first = ask(&service, "d k=v").await;
            let passed = usize::from(first.passes()) + passed(&service, "d k=v", 8).await;
            let said = first.response.statuses[0].duration_until_reset.unwrap();
            assert_eq!((passed, said.seconds), (expected, reset), "{limit} after {pause} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_order_of_arrival_or_are_refused_at_once() {
    let service = waiting(", wait: 500ms");
    let mut tasks = JoinSet::new();
    for _ in 0..9 {
        spawn(&mut tasks, &service, "d k=v");
        tokio::task::yield_now().await;
    }
    // Two at once, five within half a second, and two that would have to wait longer.
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        let (passes, after) = answer.unwrap();
        answers.push((after.as_millis() / 100, passes));
    }
    let expected =
        [(0, true), (0, true), (0, false), (0, false), (1, true), (2, true), (3, true), (4, true), (5, true)];
    answers.sort_by_key(|(after, passes)| (*after, !passes));
    assert_eq!(answers, expected);
    let all = service.meters.all();
    let meter = &all.iter().find(|(name, _)| name[1] == "k").unwrap().1;
    assert_eq!(meter.refused[Reason::TooLate as usize].load(Ordering::Relaxed), 2);
    assert_eq!(meter.waited.load(Ordering::Relaxed) / 10_000_000, 150, "1.5 s in all");
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_while_all_pass() {
    let file =
        "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1, burst: 1, wait: 10m}}]}";
    let service = service_with(file, Manner { shadow: true, ..Manner::default() });
    let began = Instant::now();
    assert_eq!((passed(&service, "d k=v", 9).await, began.elapsed()), (9, Duration::ZERO));
    assert_eq!(service.totals.shadowed.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses() {
    let service = waiting(", wait: 10s, max_waiting: 3");
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        spawn(&mut tasks, &service, "d k=v");
    }
    tokio::task::yield_now().await;
    assert_eq!(ask(&service, "d k=v").await.reason, Some(Reason::QueueFull));
    assert_eq!(ask(&service, "d k=w").await.reason, None, "each value has a queue of its own");
    assert!(tasks.join_all().await.iter().all(|(passes, _)| *passes));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_that_are_given_up_cost_no_token() {
    let service = waiting(", wait: 10m");
    assert_eq!(passed(&service, "d k=v", 2).await, 2);
    for text in ["d k=v", "d k=v plain=v"] {
        let request = request(text);
        let mut waiting: FuturesUnordered<_> = (0..5_000).map(|_| service.decide(&request)).collect();
        assert!(futures::poll!(waiting.next()).is_pending());
        drop(waiting);
    }
    let began = Instant::now();
    assert!(ask(&service, "d k=v").await.passes());
    assert_eq!(began.elapsed().as_millis() / 10, 10, "the next token is there after 100 ms");
    assert_eq!(ask(&service, "d plain=v").await.response.statuses[0].limit_remaining, 99);
}

#[tokio::test(start_paused = true)]
async fn values_share_a_limit_by_weight_while_they_wait() {
    let file = "{domain: d, descriptors: [{key: plan, classes: {paid: 4, free: 1}, \
                rate_limit: {unit: second, requests_per_unit: 100, burst: 1, wait: 60s}}]}";
    let service = Arc::new(service(file));
    let mut tasks = JoinSet::new();
    for (plan, count) in [("free", 400), ("paid", 400), ("other", 100)] {
        for _ in 0..count {
            let (service, request) = (Arc::clone(&service), request(&format!("d plan={plan}")));
            tasks.spawn(async move {
                assert!(service.decide(&request).await.unwrap().passes());
                plan
            });
        }
    }
    let mut first = Vec::new();
    while first.len() < 300 {
        first.push(tasks.join_next().await.unwrap().unwrap());
    }
    let count = |plan| first.iter().filter(|served| **served == plan).count();
    let counts = [count("paid"), count("free"), count("other")];
    assert!((199..=201).contains(&counts[0]) && (49..=51).contains(&counts[1]), "4 : 1 : 1, not {counts:?}");
}

#[test]
fn weights_may_be_in_a_limit_or_beside_it_and_have_any_name() {
    for (beside, within) in [
        ("classes: {a: 2, (others): 3}, weight: 5", "unit: day"),
        ("classes: {a: 2, (others): 3}", "unit: day, weight: 5"),
        ("weight: 5", "unit: day, classes: {a: 2, (others): 3}"),
    ] {
        let file = format!(
            "{{domain: d, descriptors: [{{key: k, {beside}, rate_limit: {{requests_per_unit: 9, {within}}}}}]}}"
        );
        let service = service(&file);
        let classes = service.rules.load().all[0].terms.classes.clone().unwrap();
        let weights = vec![("a".to_owned(), 2), ("(others)".to_owned(), 3)];
        assert_eq!((classes.weights, classes.others), (weights, 5), "{file}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_values_of_one_request_that_share_a_limit_are_charged_together() {
    let file = "{domain: d, descriptors: [{key: plan, classes: {paid: 4, free: 1}, \
                rate_limit: {unit: second, requests_per_unit: 10, burst: 8}}]}";
    let service = service(file);
    for text in
        ["d plan=paid plan=free", "d plan=other plan=another", "d plan=paid plan=paid", "d plan=other plan=free"]
    {
        assert_eq!(codes(&ask(&service, text).await), "ok : ok ok", "{text}");
    }
    assert_eq!(codes(&ask(&service, "d plan=paid plan=free").await), "over : over over", "8 tokens were taken");
}

#[tokio::test(start_paused = true)]
async fn all_limits_of_a_descriptor_hold() {
    let file = "{domain: d, descriptors: [{key: k, rate_limit: [{unit: second, requests_per_unit: 2}, {unit: day, requests_per_unit: 5}]}]}";
    let service = service(file);
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(passed(&service, "d k=v", 9).await);
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(counts, [2, 2, 1, 0]);
    let limit = ask(&service, "d k=v").await.response.statuses.remove(0).current_limit.unwrap();
    assert_eq!(limit.requests_per_unit, 5, "the limit that refused");
    assert_eq!(ask(&service, "d k=w").await.response.statuses.remove(0).current_limit.unwrap().requests_per_unit, 2);
}

#[tokio::test(start_paused = true)]
async fn all_or_nothing_charges_no_rule_if_one_refuses() {
    let descriptors = "descriptors: [{key: narrow, rate_limit: {unit: hour, requests_per_unit: 1}}, \
                       {key: wide, rate_limit: {unit: hour, requests_per_unit: 9}}, \
                       {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}, \
                       {key: dark, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}]";
    let each = service(&format!("{{domain: d, {descriptors}}}"));
    let all = service(&format!("{{domain: d, all_or_nothing: true, {descriptors}}}"));
    for (service, left) in [(&each, 3), (&all, 6)] {
        for (passes, text) in [
            (true, "d narrow=v wide=v"),
            (false, "d narrow=v wide=v"),
            (false, "d never=v wide=v"),
            (false, "d wide=v narrow=v dark=v"),
            (true, "d wide=v dark=v none=v"),
        ] {
            assert_eq!(ask(service, text).await.passes(), passes, "{text}");
        }
        let status = ask(service, "d wide=v wide=w").await.response.statuses.remove(0);
        assert_eq!(status.limit_remaining, left);
        let shadow =
            service.meters.all().iter().map(|(_, meter)| meter.shadow_mode.load(Ordering::Relaxed)).sum::<u64>();
        assert_eq!(shadow, u64::from(left == 3), "nor is a rule in shadow mode");
    }
    let answer = ask(&all, "d wide=v narrow=v").await;
    assert_eq!((codes(&answer), answer.reason), ("over : ok over".to_owned(), Some(Reason::OverLimit)));
    // Two descriptors with one bucket are charged together.
    assert_eq!(codes(&ask(&all, "d wide=x wide=x wide=y").await), "ok : ok ok ok");
    assert_eq!(ask(&all, "d wide=x").await.response.statuses[0].limit_remaining, 6);
    let mut vast = request("d wide=z wide=z");
    vast.descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(UInt64Value { value: u64::MAX }));
    assert!(!all.decide(&vast).await.unwrap().passes());
    let many = format!("d{}", (0..9).map(|i| format!(" wide={i}")).collect::<String>());
    assert!(all.decide(&request(&many)).await.unwrap_err().to_string().contains("the most is 8"));
    assert!(ask(&each, &many).await.passes());
}

#[tokio::test(start_paused = true)]
async fn rules_are_waited_for_together() {
    let file = "{domain: d, descriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 10, burst: 1, wait: 1s}}, \
                {key: b, rate_limit: {unit: second, requests_per_unit: 5, burst: 1}}]}";
    let service = service(file);
    assert!(ask(&service, "d a=v b=v").await.passes());
    let began = Instant::now();
    assert!(ask(&service, "d a=v b=v").await.passes());
    assert_eq!(began.elapsed().as_millis() / 10, 20, "the slower rule has its next token after 200 ms");
    assert_eq!(ask(&service, "d b=v").await.reason, Some(Reason::OverLimit), "a rule without `wait` refuses at once");
}

#[test]
fn a_rule_that_waits_makes_its_domain_all_or_nothing_and_says_so() {
    let file = "domain: d\ndescriptors:\n  - {key: k, wait: 1s, rate_limit: {unit: day, requests_per_unit: 1}}";
    let loaded = load(&[file], &Meters::default()).unwrap();
    assert!(loaded.rules.domains["d"].all_or_nothing);
    assert!(loaded.notes[0].line().starts_with("0.yaml:3:36: requests wait here, so domain `d` is `all_or_nothing`"));
    // A request would pass with no token, because not all of its rules refuse.
    let options = Options { quota_mode: true, ..Options::default() };
    let problems = config::load(&sources(&[file]), options, &Meters::default()).unwrap_err();
    assert!(problems[0].line().contains("QUOTA_MODE"), "{problems:?}");
    let quota = "{domain: d, descriptors: [{key: q, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}]}";
    let options = Options { merge_domains: true, ..Options::default() };
    for files in [[file, quota], [quota, file]] {
        let problems = config::load(&sources(&files), options, &Meters::default()).unwrap_err();
        assert!(problems[0].line().contains("`quota_mode`") && problems.len() == 1, "{problems:?}");
    }
}
