//! Accounts of classes, by hand.

use super::*;

const TENTH: u64 = 100_000_000;

fn state(number: u64, part: f64, served: u64) -> ClassState {
    ClassState { number, parent: 0, part, due: 4.0 * part, served, is_waiting: true }
}

#[test]
fn each_class_takes_its_part_in_a_share_time_and_fractions_add_up() {
    let (mut accounts, mut served) = (Accounts::default(), 0);
    for round in 0..40 {
        accounts.update(&[state(1, 1.25, served)], 0, TENTH, round * TENTH);
        assert_eq!(accounts.resumes_at(TENTH), 0);
        let share = accounts.share().unwrap();
        accounts.request([(1, share as f64)]);
        served += share;
    }
    assert_eq!(served, 50);
}

#[test]
fn a_class_pays_back_a_claim_above_its_part_and_others_do_not_wait_for_it() {
    let mut accounts = Accounts::default();
    accounts.update(&[state(1, 2.5, 0), state(2, 5.0, 0)], 0, TENTH, 0);
    assert_eq!(accounts.limit(1), Some((2.5, true)));
    accounts.request([(1, 10.0)]);
    accounts.update(&[state(1, 2.5, 0), state(2, 5.0, 0)], 10, TENTH, TENTH);
    assert_eq!([1, 2].map(|class| accounts.rests(class)), [false; 2], "its claim has tokens that are to come");
    assert_eq!(accounts.limit(1), Some((-5.0, false)));
    let second = accounts.limit(2).unwrap();
    assert!(second.1 && accounts.resumes_at(TENTH) == 0, "{second:?}");
    // It was served. The other class has taken what is due to it.
    accounts.update(&[state(1, 2.5, 10), state(2, 5.0, 15)], 0, TENTH, TENTH);
    assert_eq!([1, 2].map(|class| accounts.rests(class)), [true; 2]);
    assert_eq!(accounts.resumes_at(TENTH), 3 * TENTH, "the second has paid back 10 tokens of 5 each");
    accounts.update(&[state(1, 2.5, 10), state(2, 5.0, 15)], 0, TENTH, 4 * TENTH);
    assert_eq!([1, 2].map(|class| accounts.rests(class)), [false; 2]);
}

#[test]
fn requested_tokens_that_did_not_come_or_were_served_to_another_class_are_not_charged() {
    let mut accounts = Accounts::default();
    accounts.update(&[state(1, 2.0, 0), state(2, 2.0, 0)], 0, TENTH, 0);
    accounts.request([(1, 20.0)]);
    accounts.update(&[state(1, 2.0, 0), state(2, 2.0, 20)], 0, TENTH, 0);
    assert_eq!([1, 2].map(|class| accounts.limit(class).unwrap().1), [true, false], "the second class was served");
    accounts.request([(1, 20.0)]);
    accounts.withdraw_requests();
    accounts.update(&[state(1, 2.0, 0), state(2, 2.0, 20)], 0, TENTH, 0);
    assert_eq!(accounts.limit(1), Some((2.0, true)), "the request got nothing");
    accounts.request([(1, 20.0)]);
    accounts.update(&[state(1, 2.0, 0), state(2, 2.0, 20)], 0, TENTH, 0);
    assert_eq!(accounts.limit(1), Some((-18.0, false)), "its claims were given up, or it was made anew");
}

#[test]
fn a_request_that_got_nothing_leaves_what_earlier_ones_brought() {
    let mut accounts = Accounts::default();
    accounts.update(&[state(1, 2.0, 0), state(2, 2.0, 0)], 0, TENTH, 0);
    accounts.request([(1, 5.0)]);
    accounts.request([(1, 3.0), (2, 4.0)]);
    accounts.update(&[state(1, 2.0, 1), state(2, 2.0, 0)], 11, TENTH, 0);
    accounts.withdraw_last_request();
    assert_eq!([1, 2].map(|class| accounts.limit(class).unwrap().0), [2.0 - 5.0, 2.0]);
    accounts.withdraw_last_request();
    assert_eq!(accounts.limit(1).unwrap().0, 2.0 - 5.0, "a request is withdrawn once");
    // A request for nothing is withdrawn too.
    accounts.request([(1, 3.0)]);
    accounts.request([]);
    accounts.withdraw_last_request();
    assert_eq!(accounts.limit(1).unwrap().0, 2.0 - 8.0);
    accounts.withdraw_requests();
    assert_eq!(accounts.limit(1).unwrap().0, 2.0 - 1.0, "what was served is paid for");
}

