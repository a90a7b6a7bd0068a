use super::*;
use std::collections::BTreeSet;

#[test]
fn a_tournament_agrees_with_an_ordered_set() {
    let mut random = fastrand::Rng::with_seed(18);
    let (mut tournament, mut set) = (Tournament::default(), BTreeSet::new());
    let mut slots = [NOWHERE; 40];
    let mut keys = [0_u64; 40];
    for _ in 0..20_000 {
        let id = random.u32(0..40);
        let slot = &mut slots[id as usize];
        if *slot != NOWHERE {
            set.remove(&(keys[id as usize], id));
        }
        if random.u8(0..3) == 0 {
            if *slot != NOWHERE {
                tournament.remove(*slot);
            }
            *slot = NOWHERE;
        } else {
            let key = random.u64(0..60);
            keys[id as usize] = key;
            *slot = tournament.set(*slot, (key, id));
            set.insert((key, id));
        }
        if random.u8(0..100) == 0 {
            tournament.map(|(key, id)| (key + 1, id));
            keys.iter_mut().for_each(|key| *key += 1);
            set = set.into_iter().map(|(key, id)| (key + 1, id)).collect();
        }
        assert_eq!(tournament.first(), set.first());
    }
}
