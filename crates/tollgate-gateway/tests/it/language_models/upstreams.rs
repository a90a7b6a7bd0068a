//! A model that several upstreams serve: each says what its own limits are.

use super::*;

const LLM: &str = "bytes_per_token = 1_000\nfollow_upstream_limits = true\n[[llm.models]]\nname = \"m\"\n\
                   quota = \"60000/m, burst 10000\"\n";

/// The file of a gateway in front of two providers, with more tables.
fn text([one, other]: [SocketAddr; 2], tables: &str) -> String {
    let text = file(one, &format!("{}{tables}", limits(LLM, "0s")));
    text.replace(&format!("\"http://{one}\""), &format!("[\"http://{one}\", \"http://{other}\"]"))
}

async fn fixture() -> (TestGateway, [Provider; 2]) {
    let ((one, at_one), (other, at_other)) = (Provider::start().await, Provider::start().await);
    (TestGateway::of(&text([at_one, at_other], "")).await, [one, other])
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
    let fixture = TestGateway::by_hand(Upstream::default(), &text([at_full, at_away], health)).await;
    let healthy = || fixture.gateway.limits.config().upstreams.statuses().iter().filter(|seen| seen.is_healthy).count();
    answer_all(&full, 429, &[("retry-after", "3000")]);
    answer_all(&away, 200, &[]);
    away.is_ill.store(true, Ordering::Relaxed);
    until("it is left", || healthy() == 1).await;
    ask_once(&fixture).await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let pause = || model.limiter.snapshot().paused_for;
    for _ in 0..5 {
        until("the pause is renewed", || pause().is_some_and(|pause| pause > 180 * SECOND)).await;
        fixture.advance(170 * SECOND);
    }
    away.is_ill.store(false, Ordering::Relaxed);
    until("it is back", || healthy() == 2).await;
    // A check that was under way may renew the pause once more.
    until("the model is served", || {
        fixture.advance(SECOND);
        pause().is_none()
    })
    .await;
    assert_eq!(ask_once(&fixture).await, StatusCode::OK);
    assert_eq!((count(&full), count(&away)), (1, 1));
}