#[test]
fn a_class_that_is_made_anew_owes_what_it_owed() {
    let mut accounts = Accounts::default();
    accounts.update(&[state(1, 2.0, 0)], 0, TENTH, 0);
    accounts.update(&[state(1, 2.0, 20)], 0, TENTH, 0);
    accounts.update(&[], 0, TENTH, TENTH);
    accounts.update(&[state(1, 2.0, 0)], 0, TENTH, 2 * TENTH);
    assert_eq!((accounts.limit(1), accounts.resumes_at(TENTH)), (Some((-14.0, false)), 10 * TENTH));
    accounts.update(&[], 0, TENTH, 11 * TENTH);
    accounts.update(&[state(1, 2.0, 0)], 0, TENTH, 12 * TENTH);
    assert_eq!(accounts.limit(1), Some((2.0, true)), "its debt was paid by time");
}

#[test]
fn a_class_that_is_made_anew_pays_for_all_that_it_was_served_since() {
    let mut accounts = Accounts::default();
    accounts.update(&[state(1, 2.0, 0)], 0, TENTH, 0);
    accounts.update(&[state(1, 2.0, 20)], 0, TENTH, 0);
    accounts.update(&[], 0, TENTH, TENTH);
    accounts.update(&[state(1, 2.0, 30)], 0, TENTH, TENTH);
    assert_eq!(accounts.limit(1), Some((2.0 - 20.0 + 2.0 - 30.0, false)));
}

/// In the class that both are in. Classes of the limiter itself may belong to different users of it.
#[test]
fn a_new_class_owes_what_a_removed_one_owed() {
    let mut accounts = Accounts::default();
    let within = |parent, number, served| ClassState { parent, ..state(number, 2.0, served) };
    let groups = [state(8, 2.0, 0), state(9, 2.0, 0)];
    let with = |class: ClassState| [groups[0], groups[1], class];
    accounts.update(&with(within(9, 1, 0)), 0, TENTH, 0);
    accounts.update(&with(within(9, 1, 20)), 0, TENTH, 0);
    accounts.update(&with(within(8, 2, 0)), 0, TENTH, TENTH);
    assert_eq!(accounts.limit(2), Some((2.0, true)), "a class in another class");
    accounts.update(&with(state(3, 2.0, 0)), 0, TENTH, TENTH);
    assert_eq!(accounts.limit(3), Some((2.0, true)), "a class of the limiter itself");
    accounts.update(&with(within(9, 4, 0)), 0, TENTH, 3 * TENTH);
    assert_eq!(accounts.limit(4), Some((2.0 - 20.0 + 6.0, false)));
    accounts.update(&[groups[0], groups[1], within(9, 4, 0), within(9, 5, 0)], 0, TENTH, 3 * TENTH);
    assert_eq!(accounts.limit(5), Some((2.0, true)), "the debt of a class that is there stays with it");
    accounts.update(&[groups[0], groups[1], within(9, 5, 0), within(9, 1, 0)], 0, TENTH, 3 * TENTH);
    assert_eq!(accounts.limit(1), Some((2.0 - 14.0, false)), "there is one debt");
}

#[test]
fn what_no_class_asks_for_is_shared_by_the_parts_and_pays_all_debts_before_tokens_are_lost() {
    let mut accounts = Accounts::default();
    let served = [state(1, 4.0, 100), state(2, 1.0, 100)];
    accounts.update(&[state(1, 4.0, 0), state(2, 1.0, 0)], 0, TENTH, 0);
    accounts.update(&served, 0, TENTH, 0);
    accounts.add_spare(0.5, TENTH, TENTH);
    assert_eq!([1, 2].map(|class| accounts.limit(class).unwrap().0), [-95.0, -98.75]);
    accounts.add_spare(FULL, TENTH, TENTH);
    assert_eq!([1, 2].map(|class| accounts.limit(class).unwrap()), [(4.0, true), (1.0, true)]);
}

