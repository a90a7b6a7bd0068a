//! Joint claims in every interleaving: one race per model, checked by loom.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --test loom join::`
//!
//! * loom 0.7.2 misses races when a model is the main thread and one other that begins with a load. So the main thread
//!   sets up, joins and judges; every actor is spawned, and begins with a read-modify-write.
//! * Each line has a lock of its own, and a commit is seen by the other line after it happened: most of what can go
//!   wrong needs two switches of threads, one in each line. Where that is too many executions, preemptions are bounded.
//! * Wakers are not loom's: whether somebody was woken is asked after all actors have ended.

use loom::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use loom::thread;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{ConsumeError, Grant, JoinError, Limiter, ManualClock, Quota, join};

const MS: Duration = Duration::from_millis(1);

pub(crate) type Answer = Result<(), JoinError>;
pub(crate) type Joint = Spawn<Pin<Box<dyn Future<Output = Answer>>>>;

/// Explores every interleaving of the actors that `model` starts, of at most so many preemptions.
pub(crate) fn explore(preemptions: usize, model: impl Fn(&Race) + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model(&Race::default());
    });
    println!("{} executions", executions.load(Relaxed));
}

#[derive(Default)]
pub(crate) struct Race(Arc<AtomicU64>);

impl Race {
    fn actor<T: 'static>(&self, act: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
        let start = self.0.clone();
        thread::spawn(move || {
            start.fetch_add(1, Relaxed); // orders nothing: the race is still on
            act()
        })
    }

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

/// Limiters of one token, by hand, of which the first ones have it. In the order of their addresses, which is that of
/// their locks: loom replays what it saw, so it must not change from one execution to the next.
fn lines<const N: usize>(with_token: usize) -> [Limiter; N] {
    sorted(
        || Limiter::builder().quota(Quota::manual(1).initial(0)).clock(ManualClock::new()).build().unwrap(),
        |lines| {
            lines[..with_token].iter().for_each(|limiter| limiter.replenish(1));
        },
    )
}

pub(crate) fn sorted<const N: usize>(build: impl Fn() -> Limiter, fill: impl Fn(&[Limiter; N])) -> [Limiter; N] {
    let mut lines = std::array::from_fn(|_| build());
    lines.sort_by_key(|limiter: &Limiter| {
        const { assert!(size_of::<Limiter>() == size_of::<usize>()) };
        // SAFETY: a limiter is one pointer, as large as a `usize`.
        unsafe { std::mem::transmute_copy::<Limiter, usize>(limiter) }
    });
    fill(&lines);
    lines
}

/// A claim of one token in each line that keeps what it is granted for good.
fn claim<const N: usize>(lines: &[Limiter; N]) -> Joint {
    let lines = lines.clone();
    spawn(Box::pin(async move {
        let grants = join(lines.each_ref().map(|limiter| (limiter, 1))).await?;
        grants.into_iter().for_each(Grant::forget);
        Ok(())
    }))
}

/// The same, standing in all lines.
pub(crate) fn waiting<const N: usize>(lines: &[Limiter; N]) -> Joint {
    let mut claim = claim(lines);
    assert!(claim.poll().is_pending(), "set up to wait");
    claim
}

