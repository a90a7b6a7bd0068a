//! Saving and restoring a million keys.

use std::time::{Instant, SystemTime};
use tollgate::state::KeyedState;
use tollgate::{KeyedBuilder, KeyedLimiter, Quota, Quotas};

const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 5;

pub fn report() {
    println!(
        "\nstate of a million keys of u64, written with postcard: median of {ROUNDS}\n\n\
         | quotas | bytes per key | save | write | read | restore |\n|---|---|---|---|---|---|"
    );
    let one = Quotas::from(Quota::per_hour(60));
    for (name, quotas) in [("one", one), ("two", [Quota::per_hour(60), Quota::per_day(1_000)].into())] {
        let build = || -> KeyedBuilder<u64> { KeyedLimiter::builder().quotas(quotas.clone()).unbounded_keys() };
        let keyed = build().build().expect("valid");
        (0..KEYS).for_each(|key| drop(keyed.try_acquire(&key, 1 + key % 50)));
        let (mut took, mut bytes) = ([(); 4].map(|()| Vec::new()), 0);
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let state = keyed.state().expect("not distributed");
            took[0].push(begun.elapsed());
            let begun = Instant::now();
            let file = postcard::to_allocvec(&state).expect("keys are numbers");
            took[1].push(begun.elapsed());
            bytes = file.len() / state.len();
            drop(state);
            let begun = Instant::now();
            let state: KeyedState<u64> = postcard::from_bytes(&file).expect("it was just written");
            took[2].push(begun.elapsed());
            let begun = Instant::now();
            let restored = build().restore(state, SystemTime::now()).build().expect("the same quotas");
            took[3].push(begun.elapsed());
            assert!(restored.snapshot().keys as u64 > KEYS * 9 / 10);
        }
        let [save, write, read, restore] = took.map(|mut times| {
            times.sort();
            times[ROUNDS / 2]
        });
        println!("| {name} | {bytes} | {save:.0?} | {write:.0?} | {read:.0?} | {restore:.0?} |");
    }
}
