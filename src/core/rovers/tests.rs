use super::*;

#[test]
fn fields_that_claims_write_and_read_are_on_different_cache_lines() {
    let written = size_of::<Claims>();
    let read = std::mem::offset_of!(Rovers, supply.published);
    assert!(read >= written + 64);
    assert_eq!(size_of::<Rovers>(), read + 2 * size_of::<AtomicU64>());
}

#[test]
fn claims_stop_at_published_and_wrap_around() {
    for start in [0, u64::MAX - 2, i64::MAX as u64 - 1] {
        let rovers = Rovers::new(start);
        assert_eq!(rovers.try_claim(1), None);
        rovers.publish(start.wrapping_add(5), start.wrapping_add(5));
        assert_eq!(rovers.try_claim(6), None);
        assert_eq!(rovers.try_claim(0), None, "a claim of zero tokens is refused");
        assert_eq!(rovers.try_claim(u64::MAX), None);
        assert_eq!(rovers.try_claim(3), Some(start.wrapping_add(3)));
        assert_eq!(rovers.try_claim(2), Some(start.wrapping_add(5)));
        assert_eq!(rovers.try_claim(1), None);
    }
}

#[test]
fn published_never_moves_back() {
    let rovers = Rovers::new(10);
    rovers.publish(20, 20);
    rovers.publish(15, 15);
    assert_eq!(rovers.published(), 20);
    assert_eq!(rovers.remaining_after(10), 5);
}

#[test]
fn retract_takes_back_the_unclaimed() {
    let rovers = Rovers::new(u64::MAX);
    rovers.publish(9, 9);
    rovers.try_claim(4).unwrap();
    assert_eq!(rovers.retract(), 6);
    assert_eq!(rovers.tail(), rovers.published());
    assert_eq!(rovers.retract(), 0);
    rovers.claim(3);
    assert_eq!(rovers.retract(), 0, "an overrun tail has nothing to take back");
}

#[test]
fn releases_are_counted_once_and_not_without_the_lock_while_watched() {
    let rovers = Rovers::new(0);
    let mut seen = 0;
    assert!(rovers.try_release(7));
    assert_eq!(rovers.watch_releases(&mut seen), 7);
    assert!(!rovers.try_release(2));
    assert_eq!(rovers.released_since(&mut seen), 0);
    rovers.count_release(2);
    assert_eq!(rovers.released_since(&mut seen), 2);
    rovers.ignore_releases();
    assert!(rovers.try_release(1));
    assert_eq!((rovers.released_since(&mut seen), rovers.released_since(&mut seen)), (1, 0));
}
