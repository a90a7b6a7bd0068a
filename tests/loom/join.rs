//! Joint claims in every interleaving: one race per model, checked by loom.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --test loom join::`
//!
//! Each limiter has a lock of its own, and a review takes those of all members: that is too many executions, so preemptions
//! are bounded.

use crate::{Race, build, empty, ends, explore_bounded, is_served, on_clock, sorted};
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{ConsumeError, Grant, JoinError, Limiter, ManualClock, Quota, join};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) type Answer = Result<(), JoinError>;
pub(crate) type Joint = Spawn<Pin<Box<dyn Future<Output = Answer>>>>;

/// Explores every interleaving of the actors that `model` starts, with at most this many preemptions.
pub(crate) fn explore(preemptions: usize, model: impl Fn(&Race) + Send + Sync + 'static) {
    explore_bounded(Some(preemptions), model);
}

impl Race {
    /// Runs all acts at once, to their ends.
    pub(crate) fn run<const N: usize>(&self, acts: [Box<dyn FnOnce()>; N]) {
        let actors = acts.map(|act| self.actor(act));
        actors.into_iter().for_each(|actor| actor.join().unwrap());
    }
}

/// An act on a limiter, for [`Race::run`].
pub(crate) fn on(limiter: &Limiter, act: impl FnOnce(&Limiter) + 'static) -> Box<dyn FnOnce()> {
    let limiter = limiter.clone();
    Box::new(move || act(&limiter))
}

/// Limiters of one token with manual quotas; the first `with_token` of them have it. They are in the order of their locks.
fn limiters<const N: usize>(with_token: usize) -> [Limiter; N] {
    let limiters = sorted(|| empty(1));
    limiters[..with_token].iter().for_each(|limiter| limiter.replenish(1));
    limiters
}

/// A claim of one token in each queue that keeps its grants for good.
fn claim<const N: usize>(limiters: &[Limiter; N]) -> Joint {
    let limiters = limiters.clone();
    spawn(Box::pin(async move {
        let grants = join(limiters.each_ref().map(|limiter| (limiter, 1))).await?;
        grants.into_iter().for_each(Grant::forget);
        Ok(())
    }))
}

/// A joint claim of one token from each that waits in all queues.
pub(crate) fn waiting<const N: usize>(limiters: &[Limiter; N]) -> Joint {
    let mut claim = claim(limiters);
    assert!(claim.poll().is_pending(), "the claim must have to wait");
    claim
}

/// The answer of a claim that was called out; asserts that it was woken for that.
pub(crate) fn answer(claim: &mut Joint) -> Option<Answer> {
    let woken = claim.is_woken();
    match claim.poll() {
        Poll::Ready(answer) => {
            assert!(woken, "called out, but not woken");
            Some(answer)
        }
        Poll::Pending => None,
    }
}

pub(crate) fn spent(limiter: &Limiter) -> u64 {
    let seen = limiter.snapshot();
    seen.granted - seen.refunded
}

fn closed(limiter: usize) -> Answer {
    Err(JoinError::Refused { limiter, error: ConsumeError::Closed })
}

/// Both become ready at once: committed exactly once, and granted in both.
#[test]
fn two_queues_become_ready_at_once() {
    explore(3, |race| {
        let limiters = limiters::<2>(0);
        let mut claim = waiting(&limiters);
        race.run(limiters.each_ref().map(|limiter| on(limiter, |limiter| limiter.replenish(1))));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(limiters.each_ref().map(spent), [1, 1]);
        assert_eq!(limiters.each_ref().map(Limiter::available), [0, 0]);
    });
}

#[test]
fn three_queues_become_ready_at_once() {
    explore(2, |race| {
        let limiters = limiters::<3>(0);
        let mut claim = waiting(&limiters);
        race.run(limiters.each_ref().map(|limiter| on(limiter, |limiter| limiter.replenish(1))));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(limiters.each_ref().map(spent), [1, 1, 1]);
    });
}

