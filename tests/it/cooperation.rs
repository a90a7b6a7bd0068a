//! How many turns the other tasks of a runtime get beside a task that is always answered at once.

use std::cell::Cell;
use tokio::task::{LocalSet, spawn_local, yield_now};

/// Far more answers than a task gets in one turn: tokio gives it 128 units of budget, and of the grants without waiting
/// only one in 32 costs a unit.
pub(crate) const ANSWERS: usize = 50_000;

/// How many turns another task of a current_thread runtime gets while a task calls `ask` and awaits it, `ANSWERS`
/// times.
#[track_caller]
fn turns_beside(mut ask: impl AsyncFnMut()) -> usize {
    thread_local!(static TURNS: Cell<usize> = const { Cell::new(0) });
    TURNS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let other = spawn_local(async {
            loop {
                TURNS.set(TURNS.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..ANSWERS {
            ask().await;
        }
        other.abort();
    });
    TURNS.get()
}

/// More answers than a task gets in one turn if each of them costs a unit of budget.
pub(crate) const PAID: usize = 200;

/// Checks that another task runs at least once for each `answers` answers.
#[track_caller]
pub(crate) fn yields(answers: usize, ask: impl AsyncFnMut()) {
    let turns = turns_beside(ask);
    assert!(turns >= ANSWERS / answers, "another task ran {turns} times");
}
