use super::*;
use fastrand::Rng;

/// Compared with a set of the urgent fronts, of which each is named one by one.
#[test]
fn all_fronts_become_urgent_in_one_step() {
    let set = Arc::new(JointSet::new([].into(), true));
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (mut fronts, mut known, mut urgent) = (Fronts::default(), BTreeSet::new(), BTreeSet::new());
        for step in 0..300 {
            let number = random.u64(0..40);
            match random.u8(0..10) {
                0..4 if known.insert(number) => fronts.add(number, Front::new(Arc::clone(&set), 0, 1, 0)),
                4 if known.remove(&number) => {
                    assert!(fronts.remove(number).is_some());
                    urgent.remove(&number);
                }
                5 if known.contains(&number) => {
                    fronts.set_urgent(number);
                    urgent.insert(number);
                }
                6 => {
                    let named = fronts.urgent.clone();
                    fronts.make_all_urgent();
                    assert_eq!(fronts.urgent, named, "no front is named one by one");
                    urgent = known.clone();
                }
                _ => {
                    fronts.clear_urgent(number);
                    urgent.remove(&number);
                }
            }
            assert_eq!(fronts.first_urgent(), urgent.first().copied(), "seed {seed}, step {step}");
            (0..40).for_each(|number| assert_eq!(fronts.is_urgent(number), urgent.contains(&number)));
        }
    }
}
