use super::*;

#[test]
fn terms_are_printed_stored_and_read_back() {
    for (text, stored, version) in [
        ("100/s, burst 20", "1 10000 20 20 0", 0),
        ("90/min, burst 7, initial 3", "3 2000000 7 3 0 12", 12),
        ("5/10s, burst 5, stepped", "5 10000000 5 5 1 4294967295", u32::MAX),
        ("2/7s, burst 2", "1 3500000 2 2 0", 0),
    ] {
        let quota: Quota = text.parse().unwrap();
        let terms = QuotaTerms::of(&quota).unwrap().with_version(version);
        assert_eq!((terms.to_string().as_str(), QuotaTerms::from_text(stored)), (stored, Some(terms)), "{text}");
        let printed = if text.starts_with("2/7") { "1/3500ms, burst 2" } else { text };
        assert_eq!(terms.quota().to_string(), printed);
    }
}

#[test]
fn numbers_that_no_quota_has_are_no_terms() {
    for text in [
        "0 1 1 1 0",
        "1 0 1 1 0",
        "1 1 0 0 0",
        "1 1 5 6 0",
        "6 1 5 5 1",
        "1 1 1 1 2",
        "2 1 1 1 2 0 1 2",
        "1 1 1 1 2 0",
        "1 1 1 1 2 0 5 4",
        "1 1 1 1 1 0 4 5",
        "1 1 1 1",
        "1 1 1 1 0 4294967296",
    ] {
        assert_eq!(QuotaTerms::from_text(text), None, "{text}");
    }
    assert_eq!(QuotaTerms::from_text("9007199254740993 1 1 1 0"), None);
}
