//! Keys of a keyed limiter as classes of its parent.

use super::{divided, hundred};
use crate::fixture::*;
use tollgate::{KeyedConsumeOwned, OwnedGrant, OwnedKeyedGrant};

type Waiting = Spawn<KeyedConsumeOwned<usize>>;

fn wait(keyed: &KeyedLimiter<usize>, key: usize, cost: u64) -> Waiting {
    pending(keyed.clone().consume_owned(key, cost))
}

/// A grant of a key, or of the class that stands for it.
#[derive(Debug)]
enum Grant {
    Key(OwnedKeyedGrant<usize>),
    Class(OwnedGrant<Class>),
}

impl Grant {
    fn cost(&self) -> u64 {
        match self {
            Self::Key(grant) => grant.cost(),
            Self::Class(grant) => grant.cost(),
        }
    }

    fn settle(&mut self, actual: u64) {
        match self {
            Self::Key(grant) => grant.settle(actual),
            Self::Class(grant) => grant.settle(actual),
        }
    }
}

type Claim = Spawn<Pin<Box<dyn Future<Output = Result<Grant, ConsumeError>>>>>;

/// The keys of a keyed limiter without quotas, and classes of another limiter: the same calls at the same instants.
struct Both {
    clock: ManualClock,
    keyed: KeyedLimiter<usize>,
    /// A class beside the parent class of the keys, if they have one. It stands for the last key on both sides.
    beside: Option<Class>,
    parent: Limiter,
    plain: Limiter,
    classes: Vec<Class>,
    waiting: Vec<(usize, Claim, Claim)>,
    held: Vec<(usize, Grant, Grant)>,
}

const WEIGHTS: &[u64] = &[1, 2, 3, 7];

#[derive(Clone, Debug)]
enum Op {
    Claim { key: usize, cost: u64 },
    Try { key: usize, cost: u64 },
    Settle { grant: usize, actual: u64 },
    Cancel(usize),
    Pause(u64),
    SetQuota(u64),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..WEIGHTS.len();
    let op = prop_oneof![
        8 => (key.clone(), 1..25_u64).prop_map(|(key, cost)| Op::Claim { key, cost }),
        2 => (key, 1..11_u64).prop_map(|(key, cost)| Op::Try { key, cost }),
        2 => (0..100_usize, 0..40_u64).prop_map(|(grant, actual)| Op::Settle { grant, actual }),
        2 => (0..100_usize).prop_map(Op::Cancel),
        1 => (0..100_000_000_u64).prop_map(Op::Pause),
        1 => (1..300_u64).prop_map(Op::SetQuota),
        7 => (1..60_000_000_u64).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..80)
}

impl Both {
    fn new(nested: bool) -> Self {
        let clock = ManualClock::new();
        let limiter = || Limiter::builder().quota(hundred()).classes().clock(clock.clone()).build().expect("valid");
        let (parent, plain) = (limiter(), limiter());
        let builder = KeyedLimiter::builder().clock(clock.clone()).weight_by(|key: &usize| WEIGHTS[*key]);
        let share = |key: usize| Share::weight(WEIGHTS[key]);
        let class = |limiter: &Limiter, key: usize| limiter.class(key.to_string(), share(key)).expect("valid");
        let tenant = |limiter: &Limiter| limiter.class("tenant", Share::weight(2)).expect("valid");
        let (keyed, beside, classes) = if nested {
            let (last, of_plain) = (WEIGHTS.len() - 1, tenant(&plain));
            let within = (0..last).map(|key| of_plain.class(key.to_string(), share(key).as_key()).expect("valid"));
            let classes = within.chain([class(&plain, last)]).collect();
            (builder.parent(&tenant(&parent)).build(), Some(class(&parent, last)), classes)
        } else {
            let class = |key: usize| plain.class(key.to_string(), share(key).as_key()).expect("valid");
            (builder.parent(&parent).build(), None, (0..WEIGHTS.len()).map(class).collect())
        };
        let keyed = keyed.expect("valid");
        Self { clock, keyed, beside, parent, plain, classes, waiting: Vec::new(), held: Vec::new() }
    }

