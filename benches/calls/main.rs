//! What does one call cost? The contenders of a case take turns of about a millisecond, so that other load on the
//! machine affects all of them. Each turn prints a line: case, contender, `ns`, and nanoseconds per call, separated by
//! tabs.
//!
//! ```sh
//! cargo bench --bench calls --features calendar,distributed,metrics,quanta [-- --quick]
//! # The instructions of one contender that waits, named as in the lines.
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*counted*' \
//!     target/release/deps/calls-* --count 'waits/10000 waiters'
//! ```

mod queues;
#[cfg(feature = "metrics")]
mod scraped;

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tollgate::{Builder, Limiter, Quota, Share};

/// A call, to be measured or counted.
struct Contender {
    case: &'static str,
    name: String,
    /// How many calls one run of `work` stands for.
    calls: usize,
    work: Box<dyn FnMut()>,
}

impl Contender {
    fn new(case: &'static str, name: impl Into<String>, calls: usize, work: impl FnMut() + 'static) -> Self {
        Self { case, name: name.into(), calls, work: Box::new(work) }
    }
}

/// So large that no call is refused.
fn ample() -> Builder {
    Limiter::builder().quota(Quota::per_second(1_000_000_000).burst(1_000_000_000))
}

/// A day for the next token.
fn empty() -> Builder {
    Limiter::builder().quota(Quota::per_day(1).initial(0))
}

const RUN: usize = 100;

/// Runs of so many calls that the call of the box does not count.
fn calls(case: &'static str, name: &str, limiter: Limiter, call: impl Fn(&Limiter) + 'static) -> Contender {
    Contender::new(case, name, RUN, move || (0..RUN).for_each(|_| call(&limiter)))
}

fn built(builder: Builder) -> Limiter {
    builder.build().expect("valid")
}

fn try_acquire(limiter: &Limiter) {
    black_box(limiter.try_acquire(black_box(1)).is_ok());
}

fn consume(limiter: &Limiter) {
    let poll = pin!(limiter.consume(black_box(1))).poll(&mut Context::from_waker(Waker::noop()));
    // A lease may be empty for a moment.
    black_box(poll.is_ready());
}

fn contenders() -> Vec<Contender> {
    let granted = |name: &str, builder, call: fn(&Limiter)| calls("granted", name, built(builder), call);
    let refused = |name: &str, builder, call: fn(&Limiter)| calls("refused", name, built(builder), call);
    let class = built(ample().classes()).class("a class", Share::weight(1)).expect("valid");
    let crowded = built(empty());
    let mut waiter = Box::pin(crowded.clone().consume_owned(1));
    assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let second = Quota::per_minute(60_000_000_000).burst(2_000_000_000);
    let mut all = vec![
        granted("`try_acquire`", ample(), try_acquire),
        granted("`try_acquire`, exact on every call", ample().stride(0), try_acquire),
        granted("`try_acquire`, two quotas", ample().quota(second), try_acquire),
        granted("`try_acquire`, capped and released", ample().max_in_flight(1_000_000), try_acquire),
        Contender::new("granted", "`try_acquire` of a class", RUN, move || {
            (0..RUN).for_each(|_| drop(black_box(class.try_acquire(black_box(1)))))
        }),
        granted("`consume`", ample(), consume),
        refused("`try_acquire`", empty(), try_acquire),
        calls("refused", "`try_acquire`, behind a queue", crowded, move |limiter| {
            // It waits for the whole run.
            let _ = &waiter;
            try_acquire(limiter);
        }),
        refused("`consume` within a millisecond", empty(), |limiter| {
            let refused = pin!(limiter.consume(black_box(1)).within(Duration::from_millis(1)));
            assert!(refused.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }),
    ];
    #[cfg(feature = "calendar")]
    for (name, quota) in [
        ("`try_acquire`, stepped, exact on every call", Quota::per_hour(1 << 50).stepped()),
        ("`try_acquire`, calendar", Quota::per_calendar_hour(1 << 50)),
    ] {
        all.push(granted(name, Limiter::builder().quota(quota).stride(0), try_acquire));
    }
    #[cfg(feature = "quanta")]
    all.push(refused("`try_acquire`, quanta clock", empty().clock(tollgate::clock::QuantaClock::new()), try_acquire));
    #[cfg(feature = "distributed")]
    {
        let leased = || ample().distributed(tollgate::distributed::MemoryStore::new());
        all.push(granted("`try_acquire`, from a lease", leased(), try_acquire));
        all.push(granted("`consume`, from a lease", leased(), consume));
    }
    #[cfg(feature = "metrics")]
    all.extend(scraped::contenders());
    all.extend(queues::contenders());
    all
}

/// What valgrind counts.
#[inline(never)]
fn counted(contender: &mut Contender) {
    (contender.work)();
}

/// Nanoseconds per call.
fn turn(contender: &mut Contender) -> f64 {
    const TURN: Duration = Duration::from_millis(1);
    let (start, mut runs) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        (contender.work)();
        runs += contender.calls;
    }
    start.elapsed().as_nanos() as f64 / runs as f64
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // A worker for the refill tasks of leases; this thread makes the calls.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let mut contenders = contenders();
    if let Some(at) = arguments.iter().position(|argument| argument == "--count") {
        let is_meant = |it: &&mut Contender| Some(&format!("{}/{}", it.case, it.name)) == arguments.get(at + 1);
        let contender = contenders.iter_mut().find(is_meant).expect("no such contender");
        // The first runs take slow paths, and allocate.
        (0..3).for_each(|_| (contender.work)());
        counted(contender);
        return println!("{}", contender.calls);
    }
    let turns = if arguments.iter().any(|argument| argument == "--quick") { 30 } else { 200 };
    // In the first turns the store of the leases learns the rate of the calls.
    contenders.iter_mut().for_each(|contender| _ = (0..50).map(|_| turn(contender)).count());
    for _ in 0..turns {
        for contender in &mut contenders {
            let nanos = turn(contender);
            println!("{}\t{}\tns\t{nanos}", contender.case, contender.name);
        }
    }
}
