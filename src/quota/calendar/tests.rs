use super::*;

fn wall(text: &str) -> u64 {
    text.parse::<Timestamp>().expect("an instant").as_nanosecond() as u64
}

/// The starts of the periods that follow each other from the one that `from` is in.
fn starts(unit: Unit, day: u8, zone: &str, from: &str, count: i64) -> Vec<String> {
    let calendar = Calendar { unit, day, zone: Zone::of(zone).expect("known") };
    let (length, from) = (unit.length().as_nanos() as u64, wall(from));
    let number = calendar.number(length, from);
    let starts = (number..number + count).map(|number| {
        let start = calendar.start(length, number, from).expect("in time");
        // A date that the zone skipped is a period without an instant: the next one begins with it.
        assert_eq!(calendar.start(length, calendar.number(length, start), from), Some(start));
        assert!(start == 0 || calendar.number(length, start - 1) == number - 1);
        timestamp(start).expect("in time").to_string()
    });
    starts.collect()
}

#[test]
fn periods_begin_as_the_calendar_of_the_zone_says() {
    let los_angeles = "America/Los_Angeles";
    let cases: &[(Unit, u8, &str, &str, &[&str])] = &[
        (Unit::Second, 1, "UTC", "2026-05-01T10:20:30.5Z", &["2026-05-01T10:20:30Z", "2026-05-01T10:20:31Z"]),
        (Unit::Hour, 1, "UTC", "2026-05-01T10:20:30Z", &["2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z"]),
        (Unit::Hour, 1, "Asia/Kolkata", "2026-05-01T10:20:30Z", &["2026-05-01T09:30:00Z", "2026-05-01T10:30:00Z"]),
        (Unit::Day, 1, "UTC", "2026-05-01T10:20:30Z", &["2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z"]),
        // A day of 23 hours, and one of 25.
        (Unit::Day, 1, los_angeles, "2026-03-08T09:00:00Z", &["2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"]),
        (Unit::Day, 1, los_angeles, "2026-11-01T09:00:00Z", &["2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"]),
        // There is no midnight on the day on which daylight saving begins, or midnight comes twice.
        (Unit::Day, 1, "Africa/Cairo", "2026-04-24T10:00:00Z", &["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"]),
        (Unit::Day, 1, "America/Havana", "2026-11-01T04:30:00Z", &["2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"]),
        // The rules of this zone changed: a date was skipped.
        (Unit::Day, 1, "Pacific/Apia", "2011-12-30T09:00:00Z", &["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"]),
        (Unit::Week, 1, "UTC", "1970-01-01T00:00:00Z", &["1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z"]),
        (Unit::Week, 7, "UTC", "2026-11-28T10:00:00Z", &["2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"]),
        (Unit::Week, 7, los_angeles, "2026-11-28T10:00:00Z", &["2026-11-22T08:00:00Z", "2026-11-29T08:00:00Z"]),
        (Unit::Month, 15, "UTC", "2026-01-14T23:00:00Z", &["2025-12-15T00:00:00Z", "2026-01-15T00:00:00Z"]),
        // The 31st: months without it begin on their last day.
        (
            Unit::Month,
            31,
            "UTC",
            "2028-01-31T01:00:00Z",
            &["2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z"],
        ),
        (Unit::Year, 1, los_angeles, "2026-05-01T10:00:00Z", &["2026-01-01T08:00:00Z", "2027-01-01T08:00:00Z"]),
    ];
    for (unit, day, zone, from, expected) in cases {
        assert_eq!(starts(*unit, *day, zone, from, expected.len() as i64), *expected, "{unit:?} {zone} {from}");
    }
}

#[test]
fn every_instant_is_in_the_period_that_has_begun_last() {
    let (units, zones) = ([Unit::Day, Unit::Week, Unit::Month], ["America/New_York", "Africa/Cairo", "UTC"]);
    for (unit, zone) in units.into_iter().flat_map(|unit| zones.map(|zone| (unit, zone))) {
        let calendar = Calendar { unit, day: 5, zone: Zone::of(zone).expect("known") };
        let length = unit.length().as_nanos() as u64;
        for hour in 0..5 * 366 * 8 {
            let at = wall("2026-01-01T00:30:00Z") + hour * DAY / 8;
            let number = calendar.number(length, at);
            let [start, end] = [0, 1].map(|more| calendar.start(length, number + more, at).expect("in time"));
            assert!((start..end).contains(&at) && end - start <= calendar.longest(length), "{unit:?} {zone} {at}");
        }
    }
    assert_eq!(Calendar::new(Unit::Year).start(DAY, 2600, 0), None, "64 bits of nanoseconds end in 2554");
}
