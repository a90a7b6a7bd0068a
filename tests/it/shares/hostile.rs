//! TEMP
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio_test::task::{Spawn, spawn};
use tollgate::{
    AnyLimiter, Class, Clock, ConsumeError, ConsumeOwned, Limiter, ManualClock, OwnedGrant, Quota, Share, join,
};

/// A later poll on a runtime without timers panics; the future is polled again.
#[test]
fn look_after_panic() {
    let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(1).initial(0)).classes().build().unwrap();
    let class = limiter.class("a", Share::weight(1)).unwrap();
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut claim = spawn(class.clone().consume_owned(1));
    let mut behind = spawn(class.clone().consume_owned(1));
    one.block_on(async {
        assert!(claim.poll().is_pending());
        assert!(behind.poll().is_pending());
    });
    let polled = bare.block_on(async { catch_unwind(AssertUnwindSafe(|| claim.poll().is_pending())) });
    println!("first {polled:?}");
    let again = one.block_on(async { catch_unwind(AssertUnwindSafe(|| claim.poll().is_pending())) });
    println!("again {again:?}");
    let snapshot = limiter.snapshot();
    println!("{snapshot:?}");
    drop(claim);
    let granted = one.block_on(async { tokio::time::timeout(Duration::from_secs(2), behind).await });
    assert!(granted.is_ok());
}

/// A clock that stands still, steps back, and comes near the end of time.
#[derive(Clone, Debug, Default)]
struct Wild(Arc<AtomicU64>, bool);
impl Clock for Wild {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(SeqCst))
    }
    fn is_manual(&self) -> bool {
        self.1
    }
}

