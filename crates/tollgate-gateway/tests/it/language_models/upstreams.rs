//! A model that several upstreams serve: each says what its own limits are.

use super::*;
use crate::config::Config;
use crate::limits::Limits;
use crate::limits::model_pauses::pause_models;
use crate::limits::state::{self, State};

use std::path::{Path, PathBuf};

const LLM: &str = "bytes_per_token = 1_000\nfollow_upstream_limits = true\n[[llm.models]]\nname = \"m\"\n\
                   quota = \"60000/m, burst 10000\"\n";

/// The file of a gateway in front of some providers, with more tables.
fn text(providers: &[SocketAddr], tables: &str) -> String {
    let text = file(providers[0], &format!("{}{tables}", limits(LLM, "0s")));
    let all: Vec<_> = providers.iter().map(|address| format!("http://{address}")).collect();
    text.replace(&format!("{:?}", all[0]), &format!("{all:?}"))
}

/// Applies this file.
fn change_to(fixture: &TestGateway, text: &str) {
    let path = Path::new("gateway.toml");
    fixture.gateway.limits.change(Config::parse(path, text).unwrap(), path).unwrap();
}

async fn fixture() -> (TestGateway, [Provider; 2]) {
    let ((one, at_one), (other, at_other)) = (Provider::start().await, Provider::start().await);
    (TestGateway::of(&text(&[at_one, at_other], "")).await, [one, other])
}