    fn of_key(&self, key: usize, cost: u64) -> Claim {
        match self.beside.clone().filter(|_| key == WEIGHTS.len() - 1) {
            Some(class) => of_class(class, cost),
            None => {
                let claim = self.keyed.clone().consume_owned(key, cost);
                spawn(Box::pin(async move { claim.await.map(Grant::Key) }))
            }
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Claim { key, cost } => {
                let (mut of_key, mut of_class) = (self.of_key(key, cost), of_class(self.classes[key].clone(), cost));
                match (of_key.poll(), of_class.poll()) {
                    (Poll::Ready(of_key), Poll::Ready(of_class)) => {
                        self.held.push((key, of_key.unwrap(), of_class.unwrap()));
                    }
                    // A key may have to wait where a class is granted at once; then it is woken by now.
                    (Poll::Pending, Poll::Ready(of_class)) => {
                        prop_assert!(of_key.is_woken());
                        self.held.push((key, assert_ready_ok!(of_key.poll()), of_class.unwrap()));
                    }
                    (Poll::Pending, Poll::Pending) => self.waiting.push((key, of_key, of_class)),
                    (of_key, _) => prop_assert!(false, "{of_key:?} and the class waits"),
                }
            }
            Op::Try { key, cost } => {
                let of_key = match &self.beside {
                    Some(class) if key == WEIGHTS.len() - 1 => class.try_acquire(cost).is_ok(),
                    _ => self.keyed.try_acquire(&key, cost).is_ok(),
                };
                prop_assert_eq!(of_key, self.classes[key].try_acquire(cost).is_ok());
            }
            Op::Settle { grant, actual } if !self.held.is_empty() => {
                let grant = grant % self.held.len();
                let (key, of_key, of_class) = &mut self.held[grant];
                // A class pays a debt behind all its claims that wait; a key, of which one claim waits in the parent, behind
                // that one.
                let others = self.waiting.iter().filter(|(other, ..)| other == key).count();
                let actual = if others > 1 { actual.min(of_key.cost()) } else { actual };
                of_key.settle(actual);
                of_class.settle(actual);
            }
            Op::Cancel(index) if !self.waiting.is_empty() => {
                let index = index % self.waiting.len();
                drop(self.waiting.remove(index));
            }
            Op::Settle { .. } | Op::Cancel(_) => {}
            Op::Pause(nanos) => {
                [&self.parent, &self.plain].iter().for_each(|limiter| limiter.pause_for(nanos_of(nanos)))
            }
            Op::SetQuota(rate) => {
                for limiter in [&self.parent, &self.plain] {
                    limiter.set_quota(0, Quota::per_second(rate).burst(10)).unwrap();
                }
            }
            Op::Advance(nanos) => self.clock.advance(nanos_of(nanos)),
        }
        [&self.parent, &self.plain].into_iter().for_each(Limiter::tick);
        self.compare()
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let served = self.waiting.extract_if(.., |(_, of_key, of_class)| of_key.is_woken() || of_class.is_woken());
        for (key, mut of_key, mut of_class) in served {
            prop_assert_eq!((of_key.is_woken(), of_class.is_woken()), (true, true), "key {}", key);
            self.held.push((key, assert_ready_ok!(of_key.poll()), assert_ready_ok!(of_class.poll())));
        }
        let view = |limiter: &Limiter| {
            let snapshot = limiter.snapshot();
            (limiter.available(), snapshot.quotas[0].level, snapshot.granted, snapshot.refunded)
        };
        prop_assert_eq!(view(&self.parent), view(&self.plain));
        Ok(())
    }
}

fn of_class(class: Class, cost: u64) -> Claim {
    let claim = class.consume_owned(cost);
    spawn(Box::pin(async move { claim.await.map(Grant::Class) }))
}

