//! The response to each refusal.

use super::*;

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::{Bound, Denied, TryAcquireError};
use tollgate_tower::http::{ProblemType, Refusal};

const TOO_LARGE: TryAcquireError =
    TryAcquireError::TooLarge { cost: 5, most: 4, by: Bound::Quota(0), quota_name: None };

fn denied(retry_after: Option<Duration>, by: Bound) -> Denied {
    Denied::new(retry_after, 0, by)
}

fn seen(refused: impl Into<Refused>) -> (u16, Option<u64>) {
    let refusal = Refusal::new(refused, &RateLimits::default());
    (refusal.status.as_u16(), refusal.retry_after)
}

#[test]
fn each_refusal_has_its_status_and_says_when_to_come_back() {
    let quota = |wait| seen(denied(Some(wait), Bound::Quota(0)));
    assert_eq!(quota(Duration::ZERO), (429, Some(1)));
    assert_eq!(quota(Duration::from_nanos(1)), (429, Some(1)));
    assert_eq!(quota(SECOND), (429, Some(1)));
    assert_eq!(quota(SECOND + Duration::from_nanos(1)), (429, Some(2)));
    assert_eq!(quota(Duration::MAX), (429, Some(u64::MAX)));
    assert_eq!(seen(denied(None, Bound::InFlight)), (429, None));
    assert_eq!(seen(denied(Some(2 * SECOND), Bound::Queue)), (429, Some(2)));
    assert_eq!(seen(denied(Some(2 * SECOND), Bound::Pause)), (503, Some(2)));
    assert_eq!(seen(TryAcquireError::Closed), (503, None));
    assert_eq!(seen(TOO_LARGE), (413, None));
    assert_eq!(seen(TryAcquireError::TooManyKeys { most: 4 }), (503, None));
    let late = |estimate, allowed, by| seen(ConsumeError::TooLate { estimate, allowed, by, quota_name: None });
    assert_eq!(late(5 * SECOND, 1_500 * MILLI, Bound::Quota(0)), (429, Some(4)));
    assert_eq!(late(SECOND, SECOND, Bound::Parent), (429, Some(1)));
    assert_eq!(late(5 * SECOND, SECOND, Bound::Pause), (503, Some(4)));
    assert_eq!(seen(ConsumeError::Closed), (503, None));
    assert_eq!(seen(ConsumeError::QueueFull { waiting: 3 }), (503, None));
    assert_eq!(seen(ConsumeError::TimedOut { waited: SECOND, by: Bound::InFlight, quota_name: None }), (503, None));
    assert_eq!(seen(ConsumeError::TimedOut { waited: SECOND, by: Bound::Quota(0), quota_name: None }), (503, None));
    assert_eq!(seen(ConsumeError::NoRuntime), (503, None));
    assert_eq!(
        seen(ConsumeError::TooLarge { cost: 5, most: 4, by: Some(Bound::InFlight), quota_name: None }),
        (413, None)
    );
    assert_eq!(seen(ConsumeError::TooManyKeys { most: 4 }), (503, None));
}

#[test]
fn a_default_retry_after_applies_only_where_a_wait_can_help() {
    let with =
        |refused: Refused| Refusal::new(refused, &RateLimits::default()).or_retry_after(1_500 * MILLI).retry_after;
    assert_eq!(with(denied(None, Bound::InFlight).into()), Some(2));
    assert_eq!(with(denied(Some(9 * SECOND), Bound::Quota(0)).into()), Some(9));
    assert_eq!(with(ConsumeError::Closed.into()), Some(2));
    assert_eq!(with(TOO_LARGE.into()), None);
}

/// The draft: not before the end of the window of the exhausted quota.
#[test]
fn a_full_queue_is_to_be_retried_when_it_has_been_served() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(1).initial(0)).max_waiting(1));
    let mut waiting = tokio_test::task::spawn(limiter.consume(4));
    assert!(waiting.poll().is_pending());
    let refused = tokio_test::task::spawn(limiter.consume(1)).poll();
    let std::task::Poll::Ready(Err(refused @ ConsumeError::QueueFull { .. })) = refused else { panic!("{refused:?}") };
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    let refusal = Refusal::new(refused, &limits);
    assert_eq!((refusal.status, refusal.retry_after), (StatusCode::SERVICE_UNAVAILABLE, Some(5)));
    assert_eq!(rate_limit_fields(&limiter, &Terms::default())[1], r#""default";r=0;t=5"#);
    limiter.close();
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    assert_eq!(Refusal::new(ConsumeError::Closed, &limits).retry_after, None);
}

fn problem(refusal: &Refusal) -> Value {
    serde_json::from_str(&refusal.problem_json()).unwrap()
}

