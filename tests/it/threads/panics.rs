//! Clocks and wakers that panic: one case for each call of a clock or a waker that an operation of a limiter makes.
//!
//! Each case injects one panic, or one panic and all later ones, into one stage of one claim, or into one change. After
//! that, clocks and wakers work again. In every case no call aborts, every waiter is served, and no token is lost or
//! invented. No bucket is ever full here, so its level at the end is what was minted less what was granted.

use super::panics;
use super::wakers::{When, waker};
use crate::fixture::*;
use std::hash::RandomState;
use std::mem::ManuallyDrop;
use tollgate::KeyedGrant;

const RATE: u64 = 10;
/// Ten tokens a second, and a bucket that does not get full.
const QUOTA: Quota = Quota::per_second(RATE).burst(1_000);
/// A quota that never decides.
const LOOSE: Quota = Quota::per_second(50).burst(1_000);
const KEY: u32 = 1;

/// The user code that panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Code {
    Clock,
    Waker(When),
}

const CODE: [Code; 4] = [Code::Clock, Code::Waker(When::Cloned), Code::Waker(When::Woken), Code::Waker(When::Dropped)];

/// What a panic carries: whoever drops it gets another panic.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        resume_unwind(Box::new("a payload that panics"));
    }
}

/// Counts the calls of one kind of user code, and makes one of them panic.
#[derive(Clone, Debug)]
struct Fault {
    code: Code,
    /// Whether all later calls panic too.
    persists: bool,
    calls: Arc<AtomicU64>,
    /// The call that panics; 0 if none does.
    at: Arc<AtomicU64>,
}

impl Fault {
    fn new(code: Code, persists: bool) -> Self {
        Self { code, persists, calls: Arc::default(), at: Arc::default() }
    }

    fn call(&self, code: Code) {
        let at = self.at.load(SeqCst);
        if code != self.code || at == 0 {
            return;
        }
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        if call == at || (self.persists && call > at) {
            // Not `panic!`: the panic is intended, and its message would only clutter the output.
            resume_unwind(Box::new(Payload));
        }
    }

    /// Runs `act`, in which the call with this number panics. Returns the result of `act`, or `None` if the panic reached
    /// the caller, and whether there was such a call.
    fn inject<R>(&self, call: u64, act: impl FnOnce() -> R) -> (Option<R>, bool) {
        self.calls.store(0, SeqCst);
        self.at.store(call, SeqCst);
        let result = catch_unwind(AssertUnwindSafe(act)).map_err(std::mem::forget).ok();
        self.at.store(0, SeqCst);
        (result, self.calls.load(SeqCst) >= call)
    }

    /// A waker with this fault. Only the limiter's clones of it are dropped, not the waker itself.
    fn waker(&self) -> ManuallyDrop<Waker> {
        let fault = self.clone();
        ManuallyDrop::new(waker(move |when| fault.call(Code::Waker(when))))
    }
}

#[derive(Clone, Debug)]
struct Time {
    manual: ManualClock,
    fault: Fault,
}

