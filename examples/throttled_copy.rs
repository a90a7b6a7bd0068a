//! A real transfer over TCP on loopback at 10 MB/s, with `tollgate::io`.
//!
//! ```text
//! cargo run --release --features io --example throttled_copy
//! cargo run --release --features io --example throttled_copy -- --rate 40 --connections 8 --paced reads --seconds 3
//! ```
//!
//! All connections share one limiter; the bytes are counted where they arrive. The last line printed is
//! machine-readable. The exit code is 1 if the achieved rate, beyond the burst, is not within 0.97 to 1.01 of the
//! configured one, or if a byte was lost, and 2 if the program could not run.

use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy, repeat};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate::io::PaceIoExt;
use tollgate::{Limiter, Quota};

type Failure = Box<dyn Error + Send + Sync>;

/// Copy bytes over TCP at a configured rate
#[derive(Parser)]
struct Options {
    /// Megabytes (10^6 bytes) per second, over all connections
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Burst in kilobytes (10^3 bytes) [default: a twentieth of a second's worth]
    #[arg(long)]
    burst: Option<u64>,
    /// The approximate duration
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Megabytes to copy, instead of `--seconds`
    #[arg(long)]
    mb: Option<f64>,
    /// Connections that share the rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// The end that is paced
    #[arg(long, default_value = "writes")]
    paced: Paced,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Paced {
    Reads,
    Writes,
}

struct Plan {
    rate: f64,
    burst: u64,
    each: u64,
    total: u64,
}

impl Options {
    fn plan(&self) -> Plan {
        let rate = self.rate * 1e6;
        let burst = self.burst.map_or((rate / 20.0) as u64, |kilobytes| kilobytes * 1_000).max(1);
        let total = self.mb.map_or(rate * self.seconds + burst as f64, |mb| mb * 1e6);
        let each = (total as u64 / self.connections).max(1);
        Plan { rate, burst, each, total: each * self.connections }
    }
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("throttled_copy: {error}");
        ExitCode::from(2)
    })
}

#[tokio::main]
async fn run(options: &Options) -> Result<ExitCode, Failure> {
    let plan = options.plan();
    let limiter = Limiter::new(Quota::per_second(plan.rate as u64).burst(plan.burst))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let arrived = Arc::new(AtomicU64::new(0));

    let began = Instant::now();
    let mut copies = JoinSet::new();
    for _ in 0..options.connections {
        let sender = TcpStream::connect(address).await?;
        let (receiver, _) = listener.accept().await?;
        let (limiter, paced, each) = (limiter.clone(), options.paced, plan.each);
        let arrived = Arc::clone(&arrived);
        copies.spawn(async move {
            match paced {
                Paced::Writes => {
                    tokio::try_join!(send(sender.pace_writes(&limiter), each), receive(receiver, &arrived))
                }
                Paced::Reads => tokio::try_join!(send(sender, each), receive(receiver.pace_reads(&limiter), &arrived)),
            }
        });
    }
    let ended = tokio::select! {
        ended = copies.join_all() => ended,
        never = watch(&arrived, plan.total) => match never {},
    };
    let elapsed = began.elapsed();
    ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(judge(&plan, elapsed, arrived.load(Ordering::Relaxed)))
}

async fn send(mut to: impl tokio::io::AsyncWrite + Unpin, bytes: u64) -> Result<(), Failure> {
    copy(&mut repeat(7).take(bytes), &mut to).await?;
    to.shutdown().await?;
    Ok(())
}

async fn receive(mut from: impl AsyncRead + Unpin, arrived: &AtomicU64) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            got => arrived.fetch_add(got as u64, Ordering::Relaxed),
        };
    }
}

/// Shows the progress while it is polled.
async fn watch(arrived: &AtomicU64, total: u64) -> Infallible {
    let style = "{wide_bar:.cyan/blue} {bytes} of {total_bytes}, {bytes_per_sec}";
    let style = ProgressStyle::with_template(style).expect("a valid template");
    let bar = ProgressBar::new(total).with_style(style);
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bar.set_position(arrived.load(Ordering::Relaxed));
    }
}

fn judge(plan: &Plan, elapsed: Duration, arrived: u64) -> ExitCode {
    let seconds = elapsed.as_secs_f64();
    let achieved = arrived.saturating_sub(plan.burst) as f64 / seconds;
    let ratio = achieved / plan.rate;
    let holds = arrived == plan.total && (0.97..=1.01).contains(&ratio);
    println!(
        "{:.1} MB in {seconds:.2} s: {:.3} MB/s of {:.3} configured",
        arrived as f64 / 1e6,
        achieved / 1e6,
        plan.rate / 1e6
    );
    println!(
        "throttled_copy: bytes={arrived} expected={} burst={} seconds={seconds:.4} achieved_bps={achieved:.0} \
         configured_bps={:.0} ratio={ratio:.4} ok={holds}",
        plan.total, plan.burst, plan.rate,
    );
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