/// Dropped while the last queue becomes ready: granted or not, both tokens are available afterwards.
#[test]
fn cancel_against_commit() {
    explore(3, |race| {
        let limiters = limiters::<2>(1);
        let claim = waiting(&limiters);
        race.run([Box::new(move || drop(claim)), on(&limiters[1], |limiter| limiter.replenish(1))]);
        assert_eq!(limiters.each_ref().map(spent), [0, 0]);
        assert_eq!(limiters.each_ref().map(Limiter::available), [1, 1]);
    });
}

/// A claim is behind the dropped one in the queue that held it ready: in every case that claim gets the token.
#[test]
fn cancel_against_commit_with_a_claim_behind() {
    explore(2, |race| {
        let limiters = limiters::<2>(1);
        let claim = waiting(&limiters);
        let mut behind = crate::waiting(&limiters[0], 1);
        race.run([Box::new(move || drop(claim)), on(&limiters[1], |limiter| limiter.replenish(1))]);
        assert!(is_served(&mut behind));
        assert_eq!(limiters.each_ref().map(spent), [1, 0]);
    });
}

/// The ready queue closes while the other becomes ready. All or nothing, and the error names the closed one.
#[test]
fn close_against_commit() {
    for closing in [0, 1] {
        explore(3, move |race| {
            let limiters = limiters::<2>(1);
            let mut claim = waiting(&limiters);
            race.run([on(&limiters[closing], Limiter::close), on(&limiters[1], |limiter| limiter.replenish(1))]);
            assert!(claim.is_woken(), "granted or refused");
            // Before the claim is polled: the open queue moves on without it.
            let open = &limiters[1 - closing];
            let (spent, waiting) = (spent(open), open.snapshot().waiting_tasks);
            let answer = answer(&mut claim).expect("granted or refused");
            assert!(answer == Ok(()) || answer == closed(closing), "{answer:?}");
            assert_eq!(waiting, 0);
            assert_eq!(spent, u64::from(answer.is_ok()), "granted in one queue only");
        });
    }
}

/// Both queues close at once.
#[test]
fn close_against_close() {
    explore(3, |race| {
        let limiters = limiters::<2>(1);
        let mut claim = waiting(&limiters);
        race.run(limiters.each_ref().map(|limiter| on(limiter, Limiter::close)));
        let answer = answer(&mut claim).expect("refused");
        assert!(answer == closed(0) || answer == closed(1), "{answer:?}");
        assert_eq!(limiters.each_ref().map(spent), [0, 0]);
        assert_eq!(limiters.each_ref().map(|limiter| limiter.snapshot().waiting_tasks), [0, 0]);
    });
}

/// Dropped while one of its queues closes and a claim waits behind it in the other.
#[test]
fn cancel_against_close() {
    explore(3, |race| {
        let limiters = limiters::<2>(1);
        let claim = waiting(&limiters);
        let mut behind = crate::waiting(&limiters[0], 1);
        race.run([Box::new(move || drop(claim)), on(&limiters[1], Limiter::close)]);
        assert!(is_served(&mut behind));
        assert_eq!(spent(&limiters[0]), 1);
    });
}

/// Runs `hold` on the first queue while the second becomes ready, and returns whether the claim passed: in both or in
/// neither, and not if `hold` had ended before the second got its token.
fn passes(race: &Race, limiters: &[Limiter; 2], hold: impl FnOnce(&Limiter) + 'static) -> bool {
    let before = limiters.each_ref().map(spent);
    let over = Arc::new(AtomicU64::new(0));
    let tell = over.clone();
    let holding = race.on(&limiters[0], move |limiter| {
        hold(limiter);
        tell.fetch_add(1, AcqRel);
    });
    let commit = race.on(&limiters[1], move |limiter| {
        let was_over = over.fetch_add(0, AcqRel) == 1;
        limiter.replenish(1);
        was_over
    });
    let ((), was_over) = ends(holding, commit);
    let granted = [spent(&limiters[0]) - before[0], spent(&limiters[1]) - before[1]];
    assert_eq!(granted[0], granted[1], "granted in one queue and waiting in the other");
    assert!(!was_over || granted == [0, 0], "passed where no claim may pass");
    granted == [1, 1]
}