impl Clock for Time {
    fn now(&self) -> Duration {
        self.fault.call(Code::Clock);
        self.manual.now()
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// Empty limiters of all kinds on one clock.
struct Fixture {
    time: Time,
    began: Duration,
    one: Limiter,
    two: Limiter,
    keyed: KeyedLimiter<u32>,
    /// Its parent is `one`.
    child: KeyedLimiter<u32>,
    capped: bool,
}

impl Fixture {
    fn new(fault: Fault, capped: bool) -> Self {
        let time = Time { manual: ManualClock::new(), fault };
        let limiter = || {
            let builder = Limiter::builder().quota(QUOTA.initial(0)).clock(time.clone());
            if capped { builder.max_in_flight(100) } else { builder }.build().unwrap()
        };
        let (one, two) = (limiter(), limiter());
        let keyed = || KeyedLimiter::builder().quota(QUOTA).quota(LOOSE).clock(time.clone()).shards(1);
        let fixture = Self {
            began: time.manual.now(),
            keyed: keyed().build().unwrap(),
            child: keyed().top(MINUTE).parent(&one).build().unwrap(),
            one,
            two,
            time,
            capped,
        };
        drop(fixture.keyed.try_acquire(&KEY, 1_000).unwrap());
        // One token remains.
        for quota in [QUOTA.burst(1), QUOTA] {
            fixture.child.set_quota_for(&KEY, Quotas::from(quota)).unwrap();
        }
        fixture
    }

    fn pass(&self, time: Duration) {
        self.time.manual.advance(time);
        self.tick();
    }

    fn tick(&self) {
        self.one.tick();
        self.two.tick();
        self.keyed.tick();
        self.child.tick();
    }

    /// Checks that these numbers of tokens were taken from `one`, `two`, `keyed` and `child`, and that nothing waits or is
    /// in flight.
    fn assert_levels(&self, taken: [u64; 4], case: &str) {
        let minted = (self.time.manual.now() - self.began).as_millis() as u64 * RATE / 1_000;
        let child = self.child.quota_snapshots(&KEY)[0].available - 1;
        let seen = [self.one.available(), self.two.available(), self.keyed.available(&KEY), child];
        assert_eq!(seen, taken.map(|tokens| minted - tokens), "{case}");
        let (one, two) = (self.one.snapshot(), self.two.snapshot());
        assert_eq!((one.waiting_tasks, two.waiting_tasks), (0, 0), "{case}");
        let in_flight = self.capped.then_some(0);
        assert_eq!((one.in_flight, two.in_flight), (in_flight, in_flight), "{case}");
    }
}

/// Ready with whether the claim was granted. The grant is dropped.
type Answer<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

struct Operation {
    name: &'static str,
    /// How many tokens it takes from `one`, `two`, `keyed` and `child`.
    takes: [u64; 4],
    make: for<'a> fn(&'a Fixture, &'a mut Grant<'_>) -> Answer<'a>,
}

/// A future whose result is not kept, and which can be polled again after a poll that panicked.
struct Granted<F>(Pin<Box<F>>);

impl<F: Future<Output = Result<T, E>>, T, E> Future for Granted<F> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        self.0.as_mut().poll(cx).map(|result| result.is_ok())
    }
}

fn granted<'a, T, E>(future: impl Future<Output = Result<T, E>> + 'a) -> Answer<'a> {
    Box::pin(Granted(Box::pin(future)))
}

const LONG: Duration = Duration::from_secs(100);

macro_rules! operations {
    ($($name:literal $takes:tt: |$fixture:pat_param, $grant:pat_param| $claim:expr;)*) => {
        [$(Operation { name: $name, takes: $takes, make: |$fixture, $grant| granted($claim) }),*]
    };
}

const OPERATIONS: [Operation; 13] = operations! {
    "consume" [2, 0, 0, 0]: |it, _| it.one.consume(2);
    "consume within" [2, 0, 0, 0]: |it, _| it.one.consume(2).within(LONG);
    "consume_owned" [2, 0, 0, 0]: |it, _| it.one.clone().consume_owned(2);
    "join" [1, 2, 0, 0]: |it, _| join([(&it.one, 1), (&it.two, 2)]);
    "join within" [2, 2, 0, 0]: |it, _| join([(&it.two, 2), (&it.one, 2)]).within(LONG);
    "reserve" [2, 2, 0, 0]: |it, _| reserve([(&it.two, 2), (&it.one, 2)]);
    "keyed" [0, 0, 2, 0]: |it, _| it.keyed.consume(&KEY, 2);
    "keyed within" [0, 0, 2, 0]: |it, _| it.keyed.consume(&KEY, 2).within(LONG);
    "keyed owned" [0, 0, 2, 0]: |it, _| it.keyed.clone().consume_owned(KEY, 2);
    "child" [2, 0, 0, 2]: |it, _| it.child.consume(&KEY, 2);
    "child within" [2, 0, 0, 2]: |it, _| it.child.consume(&KEY, 2).within(LONG);
    "child owned" [2, 0, 0, 2]: |it, _| it.child.clone().consume_owned(KEY, 2);
    "grow_within" [2, 0, 0, 0]: |_, grant| grant.grow_within(2);
};

/// The call into which the panic is injected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    FirstPoll,
    /// A poll with another waker, before the claim is due.
    EarlyPoll,
    DuePoll,
    PollOfGranted,
    Tick,
    DropOfWaiter,
    DropOfGranted,
    /// The claim is dropped while another panic unwinds the stack: a second panic would abort the process.
    DropOfWaiterInUnwinding,
    DropOfGrantedInUnwinding,
}

const STAGES: [Stage; 9] = [
    Stage::FirstPoll,
    Stage::EarlyPoll,
    Stage::DuePoll,
    Stage::PollOfGranted,
    Stage::Tick,
    Stage::DropOfWaiter,
    Stage::DropOfGranted,
    Stage::DropOfWaiterInUnwinding,
    Stage::DropOfGrantedInUnwinding,
];

