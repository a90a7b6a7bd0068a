//! A reverse proxy that a small team could put before an API: limits for all requests, for each key and by route, from
//! a file that is read again when it changes, and a live page that shows them at work.
//!
//! ```text
//! tollgate-gateway --demo
//! tollgate-gateway --upstream http://127.0.0.1:3000 --limit "20/s, burst 20"
//! tollgate-gateway init && tollgate-gateway check && tollgate-gateway
//! ```
//!
//! `gateway.toml`, in the folder of the crate, lists every setting. A request waits in the queue of its own key, then
//! for its share of the limit of all, for `max_wait` at most in total. Its tokens are in flight, in both limits, to the last byte of
//! its response. A refusal is 429, or 503 if other requests cause a wait that no schedule can tell (the common queue is
//! full, or they hold the places in flight). Each refusal has a `Retry-After`. SIGHUP reads the file again. SIGTERM and
//! ctrl-c end the gateway after it has served the accepted requests.
//!
//! The page, `/metrics` and `/health` are for the operator. They have an address of their own, which by default is
//! reachable from this machine only. So they take no path from the API.
//!
//! The gateway speaks HTTP/1.1 and HTTP/2, over TLS too, and passes gRPC and WebSockets. It does not verify keys: the
//! upstream does, or `unlisted = "refuse"` admits only the keys of the file. A client that hangs up while it waits leaves
//! the queue at once, unless more of its request body is pending than the socket buffers hold: then the connection is not
//! read, and the end is not noticed.

mod addresses;
mod admin;
pub(crate) mod admission;
mod answer;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod config;
mod conformance;
pub(crate) mod connection;
mod connector;
pub(crate) mod counters;
mod demo;
mod each;
mod file;
mod files;
mod forwarding;
mod front;
pub(crate) mod gateway;
mod grpc;
mod http2;
mod keys;
pub(crate) mod limits;
mod log;
mod meters;
pub(crate) mod name;
mod network;
mod options;
mod places;
pub(crate) mod problem;
pub(crate) mod proxy;
mod readings;
mod reload;
mod route;
mod sample;
mod saver;
mod server;
mod session;
mod shares;
mod stall;
pub(crate) mod state;
mod status;
mod streams;
mod target;
mod timeouts;
mod tunnel;
mod upload;
mod whole;

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use config::Config;
use gateway::{Gateway, Place};
use limits::Limits;
use options::{Command, Options};
use problem::Problem;
use reload::Watch;
use saver::Saver;
use state::State;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    run(Options::parse())
}

/// Exit codes. 0: it ended as it should. 1: a request got no response, or a check of the demo failed. 2: it could not
/// run.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(serve(options)));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gateway: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn serve(options: Options) -> Result<bool, Failure> {
    match &options.command {
        Some(Command::Init { file }) => return init(file).map(|()| true),
        Some(Command::Check { file }) => {
            Config::read(file)?;
            println!("{} is valid", file.display());
            return Ok(true);
        }
        None => {}
    }
    if let Some(address) = options.echo {
        return demo::echo(address).await.map(|()| true);
    }
    if options.demo {
        return demo::run(options.seconds, options.listen, options.admin).await;
    }
    limit(options).await
}

/// Writes a file with all settings. Replaces none.
fn init(file: &Path) -> Result<(), Failure> {
    let created = std::fs::File::create_new(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} exists: name another file, or remove it", file.display()),
        _ => format!("{} cannot be written: {error}", file.display()),
    });
    created?.write_all(include_bytes!("../gateway.toml"))?;
    println!(
        "{0} has all settings, with comments: set `upstream` and the limits, then run\n  tollgate-gateway check {0}\n  \
         tollgate-gateway --config {0}",
        file.display()
    );
    Ok(())
}

/// Runs with the limits of a file, or of the command line.
async fn limit(options: Options) -> Result<bool, Failure> {
    let (config, file) = match options.of_command_line() {
        Some(text) => (Config::parse(Path::new("the command line"), &text)?, None),
        None => {
            let (config, text) = Config::read(&options.config)?;
            (config, Some((options.config.clone(), text)))
        }
    };
    let connections = &config.fixed.max_connections;
    let place = Place {
        listen: options.listen.unwrap_or(config.fixed.listen.value),
        admin: options.admin.unwrap_or(config.fixed.admin.value),
        max_connections: files::fit(connections.value)
            .map_err(|what| Problem::at_line(&options.config, connections.line, what))?,
    };
    // Installed before the addresses are printed: a process that reads them may send signals at once.
    let (watch, ending) = (Watch::new(file)?, Ending::new(options.seconds)?);
    let (state, every) = (config.fixed.state.value.clone(), config.fixed.state_every.value);
    let gateway = Gateway::start(restored(config, state.as_deref())?, place, !options.without_limits).await?;
    let saver = state.map(|path| Saver::new(Arc::clone(&gateway.limits), &path));
    if let Some(saver) = &saver {
        // A folder that cannot be written is told now, and not after the first minute.
        saver.save().map_err(|error| saver.failed(&error))?;
    }
    announce(&gateway);
    let saving = async {
        match saver.clone() {
            Some(saver) => saver.run(every).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ending.come() => {}
        () = watch.run(Arc::clone(&gateway.limits), Arc::clone(&gateway.status)) => {}
        () = saving => {}
    }
    let is_done = end(gateway).await;
    if let Some(saver) = &saver {
        saver.save().map_err(|error| saver.failed(&error))?;
    }
    Ok(is_done)
}

/// The limits, which continue from the state file if there is one. A damaged file is no reason not to serve.
fn restored(config: Config, path: Option<&Path>) -> Result<Limits, Failure> {
    let Some(path) = path else { return Ok(Limits::new(config)?) };
    match State::read(path) {
        Ok(Some(state)) => {
            let keys = state.listed.len() + state.unlisted.len();
            let limits = Limits::restored(config, state)?;
            eprintln!("gateway: restored the levels of {keys} keys from {}", path.display());
            return Ok(limits);
        }
        Ok(None) => eprintln!("gateway: no state yet in {}: all buckets are full", path.display()),
        Err(error) => eprintln!("gateway: {}: {error}; all buckets are full", path.display()),
    }
    Ok(Limits::new(config)?)
}

fn announce(gateway: &Gateway) {
    let scheme = gateway.limits.config().scheme();
    println!("gateway: requests at {scheme}://{}, the page at http://{}/", gateway.address, gateway.admin);
}

/// Returns true if every request got a response.
async fn end(gateway: Gateway) -> bool {
    let grace = gateway.limits.config().grace;
    eprintln!("gateway: ending, with {grace:?} for the requests that wait and those in flight");
    let counters = Arc::clone(&gateway.counters);
    let is_done = gateway.shut_down().await;
    println!("gateway: ended; {}", counters.counts());
    is_done
}

/// Waits for SIGTERM, ctrl-c, or the end of `seconds`.
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
