use super::*;
use crate::quota::Quota;

/// The answer with these numbers to a request for 10 tokens, by a quota with a period of 1,000,000 us.
fn is_sound(numbers: [u64; 13]) -> bool {
    let terms = QuotaTerms::of(&Quota::per_second(1)).unwrap();
    let ask = LeaseRequest { want: 7, ahead: 3, ..LeaseRequest::new(1, 1, terms) };
    LeaseGrant::from_numbers(&numbers, 0).unwrap().check(&ask).is_ok()
}

#[test]
fn an_answer_is_sound_if_its_numbers_can_be_counted_with_and_its_tokens_were_asked_for() {
    let sound = [MOST, MOST, 4, 6, MOST, 999_999, MOST, MOST, MOST, MOST, MOST, MOST, MOST];
    assert!(is_sound(sound));
    for at in 0..13 {
        for number in [MOST + 1, u64::MAX] {
            let mut numbers = sound;
            numbers[at] = number;
            assert!(!is_sound(numbers), "number {at}");
        }
    }
    assert!(!is_sound([0, 0, 4, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0]) && !is_sound([0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    let promises = |phase, last| is_sound([0, 0, 0, 6, 0, phase, 0, 0, 0, 0, 0, last, 0]);
    assert!(promises(999_999, 6) && !promises(1_000_000, 6) && !promises(999_999, 5));
    assert!(is_sound([0, 0, 0, 0, 0, 1_000_000, 0, 0, 0, 0, 0, 0, 0]), "nothing is promised");
}
