//! One limiter for threads without a runtime and for tasks of smol.
//!
//! ```text
//! cargo run -p threads-and-smol
//! ```
//!
//! It is a package of its own, so that tollgate does not depend on smol.

use smol::LocalExecutor;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{ConsumeError, Limiter, Quota};

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(Quota::per_second(20).burst(5))?;
    let began = Instant::now();
    let report = |caller: &str, number: u32| println!("{:5.2} s: {caller} {number}", began.elapsed().as_secs_f64());

    // Threads need no runtime: a thread that waits serves the queue. A call that would wait for more than a second is
    // refused at once.
    thread::scope(|scope| {
        let thread = |number| match limiter.blocking_consume_within(1, Duration::from_secs(1)) {
            Ok(_grant) => report("thread", number),
            Err(refused) => println!("thread {number}: {refused}"),
        };
        (0..10).for_each(|number| drop(scope.spawn(move || thread(number))));
    });

    // On other executors, the limiter needs the timers of a small tokio runtime. Enter that runtime where the futures
    // are polled.
    let timers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let _entered = timers.enter();
    let executor = LocalExecutor::new();
    let task = async |number| {
        limiter.wait(1).within(Duration::from_secs(1)).await?;
        report("task of smol", number);
        Ok::<_, ConsumeError>(())
    };
    let tasks: Vec<_> = (0..10).map(|number| executor.spawn(task(number))).collect();
    smol::block_on(executor.run(async {
        for task in tasks {
            task.await?;
        }
        Ok::<_, ConsumeError>(())
    }))?;
    Ok(())
}
