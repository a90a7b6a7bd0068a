use super::*;

#[test]
fn a_word_holds_every_verdict_and_a_plain_number() {
    let bounds = [Bound::Queue, Bound::Pause, Bound::Quota(0), Bound::Quota(70_000)];
    let refused = REASONS.iter().flat_map(|reason| bounds.map(|by| Verdict::Refused { reason: *reason, by }));
    let granted = [0, 1, BELOW_CHARGED].map(|remaining| Verdict::AtOnce { remaining });
    let waits = [None, Some(0), Some(7), Some(VALUE - 1)].map(|nanos| Verdict::Waits { nanos });
    for verdict in refused.chain(granted).chain(waits) {
        let word = verdict.to_word();
        assert_eq!((Verdict::of_word(word), Verdict::instant(word)), (Some(verdict), None));
        assert_eq!(Verdict::is_refused(word), matches!(verdict, Verdict::Refused { .. }));
        let at = Verdict::with_instant(word, 5);
        assert_eq!(at == word, !matches!(verdict, Verdict::AtOnce { .. }), "no space for the instant");
    }
    for word in [0, 1 << 61, Verdict::charged(0), Verdict::charged(1 << 61), Verdict::AtOnce { remaining: 7 }.to_word()]
    {
        for (instant, seen) in [(0, 0), (7, 7), (u64::MAX, (1 << 60) - 1)] {
            let at = Verdict::with_instant(word, instant);
            assert_eq!((Verdict::instant(word), Verdict::instant(at)), (None, Some(seen)));
            assert_eq!(Verdict::instant(Verdict::uncharged(at)), Some(seen));
            let is_verdict = |word| Verdict::of_word(word).map(Verdict::wait);
            assert_eq!((is_verdict(at), Verdict::is_refused(at)), (is_verdict(word), false));
            assert_eq!([at, Verdict::uncharged(at)].map(Verdict::is_charged), [Verdict::is_charged(word), false]);
            assert_eq!(Verdict::remaining(at), 0);
        }
    }
    assert_eq!([0, 7].map(|remaining| Verdict::remaining(Verdict::charged(remaining))), [0, 7]);
    assert_eq!([1, 16, 17].map(|cost| Verdict::refundable(Verdict::charged(5), cost)), [0, 15, 15]);
    assert_eq!(Verdict::refundable(5, 16), 0);
    assert_eq!(Verdict::remaining(1 << 61), 1 << 61);
    assert_eq!(Verdict::remaining(Verdict::AtOnce { remaining: 5 }.to_word()), 5);
    assert_eq!(Verdict::remaining(Verdict::Waits { nanos: Some(5) }.to_word()), 0);
}