fn nanos_of(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

proptest! {
    #[test]
    fn keys_without_quotas_are_granted_as_classes_are(nested: bool, ops in ops()) {
        let mut both = Both::new(nested);
        for (place, op) in ops.iter().enumerate() {
            both.step(op).map_err(|error| TestCaseError::fail(format!("{place}: {op:?}: {error}")))?;
        }
    }
}

/// With drivers on two runtimes of the standard clock, each key is served on its own.
#[tokio::test(start_paused = true)]
async fn keys_are_served_by_drivers() {
    let parent = Limiter::builder().quota(hundred().initial(0)).classes().build().unwrap();
    let tenant = parent.class("tenant", Share::weight(1)).unwrap();
    let builder = KeyedLimiter::builder().parent(&tenant);
    let keyed = builder.weight_by(|key: &usize| WEIGHTS[*key]).build().unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..100)
        .map(|number: usize| {
            let keyed = keyed.clone();
            tokio::spawn(async move { keyed.wait(&(number % WEIGHTS.len()), 1).await })
        })
        .collect();
    try_join_all(tasks).await.unwrap().into_iter().for_each(Result::unwrap);
    assert_eq!(start.elapsed().as_millis(), 1_000);
    assert_eq!(parent.snapshot().granted, 100);
}

/// Each new key begins an installment behind the virtual time. At the virtual time, new keys would always come first.
#[test]
fn a_stream_of_new_keys_starves_no_class() {
    let (parent, clock) = divided(hundred().initial(0));
    let heavy = parent.class("heavy", Share::weight(1_000_000)).unwrap();
    let keyed: KeyedLimiter<usize> = KeyedLimiter::builder().clock(clock.clone()).parent(&parent).build().unwrap();
    let waiters: Vec<_> = (0..200).map(|_| pending(heavy.clone().consume_owned(1))).collect();
    let old: Vec<_> = (0..200).map(|_| wait(&keyed, 0, 2)).collect();
    let mut strangers: VecDeque<Waiting> = VecDeque::new();
    let mut run = |steps: std::ops::Range<usize>| {
        for step in steps {
            strangers.extend((1..=20).map(|number| wait(&keyed, step * 20 + number, 1)));
            strangers.drain(..strangers.len().saturating_sub(200));
            tick_after(&clock, &parent, Duration::from_millis(100));
            strangers.retain_mut(|claim| !claim.is_woken() || claim.poll().is_pending());
        }
    };
    run(0..18);
    let of_heavy = woken(&waiters);
    assert!(of_heavy > 170, "{of_heavy} of 180");
    drop(waiters);
    run(18..80);
    let of_old = woken(&old);
    assert!(of_old >= 2, "{of_old} of a fair share of some 3");
}

/// A claim above the burst is served in installments, in turn with the claims of another key from the first one on.
#[test]
fn a_key_begins_one_installment_behind_whatever_its_claim_costs() {
    let (parent, clock) = divided(Quota::per_second(1).burst(1).initial(0));
    let keyed: KeyedLimiter<usize> = KeyedLimiter::builder().clock(clock.clone()).parent(&parent).build().unwrap();
    let busy: Vec<_> = (0..9).map(|_| wait(&keyed, 0, 1)).collect();
    let mut large = wait(&keyed, 1, 3);
    (0..6).for_each(|_| tick_after(&clock, &parent, SECOND));
    drop(assert_ready_ok!(large.poll()));
    assert_eq!(woken(&busy), 3);
}

