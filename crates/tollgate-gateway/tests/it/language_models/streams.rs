//! Responses: usage in streams and in JSON, whole and cut off.

use super::*;

const EVENTS: [(&str, u64); 3] = [
    (
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":9}\"}}],\"usage\":null}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":31,\"total_tokens\":42,\
         \"prompt_tokens_details\":{\"cached_tokens\":7,\"total_tokens\":1}}}\n\ndata: [DONE]\n\n",
        42,
    ),
    (
        "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":20,\
         \"output_tokens\":1}}}\r\n\r\nevent: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\ndata: {\"delta\":{\"partial_json\":\
         \"{\\\"usage\\\":\"},\"input\":{\"usage\":{\"output_tokens\":7}}}\r\n\r\ndata: {\"type\":\"message_delta\",\"usage\":\
         {\"output_tokens\":22}}\r\n\r\nevent: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n",
        42,
    ),
    (
        ": comment\ndata:{\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\ndata: {\"type\":\n\
         data: \"response.completed\",\"response\":{\"output\":[{\"usage\":{\"total_tokens\":3}}],\"usage\":\
         {\"input_tokens\" : 40 ,\"output_tokens\":2}}}\n\n",
        42,
    ),
];

#[test]
fn a_stream_may_be_split_anywhere() {
    for (stream, expected) in EVENTS {
        let read = |chunks: &[&[u8]]| {
            let mut scanner = EventScanner::default();
            chunks.iter().for_each(|chunk| scanner.feed(chunk));
            (scanner.json.usage.tokens(), scanner.json.is_last)
        };
        let bytes = stream.as_bytes();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), (Some(expected), true), "{stream}");
        for first in 0..=bytes.len() {
            for second in (first..=bytes.len()).step_by(13) {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(read(&parts), (Some(expected), true), "{first} {second}: {stream}");
            }
        }
    }
}

#[test]
fn hostile_responses_are_scanned_in_bounded_memory() {
    let deep = format!("{{\"x\":{}1{},\"usage\":{{\"total_tokens\":5}}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let objects = format!("{}1{}", "{\"usage\":".repeat(1 << 18), "}".repeat(1 << 18));
    let name =
        format!("{{\"{}\":1,\"usage\":{{\"{}\":3,\"total_tokens\":5}}}}", "x".repeat(1 << 20), "y".repeat(1 << 20));
    for (text, expected) in [
        (&*deep, Some(5)),
        (&objects, None),
        (&name, Some(5)),
        ("{\"usage\":{\"total_tokens\":1e400}}", None),
        ("{\"usage\":{\"total_tokens\":-4}}", None),
        ("{\"usage\":{\"total_tokens\":4.0}}", None),
        ("{\"usage\":{\"total_tokens\":99999999999999999999999}}", None),
        ("{\"usage\":{\"total_tokens\":100000001}}", None),
        ("{\"usage\":{\"total_tokens\":\"4\"}}", None),
        ("{\"usage\":{\"total_tokens\":12", None),
        ("{\"usage\":{\"total_tokens\":4},\"usage\":{\"total_tokens\":6}}", Some(6)),
        ("[{\"usage\":{\"total_tokens\":4}}]", None),
        ("}}}]]]{\"usage\":{\"total_tokens\":4}}", Some(4)),
        ("{\"a\":{\"usage\":{\"total_tokens\":4}}}", None),
        ("{\"usa\\u0067e\":{\"total_tokens\":4}}", None),
        ("{\"a\":\"\\\\\",\"usage\":{\"total_tokens\":4}}", Some(4)),
        ("{\"a\":\"\\\"\",\"usage\" :\n{\"total_tokens\" : 4 }}", Some(4)),
    ] {
        let mut scanner = UsageScanner::default();
        text.as_bytes().chunks(7).for_each(|chunk| scanner.feed(chunk));
        assert_eq!(scanner.usage.tokens(), expected, "{}", &text[..text.len().min(80)]);
    }
    assert!(std::mem::size_of::<EventScanner>() < 300);
}

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes_and_settled_at_its_end() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 10000\"\n", "0s").await;
    for (number, (stream, tokens)) in EVENTS.into_iter().enumerate() {
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        let mut response = send(&fixture, &json!({ "stream": true, "max_tokens": 2_000 })).await;
        let mut seen = Vec::new();
        for part in stream.as_bytes().chunks(50) {
            chunks.unbounded_send(Ok(part.to_vec().into())).unwrap();
            while seen.len() % 50 != 0 || seen.is_empty() || !seen.ends_with(part) {
                seen.extend(response.chunk().await.unwrap().expect("nothing is held back"));
                if seen.ends_with(part) {
                    break;
                }
            }
        }
        assert_eq!(seen, stream.as_bytes());
        drop(chunks);
        assert!(response.chunk().await.unwrap().is_none());
        landed(&fixture, "llm").await;
        assert_eq!(taken(&fixture, "llm"), tokens * (number as u64 + 1));
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_off_stays_at_its_estimate_or_above() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 100000\"\nbytes_per_token = 1_000\n", "0s").await;
    let usage = |tokens: u64| format!("data: {{\"usage\":{{\"total_tokens\":{tokens}}}}}\n\n");
    let mut expected = 0;
    for (events, is_upstreams_doing, tokens) in [
        (String::new(), false, 101),
        (usage(7), false, 101),
        (usage(7), true, 101),
        (usage(700), true, 700),
        (usage(700), false, 700),
        // The client hangs up after the last event.
        (usage(7) + "data: [DONE]\n\n", false, 7),
    ] {
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        let mut response = send(&fixture, &json!({ "stream": true, "max_tokens": 100 })).await;
        chunks.unbounded_send(Ok(format!(": hello\n\n{events}").into())).unwrap();
        let mut seen = 0;
        while seen < 9 + events.len() {
            seen += response.chunk().await.unwrap().unwrap().len();
        }
        if is_upstreams_doing {
            chunks.unbounded_send(Err(io::Error::other("cut off"))).unwrap();
            assert!(response.chunk().await.is_err());
        }
        drop(response);
        landed(&fixture, "llm").await;
        drop(chunks);
        expected += tokens;
        assert_eq!(taken(&fixture, "llm"), expected, "{events}");
    }
}

