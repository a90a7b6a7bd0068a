use super::*;

const MOST: u64 = 64;

/// A stride that was consumed whole, `times` times, at a token per 100 ns.
fn grown(times: u32) -> Stride {
    let mut stride = Stride::new(0);
    for _ in 0..times {
        let consumed = stride.tokens.max(1);
        stride.adapt(stride.tail + consumed, stride.now + 100 * consumed, MOST);
    }
    stride
}

#[test]
fn the_stride_doubles_while_whole_strides_are_consumed_fast_up_to_its_limit() {
    let tokens: Vec<u64> = (0..9).map(|times| grown(times).tokens).collect();
    assert_eq!(tokens, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
}

/// Slow calls and a clock that stands still reset it.
#[test]
fn a_stride_of_16_tokens_adapts_to_what_was_consumed_in_which_time() {
    for (consumed, nanos, tokens, why) in [
        (16, 16_000, 32, "just a token per microsecond"),
        (16, 16_001, 0, "less than a token per microsecond"),
        (16, 0, 0, "the clock stands still"),
        (1, 50, 16, "the second of two callers at its end: not a whole stride, but at the same pace"),
        (0, 0, 16, "the same reading twice"),
    ] {
        let mut stride = grown(5);
        stride.adapt(stride.tail + consumed, stride.now + nanos, MOST);
        assert_eq!(stride.tokens, tokens, "{why}");
    }
}

#[test]
fn an_older_reading_that_arrives_late_changes_nothing() {
    let mut stride = grown(5);
    let (tail, now) = (stride.tail, stride.now);
    stride.adapt(tail + 1, now - 1, MOST);
    assert_eq!((stride.tokens, stride.tail, stride.now), (16, tail, now));
}

#[test]
fn retracted_tokens_do_not_count_as_consumed() {
    let mut slow = grown(5);
    slow.shift(1_000);
    slow.adapt(slow.tail + 16, slow.now + 16_001, MOST);
    assert_eq!(slow.tokens, 0);
    let mut shifted = Stride::new(0);
    shifted.shift(1_000);
    shifted.adapt(1_001, 100_000, MOST);
    assert_eq!(shifted.tokens, 0, "one token in 100 microseconds");
}

#[test]
fn a_fixed_stride_does_not_adapt() {
    let mut stride = Stride::new(0);
    stride.fix(7);
    stride.shorten(3);
    for (tail, now) in [(0, 0), (1, 1_000_000), (9, 1_000_001), (9, 5)] {
        stride.adapt(tail, now, MOST);
        assert_eq!(stride.tokens, 7);
    }
}