/// What becomes of the claim afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Waits,
    IsDropped,
    IsPolledAtOnce,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    stage: Stage,
    then: Then,
    at: u64,
    capped: bool,
}

/// Drops `value` while a panic unwinds the stack.
fn drop_in_unwinding<T>(value: T) {
    assert!(panics(|| {
        let _value = value;
        resume_unwind(Box::new("a task that fails"));
    }));
}

fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Each kind of user code with a single panic, and a clock that panics from then on.
fn faults() -> impl Iterator<Item = Fault> {
    let single = CODE.into_iter().map(|code| Fault::new(code, false));
    single.chain([Fault::new(Code::Clock, true)])
}

/// Runs one case. Returns false if the stage makes fewer than `case.at` calls of the user code.
fn interrupt(operation: &Operation, fault: &Fault, case: Case) -> bool {
    let text = format!("{} with {fault:?} in {case:?}", operation.name);
    let fixture = Fixture::new(fault.clone(), case.capped);
    fixture.pass(200 * MILLI);
    let mut grant = fixture.one.try_acquire(1).unwrap();
    let entered = |claim: &mut Answer<'_>| assert!(claim.as_mut().poll(&mut no_waker()).is_pending(), "{text}");
    let mut ahead =
        [granted(fixture.one.consume(2)), granted(fixture.two.consume(3)), granted(fixture.keyed.consume(&KEY, 3))];
    ahead.iter_mut().for_each(entered);
    let mut claim = Some((operation.make)(&fixture, &mut grant));
    let (first, second) = (fault.waker(), fault.waker());
    let mut is_ready = false;
    let mut poll = |claim: &mut Option<Answer<'_>>, cx: &mut Context<'_>| {
        if let Poll::Ready(is_granted) = claim.as_mut().expect("a claim").as_mut().poll(cx) {
            assert!(is_granted, "{text}");
            (is_ready, *claim) = (true, None);
        }
    };
    if case.stage != Stage::FirstPoll {
        poll(&mut claim, &mut Context::from_waker(&first));
    }
    if matches!(case.stage, Stage::DuePoll | Stage::Tick) {
        fixture.time.manual.advance(1_800 * MILLI);
    }
    if matches!(case.stage, Stage::PollOfGranted | Stage::DropOfGranted | Stage::DropOfGrantedInUnwinding) {
        fixture.pass(1_800 * MILLI);
    }
    let cx = &mut Context::from_waker(if case.stage == Stage::FirstPoll { &first } else { &second });
    let (finished, has_panicked) = fault.inject(case.at, || match case.stage {
        Stage::FirstPoll | Stage::EarlyPoll | Stage::DuePoll | Stage::PollOfGranted => poll(&mut claim, cx),
        Stage::Tick => fixture.tick(),
        Stage::DropOfWaiter | Stage::DropOfGranted => drop(claim.take()),
        Stage::DropOfWaiterInUnwinding | Stage::DropOfGrantedInUnwinding => drop_in_unwinding(claim.take()),
    });
    let may_panic = fault.code == Code::Clock || fault.code == Code::Waker(When::Cloned);
    let is_drop = matches!(
        case.stage,
        Stage::DropOfWaiter | Stage::DropOfGranted | Stage::DropOfWaiterInUnwinding | Stage::DropOfGrantedInUnwinding
    );
    assert!(finished.is_some() || (may_panic && !is_drop), "{text}: the panic reaches the caller");
    let mut behind = [
        granted(fixture.one.consume(1)),
        granted(fixture.keyed.consume(&KEY, 1)),
        granted(fixture.child.consume(&KEY, 1)),
    ];
    let mut left: Vec<_> = behind
        .iter_mut()
        .filter_map(|claim| claim.as_mut().poll(&mut no_waker()).is_pending().then_some(claim))
        .collect();
    match case.then {
        Then::Waits => {}
        Then::IsDropped => claim = None,
        Then::IsPolledAtOnce if claim.is_some() => poll(&mut claim, &mut no_waker()),
        Then::IsPolledAtOnce => {}
    }
    for _ in 0..20 {
        fixture.pass(100 * MILLI);
        if claim.is_some() {
            poll(&mut claim, &mut no_waker());
        }
    }
    assert!(claim.is_none(), "{text}: the claim is stranded");
    for waiting in ahead.iter_mut().chain(left.drain(..)) {
        assert_eq!(waiting.as_mut().poll(&mut no_waker()), Poll::Ready(true), "{text}: another waiter is stranded");
    }
    let takes = if is_ready { operation.takes } else { [0; 4] };
    drop((claim, ahead, behind));
    let grown = if operation.name == "grow_within" { takes[0] } else { 0 };
    assert_eq!(grant.cost(), 1 + grown, "{text}");
    drop(grant);
    fixture.assert_levels([takes[0] + 5, takes[1] + 3, takes[2] + 4, takes[3] + 1], &text);
    has_panicked
}

