//! A reverse proxy that a small team could put before an API: limits for all, for each key and by route, from a file that is
//! read again when it changes, and a live page that shows them at work.
//!
//! ```text
//! cargo run --release -p tollgate-gateway -- --demo
//! cargo run --release -p tollgate-gateway -- --config crates/tollgate-gateway/gateway.toml
//! ```
//!
//! `gateway.toml`, in the folder of the crate, says what can be set. A request waits in the line of its own key, then in that of all,
//! for `max_wait` at most, and is in flight, in both, to the last byte of its response. Refusals are 429, or 503 where others are
//! in the way for longer than any schedule says (the line of all is full, or they hold their places in flight); they say when to
//! come back. SIGHUP reads the file again; SIGTERM and ctrl-c end it, after whoever was accepted was served.
//!
//! The page is for the operator, and so are `/metrics` and `/health`: they are on an address of their own, which by default
//! is reached from this machine only, so that no path of the API is taken.
//!
//! What it is not: it speaks HTTP/1.1, no TLS (put it behind what terminates it), passes no WebSockets, and does not check
//! keys: an upstream does. (`unlisted = "refuse"` lets in those that the file lists.) A client that hangs up while it stands
//! in line leaves it at once, unless there is more of its request's body than the sockets hold: then nobody looks.

mod admin;
mod answer;
pub(crate) mod books;
mod busiest;
mod caller;
pub(crate) mod config;
mod demo;
mod door;
mod file;
mod front;
pub(crate) mod gateway;
pub(crate) mod limits;
mod meters;
pub(crate) mod problem;
mod proxy;
mod reload;
mod route;
mod sample;
mod server;
mod status;
pub(crate) mod who;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use config::Config;
use gateway::{Gateway, Place};
use limits::Limits;
use reload::Watch;

type Failure = Box<dyn Error + Send + Sync>;

/// Put limits before an HTTP API, and watch them at work
#[derive(Parser)]
#[command(name = "gateway")]
pub(crate) struct Options {
    /// Where the limits are written
    #[arg(long, value_name = "FILE", default_value = "gateway.toml")]
    config: PathBuf,
    /// Only say whether the file is right
    #[arg(long)]
    check: bool,
    /// Run with an upstream and traffic of its own, and limits made for them
    #[arg(long, conflicts_with_all = ["config", "check"])]
    demo: bool,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Where to listen, whatever the file says
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where the page is, whatever the file says
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Forward only: what the limits cost is the difference
    #[arg(long)]
    without_limits: bool,
    /// Be an upstream that answers at once, and nothing else: to measure with
    #[arg(long, value_name = "ADDRESS", exclusive = true)]
    echo: Option<SocketAddr>,
}

fn main() -> ExitCode {
    run(Options::parse())
}

/// 0: it ended as it should; 1: somebody got no answer, or the demo's promises were broken; 2: it could not run.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(serve(options)));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gateway: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(options: Options) -> Result<bool, Failure> {
    if let Some(address) = options.echo {
        return demo::echo(address).await.map(|()| true);
    }
    if options.demo {
        return demo::run(options.seconds, options.listen, options.admin).await;
    }
    let (config, text) = Config::read(&options.config)?;
    if options.check {
        println!("{} is right", options.config.display());
        return Ok(true);
    }
    let place = Place {
        listen: options.listen.unwrap_or(config.fixed.listen.value),
        admin: options.admin.unwrap_or(config.fixed.admin.value),
    };
    // Whoever reads where it listens may send signals at once.
    let (watch, ending) = (Watch::new(options.config, text)?, Ending::new(options.seconds)?);
    let gateway = Gateway::start(Limits::new(config)?, place, !options.without_limits).await?;
    announce(&gateway);
    tokio::select! {
        () = ending.come() => {}
        () = watch.run(Arc::clone(&gateway.limits), Arc::clone(&gateway.status)) => {}
    }
    Ok(end(gateway).await)
}

fn announce(gateway: &Gateway) {
    println!("gateway: requests at http://{}, the page at http://{}/", gateway.address, gateway.admin);
}

/// True if everybody got an answer.
async fn end(gateway: Gateway) -> bool {
    eprintln!("gateway: ending, with {:?} for those in line and in flight", gateway.limits.config().grace);
    let books = Arc::clone(&gateway.books);
    let is_done = gateway.shut_down().await;
    println!("gateway: ended; {}", books.counts());
    is_done
}

/// SIGTERM, ctrl-c, or so many seconds.
pub(crate) struct Ending {
    terminate: Signal,
    interrupt: Signal,
    after: Duration,
}

impl Ending {
    /// From now on these signals do not end the process.
    fn new(seconds: Option<u64>) -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, after: seconds.map_or(Duration::MAX, Duration::from_secs) })
    }

    async fn come(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = tokio::time::sleep(self.after) => {}
        }
    }
}
