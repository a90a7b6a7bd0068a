//! Calendar quotas as text, and what is refused.

use crate::fixture::*;

#[test]
fn a_calendar_quota_is_read_back_as_it_was_printed() {
    let los_angeles = |quota: Quota| quota.in_time_zone("America/Los_Angeles").unwrap();
    let rows = [
        ("10k/day@America/Los_Angeles", los_angeles(Quota::per_calendar_day(10_000))),
        ("10k per day @ america/los_angeles", los_angeles(Quota::per_calendar_day(10_000))),
        ("50k/month@UTC, day 15", Quota::per_calendar_month(50_000).starting_on(15)),
        (
            "7/week@America/Los_Angeles, day 7, initial 2",
            los_angeles(Quota::per_calendar_week(7)).starting_on(7).initial(2),
        ),
        ("1/second@utc", Quota::per_calendar_second(1)),
        ("1/min@UTC", Quota::per_calendar_minute(1)),
        ("1/h@UTC", Quota::per_calendar_hour(1)),
        ("1/year@UTC", Quota::per_calendar_year(1)),
        ("5/10s@epoch", Quota::new(5, Duration::from_secs(10)).stepped().from_epoch()),
    ];
    for (text, quota) in rows {
        assert_eq!(text.parse(), Ok(quota), "{text}");
        assert_eq!((quota.to_string().parse(), quota.check()), (Ok(quota), Ok(())), "{quota}");
        assert!(quota.is_stepped());
        assert_eq!(serde_json::from_str::<Quota>(&serde_json::to_string(&quota).unwrap()).unwrap(), quota);
    }
    assert_eq!(rows_text(), ["10000/day@America/Los_Angeles", "50000/month@UTC, day 15", "5/10s@epoch"]);
}

fn rows_text() -> [String; 3] {
    ["10k/day@America/los_angeles", "50k/month@UTC,day 15", "5/10s@epoch"]
        .map(|text| text.parse::<Quota>().unwrap().to_string())
}

#[test]
fn a_refusal_names_the_part() {
    for (text, part, expected) in [
        ("10k/month@Mars", "Mars", "is no time zone"),
        ("10k/month@", "", "is no time zone"),
        ("10k/fortnight@UTC", "fortnight", "is no calendar period"),
        ("10k/2days@UTC", "2days", "is no calendar period"),
        ("10k/month@UTC, day 32", "day 32", "is no day from `day 1` to `day 31`"),
        ("10k/month@UTC, day 0", "day 0", "is no day"),
        ("10k/week@UTC, day 8", "day 8", "is no day of a week"),
        ("10k/day@UTC, day 3", "day 3", "is no part of this quota"),
        ("10k/s, day 3", "day 3", "is no part of this quota"),
        ("10k/month@UTC, day 3, day 4", "day 4", "is no further part"),
        ("10k/month@UTC, stepped", "stepped", "is no further part"),
        ("10k/month@epoch", "month", "is no period"),
    ] {
        let error = text.parse::<Quota>().unwrap_err();
        assert_eq!(&text[error.span()], part, "{text}");
        assert!(error.to_string().starts_with(&format!("`{part}` {expected}")), "{error}");
    }
}

#[test]
fn checks_refuse_what_no_calendar_has() {
    let day = Quota::per_calendar_day(10);
    assert_eq!(Quota::per_calendar_day(0).check(), Err(QuotaError::ZeroAmount));
    for burst in [9, 11] {
        assert_eq!(day.burst(burst).check(), Err(QuotaError::CalendarBurst { burst, amount: 10 }));
    }
    assert_eq!(day.starting_on(2).check(), Err(QuotaError::BadCalendarDay { day: 2 }));
    for (quota, most) in [(Quota::per_calendar_week(1), 7), (Quota::per_calendar_month(1), 31)] {
        assert_eq!(quota.starting_on(most).check(), Ok(()));
        for day in [0, most + 1] {
            let error = ConfigError::from(quota.starting_on(day).check().unwrap_err());
            assert!(error.to_string().starts_with(&format!("quota 0 begins on day {day}:")), "{error}");
        }
    }
    let error = day.in_time_zone("Mars").unwrap_err();
    assert_eq!(error, ConfigError::UnknownTimeZone { name: "Mars".into() });
    assert!(error.to_string().contains("`Mars`"));
    for quota in [Quota::per_day(1), Quota::new(1, Duration::from_secs(1)).from_epoch(), Quota::manual(1)] {
        assert_eq!(quota.in_time_zone("UTC"), Err(ConfigError::NoCalendar { quota }));
    }
    assert_eq!(Quota::manual(3).from_epoch(), Quota::manual(3));
    // From the year 2262 on the periods of the first would have no numbers, and each look would begin one. The last one of the
    // second would have no number after it.
    for nanos in [1, 2] {
        let short = Quota::new(1, Duration::from_nanos(nanos)).from_epoch();
        assert!(matches!(short.check(), Err(QuotaError::BadPeriod { .. })));
    }
    let shortest = Quota::new(1, Duration::from_nanos(3)).from_epoch();
    let (limiter, clock) = built(Limiter::builder().quota(shortest));
    for _ in 0..2 {
        drop(limiter.try_acquire(1).unwrap());
        clock.advance(Duration::MAX);
    }
}
