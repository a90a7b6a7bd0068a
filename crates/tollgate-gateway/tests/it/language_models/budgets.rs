//! The limits of models and keys, and those that follow the provider.

use super::*;

#[tokio::test]
async fn models_and_keys_have_budgets_of_their_own() {
    let (fixture, provider) = fixture(
        "bytes_per_token = 1_000\nkey_quota = \"1/h, burst 5000\"\n[[llm.models]]\nname = \"big-*\"\n\
         quota = \"1/h, burst 1500\"\n[[llm.models]]\nname = \"big-x\"\nquota = \"1/h, burst 9000\"\nkey_quota = \"1/h, burst 2500\"\n"
            .replace("key_quota = \"1/h, burst 5000\"\n", "quota = \"1/h, burst 20000\"\nkey_quota = \"1/h, burst 5000\"\n")
            .as_str(),
        "0s",
    )
    .await;
    let (ok, refused, never) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::PAYLOAD_TOO_LARGE);
    for (model, most, expected, limit) in [
        ("big-1", 1_499, ok, ""),
        ("BIG-2", 1, refused, "model big-*"),
        ("big-1", 1_500, never, "model big-*"),
        ("big-x", 1_499, ok, ""),
        ("big-x", 1_499, refused, "model big-x each"),
        ("small", 1_499, ok, ""),
        ("small", 1_499, refused, "llm each"),
        ("small", 499, ok, ""),
    ] {
        if expected == ok {
            provider.answer(200, &[], &json!({}));
        }
        let response = send(&fixture, &json!({ "model": model, "max_tokens": most })).await;
        assert_eq!(response.status(), expected, "{model} {most}");
        if expected != ok {
            let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
            assert!(policy.contains(&format!("\"{limit}\"")), "{policy}");
            assert_eq!(response.headers().contains_key("retry-after"), expected == refused);
        }
        response.bytes().await.unwrap();
    }
    landed(&fixture, "llm").await;
    assert_eq!((taken(&fixture, "llm"), taken(&fixture, "model big-*")), (5_000, 1_500));
}

#[tokio::test]
async fn the_limits_of_the_provider_delay_requests_that_wait() {
    let (fixture, provider) = fixture(&following("60000/m, burst 10000"), "1h").await;
    let body = json!({ "model": "m", "max_tokens": 99 });
    provider.answer(
        429,
        &[("retry-after", "20"), ("x-ratelimit-limit-tokens", "30000"), ("x-ratelimit-remaining-tokens", "0")],
        &json!({}),
    );
    let refused = send(&fixture, &body).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    refused.bytes().await.unwrap();
    let tokens = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let requests = fixture.gateway.limits.rules.shared(Name::new("model m requests")).unwrap();
    assert_eq!([&tokens, &requests].map(|shared| shared.limiter.snapshot().paused_for), [Some(20 * SECOND); 2]);
    provider.answer(200, &[], &json!({}));
    let waits = tokio::spawn(ask(&fixture, body.to_string()).send());
    until("it waits", || tokens.fair_queue.waiting() == 1).await;
    fixture.advance(20 * SECOND - MILLI);
    short_pause().await;
    assert_eq!(provider.came.lock().unwrap().len(), 1, "the provider is left alone");
    // The pause of both limits is over, and then tokens come.
    fixture.advance(MILLI + SECOND);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
    // The provider allows less than the file: half of the rate, and no more than it says is left.
    provider.answer(
        200,
        &[
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "100"),
            ("x-ratelimit-reset-tokens", "59.8s"),
        ],
        &json!({ "usage": { "total_tokens": 100 } }),
    );
    fixture.advance(60 * SECOND);
    send(&fixture, &body).await.bytes().await.unwrap();
    landed(&fixture, "model m").await;
    let quota = tokens.limiter.snapshot().quotas[0].quota;
    assert_eq!((quota.amount(), quota.period()), (30_000, 60 * SECOND));
    assert!(tokens.limiter.available() <= 100, "{}", tokens.limiter.available());
}

fn following(quota: &str) -> String {
    format!(
        "bytes_per_token = 1_000\nfollow_upstream_limits = true\n[[llm.models]]\nname = \"m\"\nquota = \"{quota}\"\n"
    )
}

#[tokio::test]
async fn a_refusal_without_limits_empties_no_bucket_and_models_without_a_limit_are_not_followed() {
    let (fixture, provider) =
        fixture(&format!("quota = \"1/h, burst 10000\"\n{}", following("1/h, burst 5000")), "0s").await;
    let slow = [("x-ratelimit-limit-tokens", "600"), ("x-ratelimit-remaining-tokens", "0"), ("retry-after", "9")];
    for (model, status, headers) in [("m", 429, &[][..]), ("m", 503, &[]), ("other", 429, &slow), ("other", 200, &slow)]
    {
        provider.answer(status, headers, &json!({ "usage": { "total_tokens": 0 } }));
        send(&fixture, &json!({ "model": model, "max_tokens": 99 })).await.bytes().await.unwrap();
        landed(&fixture, "llm").await;
        assert_eq!((level(&fixture, "llm").0, level(&fixture, "model m").0), (10_000, 5_000), "{model} {status}");
        for limit in ["llm", "model m", "model m requests"] {
            let shared = fixture.gateway.limits.rules.shared(Name::new(limit)).unwrap();
            assert_eq!(shared.limiter.snapshot().paused_for, None, "{limit}");
        }
    }
}