/// The ready queue is paused while the other becomes ready: both grant before the pause or both after it.
#[test]
fn pause_against_commit() {
    explore(3, |race| {
        let clock = ManualClock::new();
        let limiters = sorted::<2>(|| on_clock(&clock, Limiter::builder().quota(Quota::manual(1).initial(0))));
        limiters[0].replenish(1);
        let mut claim = waiting(&limiters);
        let passed = passes(race, &limiters, |limiter| limiter.pause_for(MS));
        clock.advance(MS);
        limiters[0].tick();
        assert_eq!(limiters.each_ref().map(spent), [1, 1], "{passed}");
        assert_eq!(answer(&mut claim), Some(Ok(())));
    });
}

/// A cap is lowered below the ready claim while the other queue becomes ready, and raised again afterwards.
#[test]
fn a_lower_cap_against_commit() {
    explore(3, |race| {
        let capped = || build(Limiter::builder().quota(Quota::manual(2).initial(0)).max_in_flight(2));
        let limiters = sorted::<2>(capped);
        limiters[0].replenish(2);
        limiters[0].try_acquire(1).unwrap().forget();
        let mut claim = waiting(&limiters);
        let passed = passes(race, &limiters, |limiter| limiter.set_max_in_flight(1).unwrap());
        assert_eq!(answer(&mut claim).is_some(), passed);
        limiters[0].set_max_in_flight(2).unwrap();
        assert!(passed || answer(&mut claim) == Some(Ok(())));
    });
}

/// Both queues wait for a release, and both releases happen at the same time.
#[test]
fn releases_of_two_caps_at_once() {
    explore(3, |race| {
        let limiters = sorted::<2>(|| build(Limiter::builder().quota(Quota::manual(2)).max_in_flight(1)));
        limiters.iter().for_each(|limiter| limiter.try_acquire(1).unwrap().forget());
        let mut claim = waiting(&limiters);
        race.run(limiters.each_ref().map(|limiter| on(limiter, |limiter| limiter.release(1).unwrap())));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(limiters.each_ref().map(|limiter| limiter.snapshot().in_flight), [Some(1), Some(1)]);
    });
}

/// The claim is polled again, with another waker, while it becomes due.
#[test]
fn a_poll_against_commit() {
    explore(3, |race| {
        let limiters = limiters::<2>(1);
        let claim = waiting(&limiters);
        let commit = race.on(&limiters[1], |limiter| limiter.replenish(1));
        let look = race.actor(move || {
            let mut elsewhere = spawn(claim.into_inner());
            let answer = elsewhere.poll().map(|answer| answer.unwrap());
            (answer, elsewhere)
        });
        let ((), (looked, mut elsewhere)) = ends(commit, look);
        assert!(
            looked.is_ready() || answer(&mut elsewhere) == Some(Ok(())),
            "the waker of the last poll was not woken"
        );
        assert_eq!(limiters.each_ref().map(spent), [1, 1]);
    });
}

/// The claim enters both queues while each of them gets its token.
#[test]
fn an_arrival_against_both_tokens() {
    explore(2, |race| {
        let limiters = limiters::<2>(0);
        let mut entering = claim(&limiters);
        let enter = race.actor(move || {
            let entered = entering.poll().map(|answer| answer.unwrap());
            (entered, entering)
        });
        let tokens = limiters.each_ref().map(|limiter| race.on(limiter, |limiter| limiter.replenish(1)));
        tokens.into_iter().for_each(|actor| actor.join().unwrap());
        let (entered, mut entering) = enter.join().unwrap();
        assert!(entered.is_ready() || answer(&mut entering) == Some(Ok(())));
        assert_eq!(limiters.each_ref().map(spent), [1, 1]);
    });
}

/// Two claims chained in two queues: the thread that commits the first must have the second served, in both queues.
#[test]
fn a_chain_of_two() {
    explore(2, |race| {
        let limiters = sorted::<2>(|| empty(2));
        let mut claims = [waiting(&limiters), waiting(&limiters)];
        race.run(limiters.each_ref().map(|limiter| on(limiter, |limiter| limiter.replenish(2))));
        assert!(claims.iter_mut().all(|claim| answer(claim) == Some(Ok(()))));
        assert_eq!(limiters.each_ref().map(spent), [2, 2]);
    });
}

