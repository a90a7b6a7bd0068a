//! A task gets an answer at once again and again: other tasks of its runtime must run meanwhile.

use crate::fixture::*;
use std::pin::pin;

use tokio::task::coop;

use super::DAY;
use crate::cooperation::{ANSWERS, PAID, yields};

/// More answers than a task gets in one turn if they are grants of a `Limiter` without waiting, of which one in 32 costs
/// a unit of budget.
const MOSTLY_FREE: usize = 5_000;

fn full() -> Limiter {
    Limiter::new(Quota::new(1, DAY).burst(1 << 40)).unwrap()
}

/// Full, and its grants without waiting read no clock, though the clock of a test stands still. 1 token is granted.
fn full_and_fast() -> Limiter {
    let limiter = Limiter::builder().quota(Quota::new(1, DAY).burst(1 << 40)).stride(1 << 30).build().unwrap();
    drop(limiter.try_acquire(1).unwrap());
    limiter
}

#[test]
fn ready_claims_of_every_kind_let_other_tasks_run() {
    let limiter = full();
    yields(MOSTLY_FREE, async || drop(limiter.consume(1).await.unwrap()));
    yields(MOSTLY_FREE, async || drop(limiter.clone().consume_owned(1).await.unwrap()));
    yields(MOSTLY_FREE, async || drop(limiter.consume(1).within(Duration::ZERO).await.unwrap()));
    yields(MOSTLY_FREE, async || drop(limiter.clone().consume_owned(1).within(Duration::ZERO).await.unwrap()));
    yields(PAID, async || drop(tollgate::join([(&limiter, 1), (&full(), 1)]).await.unwrap()));
}

/// A biased `select!` polls both each time.
#[test]
fn ready_claims_beside_one_that_waits_let_other_tasks_run() {
    let (limiter, empty) = (full_and_fast(), Limiter::new(Quota::new(1, DAY).initial(0)).unwrap());
    // The payment must not fall on the claim that waits, whichever of the two is polled when it is due.
    for skew in 0..2 {
        for _ in 0..skew {
            drop(pin!(limiter.consume(1)).poll(&mut Context::from_waker(Waker::noop())));
        }
        let mut waiting = Box::pin(empty.consume(1));
        yields(MOSTLY_FREE, async || {
            tokio::select! { biased;
                _ = &mut waiting => unreachable!("no tokens arrive"),
                grant = limiter.consume(1) => drop(grant.unwrap()),
            }
        });
    }
}

#[test]
fn refused_claims_let_other_tasks_run() {
    let empty = Limiter::new(Quota::new(1, DAY).initial(0)).unwrap();
    yields(PAID, async || {
        let refused = empty.consume(1).within(Duration::ZERO).await;
        assert!(matches!(refused, Err(ConsumeError::TooLate { .. })));
    });
    empty.close();
    yields(PAID, async || assert!(matches!(empty.consume(1).await, Err(ConsumeError::Closed))));
    let capped = Limiter::builder().max_in_flight(1).build().unwrap();
    yields(PAID, async || assert_eq!(capped.wait(1).await, Err(ConsumeError::MustHold)));
}

#[test]
fn claims_of_keys_let_other_tasks_run() {
    let users = tollgate::KeyedLimiter::<u64>::new(Quota::new(1, DAY).burst(1 << 40)).unwrap();
    yields(PAID, async || drop(users.consume(&1, 1).await.unwrap()));
    yields(PAID, async || drop(users.consume(&1, 1).within(Duration::ZERO).await.unwrap()));
    yields(PAID, async || drop(users.clone().consume_owned(1, 1).await.unwrap()));
    yields(PAID, async || _ = users.consume(&2, 1 << 41).within(Duration::ZERO).await.unwrap_err());
    // On the fast path.
    let users = tollgate::KeyedLimiter::<u64>::new(Quota::per_second(1 << 20)).unwrap();
    drop(users.try_acquire(&1, 1).unwrap());
    yields(MOSTLY_FREE, async || drop(users.consume(&1, 1).await.unwrap()));
    yields(MOSTLY_FREE, async || drop(users.clone().consume_owned(1, 1).await.unwrap()));
}

#[test]
fn claims_of_shared_keys_let_other_tasks_run() {
    let store = tollgate::distributed::MemoryStore::new();
    let quota = Quota::per_hour(1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Neither of the two sends a request to the store.
    let _inside = runtime.enter();
    let users = tollgate::DistributedKeyedLimiter::<u64>::builder(store).quota(quota).build().unwrap();
    yields(PAID, async || drop(users.consume(&1, 0).await.unwrap()));
    yields(PAID, async || _ = users.consume(&1, 1 << 40).within(Duration::ZERO).await.unwrap_err());
}

#[test]
fn a_paced_stream_lets_other_tasks_run() {
    use futures::StreamExt;
    use tollgate::stream::PaceStreamExt;
    let mut items = futures::stream::repeat(()).pace(&full());
    yields(MOSTLY_FREE, async || assert!(items.next().await.unwrap().is_ok()));
}

#[test]
fn a_poll_without_budget_enters_no_queue_and_the_next_one_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let limiter = Limiter::new(Quota::manual(1).initial(0)).unwrap();
        spend_the_budget().await;
        let mut claim = pin!(limiter.consume(1));
        assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
        tokio::task::yield_now().await;
        assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.snapshot().waiting_tasks, 1);
        limiter.replenish(1);
        drop(claim.await.unwrap());
    });
}

#[test]
fn a_task_without_budget_is_given_31_grants_and_no_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let limiter = full_and_fast();
        // The last one of these grants has cost a unit, so the next 31 cost none.
        spend_the_budget().await;
        let mut cx = Context::from_waker(Waker::noop());
        let grants = (0..ANSWERS).take_while(|_| pin!(limiter.consume(1)).poll(&mut cx).is_ready()).count();
        assert_eq!(grants, 31);
        assert_eq!(limiter.snapshot().granted, 1 + grants as u64, "the refused poll took nothing");
    });
}

async fn spend_the_budget() {
    let other = full();
    while coop::has_budget_remaining() {
        drop(other.consume(1).await.unwrap());
    }
}

#[test]
fn a_grant_that_a_claim_without_budget_cannot_hand_out_stays_its_own_or_is_given_back() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let limiter = Limiter::new(Quota::manual(10).initial(0)).unwrap();
        let mut first = Box::pin(limiter.consume(1));
        let mut second = Box::pin(limiter.consume(1));
        for claim in [&mut first, &mut second] {
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        limiter.replenish(2);
        spend_the_budget().await;
        for claim in [&mut first, &mut second] {
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(second);
        assert_eq!(limiter.available(), 1);
        assert_eq!(first.await.unwrap().cost(), 1);
    });
}

#[test]
fn a_thread_blocked_inside_a_task_is_not_stopped_by_the_budget_of_the_task() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let limiter = full();
        for _ in 0..ANSWERS {
            drop(limiter.blocking_consume(1).unwrap());
        }
    });
}