#[test]
fn problems_are_those_of_the_draft() {
    let builder =
        Limiter::builder().quota_named("daily", Quota::per_day(2)).quota_named("second", Quota::per_second(10));
    let (limiter, _clock) = built(builder);
    take(&limiter, 2);
    let refused = limiter.try_acquire(1).unwrap_err();
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    let refusal = Refusal::new(refused, &limits);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Retry after 43200 s.",
        "violated-policies": ["daily"],
    });
    assert_eq!(problem(&refusal), expected);
    assert_eq!(refusal.text(), "Quota Exceeded: retry after 43200 s\n");
    let timed_out = ConsumeError::TimedOut { waited: SECOND, by: Bound::Quota(1), quota_name: Some("second") };
    let violated = Refusal::new(timed_out, &limits).violated;
    assert_eq!(violated.iter().map(|name| &**name).collect::<Vec<_>>(), ["daily", "second"]);

    let refusal = Refusal::new(ConsumeError::Closed, &RateLimits::default());
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Temporary Reduced Capacity",
        "status": 503,
        "violated-policies": [],
    });
    assert_eq!(problem(&refusal), expected);
    // A caller that knows a better time can set it.
    let mut refusal = Refusal::new(limiter.try_acquire(1).unwrap_err(), &limits);
    refusal.problem = Some(ProblemType::AbnormalUsageDetected);
    assert_eq!(problem(&refusal)["type"], "https://iana.org/assignments/http-problem-types#abnormal-usage-detected");
    // The draft has no type for this: `about:blank`, with the title of the status.
    let refusal = Refusal::new(TOO_LARGE, &RateLimits::default());
    let detail = "The request costs more tokens than the limit allows at once. Send a smaller one.";
    assert_eq!(problem(&refusal), json!({ "title": "Payload Too Large", "status": 413, "detail": detail }));
    assert_eq!(refusal.text(), "Payload Too Large\n");

    let all = [ProblemType::QuotaExceeded, ProblemType::TemporaryReducedCapacity, ProblemType::AbnormalUsageDetected];
    for (problem, status) in all.into_iter().zip([429, 503, 429]) {
        assert_eq!(problem.status(), status);
        let name = problem.title().to_lowercase().replace(' ', "-");
        assert!(problem.uri().ends_with(&format!("#{name}")), "{problem:?}");
    }
}

#[test]
fn a_problem_is_json_whatever_the_names_of_quotas_contain() {
    let names = ["a \"b\" \\ c\n", "\u{7}größe"];
    let builder = names.iter().fold(Limiter::builder(), |builder, name| builder.quota_named(*name, Quota::per_day(1)));
    let (limiter, _clock) = built(builder);
    take(&limiter, 1);
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    let json = Refusal::new(limiter.try_acquire(1).unwrap_err(), &limits).problem_json();
    let start = r#"{"detail":"Retry after 86400 s.","status":429,"title":"Quota Exceeded","type":"https"#;
    assert!(json.starts_with(start), "{json}");
    let body: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(body["violated-policies"], json!(names));
    assert_eq!(body.to_string(), json, "the members are in alphabetical order, without spaces");
}

/// A quota that still has tokens refuses a claim that costs more.
#[test]
fn the_refusing_quota_is_named_though_it_has_tokens_left() {
    let builder =
        Limiter::builder().quota_named("minute", Quota::per_minute(60)).quota_named("second", Quota::per_second(9));
    let (limiter, _clock) = built(builder);
    take(&limiter, 5);
    let refused = limiter.try_acquire(6).unwrap_err();
    let refusal = Refusal::new(refused, &RateLimits::of(&limiter.snapshot(), &Terms::default()));
    assert_eq!(refusal.violated.iter().map(|name| &**name).collect::<Vec<_>>(), ["second"]);
}

proptest! {
    /// A client that waits for `Retry-After` succeeds, and did not wait longer than the rounding.
    #[test]
    fn a_client_that_waits_for_retry_after_succeeds(
        quotas in prop::collection::vec((1u64..20, 1u64..30_000, 1u64..20, any::<bool>()), 1..4),
        costs in prop::collection::vec((1u64..20, 0u64..3_000), 1..40),
    ) {
        let mut builder = Limiter::builder();
        let mut least = u64::MAX;
        for (amount, millis, burst, stepped) in quotas {
            let burst = if stepped { burst.max(amount) } else { burst };
            least = least.min(burst);
            let quota = Quota::new(amount, Duration::from_millis(millis)).burst(burst);
            builder = builder.quota(if stepped { quota.stepped() } else { quota });
        }
        let (limiter, clock) = built(builder);
        for (cost, millis) in costs {
            let cost = cost.min(least);
            if let Err(refused) = limiter.try_acquire(cost) {
                let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
                let refusal = Refusal::new(refused, &limits);
                let TryAcquireError::Denied(denied) = refused else { panic!("{refused:?}") };
                let (seconds, exact) = (refusal.retry_after.unwrap(), denied.retry_after.unwrap());
                prop_assert!(Duration::from_secs(seconds) >= exact && Duration::from_secs(seconds - 1) < exact);
                let used_up = limits.limits.iter().filter(|limit| limit.available == 0);
                prop_assert!(used_up.clone().all(|limit| limit.window.unwrap() <= seconds));
                prop_assert!(used_up.count() <= refusal.violated.len());
                clock.advance(Duration::from_secs(seconds));
                prop_assert!(limiter.try_acquire(cost).is_ok());
            }
            clock.advance(Duration::from_millis(millis));
        }
    }
}