/// Time passes while both queues are served, the ready one with delay: a joint claim, then plain ones behind it.
/// However old the clock readings are, no queue grants more than its burst and what time brought.
#[test]
fn ticks_at_different_times_keep_the_law() {
    explore(2, |race| {
        let clock = ManualClock::new();
        let quota = Quota::new(1, MS).burst(1).initial(0);
        let limiters = sorted::<2>(|| on_clock(&clock, Limiter::builder().quota(quota)));
        let mut claim = waiting(&limiters);
        let behind = limiters.each_ref().map(|limiter| crate::waiting(limiter, 1));
        let time = clock.clone();
        race.run([
            Box::new(move || time.advance(MS)),
            on(&limiters[0], Limiter::tick),
            on(&limiters[1], Limiter::tick),
        ]);
        assert!(behind.iter().all(|behind| !behind.is_woken()), "two tokens in the first millisecond");
        limiters.iter().for_each(Limiter::tick);
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(limiters.each_ref().map(spent), [1, 1]);
        clock.advance(MS);
        limiters.iter().for_each(Limiter::tick);
        assert!(behind.iter().all(|behind| behind.is_woken()));
    });
}

/// The first queue has held the claim from the start, with its token and plain claims behind it. At 3 ms the second one
/// commits, while another thread serves the first with a clock reading that may be old.
///
/// On one clock the commit has an instant; on two, each queue must read its own clock after it has heard of the commit.
#[test]
fn an_old_reading_against_commit() {
    for one_clock in [true, false] {
        explore(3, move |race| {
            let (clocks, limiters) = one_ready_and_one_by_hand(one_clock);
            let mut claim = waiting(&limiters);
            let behind = [(); 3].map(|()| crate::waiting(&limiters[0], 1));
            let last = limiters[1].clone();
            let commit = move || {
                clocks.iter().for_each(|clock| clock.advance(3 * MS));
                last.replenish(1);
            };
            race.run([Box::new(commit), on(&limiters[0], Limiter::tick)]);
            limiters[0].tick();
            assert_eq!(answer(&mut claim), Some(Ok(())));
            let passed = behind.iter().filter(|behind| behind.is_woken()).count();
            assert_eq!(passed, 0, "a burst of 1 was saved, and the joint claim has it");
        });
    }
}

/// A queue that has its one token, one that is empty and filled by hand, and all their clocks.
fn one_ready_and_one_by_hand(one_clock: bool) -> (Vec<ManualClock>, [Limiter; 2]) {
    let clocks = RefCell::new(Vec::new());
    let build = || {
        let mut clocks = clocks.borrow_mut();
        if !one_clock || clocks.is_empty() {
            clocks.push(ManualClock::new());
        }
        let clock = clocks.last().unwrap().clone();
        // With a manual quota the queue holds a joint claim at its front, and no other claim passes it.
        on_clock(&clock, Limiter::builder().quota(Quota::new(1, MS).burst(1)).quota(Quota::manual(9)))
    };
    let limiters = sorted::<2>(build);
    limiters[1].set_quota(0, Quota::manual(1)).unwrap();
    limiters[1].try_acquire(1).unwrap().forget();
    (clocks.into_inner(), limiters)
}

/// The first queue has held the claim from the start, with its token and plain claims behind it. At 3 ms the claim is
/// dropped. A thread that sees this with an old reading serves the claims behind it as of no earlier time.
///
/// Plant `cancelled_front_leaves_in_the_past`.
#[test]
fn an_old_reading_against_cancel() {
    explore(3, |race| {
        let (clocks, limiters) = one_ready_and_one_by_hand(true);
        let claim = waiting(&limiters);
        let behind = [(); 3].map(|()| crate::waiting(&limiters[0], 1));
        let cancel = move || {
            clocks.iter().for_each(|clock| clock.advance(3 * MS));
            drop(claim);
        };
        race.run([Box::new(cancel), on(&limiters[0], Limiter::tick)]);
        limiters[0].tick();
        let passed = behind.iter().filter(|behind| behind.is_woken()).count();
        assert_eq!(passed, 1, "the bucket of 1 was full from the start");
    });
}
