use super::*;

#[test]
fn a_word_holds_every_verdict_and_a_plain_number() {
    let bounds = [Bound::Queue, Bound::Pause, Bound::Quota(0), Bound::Quota(70_000)];
    let refused = REASONS.iter().flat_map(|reason| bounds.map(|by| Verdict::Refused { reason: *reason, by }));
    let granted = [0, 1, BELOW_CHARGED].map(|remaining| Verdict::AtOnce { remaining });
    let waits = [None, Some(0), Some(7), Some(VALUE - 1)].map(|nanos| Verdict::Waits { nanos });
    let of = |verdict| GrantWord::of_verdict(verdict, 3);
    for verdict in refused.chain(granted).chain(waits) {
        let word = of(verdict);
        assert_eq!((word.verdict(), word.instant()), (Some(verdict), None));
        assert_eq!(word.is_refused(), matches!(verdict, Verdict::Refused { .. }));
        let at = word.with_instant(5);
        assert_eq!(at == word, !matches!(verdict, Verdict::AtOnce { .. }), "no space for the instant");
    }
    let charged = GrantWord::charged;
    let plain = [0, 1 << 61].map(GrantWord::plain);
    for word in plain.into_iter().chain([charged(0), charged(1 << 61), of(Verdict::AtOnce { remaining: 7 })]) {
        for (instant, seen) in [(0, 0), (7, 7), (u64::MAX, (1 << 60) - 1)] {
            let at = word.with_instant(instant);
            assert_eq!((word.instant(), at.instant()), (None, Some(seen)));
            assert_eq!(at.uncharged().instant(), Some(seen));
            let wait = |word: GrantWord| word.verdict().map(Verdict::wait);
            assert_eq!((wait(at), at.is_refused()), (wait(word), false));
            assert_eq!([at, at.uncharged()].map(GrantWord::is_charged), [word.is_charged(), false]);
            assert_eq!(at.remaining(), 0);
        }
    }
    assert_eq!([0, 7].map(|remaining| charged(remaining).remaining()), [0, 7]);
    assert_eq!([1, 16, 17].map(|cost| charged(5).refundable(cost)), [0, 15, 15]);
    assert_eq!(GrantWord::plain(5).refundable(16), 0);
    assert_eq!(GrantWord::plain(1 << 61).remaining(), 1 << 61);
    assert_eq!(of(Verdict::AtOnce { remaining: 5 }).remaining(), 5);
    assert_eq!(of(Verdict::Waits { nanos: Some(5) }).remaining(), 0);
}