#[test]
#[cfg_attr(miri, ignore = "too many cases")]
fn a_panic_anywhere_in_a_wait_costs_no_token_and_strands_no_waiter() {
    let mut panics = 0;
    for fault in faults() {
        for stage in STAGES {
            for (then, capped) in [(Then::Waits, false), (Then::IsDropped, true), (Then::IsPolledAtOnce, false)] {
                for operation in &OPERATIONS {
                    let interrupts = |at| interrupt(operation, &fault, Case { stage, then, at, capped });
                    panics += (1..).take_while(|call| interrupts(*call)).count();
                }
            }
        }
    }
    assert!(panics > 1_000, "only {panics} of the calls of a clock or a waker were reached");
}

type KeyGrant<'a> = KeyedGrant<'a, u32, RandomState>;

/// Grants that are held while a change is made.
struct Held<'a> {
    one: Option<Grant<'a>>,
    keyed: Option<KeyGrant<'a>>,
    child: Option<KeyGrant<'a>>,
}

impl<'a> Held<'a> {
    fn of(fixture: &'a Fixture) -> Self {
        Self {
            one: fixture.one.try_acquire(1).ok(),
            keyed: fixture.keyed.try_acquire(&KEY, 1).ok(),
            child: fixture.child.try_acquire(&KEY, 1).ok(),
        }
    }

    fn one(&mut self) -> &mut Grant<'a> {
        self.one.as_mut().unwrap()
    }

    fn keyed(&mut self) -> &mut KeyGrant<'a> {
        self.keyed.as_mut().unwrap()
    }

    fn child(&mut self) -> &mut KeyGrant<'a> {
        self.child.as_mut().unwrap()
    }

    /// In `one`, `keyed` and `child`; a grant that was dropped has kept its cost.
    fn costs(&self) -> [u64; 3] {
        let keyed = |grant: &Option<KeyGrant<'_>>| grant.as_ref().map_or(1, |grant| grant.cost());
        [self.one.as_ref().map_or(1, |grant| grant.cost()), keyed(&self.keyed), keyed(&self.child)]
    }
}

/// A change returns how many tokens it has added to `one` and to `keyed`.
type Change = (&'static str, fn(&Fixture, &mut Held<'_>) -> [u64; 2]);

const NONE: [u64; 2] = [0, 0];

macro_rules! changes {
    ($($name:literal: |$fixture:pat_param, $held:pat_param| $act:expr, $adds:expr;)*) => {
        [$(($name, |$fixture, $held| { $act; $adds })),*]
    };
}

const CHANGES: [Change; 30] = changes! {
    "settle for less": |_, held| held.one().settle(0), NONE;
    "settle for more": |_, held| held.one().settle(3), NONE;
    "grow": |_, held| held.one().grow(2), NONE;
    "drop": |_, held| held.one = None, NONE;
    "drop in unwinding": |_, held| drop_in_unwinding(held.one.take()), NONE;
    "forget, release": |it, held| { held.one.take().into_iter().for_each(Grant::forget); it.one.release(1).ok() }, NONE;
    "try_acquire": |it, _| assert!(it.one.try_acquire(50).is_err()), NONE;
    "set_quota": |it, _| it.one.set_quota(0, QUOTA).unwrap(), NONE;
    "set_max_in_flight": |it, _| if it.capped { it.one.set_max_in_flight(99).unwrap() }, NONE;
    "pause_for": |it, _| it.one.pause_for(100 * MILLI), NONE;
    "replenish": |it, _| it.one.replenish(1), [1, 0];
    "tick": |it, _| it.one.tick(), NONE;
    "snapshot": |it, _| it.one.snapshot(), NONE;
    "estimate": |it, _| it.one.estimate(3), NONE;
    "available": |it, _| it.one.available(), NONE;
    "keyed settle for less": |_, held| held.keyed().settle(&KEY, 0), NONE;
    "keyed settle for more": |_, held| held.keyed().settle(&KEY, 3), NONE;
    "keyed drop in unwinding": |_, held| drop_in_unwinding(held.keyed.take()), NONE;
    "keyed try_acquire": |it, _| assert!(it.keyed.try_acquire(&KEY, 50).is_err()), NONE;
    "keyed set_quota_for": |it, _| it.keyed.set_quota_for(&KEY, Quotas::from([QUOTA, LOOSE])).unwrap(), NONE;
    "keyed pause_for": |it, _| it.keyed.pause_for(&KEY, 100 * MILLI), NONE;
    "keyed pause_all_for": |it, _| it.keyed.pause_all_for(100 * MILLI), NONE;
    "keyed replenish": |it, _| it.keyed.replenish(&KEY, 1), [0, 1];
    "keyed tick": |it, _| it.keyed.tick(), NONE;
    "keyed snapshot": |it, _| it.keyed.snapshot(), NONE;
    "keyed estimate": |it, _| it.keyed.estimate(&KEY, 3), NONE;
    "child settle for less": |_, held| held.child().settle(&KEY, 0), NONE;
    "child settle for more": |_, held| held.child().settle(&KEY, 3), NONE;
    "child drop in unwinding": |_, held| drop_in_unwinding(held.child.take()), NONE;
    "child tick": |it, _| it.child.tick(), NONE;
};

