//! Quotas as text: the printed form is parsed back, and an invalid text is refused with the name of the wrong part.

use crate::fixture::*;

/// Any quota that can be written: the period fits into 64 bits of nanoseconds. It need not be valid otherwise.
fn any_quota() -> impl Strategy<Value = Quota> {
    let unit = prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000]);
    let period = prop_oneof![any::<u64>(), (1_u64..100_000, unit).prop_map(|(count, unit): (u64, u64)| count * unit)];
    let rate = (any::<u64>(), period.prop_map(Duration::from_nanos), 0..3);
    let rated = rate.prop_map(|(amount, period, kind)| match (kind, Quota::new(amount, period)) {
        (0, quota) => quota,
        (1, quota) => quota.stepped(),
        (_, quota) => quota.sliding(),
    });
    let extras = (any::<Option<u64>>(), any::<Option<u64>>());
    (prop_oneof![3 => rated, 1 => any::<u64>().prop_map(Quota::manual)], extras).prop_map(
        |(quota, (burst, initial))| {
            let quota = burst.map_or(quota, |burst| quota.burst(burst));
            initial.map_or(quota, |initial| quota.initial(initial))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_quota_is_read_back_as_it_was_printed(quota in any_quota()) {
        let text = quota.to_string();
        prop_assert_eq!(text.parse::<Quota>(), Ok(quota), "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _ = text.parse::<Quota>();
    }

    #[test]
    fn nothing_near_a_quota_makes_it_panic(text in "(manual |[0-9]{1,22}/)?[0-9 ]{0,22}[a-z]{0,3}(, ?[a-z]{0,7} ?[0-9]{0,3}){0,3}") {
        let _ = text.parse::<Quota>();
    }

    #[test]
    fn parsed_text_and_its_printed_form_are_equal(
        text in "[0-9](_?[0-9]){0,2}[kMG]?( ?/ ?| per )[0-9]{0,3} ?(s|secs?|m|min|minutes?|h|hours?|d|days?|ms|us|\u{b5}s|ns)(, ?burst ?= ?[0-9]k?)?(, initial [0-9])?",
    ) {
        let quota: Quota = text.parse().unwrap();
        let printed = quota.to_string();
        prop_assert_eq!(printed.parse::<Quota>(), Ok(quota));
        prop_assert_eq!(printed.parse::<Quota>().unwrap().to_string(), printed, "one form only");
    }

    #[test]
    fn every_refusal_names_a_part_of_the_text(text in "[0-9_kMG./per ,=a-z\u{b5}]{0,24}") {
        if let Err(error) = text.parse::<Quota>() {
            prop_assert!(error.to_string().starts_with(&format!("`{}`", &text[error.span()])), "{}", error);
        }
    }
}

#[test]
fn a_quota_tells_what_it_was_made_of() {
    let quota = Quota::new(5, Duration::from_secs(10)).burst(7).initial(3).stepped();
    assert_eq!(
        (quota.amount(), quota.period(), quota.capacity(), quota.filled_at_start()),
        (5, Duration::from_secs(10), 7, 3)
    );
    assert!(quota.is_stepped() && !quota.is_manual());
}

#[test]
fn the_text_is_the_usual_form() {
    for (text, quota) in [
        ("100/s", Quota::per_second(100)),
        ("100/s, burst 20", Quota::per_second(100).burst(20)),
        ("60/min", Quota::per_minute(60)),
        ("5/h, initial 0", Quota::per_hour(5).initial(0)),
        ("1/d", Quota::per_day(1)),
        ("1/0ns", Quota::new(1, Duration::ZERO)), // refused by every limiter, in these words
        ("5/10s, stepped", Quota::new(5, Duration::from_secs(10)).stepped()),
        ("60/min, sliding", Quota::per_minute(60).sliding()),
        ("60/min, initial 7, sliding", Quota::per_minute(60).initial(7).sliding()),
        ("7/90s", Quota::new(7, Duration::from_secs(90))),
        (
            "1/1500us, burst 3, initial 2, stepped",
            Quota::new(1, Duration::from_micros(1_500)).burst(3).initial(2).stepped(),
        ),
        ("1/ns", Quota::new(1, Duration::from_nanos(1))),
        ("manual 50", Quota::manual(50)),
        ("manual 50, initial 7", Quota::manual(50).initial(7)),
    ] {
        assert_eq!(quota.to_string(), text);
        assert_eq!(text.parse(), Ok(quota));
    }
}

#[test]
fn spaces_and_units_may_be_written_otherwise() {
    for (printed, texts) in [
        ("100/s", "  100 / s |100/1s|1_00/sec"),
        ("100/min", "100/60s|100/m|100/ 1minute|100 per min"),
        ("100/d", "100/24h|100/1 d|100 per day|100/days"),
        (
            "100/s, burst 20, initial 3",
            "100/s,burst 20,initial 3|100/s, initial 3, burst 20|100/s, burst=20, initial = 3",
        ),
        ("5/10s", "5 per 10 seconds|5/10_000ms|5/1_0s"),
        ("2000/h, burst 3000000", "2k/hr, burst=3M|2K per hour, burst 3_000k"),
        ("2000000000/us", "2G/us|2G/\u{b5}s|2G/\u{3bc}s"),
        ("manual 5000", "manual  5000|manual 5k"),
    ] {
        for text in texts.split('|') {
            assert_eq!(text.parse::<Quota>().map(|quota| quota.to_string()), Ok(printed.to_owned()), "{text}");
        }
    }
}

/// The part that is wrong is in angle brackets.
#[test]
fn an_error_names_the_part_that_is_wrong_and_its_place_and_shows_one_that_is_right() {
    for (expected, texts) in [
        ("rate", "<>|<100>|<100 each s>|<100 per>|<manual>"),
        (
            "whole number of tokens",
            "<1.5k>/s|<1kk>/s|<k>/s|<1m>/s|<_1>/s|<1_>/s|<_>/s|<+1>/s|<-1>/s|<1.5>/s|<>/s|<many>/s|<18446744073709552k>/s|\
             <18446744073709551616>/s|100/s, burst=<=3>|100/s, burst=<>|100/s, burst <lots>|100/s, initial <-3>|\
             10/s,  burst 3, initial <x>|manual <few>",
        ),
        (
            "period",
            "100/<M>|100/<1ks>|100/<_s>|100/<>|100/<10>|100/<fortnight>|100/<1.5s>|100/<999999999d>|\
             100/<99999999999999999999s>|100/<s/s>|100/<s; burst 3>",
        ),
        (
            "`burst N`, `initial N`, `stepped` or `sliding`",
            "100/s, <burst>|100/s, <slide>|100/s, <bursts 3>|100/s, <stepped 3>|100/s,<>|10/s, stepped, <\u{b5}>",
        ),
        (
            "given already",
            "10/s, burst 5, <burst 9>|10/s, burst 5, <burst 5>|10/s, burst=5, initial 1, <burst = 9>|\
             10/s, initial 1, <initial 2>|10/s, stepped, <stepped>|10/s, sliding, <sliding>",
        ),
        ("either stepped or sliding", "10/s, stepped, <sliding>|10/s, sliding, <stepped>"),
        ("as in `manual 50`", "manual 50, <burst 5>"),
        ("part of a manual quota: it has no periods", "manual 50, <sliding>|manual 50, <stepped>"),
    ] {
        for marked in texts.split('|') {
            let (before, rest) = marked.split_once('<').unwrap();
            let (part, after) = rest.split_once('>').unwrap();
            let error = format!("{before}{part}{after}").parse::<Quota>().expect_err(marked);
            assert_eq!(error.span(), before.len()..before.len() + part.len(), "{marked}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("`{part}` is no ")) && text.contains(expected), "{marked}: {text}");
            assert!(text.contains("100/s, burst 20"), "{text}");
        }
    }
}

mod with_serde {
    //! A quota is serialized as its text in every format, a snapshot as its fields.

    use super::*;
    use serde_json::{from_reader, from_str, from_value, json, to_string, to_value};
    use tollgate::{Limiter, ManualClock};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_quota_comes_back_from_json(quota in any_quota()) {
            let text = to_string(&quota).unwrap();
            prop_assert_eq!(from_str::<Quota>(&text).unwrap(), quota);
        }
    }

    #[test]
    fn a_quota_is_its_text_in_json() {
        assert_eq!(to_value(Quota::per_second(100).burst(20)).unwrap(), json!("100/s, burst 20"));
    }

    #[test]
    fn a_quota_is_parsed_from_borrowed_and_owned_text() {
        let quota = Quota::per_second(100).burst(20);
        assert_eq!(from_str::<Quota>(r#""100/s, burst 20""#).unwrap(), quota, "borrowed");
        assert_eq!(from_str::<Quota>(r#""100\u002fs, burst 20""#).unwrap(), quota, "unescaped");
        assert_eq!(from_value::<Quota>(json!("100/s, burst 20")).unwrap(), quota, "owned");
        assert_eq!(from_reader::<_, Quota>(&br#""100/s, burst 20""#[..]).unwrap(), quota, "from a reader");
    }

    #[test]
    fn an_error_in_json_names_the_part_that_is_wrong() {
        let error = from_str::<Quota>(r#""100/fortnight""#).unwrap_err().to_string();
        assert!(error.contains("`fortnight`"), "{error}");
        assert!(from_str::<Quota>("100").is_err());
    }

    #[test]
    fn a_snapshot_is_written_with_all_its_numbers() {
        let clock = ManualClock::new();
        let api = Quota::per_second(100).burst(20);
        let builder = Limiter::builder().quota_named("api", api).quota(Quota::manual(50)).max_in_flight(30);
        let limiter = builder.clock(clock.clone()).build().unwrap();
        let _grant = limiter.try_acquire(4).unwrap();
        limiter.pause_for(Duration::from_millis(1_500));
        let written = to_value(limiter.snapshot()).unwrap();
        assert_eq!(written["quotas"][0]["name"], json!("api"));
        assert_eq!(written["quotas"][0]["quota"], json!("100/s, burst 20"));
        assert_eq!(written["quotas"][0]["level"], json!(16));
        assert_eq!(written["quotas"][1]["name"], json!(null));
        assert_eq!(written["quotas"][1]["quota"], json!("manual 50"));
        assert_eq!(written["quotas"][1]["level"], json!(46));
        assert_eq!(written["paused_for"], json!({"secs": 1, "nanos": 500_000_000}));
        let numbers = ["tail", "granted", "in_flight", "refunded", "refused", "waiting_tasks", "waiting_tokens"];
        assert_eq!(numbers.map(|name| written[name].as_u64()), [4, 4, 4, 0, 0, 0, 0].map(Some));
        assert_eq!((&written["closed"], written["ceiling"].as_u64()), (&json!(false), Some(30)));
    }
}

#[test]
fn a_plan_without_a_limit_is_a_quota_like_any_other() {
    assert_eq!("unlimited".parse(), Ok(Quota::unlimited()));
    assert_eq!(Quota::unlimited().to_string(), "unlimited");
    let changed = Quota::unlimited().initial(5);
    assert_eq!(changed.to_string().parse(), Ok(changed));
    assert_eq!(Quota::unlimited().check(), Ok(()));
    let limiter =
        tollgate::Limiter::builder().quota(Quota::unlimited()).clock(tollgate::ManualClock::new()).build().unwrap();
    for _ in 0..100 {
        assert!(limiter.try_acquire(1 << 40).is_ok());
    }
}

mod of_keys {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use tollgate::{ConfigError, KeyedLimiter, Quotas};

    fn any_quotas() -> impl Strategy<Value = Quotas> {
        let named = (option::of("[a-z:]([a-z:= ]{0,5}[a-z:])?"), any_quota());
        vec(named, 1..5).prop_map(|all| {
            all.into_iter().fold(Quotas::default(), |all, (name, quota)| match name {
                Some(name) => all.quota_named(name, quota),
                None => all.quota(quota),
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn quotas_print_as_text_that_is_parsed_as_the_same(quotas in any_quotas()) {
            prop_assert_eq!(quotas.to_string().parse::<Quotas>().unwrap(), quotas.clone());
            prop_assert_eq!(serde_json::from_str::<Quotas>(&serde_json::to_string(&quotas).unwrap()).unwrap(), quotas);
        }
    }

    #[test]
    fn an_error_stands_at_its_place_in_the_whole_text() {
        for (text, span) in [("10/s; day: 5/year", 13..17), ("x", 0..1), ("10/s;", 5..5), ("a: 1/s; b:", 10..10)] {
            assert_eq!(text.parse::<Quotas>().unwrap_err().span(), span, "{text}");
        }
    }

    #[test]
    fn quotas_that_have_no_text_are_not_written() {
        let named = |name: &str| Quotas::default().quota_named(name, Quota::per_second(1));
        for quotas in [Quotas::default(), named("a;b"), named(" a")] {
            assert!(serde_json::to_string(&quotas).is_err(), "{quotas}");
        }
    }

    #[test]
    fn a_check_says_what_building_would_say() {
        for text in ["1/s", "1/s; 2/s; 3/s; 4/s; 5/s", "0/s", "manual 5", "1/s, burst 5, initial 2", "a: 1/s; a: 2/s"] {
            let quotas: Quotas = text.parse().unwrap();
            assert_eq!(quotas.check().err(), KeyedLimiter::<u8>::new(quotas).err(), "{text}");
        }
        assert_eq!(Quotas::default().check(), Err(ConfigError::NoQuota));
        for text in ["1/s", "0/s", "1/s, burst 0", "manual 5", "1/s, burst 5, initial 6"] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(quota.check().err().map(Into::into), tollgate::Limiter::new(quota).err(), "{text}");
        }
    }
}