/// Over any time: what was granted, less what was refunded, is at most the burst and what the rate has brought.
#[tokio::test]
async fn the_budget_law_holds_over_streams_of_which_half_are_cut_off() {
    let (fixture, provider) = fixture("quota = \"1000/s, burst 3000\"\nbytes_per_token = 1_000\n", "1h").await;
    let shared = fixture.gateway.limits.rules.shared(Name::new("llm")).unwrap();
    let mut elapsed = 0;
    for round in 0..8_u64 {
        let requests: Vec<_> = (0..6)
            .map(|number| {
                let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
                let usage = 100 * ((number + round) % 5);
                chunks
                    .unbounded_send(Ok(format!("data: {{\"usage\":{{\"total_tokens\":{usage}}}}}\n\n").into()))
                    .unwrap();
                if number % 2 == 0 {
                    chunks.unbounded_send(Err(io::Error::other("cut off"))).unwrap();
                }
                let request = ask(&fixture, json!({ "stream": true, "max_tokens": 399 }).to_string());
                tokio::spawn(async move { request.send().await.map(reqwest::Response::bytes) })
            })
            .collect();
        while !requests.iter().all(tokio::task::JoinHandle::is_finished) {
            fixture.advance(SECOND / 5);
            elapsed += 200;
            short_pause().await;
            let snapshot = shared.limiter.snapshot();
            assert!(snapshot.granted - snapshot.refunded <= 3_000 + elapsed, "{snapshot:?}");
        }
        for request in requests {
            // A body that was cut off is an error.
            if let Ok(body) = request.await.unwrap() {
                let _ = body.await;
            }
        }
    }
    landed(&fixture, "llm").await;
    assert_eq!(shared.fair_queue.waiting(), 0);
    let all = shared.limiter.snapshot();
    assert!(all.granted - all.refunded >= 8 * 3 * 400, "cut off streams stay at their estimate: {all:?}");
}

#[tokio::test]
async fn a_stream_without_usage_costs_a_token_for_each_event() {
    let (fixture, provider) = fixture("quota = \"1/h, burst 10000\"\nbytes_per_token = 1_000\n", "0s").await;
    for (events, tokens) in [(3, 10), (100, 101)] {
        let before = taken(&fixture, "llm");
        let chunks = provider.stream(200, &[("content-type", "text/event-stream")]);
        chunks.unbounded_send(Ok(": x\n\ndata: {\"choices\":[]}\n\n".repeat(events).into())).unwrap();
        drop(chunks);
        send(&fixture, &json!({ "max_tokens": 9 })).await.bytes().await.unwrap();
        landed(&fixture, "llm").await;
        assert_eq!(taken(&fixture, "llm") - before, tokens);
    }
}
