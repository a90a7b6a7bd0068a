//! Saving and restoring a million keys.

use std::time::{Duration, Instant, SystemTime};
use tollgate::state::KeyedState;
use tollgate::{KeyedBuilder, KeyedLimiter, Quota, Quotas};

const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 5;

pub fn report() {
    println!(
        "\nstate of a million keys of u64: median of {ROUNDS}, and the longest piece of saving\n\n\
         | quotas | bytes beside the key | save | longest piece | read and check | restore |\n|---|---|---|---|---|---|"
    );
    let one = Quotas::from(Quota::per_hour(60));
    for (name, quotas) in [("one", one), ("two", [Quota::per_hour(60), Quota::per_day(1_000)].into())] {
        let build = || -> KeyedBuilder<u64> { KeyedLimiter::builder().quotas(quotas.clone()).unbounded_keys() };
        let keyed = build().build().expect("valid");
        (0..KEYS).for_each(|key| drop(keyed.try_acquire(&key, 1 + key % 50)));
        let (mut took, mut longest, mut bytes) = ([(); 3].map(|()| Vec::new()), Duration::ZERO, 0);
        for _ in 0..ROUNDS {
            let (mut file, begun) = (Vec::new(), Instant::now());
            let mut pieces = keyed.save().expect("not distributed");
            loop {
                let begun = Instant::now();
                let Some(piece) = pieces.next() else { break };
                longest = longest.max(begun.elapsed());
                file.extend(piece);
            }
            took[0].push(begun.elapsed());
            let begun = Instant::now();
            let state = KeyedState::read_from(&mut &file[..]).expect("it was just written");
            took[1].push(begun.elapsed());
            bytes = file.len() as u64 / state.len() - size_of::<u64>() as u64;
            let begun = Instant::now();
            let restored = build().restore(state, SystemTime::now()).build().expect("the same quotas");
            took[2].push(begun.elapsed());
            assert!(restored.snapshot().keys as u64 > KEYS * 9 / 10);
        }
        let [save, read, restore] = took.map(|mut times| {
            times.sort();
            times[ROUNDS / 2]
        });
        println!("| {name} | {bytes} | {save:.0?} | {longest:.1?} | {read:.0?} | {restore:.0?} |");
    }
}
