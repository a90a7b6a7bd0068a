use super::*;

#[test]
fn a_window_takes_less_than_700_bytes() {
    let window = Window::new(60, 60_000_000_000, 0);
    assert_eq!(window.slots.capacity(), MOST);
    let bytes = size_of::<Window>() + MOST * size_of::<Slot>();
    assert!(bytes <= 700, "{bytes} bytes");
}

#[test]
fn grants_of_a_32nd_of_the_period_come_back_together_at_its_end() {
    let mut window = Window::new(60, 320, 0);
    for at in [0, 3, 10, 11] {
        assert_eq!(window.advance(at), 0);
        window.grant(1);
    }
    assert_eq!([1, 2, 3, 4].map(|need| window.back(need, 0)), [320, 330, 330, 340].map(Some));
    assert_eq!((window.back(1, 1), window.back(5, 1), window.back(5, 0)), (Some(320), Some(340), Some(340)));
    assert_eq!([319, 320, 329, 330, 340].map(|now| window.advance(now)), [0, 1, 0, 2, 1]);
}

#[test]
fn more_grants_than_slots_come_back_late() {
    let mut window = Window::new(33, 1_000, 0);
    for at in 0..40 {
        window.advance(at);
        window.grant(1);
    }
    assert_eq!((window.slots.len(), window.back(32, 0), window.back(33, 1)), (MOST, Some(1_031), Some(1_039)));
    assert_eq!((window.advance(1_031), window.advance(1_038), window.advance(1_039)), (32, 0, 8));
}