#[test]
fn what_was_asked_for_ahead_is_not_owed_if_much_less_is_due_to_the_class() {
    let mut accounts = Accounts::default();
    let state = |number, part, due, served| ClassState { due, ..state(number, part, served) };
    accounts.update(&[state(1, 25.0, 50.0, 0), state(2, 25.0, 50.0, 0), state(3, 2.0, 8.0, 0)], 0, TENTH, 0);
    accounts.request([(1, 25.0), (2, 25.0), (3, 20.0)]);
    accounts.update(&[state(1, 5.0, 10.0, 25), state(2, 5.0, 50.0, 25), state(3, 0.5, 2.0, 20)], 0, TENTH, 0);
    assert_eq!(accounts.limit(1), Some((0.0, false)), "a debt of 5, not of 25");
    assert_eq!(accounts.limit(2), Some((-20.0, false)), "more nodes share what is due to the class");
    assert_eq!(accounts.limit(3), Some((-18.0, false)), "a large claim is owed but for what was due in a share time");
}

/// Another node has reported more than it uses, so parts are far too small.
#[test]
fn if_the_bucket_is_full_again_and_again_classes_take_more_than_their_parts() {
    let (mut accounts, mut limits) = (Accounts::default(), [0.5, 0.125]);
    let mut take = |fullness| {
        accounts.update(&[state(1, 0.5, 0), state(2, 0.125, 0)], u64::MAX, TENTH, 0);
        accounts.request([(1, limits[0]), (2, limits[1])]);
        accounts.add_spare(fullness, TENTH, 0);
        limits = [1, 2].map(|class| accounts.limit(class).unwrap().0);
        (limits, accounts.are_boosted())
    };
    assert_eq!(take(FULL), ([0.5, 0.125], true));
    assert_eq!(take(FULL), ([1.0, 0.25], true));
    assert_eq!(take(FULL), ([2.0, 0.5], true));
    assert!(take(0.6).1, "as long as tokens are left");
    assert_eq!((0..3).map(|_| take(0.1).1).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn nothing_is_saved_while_no_claim_waits() {
    let mut accounts = Accounts::default();
    for round in 0..9 {
        accounts.update(&[state(1, 2.0, 0)], 0, TENTH, round * TENTH);
        accounts.add_spare(FULL, TENTH, round * TENTH);
    }
    assert!(accounts.limit(1).unwrap().0 > 4.0 && accounts.are_boosted());
    accounts.pause(TENTH, 10 * TENTH);
    assert_eq!((accounts.limit(1), accounts.are_boosted()), (Some((2.0, true)), false));
    accounts.update(&[state(1, 2.0, 0)], 0, TENTH, 10 * TENTH);
    assert_eq!(accounts.limit(1), Some((2.0, true)));
}

/// A sibling whose claims come and go would double the share otherwise.
#[test]
fn what_a_fall_has_forgiven_counts_again_after_a_rise() {
    let mut accounts = Accounts::default();
    let due = |due| ClassState { due, ..state(1, 2.0, 0) };
    accounts.update(&[due(8.0)], 2, TENTH, 0);
    accounts.request([(1, 2.0)]);
    accounts.update(&[due(5.0)], 2, TENTH, 0);
    assert_eq!(accounts.limit(1).unwrap().0, 0.0, "a fall by less than half forgives nothing");
    accounts.update(&[due(8.0)], 2, TENTH, 0);
    for _ in 0..9 {
        accounts.update(&[due(2.0)], 2, TENTH, 0);
        assert_eq!(accounts.limit(1).unwrap().0, 1.5, "three quarters are forgiven");
        accounts.update(&[due(8.0)], 2, TENTH, 0);
        assert_eq!(accounts.limit(1).unwrap().0, 0.0);
    }
    accounts.update(&[due(2.0)], 2, TENTH, 0);
    accounts.update(&[due(2.0)], 2, TENTH, TENTH);
    accounts.update(&[due(8.0)], 2, TENTH, TENTH);
    assert_eq!(accounts.limit(1).unwrap().0, 3.5, "after a share time it does not");
}

#[test]
fn what_others_reported_is_out_of_date_after_a_lease() {
    let mut accounts = Accounts::default();
    assert_eq!((accounts.others(0), accounts.share(), accounts.resumes_at(TENTH)), (None, None, 0));
    accounts.learn(Vec::new(), TENTH);
    assert_eq!((accounts.others(21 * TENTH - 1), accounts.others(21 * TENTH)), (Some(&[][..]), None));
}
