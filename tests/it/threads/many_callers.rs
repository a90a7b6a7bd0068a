//! Many callers at once, polled when they should not be, dropped when they should not be, or never polled again.

use super::*;
use crate::fixture::{built, one_per_milli};
use futures::executor::block_on;
use futures::future::FusedFuture;
use futures::{FutureExt, future, join, select_biased};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tokio_test::task::spawn;
use tollgate::{ConsumeOwned, Limiter, OwnedGrant, Quota};

/// Ready after its task was polled `times` times. Not `async`: `select_biased!` accesses its futures through shared
/// references, and Miri objects if those contain references to themselves.
fn churn(times: usize) -> impl FusedFuture<Output = ()> + Unpin {
    let mut left = times;
    let count = move |cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    };
    future::poll_fn(count).fuse()
}

/// Three claims in one task: whichever is woken, all are polled.
async fn joined(limiter: &Limiter) -> u64 {
    let mut taken = 0;
    for _ in 0..many(300) {
        let claims = [limiter.consume(3), limiter.consume(1), limiter.consume(2)];
        let (grants, ()) = join!(future::try_join_all(claims), churn(20));
        taken += grants.unwrap().iter().map(|grant| grant.cost()).sum::<u64>();
    }
    taken
}

/// One claim that is polled over and over, and another that is cancelled half of the time.
async fn selected(limiter: &Limiter) -> u64 {
    let mut taken = 0;
    for round in 0..many(300) {
        let mut claim = pin!(limiter.consume(2).fuse());
        taken += loop {
            select_biased! {
                grant = claim => break grant.unwrap().cost(),
                () = churn(1) => {}
            }
        };
        let mut cancellation = churn(round % 9);
        taken += select_biased! {
            grant = limiter.consume(4).fuse() => grant.unwrap().cost(),
            () = cancellation => 0,
        };
    }
    taken
}

#[test]
fn futures_polled_without_being_woken_are_granted_once_each() {
    to_its_end(|| {
        let quota = Quota::per_second(1_000_000).burst(1 << 40).initial(0);
        let (limiter, clock) = built(Limiter::builder().quota(quota));
        let (stop, passed) = (AtomicBool::new(false), AtomicU64::new(0));
        let drain = || {
            let mut taken = 0;
            while !stop.load(SeqCst) {
                clock.advance(Duration::from_nanos(700));
                passed.fetch_add(700, SeqCst);
                taken += limiter.try_acquire(1).map_or(0, |grant| grant.cost());
                limiter.tick();
            }
            taken
        };
        let taken: u64 = thread::scope(|scope| {
            let drain = scope.spawn(drain);
            let polling = [scope.spawn(|| block_on(joined(&limiter))), scope.spawn(|| block_on(selected(&limiter)))];
            let ends = polling.map(|thread| thread.join());
            stop.store(true, SeqCst);
            ends.into_iter().map(|end| end.unwrap()).sum::<u64>() + drain.join().unwrap()
        });
        assert_eq!(taken + limiter.available(), passed.load(SeqCst) / 1_000);
    });
}

/// Reports which waiter was woken.
struct ReportingWaker(usize, mpsc::Sender<usize>);

impl Wake for ReportingWaker {
    fn wake(self: Arc<Self>) {
        // The receiver is gone when the test is over.
        let _ = self.1.send(self.0);
    }
}

type Claims = Arc<Mutex<Vec<Option<std::pin::Pin<Box<ConsumeOwned>>>>>>;

/// Polls the woken waiter, or drops it if its number is even.
fn answer(claims: &Claims, index: usize) -> Option<OwnedGrant> {
    let mut claim = claims.lock().unwrap()[index].take()?;
    if index.is_multiple_of(2) {
        return None;
    }
    match claim.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(grant) => Some(grant.unwrap()),
        Poll::Pending => panic!("woken without a grant"),
    }
}

/// Half of them need a token each, and exactly as many are minted: those of the others must all be refunded.
#[test]
fn every_second_waiter_dropped_as_it_is_woken_costs_no_token() {
    const COUNT: usize = if cfg!(miri) { 40 } else { 10_000 };
    to_its_end(|| {
        let (limiter, clock) = built(Limiter::builder().quota(one_per_milli(5)));
        let (report, woken) = mpsc::channel();
        let claims: Claims = Claims::default();
        for index in 0..COUNT {
            let mut claim = Box::pin(limiter.clone().consume_owned(1));
            let waker = Waker::from(Arc::new(ReportingWaker(index, report.clone())));
            assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            claims.lock().unwrap().push(Some(claim));
        }
        let woken = Mutex::new(woken);
        let answered = AtomicU64::new(0);
        let answer_all = || {
            let mut served = 0;
            while answered.load(SeqCst) < COUNT as u64 {
                let next = woken.lock().unwrap().try_recv();
                match next {
                    Ok(index) => {
                        served += u64::from(answer(&claims, index).is_some());
                        answered.fetch_add(1, SeqCst);
                    }
                    Err(_) => thread::yield_now(),
                }
            }
            served
        };
        let served: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(answer_all)).collect();
            for _ in 0..COUNT / 2 {
                clock.advance(Duration::from_millis(1));
                limiter.tick();
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((served, limiter.available()), (COUNT as u64 / 2, 0));
        assert_eq!(limiter.snapshot().refunded, COUNT as u64 / 2);
    });
}

/// Under a cap of one, a waiter that is dropped after its grant must release the token in flight.
#[test]
fn every_second_waiter_dropped_as_it_is_woken_leaves_no_token_in_flight() {
    const COUNT: usize = if cfg!(miri) { 20 } else { 1_000 };
    to_its_end(|| {
        let all = COUNT as u64;
        let (limiter, _clock) = built(Limiter::builder().quota(Quota::manual(all)).max_in_flight(1));
        let held = limiter.try_acquire(1).unwrap();
        let mut waiting: Vec<_> = (1..COUNT).map(|_| spawn(limiter.consume(1))).collect();
        waiting.iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
        drop(held);
        let mut served = 0;
        for (index, mut claim) in waiting.into_iter().enumerate() {
            assert!(claim.is_woken(), "{index} is next, and no token is in flight");
            if index % 2 == 1 {
                served += u64::from(claim.poll().map(|grant| grant.is_ok()) == Poll::Ready(true));
            }
        }
        assert_eq!((served, limiter.snapshot().in_flight), (all / 2 - 1, Some(0)));
        limiter.set_max_in_flight(all).unwrap();
        assert_eq!(limiter.available(), all / 2);
    });
}