#[tokio::test]
async fn a_model_in_dry_run_follows_no_upstream() {
    let (fixture, provider) = fixture(&format!("{}dry_run = true\n", following("60000/m, burst 10000")), "0s").await;
    for _ in 0..2 {
        provider.answer(503, &[("retry-after", "300"), ("x-ratelimit-remaining-requests", "0")], &json!({}));
        send(&fixture, &json!({ "model": "m", "max_tokens": 99 })).await.bytes().await.unwrap();
    }
    assert_eq!(provider.came.lock().unwrap().len(), 2, "the second is not held back");
}

#[tokio::test]
async fn the_quota_of_the_file_returns_without_responses_and_with_each_change_of_the_file() {
    let llm = following("60000/m, burst 10000");
    let (fixture, provider) = fixture(&llm, "1h").await;
    let shared = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    let amount = || shared.limiter.snapshot().quotas[0].quota.amount();
    let ask = async || {
        let slow = [("x-ratelimit-limit-tokens", "600"), ("x-ratelimit-remaining-tokens", "500")];
        provider.answer(200, &[&slow[..], &[("x-ratelimit-reset-tokens", "10s")]].concat(), &json!({}));
        send(&fixture, &json!({ "model": "m", "max_tokens": 9 })).await.bytes().await.unwrap();
        landed(&fixture, "model m").await;
    };
    ask().await;
    assert_eq!(amount(), 600);
    change(&fixture, &limits(&llm, "1h")).unwrap();
    assert_eq!(amount(), 60_000);
    ask().await;
    assert_eq!(amount(), 600);
    fixture.advance(601 * SECOND);
    provider.answer(200, &[], &json!({}));
    send(&fixture, &json!({ "model": "m", "max_tokens": 9 })).await.bytes().await.unwrap();
    assert_eq!(amount(), 60_000);
}

#[tokio::test]
async fn a_limit_of_all_models_counts_requests_that_name_none() {
    let llm = "bytes_per_token = 1_000\n[[llm.models]]\nname = \"*\"\nquota = \"1/h, burst 1500\"\n";
    let (fixture, provider) = fixture(llm, "0s").await;
    provider.answer(200, &[], &json!({}));
    assert_eq!(send(&fixture, &json!({ "max_tokens": 999 })).await.status(), StatusCode::OK);
    assert_eq!(send(&fixture, &json!({ "max_tokens": 999 })).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_request_that_waits_for_its_model_holds_no_tokens_of_all_models() {
    let llm = "quota = \"1/h, burst 10000\"\nbytes_per_token = 1_000\n[[llm.models]]\nname = \"m\"\n\
               quota = \"100/s, burst 100\"\n";
    let (fixture, provider) = fixture(llm, "1h").await;
    let body = json!({ "model": "m", "max_tokens": 99 });
    provider.answer(200, &[], &json!({}));
    send(&fixture, &body).await.bytes().await.unwrap();
    landed(&fixture, "llm").await;
    let waits = tokio::spawn(ask(&fixture, body.to_string()).send());
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    until("it waits", || model.fair_queue.waiting() == 1).await;
    assert_eq!(level(&fixture, "llm").0, 9_900);
    provider.answer(200, &[], &json!({}));
    fixture.advance(SECOND);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn teams_that_wait_for_a_model_share_it_by_their_weights() {
    let llm = "bytes_per_token = 1_000\n[[llm.models]]\nname = \"m\"\nquota = \"100/s, burst 100\"\n\
               [keys.listed.bob]\nkey = \"k-bob\"\nweight = 3\n";
    let (fixture, provider) = fixture(llm, "1h").await;
    let body = json!({ "model": "m", "max_tokens": 99 }).to_string();
    (0..17).for_each(|_| provider.answer(200, &[], &json!({})));
    ask(&fixture, body.clone()).send().await.unwrap().bytes().await.unwrap();
    landed(&fixture, "model m").await;
    let model = fixture.gateway.limits.rules.shared(Name::new("model m")).unwrap();
    for number in 0..16 {
        let mut request = ask(&fixture, body.clone()).build().unwrap();
        let key = if number % 2 == 0 { "k-ann" } else { "k-bob" };
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
        tokio::spawn(fixture.client.execute(request));
        until("it waits", || model.fair_queue.waiting() == number + 1).await;
    }
    for served in 2..10 {
        fixture.advance(SECOND);
        until("served", || provider.came.lock().unwrap().len() == served).await;
    }
    let came = provider.came.lock().unwrap();
    let count = |key: &str| came.iter().filter(|(headers, _)| headers["x-api-key"] == key).count();
    assert_eq!((count("k-ann"), count("k-bob")), (2, 6));
}