/// Who was called out has been woken for it.
pub(crate) fn answer(claim: &mut Joint) -> Option<Answer> {
    let woken = claim.is_woken();
    match claim.poll() {
        Poll::Ready(answer) => {
            assert!(woken, "called out and not woken");
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

/// Both become ready at once: committed exactly once, granted in both, and nobody is left to say so.
#[test]
fn two_lines_become_ready_at_once() {
    explore(3, |race| {
        let lines = lines::<2>(0);
        let mut claim = waiting(&lines);
        race.run(lines.each_ref().map(|line| on(line, |line| line.replenish(1))));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(lines.each_ref().map(spent), [1, 1]);
        assert_eq!(lines.each_ref().map(Limiter::available), [0, 0]);
    });
}

#[test]
fn three_lines_become_ready_at_once() {
    explore(2, |race| {
        let lines = lines::<3>(0);
        let mut claim = waiting(&lines);
        race.run(lines.each_ref().map(|line| on(line, |line| line.replenish(1))));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(lines.each_ref().map(spent), [1, 1, 1]);
    });
}

/// Dropped while the last line becomes ready: granted or not, both tokens are there afterwards.
#[test]
fn cancel_against_commit() {
    explore(3, |race| {
        let lines = lines::<2>(1);
        let claim = waiting(&lines);
        race.run([Box::new(move || drop(claim)), on(&lines[1], |line| line.replenish(1))]);
        assert_eq!(lines.each_ref().map(spent), [0, 0]);
        assert_eq!(lines.each_ref().map(Limiter::available), [1, 1]);
    });
}

/// The same with somebody behind in the line that held it ready: whatever happens, the token is theirs.
#[test]
fn cancel_against_commit_with_somebody_behind() {
    explore(2, |race| {
        let lines = lines::<2>(1);
        let claim = waiting(&lines);
        let mut behind = spawn(lines[0].clone().consume_owned(1));
        assert!(behind.poll().is_pending());
        race.run([Box::new(move || drop(claim)), on(&lines[1], |line| line.replenish(1))]);
        assert!(behind.is_woken() && matches!(behind.poll(), Poll::Ready(Ok(_))));
        assert_eq!(lines.each_ref().map(spent), [1, 0]);
    });
}

/// The ready line closes while the other becomes ready. All or nothing, and the one that closed is named.
#[test]
fn close_against_commit() {
    for closing in [0, 1] {
        explore(3, move |race| {
            let lines = lines::<2>(1);
            let mut claim = waiting(&lines);
            race.run([on(&lines[closing], Limiter::close), on(&lines[1], |line| line.replenish(1))]);
            // Before the claim is polled: the open line moves on without it.
            let open = &lines[1 - closing];
            let (spent, waiting) = (spent(open), open.snapshot().waiting_tasks);
            let answer = answer(&mut claim).expect("granted or turned away");
            assert!(answer == Ok(()) || answer == closed(closing), "{answer:?}");
            assert_eq!(waiting, 0);
            assert!(answer.is_err() || spent == 1);
        });
    }
}

/// Both lines close at once.
#[test]
fn close_against_close() {
    explore(3, |race| {
        let lines = lines::<2>(1);
        let mut claim = waiting(&lines);
        race.run(lines.each_ref().map(|line| on(line, Limiter::close)));
        let answer = answer(&mut claim).expect("turned away");
        assert!(answer == closed(0) || answer == closed(1), "{answer:?}");
        assert_eq!(lines.each_ref().map(spent), [0, 0]);
        assert_eq!(lines.each_ref().map(|line| line.snapshot().waiting_tasks), [0, 0]);
    });
}

/// Dropped while one of its lines closes and somebody waits behind it in the other.
#[test]
fn cancel_against_close() {
    explore(3, |race| {
        let lines = lines::<2>(1);
        let claim = waiting(&lines);
        let mut behind = spawn(lines[0].clone().consume_owned(1));
        assert!(behind.poll().is_pending());
        race.run([Box::new(move || drop(claim)), on(&lines[1], Limiter::close)]);
        assert!(behind.is_woken() && matches!(behind.poll(), Poll::Ready(Ok(_))));
        assert_eq!(spent(&lines[0]), 1);
    });
}

/// Runs `hold` on the first line while the second becomes ready, and says whether the claim passed: in both or in
/// neither, and not if `hold` was over before the second had its token.
fn passes(race: &Race, lines: &[Limiter; 2], hold: impl FnOnce(&Limiter) + 'static) -> bool {
    let before = lines.each_ref().map(spent);
    let over = Arc::new(AtomicU64::new(0));
    let (first, last) = (lines[0].clone(), lines[1].clone());
    let (tell, ask) = (over.clone(), over);
    let holding = race.actor(move || {
        hold(&first);
        tell.fetch_add(1, AcqRel);
    });
    let commit = race.actor(move || {
        let was_over = ask.fetch_add(0, AcqRel) == 1;
        last.replenish(1);
        was_over
    });
    holding.join().unwrap();
    let was_over = commit.join().unwrap();
    let granted = [spent(&lines[0]) - before[0], spent(&lines[1]) - before[1]];
    assert_eq!(granted[0], granted[1], "granted in one line and awaited in the other");
    assert!(!was_over || granted == [0, 0], "passed where nobody may");
    granted == [1, 1]
}

/// The ready line is paused while the other becomes ready: both grant before the pause or both after it.
#[test]
fn pause_against_commit() {
    explore(3, |race| {
        let clock = ManualClock::new();
        let build = || Limiter::builder().quota(Quota::manual(1).initial(0)).clock(clock.clone()).build().unwrap();
        let lines = sorted::<2>(build, |lines| lines[0].replenish(1));
        let mut claim = waiting(&lines);
        let passed = passes(race, &lines, |line| line.pause_for(MS));
        clock.advance(MS);
        lines[0].tick();
        assert_eq!(lines.each_ref().map(spent), [1, 1], "{passed}");
        assert_eq!(answer(&mut claim), Some(Ok(())));
    });
}

/// A cap is lowered below the ready claim while the other line becomes ready, and raised again afterwards.
#[test]
fn a_lower_cap_against_commit() {
    explore(3, |race| {
        let build = || {
            let builder = Limiter::builder().quota(Quota::manual(2).initial(0)).max_in_flight(2);
            builder.clock(ManualClock::new()).build().unwrap()
        };
        let lines = sorted::<2>(build, |lines| lines[0].replenish(2));
        lines[0].try_acquire(1).unwrap().forget();
        let mut claim = waiting(&lines);
        let passed = passes(race, &lines, |line| line.set_max_in_flight(1).unwrap());
        assert_eq!(answer(&mut claim).is_some(), passed);
        lines[0].set_max_in_flight(2).unwrap();
        assert!(passed || answer(&mut claim) == Some(Ok(())));
    });
}

/// Both lines wait for a release, which comes at the same time.
#[test]
fn releases_of_two_caps_at_once() {
    explore(3, |race| {
        let build = || {
            let builder = Limiter::builder().quota(Quota::manual(2)).max_in_flight(1);
            builder.clock(ManualClock::new()).build().unwrap()
        };
        let lines = sorted::<2>(build, |_| ());
        lines.iter().for_each(|line| line.try_acquire(1).unwrap().forget());
        let mut claim = waiting(&lines);
        race.run(lines.each_ref().map(|line| on(line, |line| line.release(1).unwrap())));
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(lines.each_ref().map(|line| line.snapshot().in_flight), [Some(1), Some(1)]);
    });
}

/// The claim is polled again, with another waker, while it becomes due.
#[test]
fn a_look_against_commit() {
    explore(3, |race| {
        let lines = lines::<2>(1);
        let claim = waiting(&lines);
        let commit = lines[1].clone();
        let commit = race.actor(move || commit.replenish(1));
        let look = race.actor(move || {
            let mut elsewhere = spawn(claim.into_inner());
            let answer = elsewhere.poll().map(|answer| answer.unwrap());
            (answer, elsewhere)
        });
        commit.join().unwrap();
        let (looked, mut elsewhere) = look.join().unwrap();
        assert!(
            looked.is_ready() || answer(&mut elsewhere) == Some(Ok(())),
            "the waker of the last poll was not woken"
        );
        assert_eq!(lines.each_ref().map(spent), [1, 1]);
    });
}

/// It enters both lines while each of them gets its token.
#[test]
fn an_arrival_against_both_tokens() {
    explore(2, |race| {
        let lines = lines::<2>(0);
        let mut entering = claim(&lines);
        let enter = race.actor(move || {
            let entered = entering.poll().map(|answer| answer.unwrap());
            (entered, entering)
        });
        let tokens = lines.each_ref().map(|line| {
            let line = line.clone();
            race.actor(move || line.replenish(1))
        });
        tokens.into_iter().for_each(|actor| actor.join().unwrap());
        let (entered, mut entering) = enter.join().unwrap();
        assert!(entered.is_ready() || answer(&mut entering) == Some(Ok(())));
        assert_eq!(lines.each_ref().map(spent), [1, 1]);
    });
}

/// Two claims chained in two lines: who commits the first must have the second looked at, in both lines.
#[test]
fn a_chain_of_two() {
    explore(2, |race| {
        let build = || Limiter::builder().quota(Quota::manual(2).initial(0)).clock(ManualClock::new()).build().unwrap();
        let lines = sorted::<2>(build, |_| ());
        let mut claims = [waiting(&lines), waiting(&lines)];
        race.run(lines.each_ref().map(|line| on(line, |line| line.replenish(2))));
        assert!(claims.iter_mut().all(|claim| answer(claim) == Some(Ok(()))));
        assert_eq!(lines.each_ref().map(spent), [2, 2]);
    });
}

/// Time passes while both lines are looked at, the ready one hanging back meanwhile: a joint claim, then plain ones
/// behind it. However old the times they read, no line grants more than its burst and what the clock brought.
#[test]
fn looks_at_different_times_keep_the_law() {
    explore(2, |race| {
        let clock = ManualClock::new();
        let build = || {
            let quota = Quota::new(1, MS).burst(1).initial(0);
            Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap()
        };
        let lines = sorted::<2>(build, |_| ());
        let mut claim = waiting(&lines);
        let mut behind = lines.each_ref().map(|line| spawn(line.clone().consume_owned(1)));
        behind.iter_mut().for_each(|behind| assert!(behind.poll().is_pending()));
        let time = clock.clone();
        race.run([Box::new(move || time.advance(MS)), on(&lines[0], Limiter::tick), on(&lines[1], Limiter::tick)]);
        assert!(behind.iter().all(|behind| !behind.is_woken()), "two tokens in the first millisecond");
        lines.iter().for_each(Limiter::tick);
        assert_eq!(answer(&mut claim), Some(Ok(())));
        assert_eq!(lines.each_ref().map(spent), [1, 1]);
        clock.advance(MS);
        lines.iter().for_each(Limiter::tick);
        assert!(behind.iter().all(|behind| behind.is_woken()));
    });
}

/// The first line has held the claim from the beginning, with its token and plain claims behind; at 3 ms the second one
/// commits, while somebody looks at the first with a reading of the clock that may be old.
///
/// On one clock the commit has an instant; on two, each line must read its own after it has heard of it.
#[test]
fn an_old_reading_against_commit() {
    for one_clock in [true, false] {
        explore(3, move |race| {
            let (clocks, lines) = one_ready_and_one_by_hand(one_clock);
            let mut claim = waiting(&lines);
            let mut behind = [(); 3].map(|()| spawn(lines[0].clone().consume_owned(1)));
            behind.iter_mut().for_each(|behind| assert!(behind.poll().is_pending()));
            let last = lines[1].clone();
            let commit = move || {
                clocks.iter().for_each(|clock| clock.advance(3 * MS));
                last.replenish(1);
            };
            race.run([Box::new(commit), on(&lines[0], Limiter::tick)]);
            lines[0].tick();
            assert_eq!(answer(&mut claim), Some(Ok(())));
            let passed = behind.iter().filter(|behind| behind.is_woken()).count();
            assert_eq!(passed, 0, "a burst of 1 had been kept, and the joint claim has it");
        });
    }
}

/// A line that has its one token, and one that is empty and filled by hand; and all clocks they are on.
fn one_ready_and_one_by_hand(one_clock: bool) -> (Vec<ManualClock>, [Limiter; 2]) {
    let clocks = RefCell::new(Vec::new());
    let build = || {
        let mut clocks = clocks.borrow_mut();
        if !one_clock || clocks.is_empty() {
            clocks.push(ManualClock::new());
        }
        let clock = clocks.last().unwrap().clone();
        // With a manual quota the line holds a joint claim that is at its front, and lets no other pass.
        Limiter::builder().quota(Quota::new(1, MS).burst(1)).quota(Quota::manual(9)).clock(clock).build().unwrap()
    };
    let lines = sorted::<2>(build, |lines| {
        lines[1].set_quota(0, Quota::manual(1)).unwrap();
        lines[1].try_acquire(1).unwrap().forget();
    });
    (clocks.into_inner(), lines)
}

/// The same, but at 3 ms the claim is dropped: whoever sees that with a reading that may be old lets those behind pass as of
/// no earlier time.
///
/// Plant `joint_refusal_uses_an_old_clock_reading`.
#[test]
fn an_old_reading_against_cancel() {
    explore(3, |race| {
        let (clocks, lines) = one_ready_and_one_by_hand(true);
        let claim = waiting(&lines);
        let mut behind = [(); 3].map(|()| spawn(lines[0].clone().consume_owned(1)));
        behind.iter_mut().for_each(|behind| assert!(behind.poll().is_pending()));
        let cancel = move || {
            clocks.iter().for_each(|clock| clock.advance(3 * MS));
            drop(claim);
        };
        race.run([Box::new(cancel), on(&lines[0], Limiter::tick)]);
        lines[0].tick();
        let passed = behind.iter().filter(|behind| behind.is_woken()).count();
        assert_eq!(passed, 1, "the bucket of 1 had been full since the beginning");
    });
}