fn wild(seed: u64, manual: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let near_end = seed % 3 == 0;
    let clock = Wild(Arc::new(AtomicU64::new(0)), manual);
    let rate = 10_000;
    let burst = 10;
    let limiter = Limiter::builder()
        .quota(Quota::per_second(rate).burst(burst).initial(0))
        .classes()
        .clock(clock.clone())
        .rovers_at(u64::MAX - 50)
        .build()
        .unwrap();
    let classes: Vec<_> = ["a", "b", "c"]
        .iter()
        .enumerate()
        .map(|(i, n)| {
            let share = Share::weight(1 + i as u64);
            let share = if i == 2 && seed % 2 == 0 { share.ceiling(Quota::per_second(3_000).burst(20)) } else { share };
            limiter.class(*n, share).unwrap()
        })
        .collect();
    if near_end {
        clock.0.store(u64::MAX - 20_000_000, SeqCst);
        limiter.tick();
    }
    let begin = clock.0.load(SeqCst);
    let mut latest = begin;
    let mut waiting: Vec<(usize, usize, u64, Spawn<ConsumeOwned<Class>>)> = Vec::new();
    let mut granted_tokens = 0u64;
    let mut id = 0;
    let mut last = [0usize; 3];
    for _ in 0..200 {
        let now = clock.0.load(SeqCst);
        let next = match random.u8(0..4) {
            0 => now,
            1 => now.saturating_sub(random.u64(0..3_000_000)).max(begin / 2),
            _ => now.saturating_add(random.u64(0..900_000)),
        };
        clock.0.store(next, SeqCst);
        latest = latest.max(next);
        let class = random.usize(0..3);
        let cost = [1, 1, 2, 5, 25][random.usize(0..5)];
        let mut claim = spawn(classes[class].clone().consume_owned(cost));
        id += 1;
        match claim.poll() {
            Poll::Pending => waiting.push((class, id, cost, claim)),
            Poll::Ready(Ok(_)) => {
                granted_tokens += cost;
                assert!(waiting.iter().all(|w| w.0 != class || w.3.is_woken()), "seed {seed}: passed");
                last[class] = id;
            }
            Poll::Ready(Err(e)) => panic!("{e}"),
        }
        if random.u8(0..5) == 0 && !waiting.is_empty() {
            let at = random.usize(0..waiting.len());
            limiter.tick();
            let w = waiting.remove(at);
            if w.3.is_woken() { waiting.insert(at, w) } else { drop(w) }
        }
        if random.u8(0..3) == 0 {
            limiter.tick();
        }
        let mut index = 0;
        while index < waiting.len() {
            if waiting[index].3.is_woken() || random.u8(0..20) == 0 {
                let (class, id, cost, mut claim) = waiting.remove(index);
                match claim.poll() {
                    Poll::Pending => {
                        waiting.insert(index, (class, id, cost, claim));
                        index += 1;
                    }
                    Poll::Ready(Ok(_)) => {
                        granted_tokens += cost;
                        assert!(
                            waiting.iter().all(|w| w.0 != class || w.1 > id || w.3.is_woken()),
                            "seed {seed}: passed"
                        );
                        last[class] = id;
                    }
                    Poll::Ready(Err(e)) => panic!("{e}"),
                }
            } else {
                index += 1;
            }
        }
        let elapsed = u128::from(latest - begin);
        let most = burst as u128 + elapsed * rate as u128 / 1_000_000_000;
        assert!(u128::from(granted_tokens) <= most, "seed {seed}: {granted_tokens} > {most}");
    }
    // everything is served
    let mut turns = 0;
    while !waiting.is_empty() {
        turns += 1;
        let now = clock.0.load(SeqCst).max(latest);
        if now > u64::MAX - 200_000_000 && turns > 30 {
            break;
        }
        assert!(turns < 100_000, "seed {seed}: stuck {} {:?}", waiting.len(), limiter.snapshot());
        latest = now.saturating_add(1_000_000);
        clock.0.store(latest, SeqCst);
        limiter.tick();
        let mut index = 0;
        while index < waiting.len() {
            if waiting[index].3.is_woken() {
                let (class, id, cost, mut claim) = waiting.remove(index);
                match claim.poll() {
                    Poll::Pending => {
                        waiting.insert(index, (class, id, cost, claim));
                        index += 1;
                    }
                    Poll::Ready(Ok(_)) => {
                        granted_tokens += cost;
                        assert!(
                            waiting.iter().all(|w| w.0 != class || w.1 > id || w.3.is_woken()),
                            "seed {seed}: passed"
                        );
                        last[class] = id;
                    }
                    Poll::Ready(Err(e)) => panic!("{e}"),
                }
            } else {
                index += 1;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wild_clocks() {
    tokio::task::unconstrained(async {
        for seed in 0..600 {
            wild(seed, seed % 2 == 0);
            wild(seed, seed % 2 == 1);
        }
    })
    .await;
}

mod hooked {
    use super::*;
    pub struct Hook(Box<dyn Fn(u8) + Send + Sync>);
    impl Wake for Hook {
        fn wake(self: Arc<Self>) {
            (self.0)(1);
        }
    }
    impl Drop for Hook {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                (self.0)(2)
            }
        }
    }
    pub fn waker(hook: impl Fn(u8) + Send + Sync + 'static) -> Waker {
        Waker::from(Arc::new(Hook(Box::new(hook))))
    }
}

/// Wakers that panic, or call the limiter, at random moments.
fn rude(seed: u64) {
    let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
    let clock = ManualClock::new();
    let began = clock.now();
    let limiter = Limiter::builder()
        .quota(Quota::per_second(10_000).burst(1_000_000).initial(0))
        .classes()
        .clock(clock.clone())
        .rovers_at(u64::MAX - 30)
        .build()
        .unwrap();
    let classes: Vec<_> = ["a", "b", "c"]
        .iter()
        .enumerate()
        .map(|(i, n)| limiter.class(*n, Share::weight(1 + i as u64)).unwrap())
        .collect();
    let armed = Arc::new(AtomicUsize::new(0));
    let depth = Arc::new(AtomicUsize::new(0));
    let make_waker = || {
        let (random, armed, limiter, class, depth) =
            (Arc::clone(&random), Arc::clone(&armed), limiter.clone(), classes[0].clone(), Arc::clone(&depth));
        hooked::waker(move |_when| {
            if armed.load(SeqCst) == 0 {
                return;
            }
            let dice = random.lock().unwrap().u8(0..8);
            match dice {
                0 => std::panic::resume_unwind(Box::new("rude")),
                1 if depth.fetch_add(1, SeqCst) < 2 => {
                    limiter.tick();
                    depth.fetch_sub(1, SeqCst);
                }
                2 if depth.fetch_add(1, SeqCst) < 2 => {
                    let _ = class.try_acquire(1).map(|mut g| g.settle(0));
                    depth.fetch_sub(1, SeqCst);
                }
                _ => {}
            }
        })
    };
    let roll = |to: usize| random.lock().unwrap().usize(0..to);
    let mut granted = 0u64;
    let mut waiting: Vec<(u64, Pin<Box<ConsumeOwned<Class>>>)> = Vec::new();
    let poll = |claim: &mut Pin<Box<ConsumeOwned<Class>>>| -> Option<Poll<Result<OwnedGrant<Class>, ConsumeError>>> {
        let waker = make_waker();
        armed.store(1, SeqCst);
        let polled = catch_unwind(AssertUnwindSafe(|| claim.as_mut().poll(&mut Context::from_waker(&waker))));
        armed.store(0, SeqCst);
        polled.ok()
    };
    for _ in 0..120 {
        let cost = [1, 1, 3, 20][roll(4)];
        let mut claim = Box::pin(classes[roll(3)].clone().consume_owned(cost));
        match poll(&mut claim) {
            Some(Poll::Ready(Ok(_))) => granted += cost,
            Some(Poll::Ready(Err(e))) => panic!("{e}"),
            _ => waiting.push((cost, claim)),
        }
        armed.store(1, SeqCst);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            clock.advance(Duration::from_nanos(roll(600_000) as u64));
            limiter.tick();
        }));
        armed.store(0, SeqCst);
        if roll(3) == 0 && !waiting.is_empty() {
            let at = roll(waiting.len());
            let (_, claim) = waiting.remove(at);
            armed.store(1, SeqCst);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(claim)));
            armed.store(0, SeqCst);
        }
        if roll(2) == 0 && !waiting.is_empty() {
            let at = roll(waiting.len());
            let (cost, mut claim) = waiting.remove(at);
            match poll(&mut claim) {
                Some(Poll::Ready(Ok(_))) => granted += cost,
                Some(Poll::Ready(Err(e))) => panic!("{e}"),
                _ => waiting.push((cost, claim)),
            }
        }
    }
    clock.advance(Duration::from_secs(3));
    limiter.tick();
    for (cost, mut claim) in waiting {
        match claim.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(_)) => granted += cost,
            other => panic!("seed {seed}: {other:?} {:?}", limiter.snapshot()),
        }
    }
    limiter.tick();
    let snapshot = limiter.snapshot();
    let minted = (clock.now() - began).as_nanos() as u64 / 100_000;
    assert_eq!(snapshot.quotas[0].level as u64 + granted, minted, "seed {seed}");
    assert_eq!(snapshot.waiting_tasks, 0);
}