/// A waker that calls the limiter serves the next batch at most, not the next proxy from within the last one.
#[test]
fn wakers_that_call_the_parent_do_not_nest_once_for_each_grant() {
    use std::cell::Cell;
    thread_local!(static DEPTH: Cell<(u32, u32)> = const { Cell::new((0, 0)) });
    let (parent, clock) = divided(Quota::per_second(4_000).burst(1).initial(0));
    let keyed: KeyedLimiter<usize> = KeyedLimiter::builder().clock(clock.clone()).parent(&parent).build().unwrap();
    let called = parent.clone();
    let waker = waker(move || {
        let (depth, most) = DEPTH.get();
        DEPTH.set((depth + 1, most.max(depth + 1)));
        drop(called.try_acquire(1));
        DEPTH.set((depth, DEPTH.get().1));
    });
    let mut claims: Vec<_> = (0..300).map(|key| Box::pin(keyed.clone().consume_owned(key, 1))).collect();
    for claim in &mut claims {
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    tick_after(&clock, &parent, Duration::from_secs(1));
    assert!((1..=60).contains(&DEPTH.get().1), "{} deep", DEPTH.get().1);
}

/// The next claim of a key is ready long after its last grant: it gets nothing that the parent had before that.
#[test]
fn a_claim_enters_the_parent_from_the_instant_at_which_its_key_is_ready() {
    let quota = |burst| Quota::per_second(10).burst(burst);
    let (parent, clock) = divided(quota(10).initial(0));
    let builder = KeyedLimiter::builder().quota(quota(1)).clock(clock.clone());
    let keyed: KeyedLimiter<usize> = builder.parent(&parent).build().unwrap();
    let (first, large) = (wait(&keyed, 0, 1), wait(&keyed, 0, 500));
    clock.advance(Duration::from_secs(60));
    for _ in 0..2 {
        parent.tick();
        keyed.tick();
    }
    assert!(first.is_woken() && !large.is_woken(), "its key is ready at 50 s, and the parent then needs 49 s");
    tick_after(&clock, &parent, Duration::from_secs(60));
    assert!(large.is_woken());
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
    let [class, other] = ["tenant", "other"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
    let under = |class| KeyedLimiter::<usize>::builder().clock(clock.clone()).parent(class).build().unwrap();
    let (keyed, others) = (under(&class), under(&other));
    let mut waiting = [0, 0, 1].map(|key| wait(&keyed, key, 1));
    class.remove();
    for waiting in &mut waiting {
        assert!(waiting.is_woken());
        assert_eq!(assert_ready_err!(waiting.poll()), ConsumeError::Closed);
    }
    assert_eq!(keyed.try_acquire(&2, 1).map(|_| ()), Err(TryAcquireError::Closed));
    assert!(limiter.try_acquire(1).is_err_and(|error| error != TryAcquireError::Closed));
    assert!(!others.snapshot().closed);
    limiter.close();
    assert!(others.snapshot().closed);
}

/// A key, the ceiling of its class and their limiter all lack two tokens: the last to have them says when, and is named.
#[test]
fn the_hint_of_a_key_counts_its_class_and_their_limiter() {
    let hints = [[4, 10, 5], [10, 4, 5], [10, 5, 4], [10, 4, 4]].map(|rates| {
        let [own, ceiling, all] = rates.map(|rate| Quota::per_second(rate).burst(4));
        let (limiter, clock) = divided(all);
        let tenant = limiter.class("tenant", Share::weight(1).ceiling(ceiling)).unwrap();
        let keyed = KeyedLimiter::builder().quota(own).clock(clock.clone()).parent(&tenant).build().unwrap();
        drop(keyed.try_acquire(&1, 4).unwrap());
        let Err(TryAcquireError::Denied(denied)) = keyed.try_acquire(&1, 2).map(drop) else { panic!("nobody has 2") };
        let wait = denied.retry_after.expect("a clock can tell");
        clock.advance(wait - Duration::from_nanos(1));
        assert!(keyed.try_acquire(&1, 2).is_err(), "no shorter wait helps");
        clock.advance(Duration::from_nanos(1));
        assert!(keyed.try_acquire(&1, 2).is_ok(), "this one does");
        (wait.as_millis(), denied.by, denied.quota_name())
    });
    let (own, parent) = ((500, Bound::Quota(0), None), |name| (500, Bound::Parent, name));
    assert_eq!(hints, [own, parent(Some("tenant")), parent(None), parent(None)]);
}

#[test]
fn the_ceiling_of_a_class_holds_for_its_keys() {
    let (limiter, clock) = divided(hundred());
    let share = Share::weight(1).ceiling(Quota::per_second(20).burst(2));
    let tenant = limiter.class("tenant", share).unwrap();
    let keyed: KeyedLimiter<usize> = KeyedLimiter::builder().clock(clock.clone()).parent(&tenant).build().unwrap();
    let mut claims: Vec<_> = (0..6).map(|key| wait(&keyed, key, 1)).collect();
    let granted = |millis| {
        tick_after(&clock, &limiter, Duration::from_millis(millis));
        woken(&claims)
    };
    assert_eq!([granted(0), granted(49), granted(1), granted(100)], [2, 2, 3, 5]);
    assert!(keyed.try_acquire(&9, 1).is_err(), "the ceiling has no token");
    assert_eq!(limiter.try_acquire(1).map(|_| ()), Ok(()));
    clock.advance(Duration::from_millis(100));
    assert!(keyed.try_acquire(&9, 1).is_ok());
    claims.clear();
}
