//! Random histories of requests, compared with the oracle: each is admitted as `consume` or `try_acquire` would be, and
//! its tokens are released when its body ends or it is dropped, wherever that happens.

use super::*;
use crate::oracle::ops::{config, continuous};
use crate::oracle::{Answer, Id, Int, Oracle};

use axum::body::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tollgate::OwnedGrant;
use tollgate::Refused;
use tollgate_tower::{HeldBody, LimitError, LimitLayer};
use tower::{Layer, Service};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request of this cost, polled once; with a short or a long deadline.
    Call(u64, bool),
    /// These select a request by its index among the live ones.
    Poll(usize),
    Drop(usize),
    /// Reads the whole body.
    Read(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..9_u64, any::<bool>()).prop_map(|(cost, waits)| Op::Call(cost, waits)),
        8 => (0..8_usize).prop_map(Op::Poll),
        3 => (0..8_usize).prop_map(Op::Drop),
        4 => (0..8_usize).prop_map(Op::Read),
        6 => (1..400_u64).prop_map(Op::Pass),
    ]
}

type Head = Response<HeldBody<Full<Bytes>, OwnedGrant>>;
type Call = Pin<Box<dyn Future<Output = Result<Head, LimitError<Infallible>>>>>;

/// A live request, and its state in the oracle.
struct Live {
    id: Id,
    cost: Int,
    call: Option<Call>,
    head: Option<Head>,
    /// How many polls the service needs before it responds.
    work: u32,
}

fn poll(live: &mut Live) -> Poll<Result<(), LimitError<Infallible>>> {
    let call = live.call.as_mut().expect("a call");
    let answer = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    answer.map(|result| {
        live.call = None;
        result.map(|head| live.head = Some(head))
    })
}

/// The service: pending for two polls, then it responds.
async fn work(_: u64) -> Result<Response<Full<Bytes>>, Infallible> {
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
    Ok(Response::new(Full::new(Bytes::from("done"))))
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn requests_are_admitted_and_released_as_the_oracle_says(
        (period, burst, cap, max_waiting) in (1..300_u64, 1..12_u64, 1..14_u64, prop_oneof![Just(u64::MAX), 0..3_u64]),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let quota = Quota::new(3, Duration::from_nanos(period)).burst(burst);
        let (limiter, clock) = built(Limiter::builder().quota(quota).max_in_flight(cap).max_waiting(max_waiting));
        let rule = continuous(3, period.into(), burst.into(), burst.into());
        let mut oracle = Oracle::new(&[rule], Some(cap.into()), max_waiting);
        let layer = LimitLayer::new(&limiter).cost(|cost: &u64| *cost);
        let mut waiting = layer.clone().layer(tower::service_fn(work));
        let mut refusing = layer.refuse().layer(tower::service_fn(work));
        let mut lives: Vec<Live> = vec![];
        let (mut now, mut next) = (0, 0);
        for op in ops {
            match op {
                Op::Call(cost, waits) => {
                    let service = if waits { &mut waiting } else { &mut refusing };
                    prop_assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
                    let mut live =
                        Live { id: next, cost: cost.into(), call: Some(Box::pin(service.call(cost))), head: None, work: 2 };
                    next += 1;
                    let answer = match waits {
                        true => oracle.consume(now, live.id, live.cost),
                        false => oracle.try_acquire(now, live.id, live.cost),
                    };
                    let seen = poll(&mut live);
                    match answer {
                        Answer::Granted | Answer::Waits => {
                            prop_assert!(seen.is_pending(), "{:?}: {:?}", op, seen);
                            live.work -= u32::from(answer == Answer::Granted);
                            lives.push(live);
                        }
                        _ => prop_assert!(is_refused(&seen), "{:?}: {:?}, {:?}", op, seen, answer),
                    }
                }
                Op::Poll(place) if place < lives.len() && lives[place].call.is_some() => {
                    let live = &mut lives[place];
                    let granted = oracle.log().iter().any(|granted| granted.id == live.id);
                    let seen = poll(live);
                    prop_assert_eq!(seen.is_ready(), granted && live.work == 0, "{:?}", op);
                    live.work -= u32::from(granted && live.work > 0);
                }
                Op::Drop(place) if place < lives.len() => {
                    let live = lives.remove(place);
                    // If the service has not seen the request, all its tokens are refunded.
                    match (&live.call, &live.head) {
                        (Some(_), _) if live.work == 2 => oracle.cancel(now, live.id),
                        _ => oracle.release(now, live.cost),
                    }
                    drop(live);
                }
                Op::Read(place) if place < lives.len() && lives[place].head.is_some() => {
                    let live = lives.remove(place);
                    let mut body = live.head.expect("a head").into_body();
                    let frame = std::pin::pin!(body.frame()).poll(&mut Context::from_waker(Waker::noop()));
                    prop_assert!(frame.is_ready());
                    oracle.release(now, live.cost);
                    // The body lives up to here.
                    prop_assert!(body.pass().is_none());
                }
                Op::Pass(nanos) => {
                    clock.advance(Duration::from_nanos(nanos));
                    now += Int::from(nanos);
                }
                Op::Poll(_) | Op::Drop(_) | Op::Read(_) => {}
            }
            limiter.tick();
            oracle.advance(now);
            let seen = limiter.snapshot();
            prop_assert_eq!(Int::from(limiter.available()), oracle.available(), "after {:?}", op);
            prop_assert_eq!(seen.waiting_tasks, oracle.waiting(), "after {:?}", op);
            prop_assert_eq!(seen.in_flight.map(Int::from), oracle.in_flight(), "after {:?}", op);
            prop_assert_eq!((Int::from(seen.granted), Int::from(seen.refunded)), oracle.turnover(), "after {:?}", op);
        }
    }
}

fn is_refused(seen: &Poll<Result<(), LimitError<Infallible>>>) -> bool {
    matches!(seen, Poll::Ready(Err(LimitError::Refused(Refused::InLine(_) | Refused::AtOnce(_)))))
}