#[tokio::test(start_paused = true)]
async fn rude_wakers() {
    tokio::task::unconstrained(async {
        for seed in 0..1_000 {
            rude(seed);
        }
    })
    .await;
}

/// Two runtimes with classes; one ends, and its waiters are dropped or stalled.
#[test]
fn a_runtime_that_ends() {
    for round in 0..8 {
        let limiter = Limiter::builder().quota(Quota::manual(1_000).initial(0)).classes().build().unwrap();
        let a = limiter.class("a", Share::weight(1)).unwrap();
        let b = limiter.class("b", Share::weight(1)).unwrap();
        let inner = b.class("inner", Share::weight(1)).unwrap();
        let one = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let two = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Waiters whose futures are on runtime two, but that were polled first on one.
        let mut moved: Vec<_> = [&a, &b, &inner].iter().map(|c| Box::pin((*c).clone().consume_owned(1))).collect();
        let mut stalled = spawn(a.clone().consume_owned(1));
        one.block_on(async {
            assert!(stalled.poll().is_pending());
            for m in &mut moved {
                assert!(m.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
        });
        let tasks: Vec<_> = (0..30)
            .map(|i| {
                let c = [&a, &b, &inner][i % 3].clone();
                let rt = if i % 2 == 0 { &one } else { &two };
                rt.spawn(async move { c.consume_owned(1).await.map(drop) })
            })
            .collect();
        while limiter.snapshot().waiting_tasks < 34 {
            std::thread::yield_now();
        }
        let moved: Vec<_> = moved.into_iter().map(|m| two.spawn(async move { m.await.map(drop) })).collect();
        std::thread::sleep(Duration::from_millis(5));
        if round % 2 == 0 {
            one.shutdown_background();
        } else {
            drop(one);
        }
        limiter.set_quota(0, Quota::per_second(1_000).burst(1)).unwrap();
        two.block_on(async {
            tokio::time::timeout(Duration::from_secs(5), async {
                for (i, t) in tasks.into_iter().enumerate() {
                    if i % 2 == 1 {
                        t.await.unwrap().unwrap();
                    }
                }
                for t in moved {
                    t.await.unwrap().unwrap();
                }
            })
            .await
            .expect("all waiters of the runtime that lives are served");
        });
        limiter.tick();
        assert!(stalled.is_woken());
        drop(stalled);
        std::thread::sleep(Duration::from_millis(2));
        limiter.tick();
        assert_eq!(limiter.snapshot().waiting_tasks, 0);
    }
}

/// A poll without budget between the fast path and the wait.
#[test]
fn without_budget() {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    rt.block_on(async {
        let limiter =
            Limiter::builder().quota(Quota::per_second(1_000).burst(40).initial(40)).classes().build().unwrap();
        let a = limiter.class("a", Share::weight(1)).unwrap();
        let b = limiter.class("b", Share::weight(1)).unwrap();
        let begin = tokio::time::Instant::now();
        let mut order = Vec::new();
        let counted = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for i in 0..400u64 {
            let c = if i % 2 == 0 { a.clone() } else { b.clone() };
            let counted = counted.clone();
            tasks.push(async move {
                let mut claim = pin!(c.consume_owned(1));
                let mut polls = 0u32;
                let grant = std::future::poll_fn(|cx| {
                    polls += 1;
                    // burn the budget at odd polls
                    if polls % 3 == 1 {
                        while tokio::task::coop::has_budget_remaining() {
                            let mut f = pin!(tokio::task::coop::consume_budget());
                            if f.as_mut().poll(cx).is_pending() {
                                break;
                            }
                        }
                    }
                    claim.as_mut().poll(cx)
                })
                .await;
                counted.fetch_add(1, SeqCst);
                drop(grant.unwrap());
                (i, tokio::time::Instant::now())
            });
        }
        let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
        for t in tasks {
            order.push(t.await.unwrap());
        }
        let mut by_class = [Vec::new(), Vec::new()];
        for (i, at) in &order {
            by_class[(*i % 2) as usize].push((*at - begin).as_millis());
        }
        let end = order.iter().map(|(_, at)| *at - begin).max().unwrap();
        assert!(end <= Duration::from_millis(364), "{end:?}");
        assert!(end >= Duration::from_millis(358), "{end:?}");
    });
}

/// Level saved with classes, debts, divided claims.
#[cfg(feature = "state")]
#[test]
fn state_and_restore() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = ManualClock::new();
        let quota = Quota::per_second(10_000).burst(10);
        let builder = Limiter::builder().quota(quota).classes().rovers_at(u64::MAX - 5).clock(clock.clone());
        let limiter = builder.clone().build().unwrap();
        let classes: Vec<_> = ["a", "b", "c"].iter().map(|n| limiter.class(*n, Share::weight(1)).unwrap()).collect();
        let mut waiting = Vec::new();
        let mut held = Vec::new();
        for _ in 0..30 {
            clock.advance(Duration::from_nanos(random.u64(0..300_000)));
            let cost = [1, 2, 7, 25][random.usize(0..4)];
            let mut claim = spawn(classes[random.usize(0..3)].clone().consume_owned(cost));
            match claim.poll() {
                Poll::Ready(Ok(g)) => held.push(g),
                _ => waiting.push(claim),
            }
            if random.bool() {
                if let Some(mut g) = held.pop() {
                    let c = g.cost();
                    g.settle(c + random.u64(0..9));
                    g.forget();
                }
            }
            waiting.retain_mut(|c| {
                !(c.is_woken()
                    && match c.poll() {
                        Poll::Ready(Ok(g)) => {
                            held.push(g);
                            true
                        }
                        _ => false,
                    })
            });
        }
        limiter.tick();
        let state = limiter.state_at(std::time::UNIX_EPOCH).unwrap();
        let bytes = state.to_bytes();
        let state = tollgate::state::LimiterState::from_bytes(&bytes).unwrap();
        for w in waiting.drain(..) {
            drop(w);
        }
        limiter.tick();
        let level = limiter.snapshot().quotas[0].level;
        let restored = builder.clone().restore(state, std::time::UNIX_EPOCH).build().unwrap();
        let got = restored.snapshot().quotas[0].level;
        // What was set aside is lost in the state.
        assert!(got <= level, "seed {seed}: {got} > {level}");
        let class = restored.class("a", Share::weight(1)).unwrap();
        let mut claim = spawn(class.clone().consume_owned(30));
        assert!(claim.poll().is_pending());
        clock.advance(Duration::from_millis(20));
        restored.tick();
        assert!(claim.poll().is_ready());
    }
}
