//! Keys of a keyed limiter as classes of its parent.

use proptest::prelude::*;
use std::pin::Pin;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_err};
use tollgate::{Class, ClassConsumeOwned, ConfigError, ConsumeError, KeyedLimiter, Limiter, ManualClock, Quota, Share};

fn divided(quota: Quota) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().quota(quota).classes().clock(clock.clone()).build().expect("valid"), clock)
}

fn keys(parent: &Limiter, clock: &ManualClock, weights: &'static [u64]) -> KeyedLimiter<usize> {
    let builder = KeyedLimiter::builder().clock(clock.clone()).parent(parent);
    builder.weight_by(|key: &usize| weights[*key]).build().expect("valid")
}

fn hundred() -> Quota {
    Quota::per_second(100).burst(10)
}

type Waiting = Spawn<Pin<Box<dyn Future<Output = Result<(), ConsumeError>>>>>;

fn wait(keyed: &KeyedLimiter<usize>, key: usize, cost: u64) -> Waiting {
    let claim = keyed.clone().consume_owned(key, cost);
    let mut waiting = spawn(Box::pin(async move { claim.await.map(|_| ()) }) as _);
    assert_pending!(Spawn::poll(&mut waiting));
    waiting
}

/// The tokens of each key after `tokens` were granted to keys that always have two claims of `cost` in line.
fn shares<const N: usize>(costs: [u64; N], weights: &'static [u64], millis: u64) -> [u64; N] {
    let (parent, clock) = divided(hundred().initial(0));
    let keyed = keys(&parent, &clock, weights);
    let mut lines: [Vec<Waiting>; N] =
        std::array::from_fn(|key| (0..400).map(|_| wait(&keyed, key, costs[key])).collect());
    clock.advance(Duration::from_millis(millis));
    parent.tick();
    std::array::from_fn(|key| {
        let granted = lines[key].iter_mut().take_while(|waiting| waiting.is_woken()).count();
        granted as u64 * costs[key]
    })
}

#[test]
fn keys_share_their_parent_by_tokens() {
    assert_eq!(shares([1, 10], &[1, 1], 4_000), [200, 200]);
}

#[test]
fn keys_share_their_parent_by_weight() {
    assert_eq!(shares([1, 1, 1], &[1, 3, 6], 4_000), [40, 120, 240]);
}

/// The keys of a keyed limiter without quotas, and classes of another limiter: the same calls at the same instants.
struct Both {
    clock: ManualClock,
    keyed: KeyedLimiter<usize>,
    parent: Limiter,
    classes: Vec<Class>,
    waiting: Vec<(usize, Waiting, Spawn<ClassConsumeOwned>)>,
}

const WEIGHTS: &[u64] = &[1, 2, 3, 7];

#[derive(Clone, Debug)]
enum Op {
    Claim { key: usize, cost: u64 },
    Cancel(usize),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..WEIGHTS.len(), 1..25_u64).prop_map(|(key, cost)| Op::Claim { key, cost }),
        1 => (0..100_usize).prop_map(Op::Cancel),
        3 => (1..60_000_000_u64).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..60)
}

impl Both {
    fn new() -> Self {
        let clock = ManualClock::new();
        let limiter = || Limiter::builder().quota(hundred()).classes().clock(clock.clone()).build().expect("valid");
        let (parent, plain) = (limiter(), limiter());
        let keyed = keys(&parent, &clock, WEIGHTS);
        let class = |(key, weight): (usize, &u64)| plain.class(key.to_string(), Share::weight(*weight)).expect("valid");
        let classes = WEIGHTS.iter().enumerate().map(class).collect();
        Self { clock, keyed, parent, classes, waiting: Vec::new() }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Claim { key, cost } => {
                let claim = self.keyed.clone().consume_owned(key, cost);
                let mut of_key: Waiting = spawn(Box::pin(async move { claim.await.map(|_| ()) }) as _);
                let mut of_class = spawn(self.classes[key].clone().consume_owned(cost));
                let ready = (of_key.poll().is_ready(), of_class.poll().is_ready());
                // A key may have to wait where a class is granted at once; then it is woken by now.
                assert_eq!(ready.0 || of_key.is_woken(), ready.1, "{key} {cost}");
                if !ready.1 {
                    self.waiting.push((key, of_key, of_class));
                }
            }
            Op::Cancel(index) if !self.waiting.is_empty() => {
                let index = index % self.waiting.len();
                drop(self.waiting.remove(index));
            }
            Op::Cancel(_) => {}
            Op::Advance(nanos) => {
                self.clock.advance(Duration::from_nanos(nanos));
                self.parent.tick();
                self.classes[0].snapshot();
            }
        }
        self.parent.tick();
        let mut served = Vec::new();
        self.waiting.retain_mut(|(key, of_key, of_class)| {
            let ready = (of_key.is_woken(), of_class.is_woken());
            if ready != (false, false) {
                served.push((*key, ready));
            }
            ready != (true, true)
        });
        assert!(served.iter().all(|(_, ready)| *ready == (true, true)), "{served:?}");
    }
}

proptest! {
    #[test]
    fn keys_without_quotas_are_granted_as_classes_are(ops in ops()) {
        let mut both = Both::new();
        for op in ops {
            both.step(op);
        }
    }
}

#[test]
fn weights_need_a_parent_with_classes() {
    let parent = Limiter::new(hundred()).unwrap();
    let built = KeyedLimiter::<u8>::builder().parent(&parent).weight_by(|_| 1).build();
    assert_eq!(built.err(), Some(ConfigError::WeightsWithoutClasses));
}

#[test]
fn keys_of_a_removed_class_are_closed() {
    let (limiter, clock) = divided(hundred().initial(0));
    let class = limiter.class("tenant", Share::weight(1)).unwrap();
    let keyed: KeyedLimiter<usize> = KeyedLimiter::builder().clock(clock).parent_class(&class).build().unwrap();
    let mut waiting = [0, 0, 1].map(|key| wait(&keyed, key, 1));
    class.remove();
    for waiting in &mut waiting {
        assert!(waiting.is_woken());
        assert_eq!(assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    }
    assert_eq!(keyed.try_acquire(&2, 1).map(|_| ()), Err(tollgate::TryAcquireError::Closed));
    assert!(limiter.try_acquire(1).is_err_and(|error| error != tollgate::TryAcquireError::Closed));
}

#[test]
fn the_ceiling_of_a_class_holds_for_its_keys() {
    let (limiter, clock) = divided(hundred());
    let share = Share::weight(1).ceiling(Quota::per_second(20).burst(2));
    let tenant = limiter.class("tenant", share).unwrap();
    let keyed: KeyedLimiter<usize> =
        KeyedLimiter::builder().clock(clock.clone()).parent_class(&tenant).build().unwrap();
    let mut claims: Vec<_> = (0..6).map(|key| wait(&keyed, key, 1)).collect();
    let granted = |millis| {
        clock.advance(Duration::from_millis(millis));
        limiter.tick();
        claims.iter().filter(|claim| claim.is_woken()).count()
    };
    assert_eq!([granted(0), granted(49), granted(1), granted(100)], [2, 2, 3, 5]);
    assert!(keyed.try_acquire(&9, 1).is_err(), "the ceiling has no token");
    assert_eq!(limiter.try_acquire(1).map(|_| ()), Ok(()));
    clock.advance(Duration::from_millis(100));
    assert!(keyed.try_acquire(&9, 1).is_ok());
    claims.clear();
}
