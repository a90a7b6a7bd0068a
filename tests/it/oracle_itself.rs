//! Tests of the oracle against the rate law. The tables of `seeds` test limiters, which agree with the oracle.

use crate::oracle::law;
use crate::oracle::model::Model;
use crate::oracle::ops::{History, Op, any_scale, config, continuous, history, with_windows};
use crate::oracle::{Granted, Int};
use proptest::prelude::*;

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn no_window_holds_more_than_the_law_allows(History { setup, ops } in prop_oneof![
        history(any_scale(), 2, 60),
        history(any_scale(), 2, 60).prop_map(with_windows),
    ]) {
        let mut model = Model::new(&setup);
        // With another quota the law would be another one.
        for op in ops.into_iter().filter(|op| !matches!(op, Op::SetQuota(..))) {
            model.apply(op);
        }
        for &rule in &setup.rules {
            prop_assert_eq!(law::broken(rule, model.oracle.log(), &model.given, |_| 0), None);
        }
    }
}

/// The law: a refund counts in the windows that contain it, including their ends, and in no other.
#[test]
fn refunds_are_subtracted_in_their_own_windows_only() {
    let granted = |list: &[Int]| -> Vec<_> { list.iter().map(|&at| Granted { id: 0, at, cost: 1 }).collect() };
    let is_broken = |grants: &[Int], refunds: &[(Int, Int)]| {
        let given: Vec<_> = refunds.iter().map(|&(at, tokens)| law::Given { at, tokens }).collect();
        law::broken(continuous(1, 100, 1, 1), &granted(grants), &given, |_| 0).is_some()
    };
    assert!(!is_broken(&[0, 5, 5, 5, 5, 5], &[(5, 5)]));
    assert!(is_broken(&[0, 5, 5, 5, 5, 5, 5], &[(5, 5)]));
    assert!(is_broken(&[5, 5, 5, 5, 5, 5], &[(5, 4)]));
    assert!(is_broken(&[0, 5, 5], &[(4, 1), (6, 1)]), "not at that instant");
    assert!(!is_broken(&[0, 5], &[(3, 1)]));
}
