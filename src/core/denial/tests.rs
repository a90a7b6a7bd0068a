use super::*;

const BOUNDS: [Bound; 11] = [
    Bound::InFlight,
    Bound::MaxCost,
    Bound::Pause,
    Bound::Queue,
    Bound::Parent,
    Bound::ParentInFlight,
    Bound::ParentPause,
    Bound::ParentQueue,
    Bound::Ceiling,
    Bound::Quota(0),
    Bound::Quota(7),
];

fn denial(by: Bound, at: Option<u64>) -> Denial {
    Denial { cost: 2, tail: 10, released: 4, until: 100, at, remaining: 1, by, name: Name::NONE }
}

#[test]
fn a_kept_denial_is_read_back_complete() {
    let last = LastDenial::new();
    for by in BOUNDS {
        for at in [None, Some(0), Some(700)] {
            for name in [Name::NONE, Name::of("minute"), Name::of_number(u32::MAX)] {
                let denial = Denial { name, ..denial(by, at) };
                last.keep(&denial);
                let found = last.about(2, 10, 4).expect("same cost, tail and releases");
                assert_eq!((found.until, found.as_of(50)), (100, denial.as_of(50)));
            }
        }
    }
}

#[test]
fn a_denial_answers_only_its_own_cost_tail_and_releases() {
    let last = LastDenial::new();
    assert!(last.about(0, 0, 0).is_none(), "nothing was denied yet");
    last.keep(&denial(Bound::Queue, None));
    for (cost, tail, released) in [(3, 10, 4), (2, 11, 4), (2, 10, 6), (0, 0, 0)] {
        assert!(last.about(cost, tail, released).is_none(), "{cost} from {tail}, {released} released");
    }
}

#[test]
fn a_forgotten_denial_is_not_found_until_the_next_one_is_kept() {
    let last = LastDenial::new();
    for _ in 0..3 {
        last.keep(&denial(Bound::Pause, Some(700)));
        assert!(last.about(2, 10, 4).is_some());
        last.forget();
        assert!(last.about(2, 10, 4).is_none());
        last.forget();
        assert!(last.about(2, 10, 4).is_none(), "forgotten twice");
    }
}
