//! Requests: their estimates, and those that are refused.

use super::*;

#[tokio::test]
async fn a_request_is_estimated_and_settled_by_its_usage() {
    let (fixture, provider) =
        fixture("quota = \"1/h, burst 100000\"\ndefault_output = 500\nbytes_per_token = 4\n", "0s").await;
    let mut expected = 100_000;
    for (fields, usage, tokens) in [
        // OpenAI's chat completions and responses, Anthropic's messages.
        (json!({ "max_tokens": 900 }), json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 }), 15),
        (json!({ "max_output_tokens": 900 }), json!({ "input_tokens": 7, "output_tokens": 4, "total_tokens": 11 }), 11),
        (
            json!({ "max_completion_tokens": 2000 }),
            json!({ "input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 90, "output_tokens": 8 }),
            13,
        ),
        // More than estimated.
        (json!({ "max_tokens": 1 }), json!({ "total_tokens": 1_000 }), 1_000),
        // Nothing that can be read: the estimate stays.
        (json!({ "max_tokens": 100, "n": 3 }), json!(null), 0),
        (json!({}), json!({ "total_tokens": -5, "prompt_tokens": 1.5, "completion_tokens": 1e9 }), 0),
    ] {
        let body = fields.to_string();
        let most = fields.get("n").map_or(1, |n| n.as_u64().unwrap())
            * ["max_tokens", "max_output_tokens", "max_completion_tokens"]
                .iter()
                .find_map(|name| fields.get(*name)?.as_u64())
                .unwrap_or(500);
        let estimate = most + body.len().div_ceil(4) as u64;
        let chunks = provider.stream(200, &[("content-type", "application/json; charset=utf-8")]);
        let mut response = ask(&fixture, body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(level(&fixture, "llm").0, expected - estimate, "{fields}: it has what it is estimated at");
        chunks.unbounded_send(Ok(json!({ "choices": ["x"], "usage": usage }).to_string().into())).unwrap();
        drop(chunks);
        while response.chunk().await.unwrap().is_some() {}
        landed(&fixture, "llm").await;
        expected -= if tokens == 0 { estimate } else { tokens };
        assert_eq!(level(&fixture, "llm").0, expected, "{fields}");
    }
    assert_eq!(taken(&fixture, "llm"), 100_000 - expected);
    let all = fixture.gateway.limits.all.snapshot();
    assert_eq!(all.granted - all.refunded, 6, "requests cost 1 in the limit of all");
    assert!(provider.came.lock().unwrap().iter().all(|(headers, _)| headers["accept-encoding"] == "identity"));
}

#[tokio::test]
async fn what_the_provider_refuses_costs_nothing_and_what_cannot_be_read_the_estimate() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let json = ("content-type", "application/json");
    let mut expected = 0;
    for (status, headers, tokens) in [
        (400, vec![json], 0),
        (429, vec![json], 0),
        (529, vec![json], 0),
        (500, vec![json], 101),
        (200, vec![json, ("content-encoding", "br")], 101),
        (200, vec![("content-type", "text/plain")], 101),
        (200, vec![json], 5),
    ] {
        let chunks = provider.stream(status, &headers);
        let usage = if status == 200 { "{\"usage\":{\"total_tokens\":5}}" } else { "{\"error\":1}" };
        chunks.unbounded_send(Ok(usage.into())).unwrap();
        drop(chunks);
        let response = send(&fixture, &json!({ "max_tokens": 100 })).await;
        assert_eq!(response.status(), status);
        response.bytes().await.unwrap();
        landed(&fixture, "llm").await;
        expected += tokens;
        assert_eq!(taken(&fixture, "llm"), expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn hostile_requests_are_refused_before_they_take_a_token() {
    let (fixture, _provider) = fixture("quota = \"1/h, burst 10000\"\n", "0s").await;
    let deep = format!("{{\"x\":{}1{},\"max_tokens\":-1}}", "[".repeat(400_000), "]".repeat(400_000));
    for (body, expected) in [
        (format!("{{\"x\":\"{}\"}}", "x".repeat(10 << 20)), 413),
        (deep, 400),
        ("[".repeat(500_000), 400),
        ("{\"max_tokens\":1e400}".to_owned(), 400),
        ("{\"max_tokens\":-1}".to_owned(), 400),
        ("{\"max_tokens\":-0.5}".to_owned(), 400),
        ("{\"max_tokens\":\"9\"}".to_owned(), 400),
        ("{\"max_tokens\":1e30}".to_owned(), 413),
        ("{\"max_tokens\":18446744073709551615,\"n\":18446744073709551615}".to_owned(), 413),
        ("{\"max_tokens\":1,\"max_output_tokens\":99999}".to_owned(), 413),
        ("{\"MAX_TOKENS\":99999}".to_owned(), 413),
        ("{\"max_tok\\u0065ns\":99999}".to_owned(), 413),
        ("{\"model\":\"a\",\"model\":\"b\"}".to_owned(), 400),
        (format!("{{\"model\":\"{}\"}}", "m".repeat(300)), 400),
        ("{\"model\":7}".to_owned(), 400),
        ("[\"a\",5]".to_owned(), 400),
        ("{}{}".to_owned(), 400),
        ("\u{feff}{}".to_owned(), 400),
        ("x".to_owned(), 400),
    ] {
        let start = body.chars().take(60).collect::<String>();
        let status = ask(&fixture, body).send().await.map(|response| response.status().as_u16());
        // A client that still sends may see its connection closed.
        assert!(status.as_ref().map_or(expected == 413, |status| *status == expected), "{start}: {status:?}");
    }
    let compressed = ask(&fixture, "{}").header("content-encoding", "gzip").send().await.unwrap();
    assert_eq!(compressed.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    landed(&fixture, "llm").await;
    assert_eq!(taken(&fixture, "llm"), 0);
}

#[test]
fn wrong_settings_of_models_are_refused_with_their_line() {
    for (llm, caret, expected) in [
        ("quota = \"9/h, burst 5\"", "^^^^^^^^^^^^", "a cost of 1000 waits"),
        ("bytes_per_token = 0", "^", "write about how many bytes a token has"),
        ("max_estimate = 0", "^", "`max_estimate` is 0"),
        ("[[llm.models]]\nname = \"a*b\"", "^^^^^", "is not a model"),
        ("[[llm.models]]\nname = \"a\"\n[[llm.models]]\nname = \"A\"", "^^^", "the model `A` is there twice"),
        ("[[llm.models]]\nname = \"a*\"\n[[llm.models]]\nname = \"a*\"", "^^^^", "the model `a*` is there twice"),
        ("default_output = -1", "^^", "invalid value"),
        ("follow_upstream_limits = true", "^^^^", "write `[[llm.models]]`"),
    ] {
        let said = problem(&limits(&format!("{llm}\n"), "0s"));
        assert!(said.contains(expected) && said.contains(caret), "{llm}: {said}");
    }
    let without = problem(&limits("", "0s").replace("[llm]\n", ""));
    assert!(without.contains("write a table `[llm]`") && without.contains("^^^^"), "{without}");
    let useless = problem(&limits("quota = \"9/s, burst 9999\"", "0s").replace("tokens = true", "tokens = false"));
    assert!(useless.contains("write `tokens = true` in a route"), "{useless}");
}

#[tokio::test]
async fn no_request_chooses_its_own_price() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let mut expected = 100_000;
    for (path, body, tokens) in [
        // Fields that the upstream of this path does not follow only raise the estimate.
        ("chat/completions", json!({ "max_output_tokens": 1 }), 1_001),
        ("chat/completions", json!({ "max_output_tokens": 2_000 }), 2_001),
        ("chat/completions", json!({ "MAX_TOKENS": 1 }), 1_001),
        ("chat/completions", json!({ "max_to\u{212a}ens": 3_000 }), 3_001),
        ("chat/completions", json!({ "max_tokens": 0 }), 1_001),
        ("chat/completions", json!({ "max_tokens": 0, "max_completion_tokens": 7 }), 8),
        ("responses", json!({ "max_tokens": 1 }), 1_001),
        ("responses", json!({ "max_output_tokens": 7 }), 8),
        ("messages", json!({ "max_completion_tokens": 1 }), 1_001),
        ("messages", json!({ "max_tokens": 7 }), 8),
        ("x%2f..%2fresponses", json!({ "max_output_tokens": 1 }), 1_001),
        // Several answers and prompts.
        ("completions", json!({ "max_tokens": 7, "n": 2, "best_of": 5 }), 36),
        ("completions", json!({ "max_tokens": 7, "best_of": 0 }), 8),
        ("completions", json!({ "max_tokens": 7, "prompt": ["a", "b", "c"] }), 22),
        ("completions", json!({ "max_tokens": 7, "prompt": [[1, 2], [3]], "n": 2 }), 29),
        ("completions", json!({ "max_tokens": 7, "prompt": [1, 2, 3] }), 8),
    ] {
        provider.answer(200, &[], &json!({}));
        let url = format!("http://{}/v1/{path}", fixture.address);
        let response = fixture.client.post(url).header("x-api-key", "a").body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path} {body}");
        response.bytes().await.unwrap();
        landed(&fixture, "llm").await;
        expected -= tokens;
        assert_eq!(level(&fixture, "llm").0, expected, "{path} {body}");
    }
}

#[tokio::test]
async fn a_request_without_a_body_takes_no_tokens_whatever_its_response_says() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 10000\"\n", "0s").await;
    provider.answer(200, &[], &json!({ "usage": { "total_tokens": 900 } }));
    assert_eq!(fixture.get("/v1/responses/1", "a").send().await.unwrap().status(), StatusCode::OK);
    landed(&fixture, "llm").await;
    assert_eq!(taken(&fixture, "llm"), 0);
}

#[tokio::test]
async fn a_request_that_was_not_sent_takes_no_tokens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = listener.local_addr().unwrap();
    drop(listener);
    let fixture =
        TestGateway::before(Upstream::default(), nowhere, &limits("quota = \"1/h, burst 10000\"\n", "0s")).await;
    assert_eq!(send(&fixture, &json!({})).await.status(), StatusCode::BAD_GATEWAY);
    landed(&fixture, "llm").await;
    assert_eq!(taken(&fixture, "llm"), 0);
}

#[tokio::test]
async fn the_connection_may_not_name_the_encodings_that_are_accepted() {
    let (fixture, _provider) = fixture("quota = \"1/h, burst 10000\"\n", "0s").await;
    let request = ask(&fixture, "{}").header("connection", "x, Accept-Encoding").header("accept-encoding", "br");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
}