/// Lets a provider answer all requests with this.
fn answer_all(provider: &Provider, status: u16, headers: &[(&'static str, &str)]) {
    provider.replies.lock().unwrap().clear();
    (0..200).for_each(|_| provider.answer(status, headers, &json!({})));
}

fn count(provider: &Provider) -> usize {
    provider.came.lock().unwrap().len()
}

async fn ask_once(fixture: &TestGateway) -> StatusCode {
    let response = send(fixture, &json!({ "model": "m", "max_tokens": 9 })).await;
    let status = response.status();
    response.bytes().await.unwrap();
    landed(fixture, "model m").await;
    status
}

/// Asks until each of the providers has been asked again.
async fn ask_both(fixture: &TestGateway, providers: &[Provider; 2]) {
    let before = providers.each_ref().map(count);
    while providers.each_ref().map(count).iter().zip(before).any(|(now, before)| *now == before) {
        ask_once(fixture).await;
    }
}

#[tokio::test]
async fn an_upstream_whose_limit_is_used_up_leaves_the_model_to_the_other() {
    let (fixture, [full, free]) = fixture().await;
    answer_all(&full, 429, &[("retry-after", "300")]);
    answer_all(&free, 200, &[]);
    while count(&full) == 0 {
        ask_once(&fixture).await;
    }
    let before = count(&free);
    for _ in 0..20 {
        assert_eq!(ask_once(&fixture).await, StatusCode::OK);
    }
    assert_eq!((count(&full), count(&free) - before), (1, 20));
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    assert_eq!(model.limiter.snapshot().paused_for, None);
    // Now both are used up.
    answer_all(&free, 429, &[("retry-after", "400")]);
    assert_eq!(ask_once(&fixture).await, StatusCode::TOO_MANY_REQUESTS);
    let pause = model.limiter.snapshot().paused_for.expect("no upstream takes requests");
    assert!(pause <= 300 * SECOND, "{pause:?}: the first of them is back");
}

#[tokio::test]
async fn the_limits_of_all_upstreams_together_are_that_of_the_model() {
    let (fixture, providers) = fixture().await;
    let says = |provider: &Provider, limit: &'static str| {
        let headers = [("x-ratelimit-limit-tokens", limit), ("x-ratelimit-remaining-tokens", "100")];
        // The time in which the used tokens come back, if the limit is one of a minute.
        let reset = if limit == "600" { "50s" } else { "55s" };
        answer_all(provider, 200, &[&headers[..], &[("x-ratelimit-reset-tokens", reset)]].concat());
    };
    says(&providers[0], "600");
    says(&providers[1], "1200");
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let quota = || model.limiter.snapshot().quotas[0].quota;
    ask_once(&fixture).await;
    assert_eq!((quota().amount(), quota().capacity()), (60_000, 10_000), "the other has said nothing yet");
    ask_both(&fixture, &providers).await;
    assert_eq!((quota().amount(), quota().period()), (1_800, 60 * SECOND));
    // A burst each of one token less than the limit, and a hundred tokens left at each when it answered.
    assert_eq!(quota().capacity(), 599 + 1_199);
    assert!(model.limiter.available() < quota().capacity());
}

/// Checks run all the time here, and the clock of the limits is moved by hand.
#[tokio::test]
async fn a_model_that_pauses_is_served_when_an_upstream_that_was_away_is_back() {
    let health = "[health]\npath = \"/health\"\nevery = \"2ms\"\ntimeout = \"3m\"\nfailures = 1\nsuccesses = 1\n";
    let ((full, at_full), (away, at_away)) = (Provider::start().await, Provider::start().await);
    let fixture = TestGateway::by_hand(Upstream::default(), &text(&[at_full, at_away], health)).await;
    let healthy = || fixture.gateway.limits.config().upstreams.statuses().iter().filter(|seen| seen.is_healthy).count();
    answer_all(&full, 429, &[("retry-after", "3000")]);
    answer_all(&away, 200, &[]);
    away.is_ill.store(true, Ordering::Relaxed);
    until("it is left", || healthy() == 1).await;
    ask_once(&fixture).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let pause = || model.limiter.snapshot().paused_for;
    assert!(pause().is_some_and(|pause| pause > 500 * SECOND), "also while the other may come back");
    away.is_ill.store(false, Ordering::Relaxed);
    until("the model is served", || pause().is_none()).await;
    assert_eq!(healthy(), 2);
    // The one that pauses has no tokens left: those for the other are minted.
    fixture.advance(SECOND);
    assert_eq!(ask_once(&fixture).await, StatusCode::OK);
    assert_eq!((count(&full), count(&away)), (1, 1));
    // And it pauses again when the other one is left again.
    away.is_ill.store(true, Ordering::Relaxed);
    until("it pauses", || pause().is_some()).await;
}

/// The clock of the limits moves by a second or two, so no pause ends by itself.
#[tokio::test]
async fn a_model_that_pauses_is_served_by_an_upstream_that_a_change_of_the_file_adds() {
    let ((full, at_full), (also, at_also)) = (Provider::start().await, Provider::start().await);
    let ((new, at_new), (last, at_last)) = (Provider::start().await, Provider::start().await);
    let fixture = TestGateway::by_hand(Upstream::default(), &text(&[at_full, at_also], "")).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let pause = || model.limiter.snapshot().paused_for;
    [&full, &also].into_iter().for_each(|full| answer_all(full, 429, &[("retry-after", "500")]));
    [&new, &last].into_iter().for_each(|free| answer_all(free, 200, &[]));
    while pause().is_none() {
        ask_once(&fixture).await;
    }
    // Without an upstream that could take its requests, the model pauses on.
    change_to(&fixture, &text(&[at_also, at_full], "").replace("1000/s", "999/s"));
    assert!(pause().is_some());
    let waits_long = |all: &[SocketAddr]| text(all, "").replace("max_wait = \"0s\"", "max_wait = \"1h\"");
    change_to(&fixture, &waits_long(&[at_full, at_also]));
    let waiting = tokio::spawn(ask(&fixture, json!({ "model": "m", "max_tokens": 9 }).to_string()).send());
    until("it waits", || model.fair_queue.waiting() == 1).await;
    fixture.advance(SECOND);
    short_pause().await;
    assert_eq!(model.fair_queue.waiting(), 1);
    change_to(&fixture, &waits_long(&[at_full, at_also, at_new]));
    assert_eq!((waiting.await.unwrap().unwrap().status(), pause()), (StatusCode::OK, None));
    assert_eq!([&full, &also, &new].map(count), [1, 1, 1]);
    // A single upstream is followed in another way.
    answer_all(&new, 429, &[("retry-after", "500")]);
    change_to(&fixture, &text(&[at_new], ""));
    assert_eq!(ask_once(&fixture).await, StatusCode::TOO_MANY_REQUESTS);
    assert!(pause().is_some());
    change_to(&fixture, &text(&[at_last], ""));
    fixture.advance(SECOND);
    assert_eq!((pause(), ask_once(&fixture).await), (None, StatusCode::OK));
}

#[tokio::test]
async fn a_pause_ends_when_a_change_of_the_file_says_that_upstreams_are_not_followed() {
    let (provider, address) = Provider::start().await;
    let file = text(&[address], "");
    let fixture = TestGateway::by_hand(Upstream::default(), &file).await;
    answer_all(&provider, 429, &[("retry-after", "500")]);
    ask_once(&fixture).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    assert!(model.limiter.snapshot().paused_for.is_some());
    change_to(&fixture, &file.replace("follow_upstream_limits = true", "follow_upstream_limits = false"));
    assert_eq!(model.limiter.snapshot().paused_for, None);
}

#[tokio::test]
async fn a_request_that_waits_for_a_pause_of_a_model_that_a_change_removes_is_served() {
    let (provider, address) = Provider::start().await;
    let file = text(&[address], "").replace("max_wait = \"0s\"", "max_wait = \"1h\"");
    let fixture = TestGateway::by_hand(Upstream::default(), &file).await;
    provider.answer(429, &[("retry-after", "500")], &json!({}));
    provider.answer(200, &[], &json!({}));
    ask_once(&fixture).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let waiting = tokio::spawn(ask(&fixture, json!({ "model": "m" }).to_string()).send());
    until("it waits", || model.limiter.snapshot().waiting_tasks == 1).await;
    change_to(&fixture, &file.replace("name = \"m\"", "name = \"other\""));
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

/// A response of `a` says that no request is taken, after a change of the file. It counts only for `a`.
#[tokio::test]
async fn a_late_refusal_counts_if_the_file_still_names_its_upstream() {
    let ((a, at_a), (b, at_b)) = (Provider::start().await, Provider::start().await);
    answer_all(&b, 200, &[]);
    let silent: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let unfollowed = |text: String| text.replace("follow_upstream_limits = true", "follow_upstream_limits = false");
    let cases = [
        ("replaced", vec![at_a], text(&[at_b], ""), false),
        ("replaced by two", vec![at_a], text(&[silent, at_b], ""), false),
        ("one of two that have to pause", vec![at_a], text(&[at_a, silent], ""), false),
        ("the one that is left", vec![at_a, at_b], text(&[at_a], ""), true),
        ("unchanged", vec![at_a], text(&[at_a], "").replace("1000/s", "999/s"), true),
        ("not followed", vec![at_a], unfollowed(text(&[at_a], "")), false),
    ];
    for (case, before, after, is_paused) in cases {
        let fixture = TestGateway::by_hand(Upstream::default(), &text(&before, "")).await;
        answer_all(&a, 429, &[("retry-after", "500")]);
        let (held, first) = (Arc::clone(&a.answering).lock_owned().await, count(&a));
        let mut asked = tokio::spawn(ask(&fixture, json!({ "model": "m", "max_tokens": 9 }).to_string()).send());
        while count(&a) == first {
            if asked.is_finished() {
                asked = tokio::spawn(ask(&fixture, json!({ "model": "m", "max_tokens": 9 }).to_string()).send());
            }
            short_pause().await;
        }
        change_to(&fixture, &after);
        drop(held);
        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
        assert_eq!(model.limiter.snapshot().paused_for.is_some(), is_paused, "{case}");
    }
}

/// The limits of a gateway that is started with this state and this file.
fn restarted(state: &[u8], text: &str) -> Limits {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("upstreams-{}.state", std::process::id()));
    std::fs::write(&path, state).unwrap();
    let state = State::read(&path).unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    Limits::restored(Config::parse(Path::new("gateway.toml"), text).unwrap(), state).unwrap()
}

#[tokio::test]
async fn a_pause_outlives_a_restart_with_the_same_upstreams_only() {
    let ((full, at_full), (_, at_other)) = (Provider::start().await, Provider::start().await);
    let file = text(&[at_full], "");
    let fixture = TestGateway::of(&file).await;
    answer_all(&full, 429, &[("retry-after", "500")]);
    ask_once(&fixture).await;
    let mut bytes = Vec::new();
    state::write(&mut bytes, &fixture.gateway.limits).unwrap();
    let is_paused = |bytes: &[u8], text: &str| {
        let model = restarted(bytes, text).rules.shared(Name::new("model m")).unwrap();
        model.limiter.snapshot().paused_for.is_some()
    };
    assert!(is_paused(&bytes, &file));
    assert!(is_paused(&bytes, &file.replace("http://", "HTTP://")));
    assert!(!is_paused(&bytes, &text(&[at_other], "")));
    assert!(!is_paused(&bytes, &text(&[at_full, at_other], "")), "the other has said nothing");
    assert!(!is_paused(&bytes, &file.replace("follow_upstream_limits = true", "follow_upstream_limits = false")));
    // Earlier versions did not write the upstreams.
    let upstreams = 4 + format!("http://{at_full}").len() + 8;
    let old = &bytes[..bytes.len() - upstreams];
    assert!(is_paused(old, &file) && is_paused(old, &text(&[at_other], "")));
}

#[tokio::test]
async fn a_saved_pause_of_two_upstreams_goes_on_until_one_of_them_has_said_something() {
    let ((one, at_one), (other, at_other)) = (Provider::start().await, Provider::start().await);
    let file = text(&[at_one, at_other], "");
    let fixture = TestGateway::of(&file).await;
    [&one, &other].into_iter().for_each(|full| answer_all(full, 429, &[("retry-after", "500")]));
    let is_paused = |limits: &Limits| {
        let model = limits.rules.shared(Name::new("model m")).unwrap();
        model.limiter.snapshot().paused_for.is_some()
    };
    while !is_paused(&fixture.gateway.limits) {
        ask_once(&fixture).await;
    }
    let mut bytes = Vec::new();
    state::write(&mut bytes, &fixture.gateway.limits).unwrap();
    let limits = restarted(&bytes, &file);
    // As after a check of an upstream.
    pause_models(&limits, &limits.lock_following());
    assert!(is_paused(&limits));
    let path = Path::new("gateway.toml");
    limits.change(Config::parse(path, &file.replace("1000/s", "999/s")).unwrap(), path).unwrap();
    assert!(is_paused(&limits));
}

#[tokio::test]
async fn the_pause_of_an_upstream_ends_when_the_file_leaves_only_the_other() {
    let health = "[health]\npath = \"/health\"\nevery = \"2ms\"\ntimeout = \"3m\"\nfailures = 1\nsuccesses = 1\n";
    let ((full, at_full), (away, at_away)) = (Provider::start().await, Provider::start().await);
    let fixture = TestGateway::of(&text(&[at_full, at_away], health)).await;
    let healthy = || fixture.gateway.limits.config().upstreams.statuses().iter().filter(|seen| seen.is_healthy).count();
    answer_all(&full, 429, &[("retry-after", "500")]);
    away.is_ill.store(true, Ordering::Relaxed);
    until("it is left", || healthy() == 1).await;
    ask_once(&fixture).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    assert!(model.limiter.snapshot().paused_for.is_some());
    change_to(&fixture, &text(&[at_away], health));
    assert_eq!(model.limiter.snapshot().paused_for, None);
}
