use super::*;

#[test]
fn the_scale_is_divisible_by_the_common_weights() {
    for weight in (1..=40).chain([50, 60, 100, 125, 250, 500, 1_000]) {
        assert_eq!(SCALE % weight, 0, "{weight}");
    }
}

#[test]
fn charges_in_pieces_add_up_to_the_charge_of_the_sum() {
    for weight in [1, 3, 41, 997, 65_537, 999_983, MAX_WEIGHT] {
        let weight = Weight::new(weight);
        let mut start = StartTag::at(7);
        for tokens in [1, 1, 5, 1 << 48, 12_345] {
            start.charge(tokens, &weight);
        }
        let sum: u64 = 7 + (1 << 48) + 12_345;
        assert_eq!({ start.tag }, 7 + u128::from(sum) * u128::from(SCALE) / u128::from(weight.weight), "{weight:?}");
        assert!(weight.span((1 << 48) - 1) < weight.span(1 << 48));
    }
}

#[test]
fn a_refund_undoes_a_charge_down_to_a_bound() {
    for weight in [1, 3, 41, 997, 65_537, 999_983, MAX_WEIGHT] {
        let weight = Weight::new(weight);
        let mut start = StartTag::at(7);
        start.charge(1_000, &weight);
        let before = start;
        for tokens in [1, 5, 1 << 48, 12_345] {
            start.charge(tokens, &weight);
        }
        for tokens in [12_345, 1 << 48, 1, 5] {
            start.refund(tokens, &weight, 0);
        }
        assert_eq!(({ start.tag }, start.carried), ({ before.tag }, before.carried), "{weight:?}");
        start.refund(999, &weight, before.tag - 1);
        assert_eq!({ start.tag }, before.tag - 1, "no further than the bound");
        start.refund(1, &weight, before.tag);
        assert_eq!({ start.tag }, before.tag - 1, "it is not moved up");
    }
}

#[test]
fn turns_are_in_the_order_of_their_start_then_their_finish_then_their_age() {
    const EDGES: [u128; 5] = [0, 1, u64::MAX as u128, 1 << 64, (1 << 64) + 1];
    let spans = EDGES.into_iter().flat_map(|start| EDGES.map(|span| (start, span)));
    let keys: Vec<_> = spans.flat_map(|(start, span)| [0, 7].map(|since| (start, span, since))).collect();
    for (start, span, since) in &keys {
        let turn = Turn { start: *start, span: *span, since: *since, class: 1 };
        for other in &keys {
            let (start, span, since) = *other;
            let is_before = turn.is_before(&Turn { start, span, since, class: 2 });
            assert_eq!(is_before, (turn.start, turn.span, turn.since) < *other);
        }
        assert!(turn.is_before(&Turn::EMPTY) && !Turn::EMPTY.is_before(&turn));
    }
}
