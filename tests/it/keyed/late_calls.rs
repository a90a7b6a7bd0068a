//! A call on a key that nothing has served for a while has the result that it would have if all claims had been served
//! just before it: without a parent, and under one that always has tokens.

use crate::fixture::*;
use tollgate::{KeyedConsumeOwned, OwnedKeyedGrant};

fn quota(dice: &mut Rng) -> Quota {
    let (amount, burst) = (dice.u64(1..6), dice.u64(1..6));
    match dice.u8(..4) {
        0 => Quota::per_second(amount).stepped(),
        1 => Quota::per_second(amount).sliding(),
        _ => Quota::per_second(amount).burst(burst),
    }
}

struct World {
    clock: ManualClock,
    parent: Option<Limiter>,
    keyed: KeyedLimiter<u32>,
    handles: Vec<Limiter>,
    waiting: Vec<Spawn<KeyedConsumeOwned<u32>>>,
    grants: Vec<OwnedKeyedGrant<u32>>,
}

impl World {
    fn new(dice: &mut Rng) -> Self {
        let clock = ManualClock::new();
        let quotas: Quotas = (0..dice.usize(1..3)).map(|_| quota(dice)).collect();
        let plenty = Limiter::builder().quota(Quota::per_second(1_000_000_000)).clock(clock.clone());
        let plenty = if dice.bool() { plenty.classes() } else { plenty };
        let parent = dice.bool().then(|| plenty.build().unwrap());
        let builder = KeyedLimiter::builder().quotas(quotas).clock(clock.clone());
        let keyed = parent.iter().fold(builder, KeyedBuilder::parent).build().unwrap();
        let handles = if dice.bool() { (0..3).map(|key| keyed.limiter(&key).unwrap()).collect() } else { Vec::new() };
        Self { clock, parent, keyed, handles, waiting: Vec::new(), grants: Vec::new() }
    }

    fn tick(&self) {
        self.keyed.tick();
        self.parent.iter().for_each(Limiter::tick);
    }

    /// What a call returns.
    fn act(&mut self, dice: &mut Rng) -> String {
        let (key, cost, pause) = (dice.u32(..3), dice.u64(1..5), Duration::from_millis(dice.u64(..2_000)));
        let (keyed, place) = (&self.keyed, dice.usize(..100));
        match dice.u8(..16) {
            0..4 => {
                let mut claim = spawn(keyed.clone().consume_owned(key, cost));
                let answer = claim.poll();
                if answer.is_pending() {
                    self.waiting.push(claim);
                }
                format!("{answer:?}")
            }
            4..6 => match keyed.clone().try_acquire_owned(key, cost) {
                Ok(grant) => {
                    self.grants.push(grant);
                    "granted".to_owned()
                }
                Err(error) => format!("{error:?}"),
            },
            6 => format!("{:?}", keyed.clone().consume_owned(key, cost).within(pause).now_or_never()),
            7..9 if !self.waiting.is_empty() => {
                drop(self.waiting.swap_remove(place % self.waiting.len()));
                "dropped".to_owned()
            }
            9..11 if !self.grants.is_empty() => {
                let place = place % self.grants.len();
                self.grants[place].settle(cost - 1);
                format!("{}", self.grants[place].cost())
            }
            11 => format!("{:?}", keyed.pause_for(&key, pause)),
            12 => format!("{:?}", if cost > 2 { keyed.resume(&key) } else { keyed.pause_all_for(pause) }),
            13 => format!("{:?}", keyed.set_quota_for(&key, quota(dice))),
            14 => format!("{:?}", self.handles.iter().map(|key| key.estimate(cost)).collect::<Vec<_>>()),
            _ => format!("{} {} {:?}", keyed.available(&key), keyed.deficiency(&key), keyed.estimate(&key, cost)),
        }
    }

    fn granted(&mut self) -> Vec<bool> {
        self.tick();
        self.waiting.iter_mut().map(|claim| claim.poll().is_ready()).collect()
    }
}

#[test]
fn a_call_that_comes_late_has_the_result_of_one_before_which_all_claims_were_served() {
    for seed in 0..400 {
        let mut dice = Rng::with_seed(seed);
        let mut worlds = [World::new(&mut dice.clone()), World::new(&mut dice)];
        for step in 0..25 {
            let most = if dice.bool() { 300 } else { 3_000 };
            let time = Duration::from_millis(dice.u64(..most));
            worlds.iter().for_each(|world| world.clock.advance(time));
            worlds[0].tick();
            let [prompt, late] = &mut worlds;
            assert_eq!(late.act(&mut dice.clone()), prompt.act(&mut dice), "call {step} of history {seed}");
        }
        let [prompt, late] = &mut worlds;
        assert_eq!(late.granted(), prompt.granted(), "at the end of history {seed}");
    }
}