/// Waiters in all limiters.
fn waiters(fixture: &Fixture) -> [Answer<'_>; 4] {
    [
        granted(fixture.one.consume(4)),
        granted(join([(&fixture.one, 1), (&fixture.two, 3)])),
        granted(fixture.keyed.consume(&KEY, 3)),
        granted(fixture.child.consume(&KEY, 3)),
    ]
}

/// Runs one case. Returns false if the change makes fewer than `at` calls of the user code.
fn interrupt_change((name, change): Change, fault: &Fault, at: u64, is_due: bool, capped: bool) -> bool {
    let text = format!("{name} with {fault:?} at {at}, due: {is_due}, capped: {capped}");
    let fixture = Fixture::new(fault.clone(), capped);
    fixture.pass(200 * MILLI);
    let mut held = Held::of(&fixture);
    let mut waiting = waiters(&fixture);
    let waker = fault.waker();
    for claim in &mut waiting {
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{text}");
    }
    if is_due {
        fixture.time.manual.advance(1_800 * MILLI);
    }
    let (added, has_panicked) = fault.inject(at, || change(&fixture, &mut held));
    assert!(
        added.is_some() || (fault.code == Code::Clock && !name.contains("drop")),
        "{text}: the panic reaches the caller"
    );
    for _ in 0..20 {
        fixture.pass(100 * MILLI);
    }
    for claim in &mut waiting {
        assert_eq!(claim.as_mut().poll(&mut no_waker()), Poll::Ready(true), "{text}: a waiter is stranded");
    }
    let ([one, keyed, child], [more, more_keyed]) = (held.costs(), added.unwrap_or(NONE));
    drop((waiting, held));
    fixture.assert_levels([one + child + 8 - more, 3, keyed + 3 - more_keyed, child + 3], &text);
    has_panicked
}

#[test]
#[cfg_attr(miri, ignore = "too many cases")]
fn a_panic_anywhere_in_a_change_leaves_it_undone_or_done() {
    let mut panics = 0;
    for fault in faults() {
        for (is_due, capped) in [(false, false), (true, true), (true, false)] {
            for change in CHANGES {
                let interrupts = |at| interrupt_change(change, &fault, at, is_due, capped);
                panics += (1..).take_while(|call| interrupts(*call)).count();
            }
        }
    }
    assert!(panics > 200, "only {panics} of the calls of a clock or a waker were reached");
}

#[test]
#[cfg_attr(miri, ignore = "too many cases")]
fn a_limiter_that_could_not_be_closed_because_of_a_panic_can_be_closed_again() {
    let mut panics = 0;
    for fault in faults() {
        let interrupts = |at: u64| {
            let fixture = Fixture::new(fault.clone(), true);
            let mut waiting = waiters(&fixture);
            let waker = fault.waker();
            for claim in &mut waiting {
                assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            let close = || {
                fixture.one.close();
                fixture.two.close();
                fixture.keyed.close();
            };
            let (closed, has_panicked) = fault.inject(at, close);
            assert!(closed.is_some() || fault.code == Code::Clock, "{fault:?} at {at}");
            close();
            for claim in &mut waiting {
                assert_eq!(claim.as_mut().poll(&mut no_waker()), Poll::Ready(false), "{fault:?} at {at}");
            }
            assert!(fixture.child.is_closed(), "{fault:?} at {at}");
            has_panicked
        };
        panics += (1..).take_while(|call| interrupts(*call)).count();
    }
    assert!(panics > 10, "only {panics} of the calls of a clock or a waker were reached");
}
